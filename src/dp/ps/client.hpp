// A worker rank: sends requests to servers and receives their answers. Each server has a sender thread and a receiver
// thread here, so parts of different servers, and both directions of one link, travel concurrently.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "base/caught.hpp"
#include "base/condition.hpp"
#include "base/thread.hpp"
#include "dp/ps/carrier.hpp"
#include "dp/ps/link.hpp"

namespace tutti::dp::ps {

/// Owned by the Node. Any number of threads at once, except for the constructor, start() and the destructor.
class Client {
  public:
    /// settings and table must outlive this. links: by server. device: this rank's GPU; callers: its memory, with
    /// config.stream; nullptr if the rank is on a CPU.
    Client(const Settings& settings, const Table& table, std::vector<Link> links, int device = TUTTI_DEVICE_CPU,
           BackendPtr callers = nullptr);
    ~Client();  // as abort(), unless it has left
    void start();

    /// Starts a push of gradient, a pull into values, or both; nullptr for what is not wanted. The buffers belong to
    /// the client until wait(). unscale: the server multiplies the gradient by this first, in the precision of the
    /// update. Returns the request, for wait(). Throws, without any effect, if a server of the key has failed.
    tuttiPsRequest_t request(const char* function, std::size_t key, const void* gradient, void* values,
                             double unscale = 1);
    /// Throws what a request() for a pull would throw now.
    void check_pull(const char* function, std::size_t key) const {
        std::lock_guard lock(mutex_);
        check(function, key, false);
    }
    // Starts to fetch or store the Snapshots of all parts of a key, in the order of the parts: snapshot_bytes(key)
    // bytes. Only where servers update. Otherwise as request().
    tuttiPsRequest_t fetch(const char* function, std::size_t key, std::byte* snapshots);
    tuttiPsRequest_t store(const char* function, std::size_t key, const std::byte* snapshots);
    std::size_t snapshot_bytes(std::size_t key) const;
    /// Waits until the request has ended; then its buffers belong to the caller again. Throws the request's error.
    void wait(tuttiPsRequest_t request);
    /// The same for a pull, but throws as soon as any server has failed; what is answered later is dropped.
    void wait_while_all_serve(tuttiPsRequest_t request);
    void clock();
    void set_learning_rate(double rate);

    /// Waits for all requests and for each server's last message. Throws the first failure.
    void leave();
    /// The same, but hangs up first on servers that are not on these ranks.
    void leave(std::span<const int> ranks);
    void abort(const Failure& why);
    void add_to(tuttiPsStatistics_t& statistics) const;

  private:
    struct Request {
        std::size_t key = 0;
        Header::Kind kind = Header::Kind::pull;
        std::byte* values = nullptr;  // where answers are written
        Backend::Mark after;          // of config.stream, if that is in a GPU's memory; otherwise nullptr
        long long round = 0;          // pushes of the key so far, with this one: where servers only sum, the round
        std::size_t left = 0;         // sends and answers that have not ended
        std::size_t arriving = 0;     // of them, answers that are being written to `values`
        std::optional<Failure> error;
        bool withdrawn = false;  // answers are dropped
    };
    /// A message that waits to be sent.
    struct Letter {
        Header header;
        const std::byte* data = nullptr;  // `bytes` bytes to send after the header; nullptr if there are none
        std::size_t bytes = 0;
        Backend::Mark after{};  // of config.stream, if the data is in a GPU's memory; otherwise nullptr
    };
    /// This worker's pushes of a key: how many it has made, and the last of them whose sum it has received.
    struct Pushes {
        long long made = 0, summed = 0;
    };
    using Open = std::set<std::pair<std::uint64_t, std::size_t>>;  // (request, part)
    /// One server as this worker sees it. Guarded by mutex_, except for link and the threads.
    struct Server {
        explicit Server(Link its) : link(std::move(its)) {}
        Link link;
        std::deque<Letter> letters;
        Condition mail;
        Open sending, awaited;  // data not sent yet; answers not received yet
        std::optional<Failure> failure;
        bool closed = false;                // no more answers will be received
        std::unique_ptr<Carrier> up, down;  // of the sender and the receiver; nullptr if this rank is on a CPU
        Thread sender, receiver;
    };

    Server& server_of(const PartPlace& part) { return *servers_[static_cast<std::size_t>(part.server)]; }
    /// A server refuses a request that takes too long, and says why: a little longer than that, for its answer.
    std::chrono::milliseconds patience() const { return std::chrono::milliseconds(settings_.timeoutMs) * 3 / 2; }
    void check(const char* function, std::size_t key, bool pushes) const;
    tuttiPsRequest_t begin(const char* function, std::size_t key, Header::Kind kind, const std::byte* data,
                           std::byte* values, double unscale);
    Backend::Mark mark_for(const char* function, const void* memory) const;
    std::size_t place_of(std::size_t part, bool snapshot) const;
    std::string name_of(const Server& s) const;
    void send_letters(Server& s);
    void receive_answers(Server& s);
    Failure said_by(Server& s, const Header& header);
    bool take(Server& s, const Header& header);
    std::optional<Failure> receive_answer(Server& s, const Header& header, const Request& asked);
    void hang_up(Server& s);
    void fail(Server& s, Failure failure);
    void end(std::uint64_t request, const std::optional<Failure>& error);
    /// The failure of a link. Never tuttiTimeout, after which a request can be made again.
    Failure lost(const Server& s, const char* words) const;

    const Settings& settings_;
    const Table& table_;
    const BackendPtr callers_;  // nullptr if this rank is on a CPU
    std::vector<std::unique_ptr<Server>> servers_;

    mutable std::mutex mutex_;  // guards the members below, and each Server
    Condition ended_;           // a request has ended, or a server has failed or closed
    std::map<std::uint64_t, Request> requests_;
    std::uint64_t last_ = 0;      // number of the last request
    std::vector<Pushes> pushes_;  // by key
    double rate_;                 // learning rate of pushes from now on
    bool leaving_ = false;
    tuttiPsStatistics_t statistics_ = TUTTI_PS_STATISTICS_INITIALIZER;
};

}  // namespace tutti::dp::ps
