// The completion queue of one connection, and what the last look at it has found and nobody has taken yet. Used under
// the engine's lock; no call waits.
#pragma once

#include <array>

#include "transport/verbs/device.hpp"

namespace tutti::verbs {

class Completions {
  public:
    /// entries: how many it has room for. Throws tuttiSystemError that names the port.
    Completions(const Port& port, int entries);
    ~Completions();
    Completions(const Completions&) = delete;

    ibv_cq* queue() const { return queue_.get(); }
    /// Readable when there is something, after arm().
    int fd() const { return channel_->fd; }

    bool empty() const { return taken_ == here_; }
    enum class Found { some, nothing, error };
    /// When it is empty.
    Found look();
    const ibv_wc& take() { return batch_[static_cast<std::size_t>(taken_++)]; }
    /// There were no more when it was looked at last.
    bool that_was_all() const { return here_ < batch; }
    /// False: the adapter does not.
    bool arm();

  private:
    static constexpr int batch = 16;

    const Library& library_;
    Owned<ibv_comp_channel> channel_;
    Owned<ibv_cq> queue_;
    std::array<ibv_wc, batch> batch_{};
    int here_ = 0, taken_ = 0;  // of batch_
    unsigned events_ = 0;       // of the channel, not acknowledged yet
};

/// How many requests an adapter has been given and not completed. Few of them tell that they have: the completion of
/// one tells of those before it, too.
class SendWindow {
  public:
    explicit SendWindow(unsigned most) : most_(most) {}
    unsigned most() const { return most_; }
    bool has_room(unsigned requests) const { return used_ + requests <= most_; }
    /// They are to be posted next. How many the completion of the last one will tell of; 0: it is to tell nothing.
    unsigned post(unsigned requests, bool tells) {
        untold_ += requests;
        return tells || untold_ >= most_ / 4 ? std::exchange(untold_, 0) : 0;
    }
    /// They were.
    void posted(unsigned requests) { used_ += requests; }
    void completed(unsigned requests) { used_ -= requests; }
    /// Some completion will still come.
    bool awaits() const { return used_ > untold_; }

  private:
    const unsigned most_;
    unsigned used_ = 0;
    unsigned untold_ = 0;  // of which no completion will tell, but that of a later one
};

}  // namespace tutti::verbs
