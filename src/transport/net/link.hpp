// A link with a rank on another host. What this rank writes lies in its own arena, as everywhere. What the peer writes
// arrives in the link's inbox, an arena that looks to the reader as the peer's own would. The engine carries messages
// from the writer's arena to the reader's inbox, and credits back:
//
//     writer's arena  --- message --->  reader's inbox
//        released     <--- credit ----     released
//
// The writer reuses a cell only after the reader has released its copy, so an arriving message always finds a free cell
// (channel.hpp).
//
// A link has one or more sockets; when they break, others replace them (healing.hpp). Where a faster network joins the
// ranks, messages and credits go by an endpoint of that network, and the sockets introduce its two ends to each other.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "transport/net/boards.hpp"
#include "transport/net/channels.hpp"
#include "transport/net/direct_puts.hpp"
#include "transport/net/failover.hpp"
#include "transport/net/healing.hpp"
#include "transport/net/introduction.hpp"
#include "transport/net/net.hpp"
#include "transport/net/puts.hpp"
#include "transport/net/sockets.hpp"
#include "transport/transport.hpp"

namespace tutti::net {

/// This rank's ends of all channels with one peer, and the sockets and the endpoint that carry them. The engine owns
/// it; hold the engine's lock.
class Ends : public Recipient {
  public:
    Ends(const Session& session, std::shared_ptr<Arena> mine, Rank peer);

    Wire outlet(int channel) { return channels_.open(channel).out; }
    Wire inlet(int channel) { return channels_.open(channel).in; }
    RankPage& page() { return channels_.page(); }
    Rank peer() const { return channels_.peer(); }

    /// Adds socket `number` of `count`. Only if it wants() that.
    void attach(int number, int count, std::unique_ptr<tcp::Stream> stream, std::uint32_t round = 0);
    bool wants(int number, int count, std::uint32_t round) const;
    /// True once for each round of connections that this rank has to make in place of broken ones.
    bool take_dial() { return healing_.take_dial(); }
    const Healing& healing() const { return healing_; }
    /// A connection of such a round can't be made now. hopeless: the peer is unlikely ever to accept it. True if it
    /// should be tried again.
    bool missed(int number, int count, std::uint32_t round, const std::string& why, bool hopeless);
    /// Whether its sockets have broken, and no new one has come yet.
    bool waits_for_peer() const { return !end_.lost && healing_.is_torn(); }

    /// Selects the network for this link, when the rank makes it. net: the network for its messages; nullptr: TCP.
    /// slots: on a GPU, which net has no obstacle() to; they outlive this; nullptr: in arenas.
    void use(Net* net, const DeviceSlots* slots = nullptr);
    /// Opens the endpoint of net once a socket is there to introduce it. Returns it if it was opened now, else nullptr.
    NetEndpoint* introduce(std::chrono::milliseconds silence_limit, const Whereabouts& here);
    /// True if introduce() should be called: there is no endpoint, as the last one has failed, and a try is due.
    bool wants_endpoint() const { return lacks_endpoint() && failover_.due(Clock::now()); }
    /// In how long, or earlier, to look again, since nothing will tell; nullopt: not before something arrives.
    std::optional<std::chrono::milliseconds> until_due() const {
        if (end_.lost_socket && !end_.lost && !end_.in_peace) return time_for_farewell;
        return lacks_endpoint() ? std::optional(failover_.pause(Clock::now())) : std::nullopt;
    }
    /// Whether messages go by an endpoint now.
    bool by_endpoint() const { return introduction_.met() && introduction_.known(); }
    /// As NetEndpoint::arm().
    bool arm() { return !endpoint_ || endpoint_->arm(); }

    /// Whether the adapter can send messages from, and receive them in, [memory, memory + bytes).
    bool knows(const std::byte* memory, std::size_t bytes);
    /// Whether this rank's adapter writes puts to that window of the peer.
    bool writes_to(std::uint32_t gate, std::uint32_t key) const { return direct_.knows(gate, key); }
    /// When this has returned, messages are received in the inbox only, and none is sent by reference. A link that is
    /// in the midst of that is lost.
    void withdraw();

    /// One thread's share of moving this link's messages while other threads do the rest: one socket, and the channels
    /// that go by it. Held under the engine's lock.
    class Turn : Recipient {
      public:
        Turn(Ends& ends, std::size_t lane, std::vector<Channel*> channels)
            : ends_(&ends), lane_(lane), channels_(std::move(channels)) {}
        /// Sends and receives. True if anything moved. Leaves trouble of the socket to move().
        bool take();

