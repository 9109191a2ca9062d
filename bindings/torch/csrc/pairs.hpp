// Sends and receives of a group. They go on beside the collectives and beside each other, as with Gloo: messages from
// one rank to another are a communicator of these two, made when first needed, with a thread on either side. A message
// is a header (tag, bytes) and its data, so receives are matched by rank and tag in the order of the calls; a message
// that nobody has asked for yet is kept.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>

#include "tensors.hpp"
#include "work.hpp"

namespace tutti_torch {

/// Sends up to this size end at once: what is sent is copied, so that two ranks may send to each other first, and
/// receive then.
constexpr std::size_t kEagerBytes = 64 * 1024;

/// Longer messages are sent in pieces: each that has come shows the receiver that the sender goes on.
constexpr std::size_t kPieceBytes = 16 * 1024 * 1024;

struct Header {
    std::int64_t tag;
    std::uint64_t bytes;
};

/// Where the two ranks of a direction meet.
struct Rendezvous {
    c10::intrusive_ptr<c10d::Store> store;
    std::string key;   // of this direction
    std::string what;  // for errors, which name the ranks as their communicator does
    Milliseconds timeout;
    Settings settings;
};

class Sender {
  public:
    explicit Sender(Rendezvous meeting);
    ~Sender();

    void send(const WorkPtr& work, const at::Tensor& tensor, int tag);
    void close(bool abandon);

  private:
    void deliver(const at::Tensor& tensor, int tag);

    Rendezvous meeting_;
    std::atomic<bool> stopping_{false};
    std::mutex making_;
    std::unique_ptr<Communicator> comm_;  // guarded by making_ while it is made; the queue's afterwards
    Memory spare_;
    std::shared_ptr<Queue> queue_;
};

/// A receive that waits for its message, from one rank or from any.
struct Wanted {
    WorkPtr work;
    at::Tensor tensor;
    int tag;
    std::atomic<bool> taken{false};  // whoever sets it serves it
    std::atomic<int> receivers{1};   // that look out for it

    bool take() { return !taken.exchange(true); }

    // Of the message, from its header on. Any thread.
    /// Says over what it comes, and that a part of it has come just now; nullptr: no more will come.
    void comes(Communicator* over);
    /// Ends it if no part of it has come for this long. Returns after what time to ask again.
    Milliseconds end_if_stalled(Milliseconds limit);
    bool stalled() const { return stalled_; }  // it was ended so

  private:
    std::mutex mutex_;  // guards the next two
    Communicator* over_ = nullptr;
    std::chrono::steady_clock::time_point moved_;
    std::atomic<bool> stalled_{false};
};
using WantedPtr = std::shared_ptr<Wanted>;

class Receiver {
  public:
    Receiver(Rendezvous meeting, int peer);
    ~Receiver();

    /// Serves it from what has come, or looks out for it.
    void want(const WantedPtr& wanted);
    void close();

  private:
    void loop();
    void connect();
    void take_one();
    void take_data(void* to, std::size_t bytes, Wanted* whose);
    void fail_all(std::exception_ptr error);
    void serve(Wanted& wanted, const void* data, std::size_t bytes);
    WantedPtr match(std::int64_t tag);  // holding mutex_

    struct Kept {
        std::int64_t tag;
        std::vector<char> data;
    };

    Rendezvous meeting_;
    int peer_;
    std::atomic<bool> stopping_{false};
    std::unique_ptr<Communicator> comm_;  // guarded by mutex_ while it is made
    Memory spare_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::list<WantedPtr> wanted_;
    std::list<Kept> kept_;  // messages that came before somebody wanted them, in their order
    std::exception_ptr failure_;
    std::thread thread_;
};

class Pairs {
  public:
    Pairs(c10::intrusive_ptr<c10d::Store> store, std::string key, int rank, int size, Milliseconds timeout,
          Settings settings, std::shared_ptr<const Hooks> hooks);
    ~Pairs();

    WorkPtr send(const at::Tensor& tensor, int peer, int tag);
    WorkPtr recv(const at::Tensor& tensor, int peer, int tag);
    WorkPtr recv_any(const at::Tensor& tensor, int tag);
    void close(bool abandon);

  private:
    WantedPtr want(const at::Tensor& tensor, int tag, c10d::OpType type, const std::string& from);
    Operation operation(c10d::OpType type, const char* name, const at::Tensor& tensor) const;
    Rendezvous meeting(int from, int to, const char* what) const;
    void check_open() const;
    Sender& sender(int peer);
    Receiver& receiver(int peer);

    c10::intrusive_ptr<c10d::Store> store_;
    std::string key_;
    int rank_, size_;
    Milliseconds timeout_;
    const Settings settings_;
    const std::shared_ptr<const Hooks> hooks_;
    std::mutex mutex_;
    bool closed_ = false;
    std::map<int, std::unique_ptr<Sender>> senders_;
    std::map<int, std::unique_ptr<Receiver>> receivers_;
};

}  // namespace tutti_torch
