#include "transport/plugin/endpoint.hpp"

#include <cstring>
#include <thread>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/result.hpp"

namespace tutti::plugin {
namespace {

// How long the destructor waits for the peer, which may be busy. After that Frames::keep() takes the connections over.
constexpr std::chrono::milliseconds farewell{50};

// Calls of receive() from one look at the kept connections (Frames::tend_kept) to the next.
constexpr unsigned looks_for_kept = 64;

/// The content of Endpoint::offer().
struct Invitation {
    char magic[8];
    Handle frames, bodies;
    char device[64];     // its name, padded with zeros
    std::uint8_t apart;  // 1 if bodies for slots must not come with their frames
};
constexpr char magic[8] = {'t', 'u', 't', 't', 'i', ' ', 'n', '2'};
static_assert(sizeof(Invitation) <= net::offer_bytes);

/// The slots of one channel.
struct Slots {
    std::byte* base;
    std::size_t size;
};

Slots slots_of(const Arena& arena, Rank reader, int channel) {
    const Wire wire = arena.wire(reader, channel, nullptr);
    return {wire.slots, slot_depth * wire.stride};
}

}  // namespace

Endpoint::Endpoint(const Connector& connector, const Device& device, std::shared_ptr<void> lease, Rank peer,
                   const net::LinkMemory& memory)
    : plugin_(*connector.plugin),
      device_(device),
      peer_(peer),
      mine_(memory.mine),
      inbox_(memory.inbox),
      device_slots_(memory.device),
      frames_(std::make_unique<Frames>(connector, std::move(lease))),
      bodies_out_(connector, Requests::Way::out),
      bodies_in_(connector, Requests::Way::in) {}

Endpoint::~Endpoint() {
    if (state_ == State::open) shielded("leaving a network plugin", [&] { part(); });
}

/// Runs body, and returns what it does: whether anything moved. An exception becomes trouble(), and false.
template <class Body>
bool Endpoint::attempt(Body&& body) {
    if (!trouble().empty()) return false;
    try {
        return body();
    } catch (...) {
        return lose(caught().what());
    }
}

std::vector<std::byte> Endpoint::offer() {
    Invitation own{};
    std::memcpy(own.magic, magic, sizeof magic);
    own.frames = frames_->in().handle();
    own.bodies = bodies_in_.handle();
    device_.name.copy(own.device, sizeof own.device - 1);
    own.apart = receives_on_gpu();
    std::vector<std::byte> bytes(sizeof own);
    std::memcpy(bytes.data(), &own, sizeof own);
    return bytes;
}

void Endpoint::meet(std::span<const std::byte> offer) {
    Invitation theirs{};
    if (offer.size() == sizeof theirs) std::memcpy(&theirs, offer.data(), sizeof theirs);
    if (std::memcmp(theirs.magic, magic, sizeof magic) != 0) {
        lose("it has offered a connection that no version of the protocol has");
        return;
    }
    frames_->out().handle() = theirs.frames;
    bodies_out_.handle() = theirs.bodies;
    apart_ = sends_from_gpu() || theirs.apart != 0;
    theirs.device[sizeof theirs.device - 1] = 0;
    for (const char* c = theirs.device; *c != 0; ++c) peer_device_ += *c < ' ' || *c == 127 ? '?' : *c;
    state_ = State::connecting;
}

std::string Endpoint::describe() const {
    const char* const how = state_ == State::open    ? ""
                            : state_ == State::alone ? ", not met yet"
                                                     : ", not connected yet";
    const std::string theirs = peer_device_.empty() ? "the peer's" : peer_device_;
    return plugin_.name() + ", " + device_.name + " to " + theirs + how;
}

/// A step towards all connections. True once they stand.
bool Endpoint::connect() {
    if (state_ != State::connecting) return false;
    const bool frames = frames_->open(), out = bodies_out_.open(), in = bodies_in_.open();
    if (!frames || !out || !in) return false;
    state_ = State::open;
    log(Level::info, "rank %d is reached by network plugin %s", peer_, describe().c_str());
    return true;
}

bool Endpoint::has_room() const {
    if (frames_->is_ended()) return true;
    return state_ == State::open && trouble().empty() && frames_->has_room() && bodies_out_.count() < Requests::most;
}

void Endpoint::queue(const net::Header& header, const std::byte* body, bool copied) {
    TUTTI_ASSERT(has_room() && !(copied && header.bytes > Frames::small));
    if (frames_->is_ended()) return;  // the peer would not read it
    attempt([&] {
        const bool stays = apart_ && header.in_slot == 1 && header.bytes > 0;
        const bool along = !stays && header.bytes <= Frames::small;
        if (!along) bodies_out_.add(const_cast<std::byte*>(body), header.bytes, outbox(header.channel));
        frames_->queue(header, body, along);
        return true;
    });
}

/// The plugin's handle of a channel's outgoing slots. All slots on a GPU share one.
void* Endpoint::outbox(int channel) {
    if (sends_from_gpu()) return bodies_out_.gpu_memory(device_slots_->memory, device_slots_->fd);
    const Slots slots = slots_of(mine_, peer_, channel);
    return bodies_out_.memory(slots.base, slots.size);
}

void* Endpoint::inbox(int channel) {
    if (receives_on_gpu()) return bodies_in_.gpu_memory(device_slots_->memory, device_slots_->fd);
    const Slots slots = slots_of(inbox_, 0, channel);
    return bodies_in_.memory(slots.base, slots.size);
}

bool Endpoint::is_empty() const {
    return frames_->is_ended() || (frames_->is_empty() && bodies_out_.count() == 0);
}

bool Endpoint::send_bodies() {
    bool moved = bodies_out_.move();
    for (std::size_t size; bodies_out_.take(size); moved = true) {
    }
    return moved;
}

bool Endpoint::send() {
    return attempt([&] {
        if (state_ != State::open) return connect();
        const bool moved = frames_->send();
        return send_bodies() || moved;
    });
}

bool Endpoint::receive(net::Recipient& to) {
    return attempt([&] {
        if (state_ != State::open) return connect();
        if (looks_++ % looks_for_kept == 0) Frames::tend_kept();
        bool moved = bodies_in_.move();
        moved |= take_bodies(to);
        moved |= take_frames(to);
        moved |= bodies_in_.move();
        if (frames_->is_ended()) frames_->say_end();
        return moved;
    });
}

bool Endpoint::take_bodies(net::Recipient& to) {
    bool moved = false;
    for (std::size_t size; !arriving_.empty(); moved = true) {
        const net::Header header = arriving_.front().head;
        if (flush_ == nullptr) {
            if (!bodies_in_.take(size)) break;
            if (size != header.bytes) return lose(text("a message of %u bytes has arrived as %zu", header.bytes, size));
            flush_ = begin_flush();
        }
        if (flush_ != nullptr && !plugin_.is_done(flush_, size)) break;
        flush_ = nullptr;
        arriving_.pop_front();
        busy_[header.channel] = false;
        to.finish(header);
    }
    return moved;
}

/// Flushes the first of arriving_, whose body has arrived. Returns the plugin's request; nullptr if the body is
/// visible.
void* Endpoint::begin_flush() {
    if (!receives_on_gpu() || !(device_slots_->whole->needs_flush() || device_.needs_flush)) return nullptr;
    const Arriving& body = arriving_.front();
    if (plugin_.can_flush()) return bodies_in_.flush(body.place, body.head.bytes, body.memory);
    device_slots_->whole->flush();
    return nullptr;
}

bool Endpoint::take_frames(net::Recipient& to) {
    bool moved = false;
    std::size_t size = 0;
    for (const Frames::Frame* frame; (frame = frames_->next(size)) != nullptr; moved = true) {
        const bool fits = size >= sizeof frame->head && size <= sizeof *frame && frame->head.fits();
        const bool along = fits && size == sizeof frame->head + frame->head.bytes;
        const bool apart = fits && size == sizeof frame->head && frame->head.in_slot == 1;
        if (!along && !apart) return lose("it has sent a frame that no version of the protocol has");
        if (busy_[frame->head.channel]) break;
        if (!digest(*frame, along, to)) return false;
        frames_->done();
    }
    return moved;
}

/// Passes a frame on, or posts the receive for its body. Only if no body of its channel is under way. along: the frame
/// holds its body. False, with trouble(), if the frame is wrong.
bool Endpoint::digest(const Frames::Frame& frame, bool along, net::Recipient& to) {
    if (along && frame.head.in_slot == 1 && frame.head.bytes > 0 && receives_on_gpu())
        return lose("it has sent what is for a GPU's memory together with what is for the host");
    const char* why = "";
    std::byte* const place = to.begin(frame.head, why);
    if (place == nullptr) return lose(why);
    if (along) {
        if (frame.head.bytes > 0) std::memcpy(place, frame.body, frame.head.bytes);
        to.finish(frame.head);
        return true;
    }
    void* const memory = inbox(frame.head.channel);
    bodies_in_.add(place, frame.head.bytes, memory);
    busy_[frame.head.channel] = true;
    arriving_.push_back({frame.head, place, memory});
    return true;
}

/// Sends what is left, and waits, for `farewell`, until nothing is under way. After that only frames can go on: bodies
/// lie in arenas, which go with the link.
void Endpoint::part() {
    bool all = false;
    attempt([&] {
        for (const Deadline limit = Clock::now() + farewell; !all && Clock::now() < limit;) {
            send_bodies();
            all = frames_->part() && bodies_out_.count() == 0;
            Frames::tend_kept();
            if (!all) std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
        return all;
    });
    if (!all) Frames::keep(std::move(frames_));
}

}  // namespace tutti::plugin
