// The completion queue of one connection, with the last batch polled from it, and the count of its sends under way.
// Used under the engine's lock; no call waits.
#pragma once

#include <array>

#include "transport/verbs/device.hpp"

namespace tutti::verbs {

/// Owned by an Endpoint, which takes completions one at a time.
class Completions {
  public:
    /// entries: capacity of the queue. Throws tuttiSystemError that names the port.
    Completions(const Port& port, int entries);
    ~Completions();
    Completions(const Completions&) = delete;

    ibv_cq* queue() const { return queue_.get(); }
    /// Readable when a completion arrives after arm().
    int fd() const { return channel_->fd; }

    /// Whether every completion of the last batch has been taken.
    bool empty() const { return taken_ == here_; }
    enum class Found { some, nothing, error };
    /// Polls the next batch. Only when empty().
    Found look();
    /// The next completion of the batch. Only when not empty().
    const ibv_wc& take() { return batch_[static_cast<std::size_t>(taken_++)]; }
    /// Whether the last look() has emptied the adapter's queue.
    bool that_was_all() const { return here_ < batch; }
    /// Asks for an event at the next completion. False if the adapter refuses.
    bool arm();

  private:
    static constexpr int batch = 16;

    const Library& library_;
    Owned<ibv_comp_channel> channel_;
    Owned<ibv_cq> queue_;
    std::array<ibv_wc, batch> batch_{};
    int here_ = 0, taken_ = 0;  // entries of batch_ that were polled, and taken
    unsigned events_ = 0;       // of channel_; acknowledged when the queue is destroyed
};

/// Counts the send requests that an adapter has been given and not completed. Few of them are signalled: the completion
/// of one stands for all unsignalled ones before it.
class SendWindow {
  public:
    explicit SendWindow(unsigned most) : most_(most) {}
    unsigned most() const { return most_; }
    bool has_room(unsigned requests) const { return used_ + requests <= most_; }
    /// Before `requests` requests are posted together. tells: the last of them must be signalled. Returns how many
    /// requests its completion will stand for; 0 if it is not to be signalled.
    unsigned post(unsigned requests, bool tells) {
        untold_ += requests;
        return tells || untold_ >= most_ / 4 ? std::exchange(untold_, 0) : 0;
    }
    /// After they were posted.
    void posted(unsigned requests) { used_ += requests; }
    /// requests: what post() returned for the request that has completed.
    void completed(unsigned requests) { used_ -= requests; }
    /// Whether a signalled request is still under way.
    bool awaits() const { return used_ > untold_; }

  private:
    const unsigned most_;
    unsigned used_ = 0;    // posted and not completed
    unsigned untold_ = 0;  // since the last signalled request
};

}  // namespace tutti::verbs
