#include "comm/call_comparison.hpp"

#include <cstring>

#include "base/peer_error.hpp"

namespace tutti {

Operation CallComparison::exchange(const Operation& o) {
    const bool on_gpu = connections_.places().on_gpu(connections_.rank());
    my_call_ = {};
    my_call_.signature = 1;
    my_call_.collective = o.collective;
    my_call_.type = o.type;
    my_call_.op = o.call_op;
    my_call_.root = o.root;
    my_call_.count = o.rows ? o.rows->digest() : o.count;
    all_calls_.resize(static_cast<std::size_t>(connections_.ranks()));
    my_calls_.assign(on_gpu ? all_calls_.size() : 1, my_call_);
    Operation exchange;
    exchange.collective = on_gpu ? Collective::all_to_all : Collective::all_gather;  // see Communicator::begin()
    exchange.type = DataType::uint8;
    exchange.count = sizeof(Call);
    exchange.input = my_calls_.data();
    exchange.output = all_calls_.data();
    return exchange;
}

void CallComparison::check() const {
    for (Rank r = 0; r < connections_.ranks(); ++r) {
        const Call& theirs = all_calls_[static_cast<std::size_t>(r)];
        if (std::memcmp(&theirs, &my_call_, sizeof(Call)) == 0) continue;
        fail_by(r, tuttiInvalidUsage, "rank %d calls %s, but rank %d calls %s", connections_.rank(),
                call_text(my_call_).c_str(), r, call_text(theirs).c_str());
    }
}

}  // namespace tutti
