// all_reduce_perf and its sisters: one program, built once per collective (PERF_COLLECTIVE names its row in the table).
#include "run.hpp"

int main(int argc, char** argv) {
    return perf::run(PERF_COLLECTIVE "_perf", PERF_COLLECTIVE, argc, argv);
}
