#include "differences.hpp"

#include <vector>

#include "steps/data.hpp"

namespace sim {
namespace {

tuttiResult_t call(int how, bool mine, const float* in, float* out, tuttiComm_t comm) {
    const auto all_reduce = [&](std::size_t count, tuttiDataType_t type, tuttiRedOp_t op) {
        return tuttiAllReduce(in, out, count, type, op, comm, nullptr);
    };
    switch (how) {
        case 0:
            return all_reduce(mine ? 100 : 99, tuttiFloat32, tuttiSum);
        case 1:
            return all_reduce(100, mine ? tuttiInt32 : tuttiFloat32, tuttiSum);
        case 2:
            return all_reduce(100, tuttiFloat32, mine ? tuttiMax : tuttiSum);
        case 3:
            return tuttiBroadcast(in, out, 100, tuttiFloat32, mine ? 0 : 1, comm, nullptr);
        case 4:
            if (mine) return tuttiBroadcast(in, out, 100, tuttiFloat32, 0, comm, nullptr);
            return all_reduce(100, tuttiFloat32, tuttiSum);
        case 5:
            return all_reduce(mine ? 20'000 : 3, tuttiFloat32, tuttiSum);
        default:
            if (mine) return tuttiBarrier(comm, nullptr);
            return tuttiReduce(in, out, 100, tuttiFloat32, tuttiSum, 1, comm, nullptr);
    }
}

}  // namespace

void call_differently(int how, bool mine, tuttiComm_t comm) {
    const std::vector<float> in(20'000, 1);
    std::vector<float> out(20'000);
    using tutti::steps::must;
    must(call(how, mine, in.data(), out.data(), comm), "a call that differs");
    // A rank that only sends in a call gets the error once the others have compared the call.
    for (int more = 0; more < 3; ++more)
        must(tuttiAllReduce(in.data(), out.data(), 8, tuttiFloat32, tuttiSum, comm, nullptr),
             "the call after one that differs");
    throw tutti::steps::Wrong("nobody was told that ranks call different things");
}

}  // namespace sim
