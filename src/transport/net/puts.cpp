#include "transport/net/puts.hpp"

#include <cstring>
#include <span>

#include "transport/numbering.hpp"

namespace tutti::net {

void Puts::take(const Wire& in) {
    if (!messages_) messages_.emplace(in, first_message);
    in_on_device_ = in.on_device;
    broken_ = broken_ || !deal_with(messages_->cell());
    messages_->release();
}

/// False: the message can't be right.
bool Puts::deal_with(const Cell& cell) {
    const bool inlined = cell.kind == Kind::inlined;
    const RankPage& page = mine_.page();
    if (page.closed.load() != 0 || page.leaving.load() != 0) return true;  // of that the peer hears, not of a window
    if (!inlined && in_on_device_) return false;
    const std::byte* const message = inlined ? cell.payload : messages_->slot();
    const std::size_t before = inlined ? sizeof(PutHeader) : put_header_in_slot;
    if (cell.kind > Kind::slot || cell.bytes < before) return false;
    PutHeader put;
    std::memcpy(&put, message, sizeof put);
    const std::span data(message + before, cell.bytes - before);
    if (put.signal >= signals_per_peer || put.raises > 1 || (put.key == 0 && !data.empty())) return false;
    const auto written =
        put.key == 0 || refusal_ ? LentMemory::Written::done : mine_.lent().write(put.gate, put.key, put.offset, data);
    if (written == LentMemory::Written::out_of_bounds) return false;
    if (written == LentMemory::Written::not_lent) refusal_ = {put.gate, put.key};
    if (put.raises == 1 && !refusal_) mine_.signals(peer_).raise(put.signal);
    return true;
}

}  // namespace tutti::net
