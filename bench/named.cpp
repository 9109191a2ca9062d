// All *_perf in one: which one it is says the name under which it is called.
#include <string>

#include "run.hpp"

int main(int argc, char** argv) {
    std::string program = argv[0];
    program.erase(0, program.find_last_of('/') + 1);
    return perf::run(program.c_str(), program.substr(0, program.rfind("_perf")).c_str(), argc, argv);
}
