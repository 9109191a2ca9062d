// Memory of a rank that its engine uses for peers on other hosts: parts of windows, which they put to and get from, and
// where the answers to this rank's own gets go. Peers on its host use parts themselves, and look at RankPage::gates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <span>
#include <vector>

#include "base/types.hpp"

namespace tutti {

/// By gate. Any thread.
class LentMemory {
  public:
    /// Under this key, until it is taken back. key: not 0.
    void lend(std::uint32_t gate, std::uint32_t key, std::span<std::byte> memory);
    /// The engine uses it no more when it returns. Does nothing to what is not lent.
    void take_back(std::uint32_t gate);
    void take_all_back();

    enum class Access { done, not_lent, out_of_bounds };
    Access write(std::uint32_t gate, std::uint32_t key, std::uint64_t offset, std::span<const std::byte> data);
    Access read(std::uint32_t gate, std::uint32_t key, std::uint64_t offset, std::span<std::byte> data);
    /// Whether so many bytes could be read from there now.
    Access look(std::uint32_t gate, std::uint32_t key, std::uint64_t offset, std::uint64_t bytes);

  private:
    Access find(std::uint32_t gate, std::uint32_t key, std::uint64_t offset, std::uint64_t bytes,
                std::span<std::byte>& found);

    struct Part {
        std::uint32_t key = 0;  // 0: not lent
        std::span<std::byte> memory = {};
    };
    std::mutex mutex_;  // also of what is copied: a message's data at a time
    std::vector<Part> parts_;
};

/// Where the engine writes what peers answer to gets, which each answers in the order in which it was asked. Any
/// thread.
class AwaitedMemory {
  public:
    /// Of the next get from that peer: its answers fill the memory in order, when those to the gets before it have
    /// come.
    void expect(Rank peer, std::span<std::byte> memory);
    /// The first get from that peer, all answers to which have come; none, if all were forgotten meanwhile.
    void forget(Rank peer);
    /// The engine writes nowhere any more when it returns.
    void forget_all();

    struct State {
        std::size_t asked = 0;    // gets, since expect(), and not forgotten
        bool answered = false;    // all has come that the first of them wants
        std::size_t missing = 0;  // of that one
    };
    State state(Rank peer);

    /// The next answer. False: it was not asked for, or not for so much.
    bool fill(Rank peer, std::span<const std::byte> data);

  private:
    struct Get {
        std::span<std::byte> rest;
        bool answered = false;
    };
    std::mutex mutex_;  // also of what is written
    std::map<Rank, std::deque<Get>> gets_;
};

}  // namespace tutti
