// The wire of every connection: a FIFO of messages from one writer to one reader, in memory that both can see. It is
// all that the executor sees of a transport. A transport's whole job is to make one end's writes appear at the other.
//
//     writer                                            reader
//     ready()?  a cell is free                          ready()?  cell[next] carries turn next + 1
//     fill      payload in the cell (small), in the     read      where Cell::kind says
//               slot, or nowhere (by reference)
//     commit()  turn = next + 1              ------>
//                                            <------    release() released = next + 1: the credit and, for messages by
//                                                       reference, the acknowledgement
//
// A message of up to 48 bytes is one cache line, so data and flag arrive together. Everything is plain data, so a GPU
// can use the same words.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "base/device.hpp"
#include "base/os.hpp"
#include "base/types.hpp"
#include "transport/call.hpp"
#include "transport/exchange.hpp"
#include "transport/places.hpp"

namespace tutti {

inline constexpr std::size_t inline_bytes = 48;
inline constexpr std::size_t reference_bytes = 16 * 1024;  // below this an acknowledgement costs more than a copy
inline constexpr int collective_channels = 8;
inline constexpr int pair_channel =
    collective_channels;  // sends and receives have a channel of their own: see pair_limits()
inline constexpr int program_channels = pair_channel + 1;     // channels that programs write and read
inline constexpr int one_sided_channel = program_channels;    // puts, signals, gets over networks: see net/puts.hpp
inline constexpr int answer_channel = one_sided_channel + 1;  // the data that engines send in answer to gets
inline constexpr int channels_per_link = answer_channel + 1;

static_assert(slot_depth >= 2,
              "a ring of fused steps deadlocks with one slot: everyone keeps the incoming one while it "
              "waits for the next");
static_assert(std::has_single_bit(fifo_depth) && std::has_single_bit(depth_to_all) && fifo_depth % slot_depth == 0,
              "message numbers wrap around at 2^32");

/// Whether message a comes after message b. Correct only for numbers less than 2^31 apart: a number that is kept for
/// long must be moved along with the others.
TUTTI_HOST_DEVICE constexpr bool later(std::uint32_t a, std::uint32_t b) {
    return static_cast<std::int32_t>(a - b) > 0;
}

/// A place in the owner's memory as its peers name it. region: Region::id(); 0 if offset is an address of this process.
struct Reference {
    std::uint64_t region;
    std::uint64_t offset;
};

enum class Kind : std::uint16_t {
    inlined,    // the payload is in the cell
    slot,       // the payload is in slot number (message number % slot_depth)
    reference,  // the payload is where Cell::reference says, and stays there until released
    landed,     // the payload is where the reader's posted receive for this message says
    placed,     // the payload is in the slots, Cell::offset bytes from the first one on
    exchanged,  // the payload is at Exchange::arriving()
};

constexpr bool in_slot(Kind kind) {
    return kind == Kind::slot || kind == Kind::placed || kind == Kind::exchanged;
}

/// One message's cache line. The writer fills it in, and stores turn last.
struct alignas(64) Cell {
    std::atomic<std::uint32_t> turn;  // message number + 1, once the message is complete
    std::uint32_t signature;          // of the operation; a different one than expected means the calls differ
    std::uint32_t bytes;              // of the payload
    Kind kind;
    std::uint16_t mappable;  // 1: all ranks that contributed to the message have mappable buffers (HostExecution)
    union {
        std::byte payload[inline_bytes];
        Reference reference;
        std::uint32_t offset;
    };

    /// Uneven calls: how many elements the message's row has. For error texts. Only where the payload is not in the
    /// cell: it lies behind the reference.
    void set_row(std::uint64_t elements) { std::memcpy(payload + sizeof reference, &elements, sizeof elements); }
    std::uint64_t row() const {
        std::uint64_t elements;
        std::memcpy(&elements, payload + sizeof reference, sizeof elements);
        return elements;
    }
};

/// A posted receive: the reader lets the writer store message number turn - 1 at `where`.
struct alignas(64) PostedReceive {
    std::atomic<std::uint32_t> turn;
    std::uint32_t bytes;  // the length that the message must have
    Reference where;
};

/// One direction of one channel. Lies zeroed in an arena. The writer stores cells and call, the reader all the rest.
struct Fifo {
    Cell cells[fifo_depth];
    PostedReceive posted_receives[fifo_depth];
    alignas(64) std::atomic<std::uint32_t> released;  // the reader's credits: messages that it has finished with
    std::atomic<std::uint32_t> posted;  // posted receives so far; an engine that passes them on watches it
    alignas(64) SharedCall call;        // the call that the writer last began here; read only to explain an error
};

static_assert(sizeof(Cell) == 64 && sizeof(PostedReceive) == 64);
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// What a rank sleeps on, and its peers wake it by. A rank has one for all its connections.
struct alignas(64) WakeUp {
    std::atomic<std::uint32_t> word;      // the futex; grows with every wake-up
    std::atomic<std::uint32_t> sleeping;  // 1: the rank sleeps, or is about to
    std::atomic<std::int32_t> core;       // oversubscribed hosts: 1 + the core that it last waited on; 0: unknown
};

/// Wakes the rank if it sleeps. Call it after the store that the rank may wait for. There is no fence in between, since
/// it would cost every message a cache miss. Instead the sleeper puts a fence on all cores (fence_all_cores) between
/// its store to `sleeping` and its last look.
inline void wake(WakeUp& wake_up) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (__builtin_expect(wake_up.sleeping.load(std::memory_order_relaxed) == 0, 1)) return;
    wake_up.sleeping.store(0, std::memory_order_relaxed);
    wake_up.word.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(wake_up.word);
}

