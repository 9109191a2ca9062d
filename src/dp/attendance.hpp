// config.join: which ranks still have batches. A rank without any follows the leader, the first rank that has some: it
// makes the leader's calls, with gradients of zero.
#pragma once

#include <string>
#include <vector>

#include "dp/ranks.hpp"

namespace tutti::dp {

/// A call of the leader's that its followers make, too.
struct Announcement {
    enum class Call : std::int32_t {
        begin,   // or tuttiDpJoin: all ranks say whether they have a batch
        launch,  // the buckets up to `number` have gone
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
    std::uint64_t length = 0;  // of the text that follows
};

/// The thread that uses the layer; announce() one thread at a time.
class Attendance {
  public:
    explicit Attendance(const Ranks& ranks) : ranks_(ranks) {}
    /// Ranks have joined anew: all have batches.
    void reset() { leader_ = 0, followers_.clear(), has_batch_ = true, seen_followers_ = false; }
    /// Collective: every rank says whether it has a batch.
    void meet(bool has_batch);

    bool leads() const { return leader_ == ranks_.rank() && !followers_.empty(); }
    bool follows() const { return leader_ >= 0 && !has_batch_; }
    bool is_over() const { return leader_ < 0; }             // nobody has a batch
    int active() const { return active_; }                   // ranks that have one
    int last_leader() const { return last_leader_; }         // the last rank that led; -1: none
    bool seen_followers() const { return seen_followers_; }  // since the last time that it was over
    void close() { seen_followers_ = false; }

    /// To the followers, if this rank leads; else nothing happens.
    void announce(Announcement what, const std::string& text = {}) const;
    /// What the leader calls next.
    Announcement hear(std::string& text) const;

  private:
    const Ranks& ranks_;
    int leader_ = 0, last_leader_ = -1, active_ = 0;
    std::vector<int> followers_;
    bool has_batch_ = true, seen_followers_ = false;
};

}  // namespace tutti::dp
