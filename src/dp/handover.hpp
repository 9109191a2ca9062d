// When ranks have died or come, parts have new owners: what each has goes to the one that owns it now.
#pragma once

#include <optional>

#include "dp/cover.hpp"
#include "dp/ranks.hpp"
#include "dp/storage.hpp"
#include "dp/updater.hpp"

namespace tutti::dp {

/// Where ranks own parts. The caller's thread, while no job is under way. From begin() to end() what this rank had
/// before stays in memory: a handover that an error has ended begins anew, with other ranks, from what there was.
class Handover {
  public:
    /// Both outlive this.
    Handover(const Ranks& ranks, Storage& storage) : ranks_(ranks), storage_(storage) {}
    /// From here to end() ranks and storage may not fit each other.
    void announce() { under_way_ = true; }
    bool is_under_way() const { return under_way_; }

    /// Back to what there was before one that an error has ended, if there is any; what it had made is freed.
    void take_back() noexcept;

    /// What there is to hand over.
    struct Plan {
        long long step = 0;  // after which all of it is as it was
        int root = 0;        // a rank that has made that step, and no more; only where nothing is lost
        Cover cover;
    };
    /// Collective. The storage is cut for ranks as they are now, without the values and states that it had. order: of
    /// parameters, in which they were dealt to buckets. progress: the same until end(). If there is no memory it
    /// throws, and the storage is as it was.
    Plan begin(const Progress& progress, std::span<const std::size_t> order);
    /// Collective: all owners get what they own. Values are theirs alone: not spread.
    void pass_on(const Cover& cover);
    void end() {
        held_.reset();
        under_way_ = false;
    }

  private:
    void pass_on(const Origin& origin);

    const Ranks& ranks_;
    Storage& storage_;
    std::optional<Storage::Former> held_;
    bool under_way_ = false;
};

}  // namespace tutti::dp
