// A member's part in an agreement on who is left (agreement.hpp). It carries the messages over connections that come
// and go, and hands the outcome to the thread that waits.
#pragma once

#include <map>
#include <optional>
#include <set>

#include "bootstrap/agreement.hpp"
#include "bootstrap/connection.hpp"
#include "bootstrap/news.hpp"

namespace tutti::bootstrap {

/// Owned by its membership. For the service thread, except wait().
class Consensus : private Agreement::Port {
  public:
    class Carrier {
      public:
        virtual ~Carrier() = default;
        /// A connection on which messages can be sent (Neighbours::welcomed); nullptr if there is none.
        virtual Connection* welcomed(Rank peer) = 0;
        /// Makes a connection with the peer if there is none. From then on lost() or refused() is called when the peer
        /// ends, does not accept the connection, or its host is silent for too long.
        virtual void call(Rank peer) = 0;
        /// See Agreement::Port.
        virtual Bytes open_rendezvous(const std::vector<Rank>& out) = 0;
        /// Closes the last rendezvous that open_rendezvous() opened, unless all have met there.
        virtual void close_rendezvous() = 0;
    };

    Consensus(Monitor& monitor, const News& news, Carrier& carrier, Rank self, int ranks)
        : monitor_(monitor), news_(news), carrier_(carrier), ranks_(ranks), agreement_(self, ranks, *this) {}

    /// Waits for the outcome; for any thread. Throws tuttiSystemError after give_up(). nullopt at the deadline, or if
    /// this member has left.
    std::optional<Agreed> wait(Deadline deadline);

    void begin(const std::vector<Rank>& out, bool ok);
    void cancel();
    std::vector<Rank> awaited() const { return agreement_.awaited(); }
    /// Fails the agreement under way, if any. for_good: also all later ones, because a message was lost, so that the
    /// others take this member for dead.
    void give_up(const std::string& why, bool for_good = false);

    void received(Rank peer, Agree& agree);
    /// Sends all messages that the peer has not acknowledged over a new connection.
    void say_again(Connection& connection);
    /// To be called when a connection with the peer is lost although both ends live.
    void broken(Rank peer);
    /// Whether the agreement has to hear of that rank's end, and it has not ended yet.
    bool waits_for(Rank rank) const { return reached_.contains(rank) && !is_gone(rank); }
    /// Whether the agreement has ever had to reach that rank.
    bool reached(Rank rank) const { return reached_.contains(rank); }
    /// To be called when a rank has died or left.
    void lost(Rank rank);
    /// To be called when a rank refuses connections. Counts as the rank's end for agreements alone.
    void refused(Rank rank);
    /// To be called when others take this member for dead. Its outcome then leaves out itself.
    void disown();

  private:
    /// The messages between this member and another one, across connections.
    struct Talk {
        std::uint64_t said = 0, heard = 0;  // serials of the last message sent, and received
        std::vector<Agree> kept;            // sent, but not acknowledged
        std::vector<Rank> partial;          // a list that the next frames continue (Agree::more)
    };
    void send(Rank to, const Agree& message) override;
    static void say(Connection& connection, const Talk& talk, Agree& message);
    void reach(Rank rank) override;
    bool is_gone(Rank rank) const override;
    Bytes open_rendezvous(const std::vector<Rank>& out) override { return carrier_.open_rendezvous(out); }
    void note_outcome();

    Monitor& monitor_;
    const News& news_;
    Carrier& carrier_;
    const int ranks_;
    Agreement agreement_;
    std::set<Rank> reached_;      // see reached()
    std::set<Rank> refusing_;     // ranks that refuse connections
    std::map<Rank, Talk> talks_;  // by peer

    // Guarded by the monitor:
    bool agreeing_ = false;
    std::optional<Agreed> agreed_;
    std::optional<std::string> cant_;  // why it was given up
    bool cut_off_ = false;             // given up for good
};

}  // namespace tutti::bootstrap
