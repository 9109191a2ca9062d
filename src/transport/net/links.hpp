// A rank's links with others over networks, and what every look at them does. The engine's, under its lock.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/caught.hpp"
#include "transport/net/link.hpp"

namespace tutti::net {

class Links {
  public:
    /// Throws tuttiSystemError.
    Links();
    /// What is called, under the lock.
    struct Needs {
        std::function<void()> blind;  // there is an endpoint that can't tell when something arrives
        /// The connections with a peer are to be made anew, as that round, after a pause.
        std::function<void(Rank peer, std::uint32_t round, std::chrono::milliseconds pause)> dial;
    };
    void start(const Neighbourhood& from, std::chrono::milliseconds silence_limit, Needs needs);

    /// What the service thread waits at.
    const Fd& epoll() const { return epoll_; }
    /// This rank's. After start().
    Arena& arena() const { return *arena_; }
    Ends& with(Rank peer);
    /// nullptr: there is none.
    Ends* find(Rank peer);
    void erase(Ends& ends);
    /// A connection of a link. False: it is not wanted, or can't be watched.
    bool attach(Ends& ends, const bootstrap::Stripe& stripe, std::unique_ptr<tcp::Stream> stream);
    /// The one frame that is to be said over a connection that no link of this rank wants.
    static void answer(tcp::Stream& stream, What what);
    /// To each other: the two ends of the endpoint beside the sockets, if there is to be one.
    void introduce(Ends& ends);
    /// This rank lacks what a connection with the peer takes. Needs no memory.
    void note_trouble(Rank peer, const Error& why);

    /// Carries what can be carried without waiting. True if anything moved.
    bool move();
    /// Sends and receives by all sockets that have something, several at once. True if anything moved. Before look(),
    /// which does the rest.
    bool spread(const tutti::Engine::Spread& by);
    /// The same, again and again: where nothing moves for long, credits that are due go out.
    bool look() { return note(move()); }
    /// The same, of messages alone, where all go by endpoints: what is rare waits for the next look().
    bool glance();
    /// How often look() has moved nothing, up to now.
    unsigned fruitless() const { return fruitless_; }
    /// Only what this rank has to send by endpoints.
    bool push();

    void settle();
    void tell_boards();
    void say_bye();
    void withdraw();
    void listen_for_silence();
    /// As NetEndpoint::arm(), of all.
    bool arm();
    bool by_endpoints() const;
    bool pending() const;
    bool owes() const;
    /// Throws PeerError for one that is lost, a moment after it was, and for one by which a put or a get was refused.
    void check_lost() const;

  private:
    bool note(bool moved);
    void hear();

    Fd epoll_;
    std::shared_ptr<Session> session_;
    std::shared_ptr<Arena> arena_;
    std::chrono::milliseconds silence_limit_{};
    Whereabouts here_;
    Needs needs_;
    std::map<Rank, std::unique_ptr<Ends>> links_;
    std::vector<Ends*> ends_;       // of links_: what every look goes through
    std::optional<Error> trouble_;  // of this rank, with a connection
    unsigned fruitless_ = 0;
    std::vector<Ends::Turn> turns_;  // of spread()
};

}  // namespace tutti::net
