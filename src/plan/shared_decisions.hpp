// Decisions that the ranks of one host share. All ranks decide alike, so where they outnumber cores, one decides, and
// the others sleep until it has. The entries lie in the page of the host's first rank. They are never free again: calls
// that differ from the first ones are decided by each process.
#pragma once

#include <cstdint>
#include <optional>

#include "transport/rank_page.hpp"

namespace tutti {

/// A decision, without what all ranks know. algorithm: number_of() it.
struct Decision {
    std::uint32_t algorithm = 0;
    int columns = 1, message_chunks = 1;  // TileShape
    bool sends_slices = false;
    int rows = 1;            // of the program that has the most
    std::uint64_t tile = 0;  // TileLimits
    int channels = 1;
    int threads = 1;  // of each rank
    double time = 0;  // in microseconds
};

/// One rank's view of them. Any thread.
class SharedDecisions {
  public:
    explicit SharedDecisions(RankPage& page) : page_(page) {}

    /// The duty to decide for the others. Unless it is fulfilled, the destructor sends them on to decide by themselves.
    class Duty {
      public:
        Duty() = default;
        Duty(const Duty&) = delete;
        ~Duty() { end(gave_up); }
        void fulfil(const Decision& decision);

      private:
        friend class SharedDecisions;
        void end(std::uint32_t state);
        SharedDecision* entry_ = nullptr;  // nullptr: nobody waits
    };

    /// What another rank has decided on the question, or decides within a second. nullopt: the caller has to decide;
    /// `duty` is then its own if it is the first to ask. question: not 0.
    std::optional<Decision> ask(std::uint64_t question, Duty& duty);

  private:
    static constexpr std::uint32_t deciding = 0, decided = 1, gave_up = 2;
    RankPage& page_;
};

}  // namespace tutti
