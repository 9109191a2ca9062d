// File descriptors that ranks of one host pass to each other: what this member offers, requests by peers that wait for
// an offer, and this member's own requests.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "bootstrap/connection.hpp"
#include "bootstrap/news.hpp"

namespace tutti::bootstrap {

/// A fetch under way, shared by the thread that waits for it and the service thread.
struct PendingFetch {
    Rank peer;
    std::uint64_t key;
    std::uint32_t id = 0;  // of the request, unique in this member
    bool sent = false;     // over the connection that there is
    // Guarded by the monitor:
    bool done = false;
    Fd descriptor;  // none if it failed
    Fault trouble;  // why it failed
};

/// Owned by its membership. For the service thread, except where it says otherwise.
class Descriptors {
  public:
    Descriptors(Monitor& monitor, const News& news) : monitor_(monitor), news_(news) {}

    // ---- for any thread
    /// Offers fd under key; withdraws the offer if fd is nullptr, or this member has left.
    void offer(std::uint64_t key, std::shared_ptr<Fd> fd);
    std::shared_ptr<Fd> offered(std::uint64_t key) const;
    void withdraw_all();
    /// Waits until the fetch is done. False at the deadline.
    bool wait(const PendingFetch& fetch, Deadline deadline);

    // ---- what peers ask for
    /// Answers a request, now or when its key is offered.
    void asked(Connection& connection, const Fetch& fetch);
    /// Answers the requests that wait for this key.
    void offer_changed(std::uint64_t key);
    void forget_who_asked() { parked_.clear(); }

    // ---- what this member asks for
    void begin(const std::shared_ptr<PendingFetch>& fetch);
    void cancel(const std::shared_ptr<PendingFetch>& fetch) { std::erase(fetches_, fetch); }
    bool wants(Rank peer) const;
    /// Sends the requests to the connection's peer that have not been sent yet.
    void send_requests(Connection& connection);
    /// Marks all requests to the peer as not sent, since the connection they went over is lost.
    void send_again(Rank peer);
    /// Removes and returns the fetch that this answer is for; nullptr if nobody waits for it any more.
    std::shared_ptr<PendingFetch> take(Rank peer, std::uint32_t id);
    /// Ends a fetch, and wakes the thread that waits for it.
    void settle(PendingFetch& fetch, Fd descriptor, const Fault& trouble);
    /// Ends all fetches from peer with that fault; from all peers if peer is -1.
    void fail(const Fault& fault, Rank peer);

  private:
    struct Parked {
        std::weak_ptr<Connection> connection;
        Fetch fetch;
    };

    Monitor& monitor_;
    const News& news_;
    std::map<std::uint64_t, std::shared_ptr<Fd>> offers_;  // guarded by the monitor
    std::vector<Parked> parked_;                           // requests by peers whose keys are not offered yet
    std::vector<std::shared_ptr<PendingFetch>> fetches_;   // this member's own, not done
    std::uint32_t next_ = 1;
};

}  // namespace tutti::bootstrap