/// Where one direction of one channel lies, as this process sees it. Owns nothing.
struct Wire {
    Cell* ring = nullptr;  // `depth` cells that messages take in turn
    Fifo* fifo = nullptr;
    std::byte* slots = nullptr;       // slot_depth of them; in host memory their pages hold nothing of other channels
    WakeUp* wake_up = nullptr;        // of the rank at the other end
    std::span<std::byte> cells = {};  // whole pages: all FIFOs of the arena in which `fifo` lies
    std::atomic<std::uint32_t>* released = nullptr;  // where the reader stores its credits; nullptr: Fifo::released
    std::size_t stride = slot_stride;                // bytes from one slot to the next
    bool on_device = false;                          // true: slots lie on this rank's GPU; the host can't read them
    std::uint16_t depth = fifo_depth;                // messages in flight at most
    std::byte* exchange = nullptr;                   // the owner's side of an Exchange; nullptr: there is none
    bool takes_places = false;                       // the reader is a Receiver, which knows Kind::placed

    /// The same wire, to a Receiver.
    Wire taking_places() const {
        Wire wire = *this;
        wire.takes_places = true;
        return wire;
    }
    std::atomic<std::uint32_t>& credits() const { return released != nullptr ? *released : fifo->released; }
};

/// The writer's end. One thread at a time. next: the number of the first message (see numbering.hpp).
class alignas(64) Sender {
  public:
    explicit Sender(Wire wire, std::uint32_t next = 0) : Sender(std::vector<Wire>{wire}, next) {}

    /// For messages that several ranks read: a wire for each of them. The wires share cells and slots; credits and
    /// wake-ups are each reader's own. Such messages never go by reference or to a posted receive.
    explicit Sender(std::span<const Wire> readers, std::uint32_t next = 0)
        : next_(next), released_(next), depth_(readers.front().depth), wire_(readers.front()) {
        static_assert(offsetof(Sender, wire_) + offsetof(Wire, slots) <= 64, "all that a short message takes");
        for (const Wire& reader : readers) readers_.push_back({&reader.credits(), reader.wake_up});
    }

    /// Whether the next message can be written. slot: it may need its slot. Not beside place().
    bool ready(bool slot) {
        return fewer_under_way_than([this, slot] { return slot ? slot_depth : depth_; });
    }
    /// Whether the next message, of `bytes` bytes at most, can be written, in the cell or after place().
    bool ready_for(std::size_t bytes) {
        return fewer_under_way_than([this, bytes] { return depth_for(bytes); });
    }
    Cell& cell() { return wire_.ring[next_ & (depth_ - 1)]; }
    /// The slot of the next message; after place(), its place.
    std::byte* slot() {
        return exchanges_ ? exchange_->next() : wire_.slots + places_.offset_of(next_ - first_placed_, wire_.stride);
    }

    /// Gives the next message a place for `bytes` bytes, more than inline_bytes, where the reader finds it. Call it
    /// after ready_for() with as many, and before slot().
    void place(std::size_t bytes) {
        exchanges_ = exchange_ != nullptr && exchange_->takes(bytes);
        if (exchanges_) return;
        if (bytes != longest_) {
            const SlotPlaces places = places_of(bytes);
            if (places != places_) {
                places_ = places;
                replaced_ = next_;
                mixed_ = true;
            }
            longest_ = bytes;
        }
        if (!stays_hot(bytes) || bytes < reference_bytes) return;
        if (released_ != next_) released_ = released_by_all();
        if (released_ == next_) first_placed_ = next_;
    }

    /// Whether place() has put the next message into an Exchange.
    bool exchanges() const { return exchanges_; }

    /// From now on place() prefers the places of `exchange`. The peer's Receiver must have its end of it.
    void exchange_by(Exchange* exchange) { exchange_ = wire_.takes_places ? exchange : nullptr; }
    /// For ranks that share a core's cache: from now on place() puts a long message into the first slot if the readers
    /// are done with all earlier ones. So what they send each other takes one slot there, not slot_depth of them.
    void keep_slots_hot() {
        recycles_ = wire_.takes_places;
        longest_ = 0;
    }

