#include "transport/net/direct_puts.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tutti::net {
namespace {

// The reference, Cell::row(), then the header: all of the cell.
constexpr std::size_t header_behind_reference = sizeof(Reference) + sizeof(std::uint64_t);
static_assert(header_behind_reference + sizeof(PutHeader) <= inline_bytes);

// What takes longer to copy twice than a round trip: such requests of a group are read one after the other.
constexpr std::uint64_t least_alone = 64 * 1024;

bool fits_in_cell(const PutMessage& put) {
    return sizeof put.header + put.data.size() <= inline_bytes;
}

}  // namespace

bool DirectPuts::arrived() {
    const WindowKey& w = arriving_;
    if (w.gate >= most_windows || w.key == 0 || w.offset + w.bytes < w.offset) return false;
    known_[w.gate] = w;
    return true;
}

bool DirectPuts::knows(std::uint32_t gate, std::uint32_t key) const {
    const auto found = known_.find(gate);
    return found != known_.end() && found->second.key == key;
}

/// The window of which the peer lets adapters use all of these bytes; nullptr if there is none.
const WindowKey* DirectPuts::find(const PutHeader& put, std::uint64_t bytes) const {
    if (!knows(put.gate, put.key)) return nullptr;
    const WindowKey& w = known_.at(put.gate);
    const std::uint64_t begin = put.offset;
    const bool inside = begin >= w.offset && begin - w.offset <= w.bytes && bytes <= w.bytes - (begin - w.offset);
    return inside ? &w : nullptr;
}

/// Whether the peer's engine may not yet have copied an earlier put to some of the same bytes.
bool DirectPuts::overtakes(const PutMessage& put, std::uint32_t number, std::uint32_t credits) const {
    const std::uint64_t begin = put.header.offset, end = begin + put.data.size();
    for (std::uint32_t earlier = credits; earlier != number; ++earlier) {
        const Copied& c = last_[earlier % fifo_depth];
        if (c.copied && c.gate == put.header.gate && begin < c.end && c.begin < end) return true;
    }
    return false;
}

DirectPuts::Way DirectPuts::way_of(const PutMessage& put, std::uint32_t number, std::uint32_t credits,
                                   RemoteMemory& to) const {
    const WindowKey* const window =
        put.header.asks == 0 && !fits_in_cell(put) ? find(put.header, put.data.size()) : nullptr;
    if (window == nullptr) return Way::by_engine;
    if (overtakes(put, number, credits)) return Way::later;
    to = {window->address + (put.header.offset - window->offset), static_cast<std::uint32_t>(put.data.size()),
          window->remote_key};
    return Way::by_adapter;
}

void DirectPuts::sent(const PutMessage& put, std::uint32_t number, Way way) {
    const bool copied = way == Way::by_engine && !put.data.empty();
    const std::uint64_t begin = put.header.offset;
    last_[number % fifo_depth] = {copied, put.header.gate, begin, begin + (put.header.asks == 0 ? put.data.size() : 0)};
}

bool DirectPuts::reads(const PutMessage& request, std::uint32_t number, std::uint32_t credits, std::size_t unsent,
                       RemoteMemory& from) const {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, request.data.data(), sizeof bytes);
    const WindowKey* const window = find(request.header, bytes);
    if (window == nullptr || bytes == 0) return false;
    // Answers to earlier requests would be taken for this one's, and several short requests share a round trip.
    const std::size_t unanswered = awaited_.unanswered(peer_);
    if (unanswered == 0 || unanswered > unsent || (unanswered > 1 && bytes < least_alone)) return false;
    if (number - credits >= slot_depth) return false;  // its slot may still be in use
    for (std::uint32_t earlier = credits; earlier != number; ++earlier)
        if (last_[earlier % fifo_depth].copied) return false;
    from = {window->address + (request.header.offset - window->offset),
            static_cast<std::uint32_t>(std::min<std::uint64_t>(bytes, slot_bytes)), window->remote_key};
    return true;
}

bool DirectPuts::has_read(const std::byte* there, Cell& request) {
    awaited_.fill(peer_, {there, reading_});  // nothing is expected any more if this rank has given up
    PutHeader header;
    std::uint64_t bytes;
    std::memcpy(&header, request.payload, sizeof header);
    std::memcpy(&bytes, request.payload + sizeof header, sizeof bytes);
    header.offset += reading_;
    bytes -= std::exchange(reading_, 0);
    std::memcpy(request.payload, &header, sizeof header);
    std::memcpy(request.payload + sizeof header, &bytes, sizeof bytes);
    return bytes > 0;
}

std::optional<PutMessage> read_own_put(const Cell& cell, const std::byte* slot) {
    if (cell.kind != Kind::reference) return read_put(cell, slot);
    PutMessage put{{}, {reinterpret_cast<const std::byte*>(cell.reference.offset), cell.bytes - put_header_in_slot}};
    std::memcpy(&put.header, cell.payload + header_behind_reference, sizeof put.header);
    return put;
}

void refer_to(Cell& cell, const PutHeader& header, const std::byte* data) {
    cell.reference = {0, reinterpret_cast<std::uintptr_t>(data)};
    cell.set_row(0);
    std::memcpy(cell.payload + header_behind_reference, &header, sizeof header);
}

void copy_to_slot(const PutMessage& put, std::byte* slot) {
    std::memcpy(slot, &put.header, sizeof put.header);
    std::memcpy(slot + put_header_in_slot, put.data.data(), put.data.size());
}

}  // namespace tutti::net
