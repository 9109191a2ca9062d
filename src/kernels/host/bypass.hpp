// What bypasses a core's caches, because it is not in them, or will not be when it is needed again. Reads of it are
// fetched ahead, and stores to it do not fetch what they overwrite.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "transport/fifo.hpp"

namespace tutti {

/// What a rank has of the largest caches.
struct CacheShare {
    std::size_t bytes = SIZE_MAX;  // Caches::share()
    bool apart = false;            // there is one other rank, and its core has another cache
    bool several = false;          // there are several, all on this host: a Trial tells how far the cores are apart
};

/// Of one job.
struct Bypass {
    bool sinks = false;       // what is stored in buffers
    bool sources = false;     // what is read of this rank's own buffers
    bool references = false;  // what is read of a peer's
    bool slots = false;       // messages in slots, at both ends; not those in an Exchange

    bool any() const { return std::bit_cast<std::uint32_t>(*this) != 0; }
    /// Of a message that has arrived. What lies in an Exchange brings lines back that this core has had. own: this
    /// rank's.
    bool reads(Receiver& receiver, const WakeUp& own) const {
        const Kind kind = receiver.cell().kind;
        if (kind == Kind::reference) return references;
        return (kind == Kind::slot || kind == Kind::placed) && slots && !on_one_core(receiver.wake_up(), own);
    }
    /// Of the message that is next to be sent, after Sender::place().
    bool stores(Kind kind, const Sender& sender, const WakeUp& own) const {
        const auto shares_core = [&](const Sender::Reader& reader) { return on_one_core(*reader.wake_up, own); };
        if (kind == Kind::landed) return sinks;
        return kind == Kind::slot && slots && !sender.exchanges() &&
               !std::ranges::all_of(sender.readers(), shares_core);
    }

    /// Whether buffers that take so many bytes together are too large for what a rank stores there to stay in the
    /// cache. The other ranks' are as large. output: of these, what it stores.
    static bool too_large(CacheShare caches, std::size_t buffers, std::size_t output) {
        return output >= streaming_bytes || buffers >= caches.bytes;
    }
    void decide_on_buffers(CacheShare caches, std::size_t all, std::size_t output) {
        sinks = too_large(caches, all, output);
        sources = all / (caches.apart ? cold_shares_apart : cold_shares) >= caches.bytes;
        references = all / cold_shares_of_peer >= caches.bytes;
    }
    /// one_way: the rank either sends or receives.
    void decide_on_slots(CacheShare caches, std::size_t longest_message, bool one_way) {
        slots = caches.apart && one_way && longest_message >= far_bytes;
    }
    /// Whether a Trial decides on `slots`.
    static bool tries_slots(CacheShare caches, std::size_t longest_message, std::size_t buffers) {
        return caches.several && longest_message >= tried_bytes && buffers >= 8 * tried_bytes;
    }
    /// Whether a Trial decides if what could go by reference is copied. Not what no cache holds.
    static bool tries_copies(CacheShare caches, std::size_t buffers) {
        return caches.several && buffers / cold_shares < caches.bytes;
    }

  private:
    static bool on_one_core(const WakeUp& a, const WakeUp& b) {
        const std::int32_t core = a.core.load(std::memory_order_relaxed);
        return core != 0 && core == b.core.load(std::memory_order_relaxed);
    }

    /// Outputs of this size or more bypass the cache, however large it is.
    static constexpr std::size_t streaming_bytes = 8 * 1024 * 1024;
    /// Buffers of so many times a rank's share of the cache are in no cache: its own, its own where each core has a
    /// cache of its own, and a peer's. Below, fetching ahead costs more than it gains (docs/performance-cpu.md).
    static constexpr std::size_t cold_shares = 2, cold_shares_apart = 3, cold_shares_of_peer = 4;
    /// Where cores have no cache in common, a line in the other one's cache takes longer than one in memory.
    static constexpr std::size_t far_bytes = 8 * 1024;
    /// Shorter messages, and calls whose buffers together have less than eight times as much, lose by trials.
    static constexpr std::size_t tried_bytes = 64 * 1024;
};

}  // namespace tutti
