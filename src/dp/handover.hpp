// Moves shards to their new owners when ranks have died or joined.
#pragma once

#include <optional>

#include "dp/cover.hpp"
#include "dp/ranks.hpp"
#include "dp/saved.hpp"
#include "dp/storage.hpp"
#include "dp/updater.hpp"

namespace tutti::dp {

/// All ranks take the notes of the rank with the most steps among those that have any: many programs set notes on one
/// rank only. Collective.
void share_notes(const Ranks& ranks, Notes& notes, long long steps);

/// For modes in which ranks own parts. Owned by the Engine. Used by the caller's thread, while no job is under way.
/// From begin() to end() this rank's former memory is kept, so that after an error a handover can begin anew, with
/// other ranks, from the former state.
class Handover {
  public:
    /// Both arguments must outlive this.
    Handover(const Ranks& ranks, Storage& storage) : ranks_(ranks), storage_(storage) {}
    /// Says that ranks and storage may not match from here to end(). Call it before the ranks change.
    void announce() {
        if (!under_way_) newcomer_ = ranks_.size() == 1 && !moved_;
        under_way_ = true;
    }
    bool is_under_way() const { return under_way_; }

    /// Undoes a begin() that was not followed by end(), if there was one: restores the former memory.
    void take_back() noexcept;

    /// Cuts the storage to the shards of the present ranks, without values and states, and finds out which rank has
    /// what. progress: this rank's, unchanged until end(). order: parameters in the order in which they were dealt to
    /// buckets. If there is no memory it throws, and the storage is unchanged. Collective.
    Standing begin(const Progress& progress, std::span<const std::size_t> order);
    /// Sends all owners what they own now. Values go to their owners only and are not spread. Collective.
    void pass_on(const Cover& cover);
    /// Frees the former memory.
    void end() {
        held_.reset();
        under_way_ = false;
        moved_ = true;
    }

  private:
    /// Elements [first, first + count) of `sent` elements.
    struct Slice {
        std::size_t first, count, sent;
    };
    void pass_on(const Origin& origin);
    void keep(const Origin& origin, const Bucket& to, std::size_t at, std::span<const std::byte> bytes, Slice slice);

    const Ranks& ranks_;
    Storage& storage_;
    std::optional<Storage::Former> held_;  // the former memory, from begin() to end()
    bool under_way_ = false, moved_ = false;
    bool newcomer_ = false;  // from announce() to end(): this layer has been alone so far
};

}  // namespace tutti::dp