    /// The receive that the reader has posted for the next message; nullptr if there is none.
    const PostedReceive* posted_receive() const {
        const PostedReceive& l = wire_.fifo->posted_receives[next_ % fifo_depth];
        return l.turn.load(std::memory_order_acquire) == next_ + 1 ? &l : nullptr;
    }

    /// Publishes the message in cell(). Wakes nobody: see ring().
    void commit(Kind kind, std::uint32_t bytes, std::uint32_t signature, bool mappable = false) {
        const std::uint32_t next = next_ + 1;
        Cell& c = cell();
        c.signature = signature;
        c.bytes = bytes;
        c.kind = kind;
        if (kind == Kind::slot) c.kind = kind_in_slots(c);
        c.mappable = mappable;
        c.turn.store(next, std::memory_order_release);
        next_ = next;
        __builtin_prefetch(&cell(), 1);  // this core owns the next message's line by the time it is written
        // Read before they run out, while the message is under way, credits cost nothing; in ready() they hold up the
        // next message.
        if (next_ - released_ >= depth_ - 2u) released_ = released_by_all();
        if (kind != Kind::reference) return;
        refers_ = true;
        last_reference_ = next;
    }

    /// True if every message by reference has been acknowledged, so the memory behind them may change.
    bool settled() {
        if (!refers_) return true;
        if (later(last_reference_, released_)) released_ = released_by_all();
        refers_ = later(last_reference_, released_);
        return !refers_;
    }

    /// True if that reader has released everything in the FIFO, including what other writers (kernels) put there.
    bool drained(std::size_t reader = 0) const {
        const std::uint32_t released = readers_[reader].released->load(std::memory_order_acquire);
        return wire_.ring[released & (depth_ - 1)].turn.load(std::memory_order_acquire) != released + 1;
    }

    /// The number of the reader that has released least.
    std::size_t slowest() const {
        std::size_t slowest = 0;
        for (std::size_t r = 1; r < readers_.size(); ++r)
            if (later(readers_[slowest].released->load(), readers_[r].released->load())) slowest = r;
        return slowest;
    }

    /// Notes the call that the next messages belong to. streams: in it, the writer waits for no message, so as many of
    /// its own as possible are to be under way; other messages take fewer places, which stay in the cache.
    void begin(const Call& call, bool streams = false) {
        wire_.fifo->call.set(call);
        const std::uint16_t most = streams ? depth_ | streaming : std::min<std::uint16_t>(depth_, fifo_depth);
        if (most == most_placed_) return;
        most_placed_ = most;
        longest_ = 0;
    }

    /// Wakes readers that sleep. Call it after commit().
    void ring() {
        for (const Reader& reader : readers_) wake(*reader.wake_up);
    }

    struct Reader {
        std::atomic<std::uint32_t>* released;
        WakeUp* wake_up;
    };
    std::span<const Reader> readers() const { return readers_; }

  private:
    std::uint32_t released_by_all() const {
        std::uint32_t least = readers_.front().released->load(std::memory_order_acquire);
        for (const Reader& reader : std::span(readers_).subspan(1)) {
            const std::uint32_t released = reader.released->load(std::memory_order_acquire);
            if (later(least, released)) least = released;
        }
        return least;
    }

    Kind kind_in_slots(Cell& c) {
        if (exchanges_) {
            exchanges_ = false;
            exchange_->count_sent();
            return Kind::exchanged;
        }
        if (places_.count == slot_depth && first_placed_ % slot_depth == 0) return Kind::slot;
        c.offset = static_cast<std::uint32_t>(slot() - wire_.slots);
        return Kind::placed;
    }

    template <typename Depth>
    bool fewer_under_way_than(Depth depth) {
        if (next_ - released_ < depth()) return true;
        released_ = released_by_all();
        return next_ - released_ < depth();
    }

    /// A single reader often waits for an answer. What all read goes one way, and as much of it as possible at once.
    bool stays_hot(std::size_t bytes) const {
        return recycles_ && (readers_.size() == 1 || bytes > 2 * reference_bytes);
    }
    [[gnu::noinline]] SlotPlaces places_of(std::size_t bytes) const {
        if (!wire_.takes_places || stays_hot(bytes)) return {};
        const bool all_room = (most_placed_ & streaming) != 0 && !recycles_ && readers_.size() == 1;
        return places_for(bytes, wire_.stride, most_placed_ & ~streaming, (all_room ? slot_depth : 1) * wire_.stride);
    }

