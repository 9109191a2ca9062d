// Moves shards to their new owners when ranks have died or joined.
#pragma once

#include <optional>

#include "dp/cover.hpp"
#include "dp/ranks.hpp"
#include "dp/storage.hpp"
#include "dp/updater.hpp"

namespace tutti::dp {

/// For modes in which ranks own parts. Owned by the Engine. Used by the caller's thread, while no job is under way.
/// From begin() to end() this rank's former memory is kept, so that after an error a handover can begin anew, with
/// other ranks, from the former state.
class Handover {
  public:
    /// Both arguments must outlive this.
    Handover(const Ranks& ranks, Storage& storage) : ranks_(ranks), storage_(storage) {}
    /// Says that ranks and storage may not match from here to end().
    void announce() { under_way_ = true; }
    bool is_under_way() const { return under_way_; }

    /// Undoes a begin() that was not followed by end(), if there was one: restores the former memory.
    void take_back() noexcept;

    /// What there is to hand over.
    struct Plan {
        long long step = 0;  // values and states are those after this step
        int root = 0;        // a rank that has made exactly this step; valid only if nothing is lost
        Cover cover;
    };
    /// Cuts the storage to the shards of the present ranks, without values and states, and finds out which rank has
    /// what. progress: this rank's, unchanged until end(). order: parameters in the order in which they were dealt to
    /// buckets. If there is no memory it throws, and the storage is unchanged. Collective.
    Plan begin(const Progress& progress, std::span<const std::size_t> order);
    /// Sends all owners what they own now. Values go to their owners only and are not spread. Collective.
    void pass_on(const Cover& cover);
    /// Frees the former memory.
    void end() {
        held_.reset();
        under_way_ = false;
    }

  private:
    void pass_on(const Origin& origin);

    const Ranks& ranks_;
    Storage& storage_;
    std::optional<Storage::Former> held_;  // the former memory, from begin() to end()
    bool under_way_ = false;
};

}  // namespace tutti::dp
