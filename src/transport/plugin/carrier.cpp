#include "transport/plugin/carrier.hpp"

#include <cstring>
#include <thread>

#include "base/log.hpp"
#include "base/result.hpp"

namespace tutti::plugin {
namespace {

// How long whoever goes waits for the other end, which may be busy with something else for ever.
constexpr std::chrono::milliseconds farewell{100};

/// What Carrier::offer() gives.
struct Invitation {
    char magic[8];
    Handle frames, bodies;
    char device[64];  // its name, filled up with zeros
};
constexpr char magic[8] = {'t', 'u', 't', 't', 'i', ' ', 'n', '1'};
static_assert(sizeof(Invitation) <= net::offer_bytes);

/// The slots of one lane.
struct Slots {
    std::byte* base;
    static constexpr std::size_t size = slot_depth * slot_stride;
};

Slots slots_of(const Arena& arena, Rank reader, int lane) {
    return {arena.wire(reader, lane, nullptr).slots};
}

}  // namespace

Carrier::Carrier(std::shared_ptr<Plugin> plugin, const Device& device, std::shared_ptr<void> lease, Rank peer,
                 const Arena& mine, const Arena& inbox)
    : plugin_(std::move(plugin)),
      device_(device),
      lease_(std::move(lease)),
      peer_(peer),
      mine_(mine),
      inbox_(inbox),
      memory_(Mapping::anonymous(2 * frames * sizeof(Frame))),
      out_(reinterpret_cast<Frame*>(memory_.base())),
      in_(out_ + frames),
      frames_out_(plugin_, device.number, Requests::Way::out),
      bodies_out_(plugin_, device.number, Requests::Way::out),
      frames_in_(plugin_, device.number, Requests::Way::in),
      bodies_in_(plugin_, device.number, Requests::Way::in) {}

Carrier::~Carrier() {
    if (state_ == State::open && trouble().empty()) part();
}

/// Runs body, which says whether anything moved; what the plugin complains of is trouble.
template <class Body>
bool Carrier::attempt(Body&& body) {
    if (!trouble().empty()) return false;
    try {
        return body();
    } catch (const Error& error) {
        return lose(error.what());
    }
}

std::vector<std::byte> Carrier::offer() {
    Invitation own{};
    std::memcpy(own.magic, magic, sizeof magic);
    own.frames = frames_in_.handle();
    own.bodies = bodies_in_.handle();
    device_.name.copy(own.device, sizeof own.device - 1);
    std::vector<std::byte> bytes(sizeof own);
    std::memcpy(bytes.data(), &own, sizeof own);
    return bytes;
}

void Carrier::meet(std::span<const std::byte> offer) {
    Invitation theirs{};
    if (offer.size() == sizeof theirs) std::memcpy(&theirs, offer.data(), sizeof theirs);
    if (std::memcmp(theirs.magic, magic, sizeof magic) != 0) {
        lose("it has offered a connection that no version of the protocol has");
        return;
    }
    frames_out_.handle() = theirs.frames;
    bodies_out_.handle() = theirs.bodies;
    theirs.device[sizeof theirs.device - 1] = 0;
    for (const char* c = theirs.device; *c != 0; ++c) peer_device_ += *c < ' ' || *c == 127 ? '?' : *c;
    state_ = State::connecting;
}

std::string Carrier::describe() const {
    const char* const how = state_ == State::open    ? ""
                            : state_ == State::alone ? ", not met yet"
                                                     : ", not connected yet";
    const std::string theirs = peer_device_.empty() ? "the peer's" : peer_device_;
    return plugin_->name() + ", " + device_.name + " to " + theirs + how;
}

/// A step further. True once all connections stand, and places are there for what arrives.
bool Carrier::connect() {
    if (state_ != State::connecting) return false;
    bool all = true;
    for (Requests* const r : {&frames_out_, &bodies_out_, &frames_in_, &bodies_in_}) all &= r->open();
    if (!all) return false;
    for (unsigned i = 0; i < frames; ++i) expect(i);
    state_ = State::open;
    log(Level::info, "rank %d is reached by network plugin %s", peer_, describe().c_str());
    return true;
}

/// Place `number` takes another frame.
void Carrier::expect(unsigned number) {
    frames_in_.add(&in_[number], sizeof(Frame), frames_in_.memory(in_, frames * sizeof(Frame)));
}

bool Carrier::has_room() const {
    if (peer_ended_) return true;
    return state_ == State::open && trouble().empty() && frames_out_.count() < frames &&
           bodies_out_.count() < Requests::most;
}

void Carrier::queue(const net::Header& header, const std::byte* body, bool copied) {
    TUTTI_ASSERT(has_room() && !(copied && header.bytes > sizeof(Frame::body)));
    if (peer_ended_) return;  // nobody would read it
    attempt([&] {
        Frame& frame = out_[next_out_++ % frames];
        frame.head = header;
        std::size_t size = sizeof frame.head;
        if (header.bytes <= sizeof frame.body) {
            if (header.bytes > 0) std::memcpy(frame.body, body, header.bytes);
            size += header.bytes;
        } else {
            const Slots slots = slots_of(mine_, peer_, header.lane);
            bodies_out_.add(const_cast<std::byte*>(body), header.bytes, bodies_out_.memory(slots.base, slots.size));
        }
        frames_out_.add(&frame, size, frames_out_.memory(out_, frames * sizeof(Frame)));
        return true;
    });
}

bool Carrier::is_empty() const {
    return peer_ended_ || (frames_out_.count() == 0 && bodies_out_.count() == 0);
}

bool Carrier::send() {
    return attempt([&] {
        if (state_ != State::open) return connect();
        bool moved = false;
        for (Requests* const requests : {&frames_out_, &bodies_out_}) {
            moved |= requests->move();
            for (std::size_t size; requests->take(size); moved = true) {
            }
        }
        return moved;
    });
}

bool Carrier::receive(net::Recipient& to) {
    return attempt([&] {
        if (state_ != State::open) return connect();
        bool moved = frames_in_.move();
        moved |= bodies_in_.move();
        moved |= take_bodies(to);
        moved |= take_frames(to);
        moved |= bodies_in_.move();
        if (peer_ended_) say_end();
        return moved;
    });
}

bool Carrier::take_bodies(net::Recipient& to) {
    bool moved = false;
    for (std::size_t size; !arriving_.empty() && bodies_in_.take(size); moved = true) {
        const net::Header header = arriving_.front();
        if (size != header.bytes) return lose(text("a message of %u bytes has arrived as %zu", header.bytes, size));
        arriving_.pop_front();
        busy_[header.lane] = false;
        to.finish(header);
    }
    return moved;
}

bool Carrier::take_frames(net::Recipient& to) {
    bool moved = false;
    for (std::size_t size = 0; held_ || frames_in_.take(size); moved = true) {
        const unsigned number = next_in_ % frames;
        const Frame& frame = in_[number];
        if (!held_ && size == 1) {
            peer_ended_ = true;
            ++next_in_;
            continue;
        }
        // Its length tells what is in there, and need not be kept: the header has the same to say.
        const std::size_t body = frame.head.bytes <= sizeof frame.body ? frame.head.bytes : 0;
        if (!held_ && (size < sizeof frame.head || !frame.head.fits() || size != sizeof frame.head + body))
            return lose("it has sent a frame that no version of the protocol has");
        held_ = busy_[frame.head.lane];
        if (held_) break;
        if (!digest(frame, to)) return false;
        ++next_in_;
        if (!peer_ended_) expect(number);
    }
    frames_in_.move();
    return moved;
}

/// A frame of a lane on which no body is under way.
bool Carrier::digest(const Frame& frame, net::Recipient& to) {
    const char* why = "";
    std::byte* const place = to.begin(frame.head, why);
    if (place == nullptr) return lose(why);
    if (frame.head.bytes <= sizeof frame.body) {
        if (frame.head.bytes > 0) std::memcpy(place, frame.body, frame.head.bytes);
        to.finish(frame.head);
        return true;
    }
    const Slots slots = slots_of(inbox_, 0, frame.head.lane);
    bodies_in_.add(place, frame.head.bytes, bodies_in_.memory(slots.base, slots.size));
    busy_[frame.head.lane] = true;
    arriving_.push_back(frame.head);
    return true;
}

/// For the places that the other end keeps.
void Carrier::say_end() {
    if (std::exchange(ended_, true)) return;
    void* const memory = frames_out_.memory(out_, frames * sizeof(Frame));
    for (unsigned i = 0; i < frames; ++i) frames_out_.add(out_, 1, memory);
}

/// Sends what is left, and waits until nothing is under way in either direction, as far as the other end helps.
void Carrier::part() {
    attempt([&] {
        say_end();
        if (std::exchange(held_, false) && !peer_ended_) expect(next_in_++ % frames);
        for (const Deadline limit = Clock::now() + farewell; Clock::now() < limit;) {
            bool moved = false;
            for (Requests* const requests : {&frames_out_, &bodies_out_}) {
                moved |= requests->move();
                for (std::size_t size; requests->take(size); moved = true) {
                }
            }
            for (std::size_t size; frames_in_.take(size); moved = true) {
                peer_ended_ |= size == 1;
                if (!peer_ended_) expect(next_in_ % frames);
                ++next_in_;
            }
            for (std::size_t size; bodies_in_.take(size); moved = true) {
            }
            frames_in_.move();
            if (frames_in_.count() == 0 && frames_out_.count() == 0 && bodies_out_.count() == 0) break;
            if (!moved) std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
        return true;
    });
    if (!trouble().empty())
        log(Level::info, "while the connection with rank %d was closed: %s", peer_, trouble().c_str());
}

}  // namespace tutti::plugin