    /// Messages that differ in places_of() may overlap, unless they are in different slots.
    std::uint32_t depth_for(std::size_t bytes) {
        if (bytes <= inline_bytes || (exchange_ != nullptr && exchange_->takes(bytes))) return depth_;
        mixed_ = mixed_ && later(replaced_, released_);
        return mixed_ || (bytes != longest_ && places_of(bytes) != places_) ? slot_depth : places_.count;
    }

    static constexpr std::uint16_t streaming = 0x8000;
    static_assert(fifo_depth < streaming && depth_to_all < streaming);

    // What a short message takes lies in the first cache line.
    std::uint32_t next_;      // the number of the next message
    std::uint32_t released_;  // credits of the slowest reader when they were last read
    Exchange* exchange_ = nullptr;
    std::uint16_t depth_;                     // messages under way at most
    std::uint16_t most_placed_ = fifo_depth;  // the same, in slots; with `streaming` if all of their room is used
    bool refers_ = false;                     // it may not be acknowledged yet
    bool exchanges_ = false;                  // the next message has a place in exchange_
    bool recycles_ = false;                   // see keep_slots_hot()
    bool mixed_ = false;                      // messages before replaced_ may be under way
    std::vector<Reader> readers_;
    Wire wire_;
    std::size_t longest_ = 0;           // that places_ are for
    SlotPlaces places_;                 // of the last messages in slots
    std::uint32_t replaced_ = 0;        // the first message since this changed
    std::uint32_t first_placed_ = 0;    // the message that was last put into the first slot because none was under way
    std::uint32_t last_reference_ = 0;  // turn of the last message by reference
};

/// The reader's end. One thread at a time. next: as for Sender.
class alignas(64) Receiver {
  public:
    explicit Receiver(Wire wire, std::uint32_t next = 0)
        : released_(&wire.credits()), next_(next), depth_(wire.depth), wire_(wire) {
        static_assert(offsetof(Receiver, wire_) + offsetof(Wire, cells) <= 64, "all that a short message takes");
    }

    bool ready() const { return cell().turn.load(std::memory_order_acquire) == next_ + 1; }
    const Cell& cell() const { return wire_.ring[next_ & (depth_ - 1)]; }
    void exchange_by(Exchange* exchange) { exchange_ = exchange; }
    const std::byte* slot() const {
        if (cell().kind == Kind::exchanged) return exchange_->arriving();
        return wire_.slots + (cell().kind == Kind::placed ? cell().offset : next_ % slot_depth * wire_.stride);
    }
    /// Whether there is room for so many bytes from slot() on. The peer may have written any kind and offset.
    bool holds(std::size_t bytes) const {
        switch (cell().kind) {
            case Kind::exchanged:
                return exchange_ != nullptr && exchange_->holds(bytes);
            case Kind::placed:
                return cell().offset + bytes <= slot_depth * wire_.stride;
            default:
                return bytes <= wire_.stride;
        }
    }

    /// Gives the credit for the message in cell(). Wakes nobody.
    void release() {
        if (offered_ != 0) [[unlikely]]
            withdraw();
        if (exchange_ != nullptr && cell().kind == Kind::exchanged) exchange_->count_received();
        released_->store(++next_, std::memory_order_release);
    }

    /// Posts a receive: the message `ahead` messages after the next one may be stored at `where` if it has exactly
    /// `bytes` bytes. ahead < fifo_depth. The offer ends when that message is released.
    void post(std::uint32_t ahead, Reference where, std::size_t bytes) {
        PostedReceive& l = wire_.fifo->posted_receives[(next_ + ahead) % fifo_depth];
        l.bytes = static_cast<std::uint32_t>(bytes);
        l.where = where;
        l.turn.store(next_ + ahead + 1, std::memory_order_release);
        offered_ |= 1u << (next_ + ahead) % fifo_depth;
        wire_.fifo->posted.store(++posted_, std::memory_order_release);
    }

    Call call() const { return wire_.fifo->call.get(); }
    WakeUp& wake_up() { return *wire_.wake_up; }

  private:
    /// Clears the offer for the next message. Without this the writer would take it for a valid one 2^32 messages
    /// later.
    void withdraw() {
        const std::uint32_t number = next_ % fifo_depth;
        if ((offered_ >> number & 1) == 0) return;
        offered_ &= ~(1u << number);
        wire_.fifo->posted_receives[number].turn.store(next_,
                                                       std::memory_order_relaxed);  // a turn that never matches here
    }

    // What a short message takes lies in the first cache line.
    std::atomic<std::uint32_t>* released_;
    Exchange* exchange_ = nullptr;
    std::uint32_t next_;         // the number of the next message
    std::uint32_t posted_ = 0;   // receives posted so far
    std::uint32_t offered_ = 0;  // bit n: the posted receive in entry n is still open
    std::uint32_t depth_;        // Wire::depth
    Wire wire_;
};

}  // namespace tutti
