// A member's part in agreeing on who is left (agreement.hpp): what is said for that, over connections as they come and
// go, and the outcome for the thread that waits. Of the service thread, but for wait().
#pragma once

#include <map>
#include <optional>
#include <set>

#include "bootstrap/agreement.hpp"
#include "bootstrap/connection.hpp"
#include "bootstrap/news.hpp"

namespace tutti::bootstrap {

class Consensus : private Agreement::Port {
  public:
    class Carrier {
      public:
        virtual ~Carrier() = default;
        /// A connection that the peer has welcomed; nullptr: there is none.
        virtual Connection* welcomed(Rank peer) = 0;
        /// Makes one unless there is one. Its end is heard of at once, and refusing one tells the same: lost() or
        /// refused(). So does, later, the silence of its host.
        virtual void call(Rank peer) = 0;
        /// As Agreement::Port.
        virtual Bytes open_rendezvous(const std::vector<Rank>& out) = 0;
        /// Nobody will meet at the last one any more, unless all have.
        virtual void close_rendezvous() = 0;
    };

    Consensus(Monitor& monitor, const News& news, Carrier& carrier, Rank self, int ranks)
        : monitor_(monitor), news_(news), carrier_(carrier), ranks_(ranks), agreement_(self, ranks, *this) {}

    /// nullopt: not in time, or this member has left. Throws tuttiSystemError if it can't agree any more.
    std::optional<Agreed> wait(Deadline deadline);

    void begin(const std::vector<Rank>& out, bool ok);
    void cancel();
    std::vector<Rank> awaited() const { return agreement_.awaited(); }
    /// Ends the wait of the thread that agrees. for_good: a message was lost, so others take this member for dead.
    void give_up(const std::string& why, bool for_good = false);

    void received(Rank peer, Agree& agree);
    /// The peer has welcomed a connection: what it may not have heard is said over that.
    void say_again(Connection& connection);
    /// A connection with the peer is lost, but neither has ended.
    void broken(Rank peer);
    /// Whether the end of that rank is to be heard of.
    bool waits_for(Rank rank) const { return reached_.contains(rank) && !is_gone(rank); }
    bool reached(Rank rank) const { return reached_.contains(rank); }
    /// A rank has died or left.
    void lost(Rank rank);
    /// It takes no connections any more.
    void refused(Rank rank);
    /// Others take this member for dead: what it agrees on leaves itself out.
    void disown();

  private:
    /// What this member and another one say to each other.
    struct Talk {
        std::uint64_t said = 0, heard = 0;  // the numbers of the last ones
        std::vector<Agree> kept;            // until the other one says that it has heard them
        std::vector<Rank> partial;          // a list of which more is to come
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
    std::set<Rank> reached_;   // whose end will be heard of
    std::set<Rank> refusing_;  // that take no connections any more
    std::map<Rank, Talk> talks_;

    // Guarded by the monitor:
    bool agreeing_ = false;
    std::optional<Agreed> agreed_;
    std::optional<std::string> cant_;  // why
    bool cut_off_ = false;             // for good
};

}  // namespace tutti::bootstrap
