// A link with a rank whose memory can't be seen. What this rank writes lies in its own arena, as everywhere; what the
// peer writes arrives in an arena of the link's own, which looks to the reader as the peer's would. The engine carries
// messages from one to the other, and credits back:
//
//     writer's arena  --- message --->  reader's inbox
//        released     <--- credit ----     released
//
// A cell of the writer is free again when the reader's is, so there is always room for what arrives (channel.hpp).
//
// A link has one or more sockets; when they break, others take their place (healing.hpp). Where a better network joins
// the ranks, messages and credits go by an endpoint of that, and the sockets introduce its two ends to each other.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/net/boards.hpp"
#include "transport/net/channels.hpp"
#include "transport/net/failover.hpp"
#include "transport/net/healing.hpp"
#include "transport/net/introduction.hpp"
#include "transport/net/puts.hpp"
#include "transport/net/sockets.hpp"
#include "transport/transport.hpp"

namespace tutti::net {

/// What both ends of a link look at; the engine's, under its lock.
class Ends : public Recipient {
  public:
    Ends(const Session& session, std::shared_ptr<Arena> mine, Rank peer);

    Wire outlet(int channel) { return channels_.open(channel).out; }
    Wire inlet(int channel) { return channels_.open(channel).in; }
    RankPage& page() { return channels_.page(); }
    Rank peer() const { return channels_.peer(); }

    /// Stripe `number` of `count`, which is wanted.
    void attach(int number, int count, std::unique_ptr<tcp::Stream> stream, std::uint32_t round = 0);
    bool wants(int number, int count, std::uint32_t round) const;
    /// Once for each round of connections that this rank is to make in the place of others.
    bool take_dial() { return healing_.take_dial(); }
    const Healing& healing() const { return healing_; }
    /// One of such a round can't be made now. hopeless: the peer will hardly ever let it in. True: try again.
    bool missed(int number, int count, std::uint32_t round, const std::string& why, bool hopeless);
    bool waits_for_peer() const { return !end_.lost && healing_.is_torn(); }

    /// The rank has made the link: messages go by net; nullptr: by the sockets. slots: on a GPU, where net is without
    /// obstacle to it; they outlive this.
    void use(Net* net, const DeviceSlots* slots = nullptr);
    /// Opens the endpoint of net as soon as there is a socket to introduce it; nullptr unless it did so now.
    NetEndpoint* introduce(std::chrono::milliseconds silence_limit, const Whereabouts& here);
    /// An endpoint has failed, and introduce() is to try another way.
    bool wants_endpoint() const {
        return net_ != nullptr && !endpoint_ && !end_.lost && !end_.in_peace && first_socket() != nullptr &&
               failover_.due(Clock::now());
    }
    bool by_endpoint() const { return introduction_.met() && introduction_.known(); }
    /// As NetEndpoint::arm().
    bool arm() { return !endpoint_ || endpoint_->arm(); }

    /// Whether messages can be sent from there, and received there.
    bool knows(const std::byte* memory, std::size_t bytes);
    /// After this the peer writes to nothing of this rank's but the inbox: a link that has offered other memory is
    /// lost.
    void withdraw();

    /// What one thread may do for this link while others do the rest: one socket, and the channels that go by it.
    class Turn : Recipient {
      public:
        Turn(Ends& ends, std::size_t lane, std::vector<Channel*> channels)
            : ends_(&ends), lane_(lane), channels_(std::move(channels)) {}
        /// True if anything moved. What comes of the socket's trouble is for move().
        bool take();

      private:
        std::byte* begin(const Header& header, const char*& why) override;
        void finish(const Header& header) override;
        Ends* ends_;
        std::size_t lane_;
        std::vector<Channel*> channels_;  // that have something to send
    };
    /// Those that have something to do; none where messages do not go by sockets as they were first made.
    void add_turns(std::vector<Turn>& turns);

    /// Carries what can be carried without waiting. True if anything moved.
    bool move();
    /// Only messages, where these go by an endpoint that works.
    bool glance();
    /// Only what this rank has to send, where that goes by an endpoint.
    bool push();
    void heard(int number, std::uint32_t events) { sockets_.heard(number, events); }
    /// silence limit: how long the peer's host may be silent.
    void set_limit(std::chrono::milliseconds silence_limit) { healing_.set_limit(silence_limit); }
    void listen_for_silence();
    /// All credits that are due go out with the next move().
    void settle() { channels_.settle(); }
    /// And what this rank calls.
    void tell_board(const RankPage& mine) { boards_.tell(mine); }
    void say_bye();

    bool pending() const;  // something was not handed to the kernel yet
    bool arriving();       // from a peer that has gone: it was connected, and its farewell is not here
    bool owes() const;     // credits are due
    bool is_lost() const { return end_.lost.has_value(); }
    /// What the peer has refused of this rank's puts and gets.
    const std::optional<Refusal>& refused() const { return puts_.refused(); }
    Deadline lost_at() const { return *end_.lost; }
    std::string what_is_lost() const;
    /// ago: as if it had happened then.
    void lose(const std::string& why, std::chrono::milliseconds ago = {});
    /// One of its sockets can't be made. The link is lost, unless the peer says on another one that it has left.
    void lose_socket(const std::string& why);
    std::string describe() const;  // for error texts

  private:
    std::byte* begin(const Header& header, const char*& why) override;
    std::byte* begin_rare(const Header& header, const char*& why);
    void finish(const Header& header) override;
    Endpoint* endpoint_of(Channel& channel) const;
    tcp::Stream* first_socket() const { return end_.lost ? nullptr : sockets_.first(); }
    void send_rare();
    void meet();
    bool tear(const std::string& why, Clock::duration ago = {});
    void resume(const Received& theirs);
    bool leave_endpoint(unsigned attempt, const std::string& why);
    void part();
    std::string where() const;
    bool heals_silence() const;
    void broke(const std::string& why, bool heals, Clock::duration silent);
    void comes_through();
    bool send_channel(Channel& channel);
    bool send_channels();
    bool answer();
    bool look_at_endpoint();
    bool receive_by_endpoint();
    bool send_by_endpoint();
    bool send_by_sockets();

    const Rank self_;
    const std::string peer_name_;
    Channels channels_;
    Puts puts_;
    Sockets sockets_;
    Healing healing_;
    bool used_ = false;
    Net* net_ = nullptr;
    std::unique_ptr<NetEndpoint> endpoint_;  // of net_
    bool at_endpoint_ = false;               // what arrives now comes by endpoint_
    Introduction introduction_;              // of endpoint_
    Failover failover_;
    Boards boards_;
    std::mutex receiving_;  // of what several threads have received
    struct Ending {
        bool in_peace = false;                // the peer has gone
        bool given_up = false;                // by the peer
        std::optional<Deadline> lost;         // since when the link is
        std::optional<Deadline> lost_socket;  // and is to be unless it has ended in peace
        std::string why, addresses;           // of the last socket or endpoint that was there
    };
    Ending end_;
};

}  // namespace tutti::net