      private:
        std::byte* begin(const Header& header, const char*& why) override;
        void finish(const Header& header) override;
        Ends* ends_;
        std::size_t lane_;
        std::vector<Channel*> channels_;  // that have something to send
    };
    /// Adds a Turn for each socket that has something to do. None if there is an endpoint, only one socket, or sockets
    /// that were replaced.
    void add_turns(std::vector<Turn>& turns);

    /// Moves what can be moved without waiting. True if anything moved.
    bool move();
    /// The same, but only of the endpoint if there is one that works.
    bool glance();
    /// Only sends, and only by the endpoint.
    bool push();
    void heard(int number, std::uint32_t events) { sockets_.heard(number, events); }
    /// silence limit: how long the peer's host may be silent.
    void set_limit(std::chrono::milliseconds silence_limit) { healing_.set_limit(silence_limit); }
    void listen_for_silence();
    /// All credits that are due are sent with the next move().
    void settle() { channels_.settle(); }
    /// So is this rank's board, unless the peer has it.
    void tell_board(const RankPage& mine) { boards_.tell(mine); }
    /// Tells the peer that this rank leaves the link.
    void say_bye();

    /// Counts what one of the functions above has moved. Any thread that calls these. Returns `moved`.
    bool noted(bool moved) {
        if (moved) motions_.fetch_add(1, std::memory_order_relaxed);
        return moved;
    }
    /// As Link::motion(). What the kernel has taken moves on until the peer's kernel has acknowledged it.
    std::uint64_t motion() const {
        return (motions_.load(std::memory_order_relaxed) << 32) - sockets_.unacknowledged();
    }

    bool pending() const;  // something that this rank sent was not handed to the kernel or the adapter yet
    /// Whether move() has left something of which no descriptor tells any more: what has arrived by a socket, or rare
    /// frames that are due.
    bool stirs() const {
        const bool rare = introduction_.pending() || puts_.due();
        return !end_.lost && (sockets_.has_news() || (rare && !end_.in_peace && first_socket() != nullptr));
    }
    bool arriving();    // the peer was connected, and its farewell has not arrived
    bool owes() const;  // credits are due
    bool is_lost() const { return end_.lost.has_value(); }
    /// The put or get of this rank's that the peer has refused.
    const std::optional<Refusal>& refused() const { return puts_.refused(); }
    Deadline lost_at() const { return *end_.lost; }
    /// The error text of a lost link; empty if the peer had left before.
    std::string what_is_lost() const;
    /// Gives up the link. ago: how much earlier that counts as having happened.
    void lose(const std::string& why, std::chrono::milliseconds ago = {});
    /// A socket can't be made. The link is lost soon, unless the peer says by another one that it has left.
    void lose_socket(const std::string& why);
    std::string describe() const;  // for error texts

  private:
    // A peer that leaves while sockets are still made may close those before its farewell is here.
    static constexpr std::chrono::milliseconds time_for_farewell{150};

    std::byte* begin(const Header& header, const char*& why) override;
    std::byte* begin_rare(const Header& header, const char*& why);
    void finish(const Header& header) override;
    Endpoint* endpoint_of(Channel& channel) const;
    tcp::Stream* first_socket() const { return end_.lost ? nullptr : sockets_.first(healing_.round() > 0); }
    void send_rare();
    void meet();
    bool lacks_endpoint() const {
        return net_ != nullptr && !endpoint_ && !end_.lost && !end_.in_peace && first_socket() != nullptr;
    }
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
    void tell_windows();
    bool look_at_endpoint();
    bool receive_by_endpoint();
    bool send_by_endpoint();
    bool send_by_sockets();

    const Rank self_;
    const std::string peer_name_;
    DirectPuts direct_;            // of channels_
    Early early_, early_answers_;  // likewise
    Channels channels_;
    Puts puts_;
    Sockets sockets_;
    Healing healing_;
    bool used_ = false;
    Net* net_ = nullptr;                     // nullptr: TCP
    std::unique_ptr<NetEndpoint> endpoint_;  // of net_
    bool at_endpoint_ = false;               // begin() and finish() are called by endpoint_, not by a socket
    bool bad_window_ = false;                // the peer has named a window that can't be
    Introduction introduction_;              // of endpoint_
    Failover failover_;
    Boards boards_;
    std::atomic<std::uint64_t> motions_{0};
    std::mutex receiving_;  // guards begin() and finish() where several Turns receive
    struct Ending {
        bool in_peace = false;                // the peer has said bye
        bool given_up = false;                // the peer has given up the link
        std::optional<Deadline> lost;         // when the link was lost
        std::optional<Deadline> lost_socket;  // when a socket was; the link is lost too unless the peer says bye
        std::string why, addresses;           // why it was lost; of the last socket or endpoint
    };
    Ending end_;
};

}  // namespace tutti::net
