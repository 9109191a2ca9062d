// config.join: which ranks still have batches. The first rank that has one leads. A rank without any follows it: it
// makes the same calls as the leader, with gradients of zero.
#pragma once

#include <string>
#include <vector>

#include "dp/ranks.hpp"

namespace tutti::dp {

/// A call that the leader makes and its followers repeat.
struct Announcement {
    enum class Call : std::int32_t {
        begin,   // tuttiDpBegin or tuttiDpJoin: all ranks say whether they have a batch
        launch,  // the leader has launched the buckets up to `number`
        synchronize,
        clip,
        unscale,
        step,
        set_group,
        gather,
        release,
        find_nan,
        check_equal,
        broadcast,
        reset_error_feedback,
        save,
        save_beside,
        save_wait,
        load,
        set_note
    } call;
    std::int32_t flag = 0;
    std::int64_t number = 0;
    double real = 0, second = 0, learning_rate = 0;
    std::uint64_t length = 0;  // of the text that follows, in bytes
};

/// Owned by the Engine. Used by the caller's thread; announce() by one thread at a time.
class Attendance {
  public:
    explicit Attendance(const Ranks& ranks) : ranks_(ranks) {}
    /// Call when ranks have joined anew: assumes that all of them have batches.
    void reset() { leader_ = 0, followers_.clear(), has_batch_ = true, seen_followers_ = false; }
    /// Collective: every rank says whether it has a batch.
    void meet(bool has_batch);

    bool leads() const { return leader_ == ranks_.rank() && !followers_.empty(); }
    bool follows() const { return leader_ >= 0 && !has_batch_; }
    bool is_over() const { return leader_ < 0; }             // no rank has a batch
    int active() const { return active_; }                   // ranks that have a batch
    int last_leader() const { return last_leader_; }         // the last rank that led; -1 if none has
    bool seen_followers() const { return seen_followers_; }  // there were followers since the last close()
    void close() { seen_followers_ = false; }

    /// Sends a call to the followers, if this rank leads; otherwise does nothing.
    void announce(Announcement what, const std::string& text = {}) const;
    /// Receives the leader's next call.
    Announcement hear(std::string& text) const;

  private:
    const Ranks& ranks_;
    int leader_ = 0, last_leader_ = -1, active_ = 0;
    std::vector<int> followers_;
    bool has_batch_ = true, seen_followers_ = false;
};

}  // namespace tutti::dp
