// A rank that works: requests to servers and their answers. For each server a thread sends and another one receives, so
// parts of different servers, and both directions of one, travel side by side.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "base/caught.hpp"
#include "base/thread.hpp"
#include "dp/ps/link.hpp"

namespace tutti::dp::ps {

/// Any threads at once, but for the constructor, start() and the destructor.
class Client {
  public:
    /// settings and table outlive this; links by server.
    Client(const Settings& settings, const Table& table, std::vector<Link> links);
    ~Client();  // as abort(), unless it has left
    void start();

    /// gradient nullptr: a pull; values nullptr: a push; both: both. unscale: what an update is to multiply
    /// the gradient by first, in its precision. Returns the request, for wait(). Throws, and has
    /// no effect, if a server of the key has failed.
    tuttiPsRequest_t request(const char* function, std::size_t key, const void* gradient, void* values,
                             double unscale = 1);
    // The Snapshots of all parts of a key, in the order of its parts, come or go: snapshot_bytes(key) of them.
    // Requests, as above, where servers update.
    tuttiPsRequest_t fetch(const char* function, std::size_t key, std::byte* snapshots);
    tuttiPsRequest_t store(const char* function, std::size_t key, const std::byte* snapshots);
    std::size_t snapshot_bytes(std::size_t key) const;
    /// Returns when the request has ended, and its buffers are the caller's again. Throws what befell it.
    void wait(tuttiPsRequest_t request);
    void clock();
    void set_learning_rate(double rate);

    /// Waits for all requests and for the servers' good-bye. Throws the first failure.
    void leave();
    void abort(const Failure& why);
    void add_to(tuttiPsStatistics_t& statistics) const;

  private:
    struct Request {
        std::size_t key = 0;
        Header::Kind kind = Header::Kind::pull;
        std::byte* values = nullptr;  // where answers go
        long long round =
            0;  // the worker's pushes of the key with this one: where servers only sum, what a pull is for
        std::size_t left = 0;  // sends and answers that have not ended
        std::optional<Failure> error;
    };
    struct Letter {
        Header header;
        const std::byte* data = nullptr;  // that follows, `bytes` of it
        std::size_t bytes = 0;
    };
    /// Of this worker's pushes of a key: how many there were, and up to which it has got the sum.
    struct Pushes {
        long long made = 0, summed = 0;
    };
    using Open = std::set<std::pair<std::uint64_t, std::size_t>>;  // requests and parts
    struct Server {
        explicit Server(Link its) : link(std::move(its)) {}
        Link link;
        std::deque<Letter> letters;
        std::condition_variable mail;
        Open sending, awaited;  // gradients; answers
        std::optional<Failure> failure;
        bool closed = false;  // its threads end
        Thread sender, receiver;
    };

    Server& server(std::size_t number) { return *servers_[number]; }
    void check(const char* function, std::size_t key, bool pushes) const;
    tuttiPsRequest_t begin(const char* function, std::size_t key, Header::Kind kind, const std::byte* data,
                           std::byte* values, double unscale);
    std::size_t place_of(std::size_t part, bool snapshot) const;
    std::string name_of(const Server& s) const;
    void send_letters(Server& s);
    void receive_answers(Server& s);
    Failure said_by(Server& s, const Header& header);
    bool take(Server& s, const Header& header);
    void hang_up(Server& s);
    void fail(Server& s, const Failure& failure);
    void end(std::uint64_t request, const std::optional<Failure>& error);
    Failure lost(const Server& s, tuttiResult_t code, const char* words) const;

    const Settings& settings_;
    const Table& table_;
    std::vector<std::unique_ptr<Server>> servers_;

    mutable std::mutex mutex_;
    std::condition_variable ended_;
    std::map<std::uint64_t, Request> requests_;
    std::uint64_t last_ = 0;
    std::vector<Pushes> pushes_;  // by key
    double rate_;
    bool leaving_ = false;
    tuttiPsStatistics_t statistics_ = TUTTI_PS_STATISTICS_INITIALIZER;
};

}  // namespace tutti::dp::ps
