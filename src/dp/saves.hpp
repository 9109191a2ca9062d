// The saves of a layer, one at a time.
#pragma once

#include "dp/checkpoint.hpp"

namespace tutti::dp {

/// Owned by the Engine; used by the caller's thread.
class Saves {
  public:
    /// As Saving's constructor. The save before must have ended.
    void begin(const std::string& path, const Ranks& ranks, const Storage& storage, const Kept& kept, Manifest m,
               bool beside) {
        saving_ = std::make_unique<Saving>(path, ranks, storage, kept, std::move(m), beside ? &staging_ : nullptr);
    }
    /// Ends the save in progress, if there is one. Collective; throws as Saving::finish().
    void finish(const Ranks& ranks) {
        const std::unique_ptr<Saving> saving = std::move(saving_);
        if (!saving) return;
        saving->finish(ranks);
        last = saving->path();
    }
    void give_up() { saving_.reset(); }
    std::size_t staging_bytes() const { return staging_.bytes; }

    std::string last;  // path of the last checkpoint that was saved or loaded; empty if there is none

  private:
    Staging staging_;
    std::unique_ptr<Saving> saving_;  // the save in progress, nullptr if there is none
};

}  // namespace tutti::dp
