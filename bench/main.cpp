// all_reduce_perf and its sisters: one program, built once per collective (PERF_COLLECTIVE names its row in the table).
#include <cstdio>

#include "run.hpp"

int main(int argc, char** argv) {
    const char* program = PERF_COLLECTIVE "_perf";
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    const perf::Options options = perf::parse(program, argc, argv);
    return perf::run(program, *perf::collective_named(PERF_COLLECTIVE), options);
}
