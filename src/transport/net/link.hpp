// A link with a rank whose memory can't be seen. What this rank writes lies in its own arena, as everywhere; what the
// peer writes arrives in an arena of the link's own, which looks to the reader as the peer's would. The engine carries
// messages from one to the other, and credits back:
//
//     writer's arena  --- message --->  reader's inbox
//        released     <--- credit ----     released
//
// A cell of the writer is free again when the reader's is, so there is always room for what arrives (channel.hpp).
//
// A link has one or more sockets. Where a better network joins the ranks, messages and credits go by an endpoint of
// that, and the sockets introduce its two ends to each other.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transport/net/channel.hpp"
#include "transport/tcp/stream.hpp"
#include "transport/transport.hpp"

namespace tutti::net {

/// What both ends of a link look at; the engine's, under its lock.
class Ends : public Recipient {
  public:
    Ends(const Session& session, std::shared_ptr<Arena> mine, Rank peer);

    Wire outlet(int channel);
    Wire inlet(int channel);
    RankPage& page() { return inbox_->page(); }
    Rank peer() const { return peer_; }

    /// Stripe `number` of `count`.
    void attach(int number, int count, std::unique_ptr<tcp::Stream> stream);
    bool wants(int number, int count) const;

    /// The rank has made the link: messages go by net; nullptr: by the sockets. slots: on a GPU, where net is without
    /// obstacle to it; they outlive this.
    void use(Net* net, const DeviceSlots* slots = nullptr);
    /// Opens the endpoint of net as soon as there is a socket to introduce it; nullptr unless it did so now.
    NetEndpoint* introduce(std::chrono::milliseconds silence_limit);
    /// An endpoint has failed, and introduce() is to try another way.
    bool wants_endpoint() const {
        return net_ != nullptr && !endpoint_ && !lost_ && !bye_ && first_socket() != nullptr &&
               Clock::now() >= next_try_;
    }
    bool on_detour() const { return attempt_ > 0 && !endpoint_ && !lost_ && !bye_ && Clock::now() >= next_try_; }
    bool by_endpoint() const { return met_ && known_; }
    /// As NetEndpoint::arm().
    bool arm() { return !endpoint_ || endpoint_->arm(); }

    /// Whether messages can be sent from there, and received there.
    bool knows(const std::byte* memory, std::size_t bytes);
    /// After this the peer writes to nothing of this rank's but the inbox: a link that has offered other memory is
    /// lost.
    void withdraw();

    /// Carries what can be carried without waiting. True if anything moved.
    bool move();
    /// Only what this rank has to send, where that goes by an endpoint.
    bool push();
    void heard(int number, std::uint32_t events);
    void listen_for_silence();
    /// All credits that are due go out with the next move().
    void settle();
    /// And what this rank calls.
    void tell_board(const RankPage& mine);
    void say_bye();

    bool pending() const;  // something was not handed to the kernel yet
    bool arriving();       // from a peer that has gone: it was connected, and its farewell is not here
    bool owes() const;     // credits are due
    bool is_lost() const { return lost_.has_value(); }
    Deadline lost_at() const { return *lost_; }
    std::string what_is_lost() const;
    /// ago: as if it had happened then.
    void lose(const std::string& why, std::chrono::milliseconds ago = {});
    /// One of its sockets can't be made. The link is lost, unless the peer says on another one that it has left.
    void lose_socket(const std::string& why);
    std::string describe() const;  // for error texts

  private:
    std::byte* begin(const Header& header, const char*& why) override;
    void finish(const Header& header) override;
    Channel& open(int channel);
    Endpoint* endpoint_of(const Channel& channel) const;
    bool has_sockets() const;
    tcp::Stream* first_socket() const;
    void send_rare();
    void meet();
    bool resume();
    bool leave_endpoint(unsigned attempt, const std::string& why);
    void part();
    std::string where() const;
    bool send_channels();
    void note_call(const Call& call);
    void read_board();

    const std::shared_ptr<Arena> mine_, inbox_;
    WakeUp& wake_up_;  // of this rank
    const Rank self_, peer_;
    const std::string peer_name_;
    std::array<Channel, channels_per_link> channels_;
    std::vector<Channel*> open_;  // those in use
    std::vector<std::unique_ptr<tcp::Stream>> streams_;
    bool used_ = false;
    Net* net_ = nullptr;
    const DeviceSlots* slots_ = nullptr;
    std::unique_ptr<NetEndpoint> endpoint_;  // of net_
    bool met_ = false;                       // endpoint_ knows of its other end
    bool known_ = false;                     // and its other end of it: now it may send
    bool at_endpoint_ = false;               // what arrives now comes by endpoint_
    Offer offer_{}, offer_in_{};
    std::size_t offer_due_ = 0, offered_ = 0;  // bytes of them
    bool met_due_ = false;
    unsigned attempt_ = 0;  // endpoints that have failed
    std::uint64_t broken_ = 0;
    std::string why_again_;  // the last of them
    bool failing_ = false;   // nothing has come through since the first of these failures, one soon after the other
    Deadline failing_since_{}, failed_at_{}, next_try_{};
    std::chrono::milliseconds silence_limit_{}, pause_{};
    std::string addresses_;  // of the last one that was there
    std::optional<Deadline> lost_, lost_socket_;
    std::string why_;
    bool bye_ = false;  // the peer has gone in peace
    std::byte nothing_[1];
    Spot spot_in_{};
    Board board_{}, board_in_{};
    bool board_due_ = false;
    std::uint64_t board_told_ = 0;
};

}  // namespace tutti::net
