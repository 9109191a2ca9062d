// A rank's memory that its engine reads and writes for peers on other hosts: the rank's parts of windows, for their
// puts and gets, and the destinations of the rank's own gets. Peers on the same host access the parts directly, guarded
// by RankPage::gates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/types.hpp"

namespace tutti {

/// Memory that is registered with a network's adapter, so that peers' adapters write and read it.
struct Registered {
    const void* adapter = nullptr;
    std::uint32_t remote_key = 0;  // that peers have to name
    std::shared_ptr<void> owner;   // ends the registration; then no adapter writes the memory any more
};

/// The rank's parts of windows, by gate. Part of its arena. Any thread; has a lock of its own.
class LentMemory {
  public:
    /// Lends memory to the engine until it is taken back. key: not 0; an access has to name the same. known:
    /// registrations of `reach`, which is the memory or a part of it.
    void lend(std::uint32_t gate, std::uint32_t key, std::span<std::byte> memory, std::span<std::byte> reach = {},
              std::vector<Registered> known = {});
    /// When this has returned neither the engine nor an adapter touches the memory any more. Without effect if it is
    /// not lent.
    void take_back(std::uint32_t gate);
    void take_all_back();
    bool lends_any();

    /// The bytes of a part that peers' adapters can write and read by way of one adapter of this rank.
    struct Reach {
        std::span<std::byte> memory;
        std::uint64_t offset;  // of memory in the part
        std::uint32_t remote_key;
    };
    /// nullopt if the part is not lent under that key, or not registered with that adapter.
    std::optional<Reach> reach(std::uint32_t gate, std::uint32_t key, const void* adapter);

    enum class Access { done, not_lent, out_of_bounds };
    /// Copies data to, or from, `offset` bytes into the part of that gate; nothing unless the result is done.
    Access write(std::uint32_t gate, std::uint32_t key, std::uint64_t offset, std::span<const std::byte> data);
    Access read(std::uint32_t gate, std::uint32_t key, std::uint64_t offset, std::span<std::byte> data);
    /// What read() of so many bytes would return now.
    Access look(std::uint32_t gate, std::uint32_t key, std::uint64_t offset, std::uint64_t bytes);

  private:
    Access find(std::uint32_t gate, std::uint32_t key, std::uint64_t offset, std::uint64_t bytes,
                std::span<std::byte>& found);

    struct Part {
        std::uint32_t key = 0;  // 0: not lent
        std::span<std::byte> memory = {}, reach = {};
        std::vector<Registered> known = {};  // never copied, since the registrations have to end with the loan
    };
    std::mutex mutex_;         // guards parts_, and is held while one message's data are copied
    std::vector<Part> parts_;  // by gate
};

/// Where the engine writes the answers to this rank's gets. A peer answers gets in the order in which they were sent.
/// Part of the rank's arena. Any thread; has a lock of its own.
class AwaitedMemory {
  public:
    /// Adds a get from that peer, before its request is sent. Answers fill the memory in order, after those to earlier
    /// gets.
    void expect(Rank peer, std::span<std::byte> memory);
    /// Removes the oldest get from that peer, which has been answered. Without effect after forget_all().
    void forget(Rank peer);
    /// When this has returned the engine does not write to any of the memory any more.
    void forget_all();

    struct State {
        std::size_t asked = 0;    // gets that were expected and not forgotten
        bool answered = false;    // the oldest of them is complete
        std::size_t missing = 0;  // bytes that the oldest still lacks
    };
    State state(Rank peer);
    /// How many gets from that peer are not complete.
    std::size_t unanswered(Rank peer);

    /// Takes the next answer from that peer. False if nothing, or less, was asked for.
    bool fill(Rank peer, std::span<const std::byte> data);
    /// Where the next answer from that peer goes; empty if there is none to come.
    std::span<std::byte> wanted(Rank peer);
    /// An adapter has written the next answer there: so many bytes. Without effect after forget_all().
    void filled(Rank peer, std::size_t bytes);

  private:
    struct Get {
        std::span<std::byte> rest;  // not filled yet
        bool answered = false;
        void go_on(std::size_t bytes) {
            rest = rest.subspan(bytes);
            answered = rest.empty();
        }
    };
    Get* next(Rank peer);
    std::mutex mutex_;                      // guards gets_ and is held while data are copied
    std::map<Rank, std::deque<Get>> gets_;  // by peer, the oldest first
};

}  // namespace tutti
