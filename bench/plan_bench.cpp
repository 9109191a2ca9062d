// plan_bench [RANKS]: what it takes to make one rank's program of a large job, for every algorithm and collective (of
// hierarchies, those that the tuner tries unasked, on nodes of 4): the
// longest of some ranks' times, and the bytes that the program holds. Targets: 50 ms and 32 MiB for 131,072 ranks, ring
// excepted, whose programs grow with the number of ranks by nature.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "algorithms/algorithms.hpp"

int main(int count, char** arguments) {
    using namespace tutti;
    const int ranks = count > 1 ? std::atoi(arguments[1]) : 131072;
    if (ranks < 2 || ranks > 1 << 24) return std::fprintf(stderr, "usage: plan_bench [RANKS], 2 or more\n"), 2;
    std::printf("one rank's program among %d ranks\n%-23s %-15s %9s %9s %9s  target\n", ranks, "algorithm",
                "collective", "steps", "ms", "MiB");
    std::vector<Algorithm> all(algorithms().begin(), algorithms().end());
    for (const Algorithm& a : compositions())
        if (a.usual) all.push_back(a);
    for (const Algorithm& a : all)
        for (int c = 0; c < collectives; ++c) {
            const auto collective = static_cast<Collective>(c);
            if (!a.supports(collective)) continue;
            double longest = 0, most = 0;
            std::size_t steps = 0;
            for (const Rank rank : {0, 1, ranks / 3, ranks - 1}) {
                const auto begin = std::chrono::steady_clock::now();
                const Program p = a.make({collective, rank, ranks, rank == 0 ? 1 : 0});
                const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
                longest = std::max(longest, time.count());
                most = std::max(most, static_cast<double>(p.steps.capacity() * sizeof(Step) +
                                                          p.operands.capacity() * sizeof(Operand)));
                steps = std::max(steps, p.steps.size());
            }
            const bool met = longest < 50 && most < (32 << 20);
            std::printf("%-23s %-15s %9zu %9.3f %9.3f  %s\n", a.name.data(), name_of(collective).data(), steps, longest,
                        most / (1 << 20),
                        a.name.ends_with("ring") ? "-"
                        : met                    ? "met"
                                                 : "MISSED");
        }
}
