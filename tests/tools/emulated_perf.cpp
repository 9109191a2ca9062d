// All *_perf in one: which one it is says the name under which it is called.
#include <cstdio>
#include <string>

#include "../../bench/run.hpp"

int main(int argc, char** argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::string program = argv[0];
    program.erase(0, program.find_last_of('/') + 1);
    const perf::Collective* const collective =
        perf::collective_named(program.substr(0, program.rfind("_perf")).c_str());
    if (collective == nullptr) return std::fprintf(stderr, "%s names no collective\n", program.c_str()), 6;
    return perf::run(program.c_str(), *collective, perf::parse(program.c_str(), argc, argv));
}
