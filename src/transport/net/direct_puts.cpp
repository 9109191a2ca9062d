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

// The longest piece that is read to where it is wanted. Each takes a round trip beside its bytes.
constexpr std::uint64_t longest_piece = std::uint64_t{16} << 20;

constexpr unsigned most_ways = 64;  // that a peer may tell of

bool fits_in_cell(const PutMessage& put) {
    return sizeof put.header + put.data.size() <= inline_bytes;
}

}  // namespace

bool DirectPuts::arrived() {
    const WindowKey& w = arriving_;
    if (w.gate >= most_windows || w.key == 0 || w.offset + w.bytes < w.offset || w.way >= most_ways) return false;
    known_[{w.gate, w.way}] = w;
    return true;
}

/// The window as the peer lets adapters use it by that rail; nullptr if it does not.
const WindowKey* DirectPuts::find(std::uint32_t gate, std::uint32_t key, unsigned rail) const {
    const auto found = known_.find({gate, rail});
    return found != known_.end() && found->second.key == key ? &found->second : nullptr;
}

/// Where these bytes of a window lie, if the peer lets adapters use all of them by that rail.
std::optional<RemoteMemory> DirectPuts::place_of(const PutHeader& put, std::uint64_t bytes, unsigned rail) const {
    const WindowKey* const w = find(put.gate, put.key, rail);
    if (w == nullptr || put.offset < w->offset || put.offset - w->offset > w->bytes ||
        bytes > w->bytes - (put.offset - w->offset))
        return std::nullopt;
    return RemoteMemory{w->address + (put.offset - w->offset), static_cast<std::uint32_t>(bytes), w->remote_key};
}

DirectPuts::Route DirectPuts::route_of(const PutMessage& put, std::uint32_t number, std::uint32_t credits,
                                       unsigned ways) const {
    const std::size_t bytes = put.data.size();
    const unsigned own = bytes >= least_spread ? number % ways : 0;
    const auto place = put.header.asks == 0 && !fits_in_cell(put) ? place_of(put.header, bytes, 0) : std::nullopt;
    if (!place) return {Way::by_engine, own, {}};
    std::optional<unsigned> rail;  // by which those went that it overlaps
    const std::uint64_t begin = put.header.offset, at = place->address;
    for (std::uint32_t earlier = credits; earlier != number; ++earlier) {
        const Sent& s = last_[earlier % fifo_depth];
        if (s.way == Way::by_engine && s.gate == put.header.gate && s.overlaps(begin, begin + bytes))
            return {Way::later, 0, {}};
        if (s.way != Way::by_adapter || !s.overlaps(at, at + bytes)) continue;
        if (rail.value_or(s.rail) != s.rail) return {Way::later, 0, {}};
        rail = s.rail;
    }
    for (const unsigned by : {rail.value_or(own), rail.value_or(0)})
        if (const auto to = place_of(put.header, bytes, by)) return {Way::by_adapter, by, *to};
    return {Way::later, 0, {}};
}

void DirectPuts::sent(const PutMessage& put, std::uint32_t number, const Route& route) {
    const bool adapter = route.way == Way::by_adapter;
    const std::uint64_t begin = adapter ? route.to.address : put.header.offset;
    const std::uint64_t bytes = put.header.asks == 0 ? put.data.size() : 0;
    last_[number % fifo_depth] = {route.way, route.rail, put.header.gate, begin, begin + bytes};
}

bool DirectPuts::reads(const PutMessage& request, std::uint32_t number, std::uint32_t credits, std::size_t unsent,
                       RemoteMemory& from) const {
    std::uint64_t bytes = 0;
    std::memcpy(&bytes, request.data.data(), sizeof bytes);
    const auto place = place_of(request.header, bytes, 0);
    if (!place || bytes == 0) return false;
    // Answers to earlier requests would be taken for this one's, and several short requests share a round trip.
    const std::size_t unanswered = awaited_.unanswered(peer_);
    if (unanswered == 0 || unanswered > unsent || (unanswered > 1 && bytes < least_alone)) return false;
    if (number - credits >= slot_depth) return false;  // its slot may still be in use
    for (std::uint32_t earlier = credits; earlier != number; ++earlier) {
        const Sent& s = last_[earlier % fifo_depth];
        if (s.begin < s.end && (s.way == Way::by_engine || s.rail > 0)) return false;
    }
    from = {place->address, static_cast<std::uint32_t>(std::min(bytes, longest_piece)), place->key};
    return true;
}

std::span<std::byte> DirectPuts::begin_to_read(NetEndpoint& endpoint, int channel, std::byte* slot,
                                               RemoteMemory& from) {
    const std::span<std::byte> wanted = awaited_.wanted(peer_);
    in_place_ = wanted.size() >= from.bytes && endpoint.reads_to(channel, wanted.data(), from.bytes);
    if (!in_place_) from.bytes = std::min<std::uint32_t>(from.bytes, slot_bytes);
    return reading_ = {in_place_ ? wanted.data() : slot, from.bytes};
}

bool DirectPuts::has_read(Cell& request) {
    const std::span<std::byte> there = std::exchange(reading_, {});
    if (in_place_)
        awaited_.filled(peer_, there.size());
    else
        awaited_.fill(peer_, there);  // nothing is expected any more if this rank has given up
    PutHeader header;
    std::uint64_t bytes;
    std::memcpy(&header, request.payload, sizeof header);
    std::memcpy(&bytes, request.payload + sizeof header, sizeof bytes);
    header.offset += there.size();
    bytes -= there.size();
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
