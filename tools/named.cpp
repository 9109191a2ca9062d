// tutti-plan, tutti-tune and tutti-topo as a function of the wheel's libtutti.so, which has all that they need. argv[0]
// says which one it is. Each of them is compiled with another name for its main (bindings/python/meson.build).
#include <cstdio>
#include <string>

int plan_main(int argc, char** argv);
int tune_main(int argc, char** argv);
#ifdef TUTTI_HAS_TOPO
int topo_main(int argc, char** argv);
#endif

extern "C" __attribute__((visibility("default"))) int tutti_program(int argc, char** argv);

int tutti_program(int argc, char** argv) {
    std::string program = argv[0];
    program.erase(0, program.find_last_of('/') + 1);
    if (program == "tutti-plan") return plan_main(argc, argv);
    if (program == "tutti-tune") return tune_main(argc, argv);
#ifdef TUTTI_HAS_TOPO
    if (program == "tutti-topo") return topo_main(argc, argv);
#endif
    std::fprintf(stderr, "%s: it is not in this build\n", program.c_str());
    return 1;
}
