// Parameter servers: each of the first ranks serves one column of the data. It receives the column from all ranks, adds
// them in one step and sends the result to all. `server` has one server, rank 0; `server2` has two. With as many
// servers as ranks the schedule is that of `direct`.
//
// (M. Li et al.: Scaling distributed machine learning with the parameter server. OSDI 2014.)

#include "algorithms/algorithms.hpp"

namespace tutti {
namespace {

Program spread(const Request& q, int servers) {
    Program p = program_for(q, servers);
    if (q.rank < servers) {
        std::vector<Operand> sinks{output(q.rank)};
        for (int i = 1; i < q.ranks; ++i) sinks.push_back(send((q.rank + i) % q.ranks));
        p.step(std::vector{input(q.rank)}, sinks);
    }
    for (Rank s = 0; s < servers; ++s)
        if (s != q.rank) p.step({recv(s)}, {output(s)});
    return p;
}

Program one(const Request& q) {
    return spread(q, 1);
}
Program two(const Request& q) {
    return spread(q, 2);
}

}  // namespace

Algorithm server() {
    return {.name = "server",
            .summary = "parameter server: rank 0 adds for all",
            .ways = {{Collective::all_reduce, there_and_back<one>, {.in_rank_order = true}}},
            .form =
                [](Collective, int n) {
                    return ClosedForm{2, 1, n - 1};
                },
            .fifo_depth = 1};
}

Algorithm server2() {
    return {.name = "server2",
            .summary = "two parameter servers, half of the data each",
            .ways = {{Collective::all_reduce, there_and_back<two>}},
            .form =
                [](Collective, int n) {
                    return ClosedForm{2, 2, n};
                },
            .fifo_depth = 2};
}

}  // namespace tutti
