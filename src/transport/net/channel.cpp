#include "transport/net/channel.hpp"

#include <cstring>
#include <utility>

#include "transport/numbering.hpp"

namespace tutti::net {
void Channel::open(int its_number, Wire its_out, Wire its_in) {
    number = its_number;
    out = its_out;
    in = its_in;
    arrivals.emplace(in, first_message);
    told = received = awaited = spotted = first_message;
    go_to(first_message);
}

void Channel::place(const DeviceSlots& slots) {
    const auto put = [&](Wire& wire, const SlotTable& table) {
        if (table) wire.slots = table.channel(number), wire.stride = table.stride, wire.on_device = true;
    };
    put(out, slots.out);
    put(in, slots.in);
}

bool Channel::resume(std::uint32_t got) {
    if (!can_have_finished(got)) return false;
    go_to(got);
    settle = told != first_message || released() != first_message;  // else the peer has sent nothing yet
    if (settle) told = released() - 1;
    spots = {};  // their keys are of the failed endpoint's adapters
    posted = in.fifo->posted.load(std::memory_order_relaxed) - 1;
    spotted = received;
    return true;
}

Header Channel::header(What what) const {
    Header h{};
    h.what = what;
    h.channel = static_cast<std::uint8_t>(number);
    if (arrivals) h.credit = released();
    return h;
}

/// The header of the next message of `out`, which is complete, and is sent now.
Header Channel::take_message() {
    const Cell& cell = out.fifo->cells[taken % fifo_depth];
    Header h = header(What::message);
    h.in_slot = cell.kind == Kind::slot || cell.kind == Kind::reference;
    h.bytes = cell.bytes;
    h.signature = early != nullptr ? taken : cell.signature;
    h.call = out.fifo->call.get();
    go_to(taken + 1);
    told = h.credit;
    settle = false;
    return h;
}

/// Queues a put or a signal, the next message of `out`. False if it has to wait.
bool Channel::send_put(NetEndpoint& endpoint, PutMessage put, std::byte* slot) {
    const Cell& cell = out.fifo->cells[taken % fifo_depth];
    const std::uint32_t credits = out.fifo->released.load(std::memory_order_acquire), unread = taken + 1 - credits;
    const auto [way, rail, to] = direct->route_of(put, taken, credits, endpoint.ways());
    if (way == DirectPuts::Way::later) return false;
    direct->sent(put, taken, {way, rail, to});
    Header h = take_message();
    h.row = rail;
    h.awaited = cell.kind == Kind::reference;
    if (h.awaited == 1 && (way == DirectPuts::Way::by_engine || !endpoint.knows(put.data.data(), put.data.size()))) {
        copy_to_slot(put, slot);
        put.data = {slot + put_header_in_slot, put.data.size()};
    }
    if (way == DirectPuts::Way::by_engine) {
        const bool adapters = endpoint.adapter_of(number) != nullptr;
        if (!put.data.empty() && adapters && (h.in_slot == 1 || direct->knows(put.header.gate, put.header.key)))
            h.awaited = 1;  // later puts may have to wait for this one's credit
        return endpoint.queue(h, h.in_slot == 1 ? slot : cell.payload), true;
    }
    // The message lies in a cell, of which the reader thinks that there are many. Its slot is free with its credit.
    // One that has gone by another rail may be in the way of later ones.
    if (unread >= due_in_slots || rail > 0) h.awaited = 1;
    struct {
        PutHeader header;
        std::uint64_t bytes;
    } body{put.header, put.data.size()};
    body.header.written = 1;
    h.in_slot = 0;
    h.bytes = sizeof body;
    endpoint.write_to(h, reinterpret_cast<const std::byte*>(&body), put.data, to);
    return true;
}

/// How many requests are there that were not sent.
std::size_t Channel::unsent_requests() const {
    std::size_t requests = 0;
    for (std::uint32_t message = taken;; ++message) {
        const Cell& cell = out.fifo->cells[message % fifo_depth];
        if (cell.turn.load(std::memory_order_acquire) != message + 1) return requests;
        const std::optional<PutMessage> put = read_own_put(cell, out.slots + message % slot_depth * out.stride);
        if (put && put->header.asks == 1) ++requests;
    }
}

/// Queues a request, the next message of `out`, or has the adapter read what it asks for. False if it has to wait.
bool Channel::send_request(NetEndpoint& endpoint, const PutMessage& request, std::byte* slot) {
    const std::uint32_t credits = out.fifo->released.load(std::memory_order_acquire), unread = taken + 1 - credits;
    Cell& cell = out.fifo->cells[taken % fifo_depth];
    if (!direct->is_reading()) {
        RemoteMemory from;
        if (!out.on_device && direct->reads(request, taken, credits, unsent_requests(), from)) {
            const std::span<std::byte> to = direct->begin_to_read(endpoint, number, slot, from);
            return endpoint.read_from(number, to, from), false;
        }
        direct->sent(request, taken, {});
        return endpoint.queue(take_message(), cell.payload), true;
    }
    if (!endpoint.take_read(number)) return false;
    if (direct->has_read(cell)) return send_request(endpoint, *read_own_put(cell, slot), slot);
    const PutMessage nothing{};  // in place of the request, which must not be sent if another endpoint takes over
    std::memcpy(cell.payload, &nothing.header, sizeof nothing.header);
    cell.bytes = sizeof nothing.header;
    direct->sent(nothing, taken, {});
    Header h = take_message();
    h.awaited = unread >= due_in_slots;
    return endpoint.queue(h, cell.payload), true;
}

/// Queues the next message of `out`, which is of one_sided_channel. False if it has to wait.
bool Channel::send_one_sided(NetEndpoint& endpoint) {
    std::byte* const slot = out.slots + taken % slot_depth * out.stride;
    const std::optional<PutMessage> message = read_own_put(out.fifo->cells[taken % fifo_depth], slot);
    TUTTI_ASSERT(message);
    return message->header.asks == 1 ? send_request(endpoint, *message, slot) : send_put(endpoint, *message, slot);
}

/// Queues the next message of `out`.
void Channel::send_message(Endpoint& endpoint, NetEndpoint* known) {
    const std::uint32_t index = taken % fifo_depth;
    const Cell& cell = out.fifo->cells[index];
    Header h = take_message();
    if (h.in_slot == 0) return endpoint.queue(h, cell.payload);
    h.row = cell.row();
    std::byte* const slot = out.slots + (taken - 1) % slot_depth * out.stride;
    const std::byte* body = slot;
    if (cell.kind == Kind::reference) {
        h.awaited = 1;
        body = reinterpret_cast<const std::byte*>(cell.reference.offset);
        if (known == nullptr) return endpoint.queue(h, body);
        if (!known->knows(body, h.bytes)) {  // after a detour to another adapter
            std::memcpy(slot, body, h.bytes);
            body = slot;
        }
    }
    Spot& spot = spots[index];
    const bool wanted = std::exchange(spot.turn, taken - 1) == taken;  // for this message, and no later one
    const bool has_place = known != nullptr && wanted && spot.place.bytes == h.bytes;
    if (body == slot && !has_place) return endpoint.queue(h, body);
    TUTTI_ASSERT(known != nullptr);
    if (has_place) h.what = What::landed, h.in_slot = 0;
    known->put(h, body, slot, has_place ? &spot.place : nullptr);
}

/// Sends the peer this rank's posted receives. True if it queued any.
bool Channel::send_posted_receives(NetEndpoint& known) {
    const std::uint32_t last_posted = in.fifo->posted.load(std::memory_order_acquire);
    std::uint32_t turn = spotted;
    bool queued = false;
    for (const std::uint32_t last = received + fifo_depth; turn++ != last;) {
        const PostedReceive& posted_receive = in.fifo->posted_receives[(turn - 1) % fifo_depth];
        if (posted_receive.turn.load(std::memory_order_acquire) != turn) continue;
        if (!known.has_room()) return queued;
        spotted = turn;
        auto* const memory = reinterpret_cast<std::byte*>(posted_receive.where.offset);
        if (!known.knows(memory, posted_receive.bytes)) continue;
        const Spot spot{known.expose(number, memory, posted_receive.bytes), turn, 0};
        Header h = header(What::posted_receive);
        h.bytes = sizeof spot;
        told = h.credit;
        known.queue(h, reinterpret_cast<const std::byte*>(&spot), true);
        queued = true;
    }
    posted = last_posted;
    return queued;
}

/// The socket by which the next message goes. Long ones that may overtake each other go by one after the other.
Endpoint* Channel::way_of_next(Endpoint& own, std::span<Endpoint* const> all) const {
    const Cell& cell = out.fifo->cells[taken % fifo_depth];
    if (all.size() < 2 || cell.kind != Kind::slot || cell.bytes < DirectPuts::least_spread) return &own;
    for (std::size_t i = 0; i < all.size(); ++i)
        if (Endpoint* const way = all[(taken + i) % all.size()]; way->has_room()) return way;
    return &own;
}

bool Channel::send(Endpoint& endpoint, NetEndpoint* known, std::span<Endpoint* const> all) {
    bool queued = false;
    if (known == nullptr || withdrawn)
        posted = in.fifo->posted.load(std::memory_order_relaxed);  // nobody is told
    else if (in.fifo->posted.load(std::memory_order_relaxed) != posted)
        queued = send_posted_receives(*known);
    while (has_message()) {
        Endpoint* const way = known != nullptr ? &endpoint : way_of_next(endpoint, all);
        if (!way->has_room()) break;
        if (direct == nullptr || known == nullptr)
            send_message(*way, known);
        else if (!send_one_sided(*known))
            break;
        queued = true;
    }
    const std::uint32_t finished = released();
    const bool in_cells = in.fifo->cells[(finished - 1) % fifo_depth].kind == Kind::inlined;
    if (later(told, awaited)) awaited = told;
    const bool at_once = settle || awaited != told;
    const std::uint32_t due = at_once ? 1 : in_cells ? due_in_cells : due_in_slots;
    if (finished - told < due || !endpoint.has_room()) return queued;
    const Header h = header(What::credit);
    endpoint.queue(h, nullptr);
    told = h.credit;
    settle = false;
    return true;
}

bool Channel::acknowledge(std::uint32_t credit) {
    // A later credit has overtaken it by another socket, which the channel goes by now.
    if (later(out.fifo->released.load(std::memory_order_relaxed), credit)) return true;
    if (!can_have_finished(credit)) return false;
    out.fifo->released.store(credit, std::memory_order_release);
    return true;
}

std::byte* Channel::begin(const Header& h, const char*& why) {
    if (h.what == What::credit) return &no_body;
    if (h.what == What::window) return direct->place();
    if (h.what == What::posted_receive) return reinterpret_cast<std::byte*>(&arriving);
    if (h.what == What::message && early != nullptr) return begin_early(h, why);
    if (!arrivals->ready(h.in_slot == 1)) {
        why = "it has sent more messages than there is room for";
        return nullptr;
    }
    if (h.what == What::landed) {
        why = "it has written a message to memory that it was not given";
        return posted_place(h.bytes);
    }
    if (h.in_slot == 1 && h.bytes > in.stride) {
        why = "it has sent a message that is longer than a slot";
        return nullptr;
    }
    if (h.in_slot == 0) return arrivals->cell().payload;
    std::byte* const place = posts_serve ? posted_place(h.bytes) : nullptr;
    lands = place != nullptr;
    return lands ? place : in.slots + received % slot_depth * in.stride;
}

/// begin() for a message that says its number.
std::byte* Channel::begin_early(const Header& h, const char*& why) {
    const std::uint32_t its = h.signature;
    why = "it has sent a message twice, or more than there is room for";
    if (later(received, its) || its - released() >= (h.in_slot == 1 ? slot_depth : fifo_depth)) return nullptr;
    if (h.in_slot == 1 && h.bytes > in.stride) {
        why = "it has sent a message that is longer than a slot";
        return nullptr;
    }
    if (!early->begin(its)) return nullptr;
    return h.in_slot == 1 ? in.slots + its % slot_depth * in.stride : in.fifo->cells[its % fifo_depth].payload;
}

/// Where this rank wants the next message of `in`, if it has so many bytes; nullptr: it has posted no such receive.
std::byte* Channel::posted_place(std::uint32_t bytes) const {
    const PostedReceive& posted_receive = in.fifo->posted_receives[received % fifo_depth];
    if (posted_receive.turn.load(std::memory_order_acquire) != received + 1 || posted_receive.bytes != bytes)
        return nullptr;
    return reinterpret_cast<std::byte*>(posted_receive.where.offset);
}

bool Channel::uses_memory() const {
    if (lands || later(spotted, received) || (direct != nullptr && direct->reads_in_place())) return true;
    for (std::uint32_t message = out.fifo->released.load(std::memory_order_acquire);; ++message) {
        const Cell& cell = out.fifo->cells[message % fifo_depth];
        if (cell.turn.load(std::memory_order_acquire) != message + 1) return false;
        if (cell.kind == Kind::reference) return true;
    }
}

void Channel::finish(const Header& h) {
    if (h.what == What::credit) return;
    if (h.what == What::posted_receive) {
        if (later(arriving.turn, taken)) spots[(arriving.turn - 1) % fifo_depth] = arriving;
        return;
    }
    if (early != nullptr) {
        early->finish(h);
        while (const auto next = early->take(received)) commit(*next, next->in_slot == 1 ? Kind::slot : Kind::inlined);
        return;
    }
    const bool landed = std::exchange(lands, false) || h.what == What::landed;
    commit(h, landed ? Kind::landed : h.in_slot == 1 ? Kind::slot : Kind::inlined);
}

/// Hands the next message to its reader.
void Channel::commit(const Header& h, Kind kind) {
    if (kind != Kind::inlined) arrivals->cell().set_row(h.row);
    arrivals->begin(h.call);  // and never mappable: no buffer of another host is
    ++received;
    if (later(received, spotted)) spotted = received;
    if (h.awaited == 1) awaited = received;
    arrivals->commit(kind, h.bytes, h.signature);
}

}  // namespace tutti::net
