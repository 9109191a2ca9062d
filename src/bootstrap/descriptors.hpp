// Descriptors from one rank to another on the same host: what this member offers, who has asked for what is not there
// yet, and what it has asked for itself. Of the service thread, but for what says otherwise.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "bootstrap/connection.hpp"
#include "bootstrap/news.hpp"

namespace tutti::bootstrap {

/// A fetch that somebody waits for.
struct PendingFetch {
    Rank peer;
    std::uint64_t key;
    std::uint32_t id = 0;
    bool sent = false;
    // Guarded by the monitor:
    bool done = false;
    Fd descriptor;
    Fault trouble;
};

class Descriptors {
  public:
    Descriptors(Monitor& monitor, const News& news) : monitor_(monitor), news_(news) {}

    // ---- for any thread
    /// null: withdrawn. A member that has left offers nothing.
    void offer(std::uint64_t key, std::shared_ptr<Fd> fd);
    std::shared_ptr<Fd> offered(std::uint64_t key) const;
    void withdraw_all();
    bool wait(const PendingFetch& fetch, Deadline deadline);

    // ---- what peers ask for
    /// Answers, now or when it is offered.
    void asked(Connection& connection, const Fetch& fetch);
    /// Answers those who have asked for it.
    void offer_changed(std::uint64_t key);
    void forget_who_asked() { parked_.clear(); }

    // ---- what this member asks for
    void begin(const std::shared_ptr<PendingFetch>& fetch);
    void cancel(const std::shared_ptr<PendingFetch>& fetch) { std::erase(fetches_, fetch); }
    bool wants(Rank peer) const;
    /// Sends what was not sent to that peer yet.
    void send_requests(Connection& connection);
    /// The connection over which that was sent is gone.
    void send_again(Rank peer);
    /// nullptr: nobody waits for it any more.
    std::shared_ptr<PendingFetch> take(Rank peer, std::uint32_t id);
    void settle(PendingFetch& fetch, Fd descriptor, const Fault& trouble);
    /// peer: -1: all.
    void fail(const Fault& fault, Rank peer);

  private:
    struct Parked {
        std::weak_ptr<Connection> connection;
        Fetch fetch;
    };

    Monitor& monitor_;
    const News& news_;
    std::map<std::uint64_t, std::shared_ptr<Fd>> offers_;  // guarded by the monitor
    std::vector<Parked> parked_;                           // requests for what is not offered yet
    std::vector<std::shared_ptr<PendingFetch>> fetches_;
    std::uint32_t next_ = 1;
};

}  // namespace tutti::bootstrap
