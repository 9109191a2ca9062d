// Parameter servers: the first ranks serve one column of the data each; all others send it to them, they add it up in
// one step and send the result to all. `server` has one, rank 0; `server2` has two. With as many servers as ranks it is
// `direct`.
//
// (M. Li et al.: Scaling distributed machine learning with the parameter server. OSDI 2014.)
#include <algorithm>

#include "algorithms/algorithms.hpp"
#include "algorithms/one_rank.hpp"
#include "base/result.hpp"
#include "schedule/compose.hpp"

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

Program serve(const Request& q, int servers) {
    if (q.collective != Collective::all_reduce)
        fail(tuttiInternalError, "server was asked for %s, which it does not support", name_of(q.collective).data());
    if (q.ranks == 1) return one_rank(q);
    const Program results = spread(q, std::min(servers, q.ranks));
    return joined(reversed(results, q.collective), results);
}

}  // namespace

Program server(const Request& request) {
    return serve(request, 1);
}

Program server2(const Request& request) {
    return serve(request, 2);
}

}  // namespace tutti
