// A rank's links over networks, and what the engine does with all of them at every look.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "transport/net/link.hpp"

namespace tutti::net {

/// Part of the engine, and owns the links; used under the engine's lock.
class Links {
  public:
    /// Throws tuttiSystemError.
    Links();
    /// What Links calls, under the lock.
    struct Needs {
        std::function<void()> blind;  // there is an endpoint without descriptors to watch
        /// Make the connections with a peer anew, as that round, after a pause.
        std::function<void(Rank peer, std::uint32_t round, std::chrono::milliseconds pause)> dial;
    };
    void start(const Neighbourhood& from, std::chrono::milliseconds silence_limit, Needs needs);

    /// The descriptor that is readable when some link has something to do. The service thread watches it.
    const Fd& epoll() const { return epoll_; }
    /// This rank's arena. After start().
    Arena& arena() const { return *arena_; }
    /// The link with peer, which is made if there is none.
    Ends& with(Rank peer);
    /// nullptr if there is none.
    Ends* find(Rank peer);
    void erase(Ends& ends);
    /// Adds a connection to a link. False if the link does not want it, or it can't be watched.
    bool attach(Ends& ends, const bootstrap::Stripe& stripe, std::unique_ptr<tcp::Stream> stream);
    /// Sends one frame without a body over a connection that no link of this rank wants.
    static void answer(tcp::Stream& stream, What what);
    /// Opens the link's NetEndpoint if it wants one now, and watches it. True if it was opened: its offer is due.
    bool introduce(Ends& ends);
    /// This rank lacks memory or descriptors for a connection with peer: check_lost() throws that. Allocates nothing
    /// if there is no memory.
    void note_trouble(Rank peer, const Error& why);

    /// Moves what can be moved without waiting, on all links. True if anything moved.
    bool move();
    /// Sends and receives by all sockets that have something to do, on several threads. True if anything moved. Call it
    /// before look(), which does the rest.
    bool spread(const tutti::Engine::Spread& by);
    /// As move(). After many calls in a row that move nothing, credits that are due are sent.
    bool look() { return note(move()); }
    /// As look(), but only of endpoints where a link has one. Rare frames wait for the next look().
    bool glance();
    /// How many calls of look() and glance() in a row have moved nothing.
    unsigned fruitless() const { return fruitless_; }
    /// Only sends, and only by endpoints.
    bool push();

    // The same of every link: see Ends.
    void settle();
    void tell_boards();
    void say_bye();
    void withdraw();
    void listen_for_silence();
    bool arm();
    /// Whether all links go by endpoints.
    bool by_endpoints() const;
    /// Whether some link has this.
    bool pending() const;
    bool owes() const;
    /// What is left to do when a thread stops looking.
    struct Left {
        bool pending = false;  // messages to send, or what has arrived and nothing tells of any more
        bool owes = false;     // credits
        std::optional<std::chrono::milliseconds> due = {};  // in how long to look again, since nothing will tell
    };
    Left left() const;
    /// Throws PeerError if a link was lost some time ago (so that the session can first say why), if a peer has refused
    /// a put or get, or after note_trouble().
    void check_lost() const;

  private:
    bool note(bool moved);
    void hear();
    std::optional<std::chrono::milliseconds> until_due() const;

    Fd epoll_;
    std::shared_ptr<Session> session_;
    std::shared_ptr<Arena> arena_;
    std::chrono::milliseconds silence_limit_{};
    Whereabouts here_;
    Needs needs_;
    std::map<Rank, std::unique_ptr<Ends>> links_;  // by peer
    std::vector<Ends*> ends_;                      // those of links_, which every look goes through
    std::optional<Error> trouble_;                 // set by note_trouble()
    unsigned fruitless_ = 0;
    std::vector<Ends::Turn> turns_;  // used by spread() only; a member so that it is not allocated each time
};

}  // namespace tutti::net
