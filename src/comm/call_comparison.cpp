#include "comm/call_comparison.hpp"

#include <cstring>

#include "base/peer_error.hpp"

namespace tutti {

Operation CallComparison::exchange(const Operation& o) {
    const bool on_gpu = connections_.places().on_gpu(connections_.rank());
    Call mine;
    mine.signature = 1;
    mine.collective = o.collective;
    mine.type = o.type;
    mine.op = o.call_op;
    mine.root = o.root;
    mine.count = o.rows ? o.rows->digest() : o.count;
    all_.resize(static_cast<std::size_t>(connections_.ranks()));
    mine_.assign(on_gpu ? all_.size() : 1, mine);
    Operation exchange;
    exchange.collective = on_gpu ? Collective::all_to_all : Collective::all_gather;  // see Communicator::begin()
    exchange.type = DataType::uint8;
    exchange.count = sizeof(Call);
    exchange.input = mine_.data();
    exchange.output = all_.data();
    return exchange;
}

void CallComparison::check() const {
    for (Rank r = 0; r < connections_.ranks(); ++r) {
        const Call& theirs = all_[static_cast<std::size_t>(r)];
        if (std::memcmp(&theirs, &mine_.front(), sizeof(Call)) == 0) continue;
        fail_by(r, tuttiInvalidUsage, "rank %d calls %s, but rank %d calls %s", connections_.rank(),
                call_text(mine_.front()).c_str(), r, call_text(theirs).c_str());
    }
}

}  // namespace tutti
