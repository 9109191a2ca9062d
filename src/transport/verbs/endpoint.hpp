// A rail: one reliable connection between two adapters. The payload of a slot is written by the sender's adapter
// straight from its slot to the reader's; the frame that tells of it follows as a write with immediate into a ring,
// with small payloads in it: one work request, whose data travels in the request itself.
//
//     slot of `mine`  -- RDMA write ----------------->  the same slot of the peer's
//     header [+ up to 48 bytes]  -- write, immediate -->  ring[frame % ring_frames], and a completion
//
// Slots lie in arenas or, of a rank on a GPU, in that GPU's memory (transport/slots.hpp): the peer is told where, and
// before the first message of a batch that came to a GPU's slot is passed on, what the adapter has written there is
// flushed.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/net/endpoint.hpp"
#include "transport/verbs/completions.hpp"
#include "transport/verbs/link_slots.hpp"
#include "transport/verbs/ring.hpp"

namespace tutti::verbs {

/// What one end tells the other.
struct Offer {
    std::uint32_t version;
    std::uint32_t queue_pair, sequence;  // its number, and that of its first packet
    std::uint16_t lid;                   // InfiniBand
    std::uint8_t infiniband, mtu;
    Gid::Bytes gid;
    std::uint64_t ring, slots;  // addresses
    std::uint32_t ring_key, slots_key;
    std::uint32_t channel_stride, slot_stride;  // as in SlotTable
    std::uint16_t rail;                         // the number of its port
    std::uint8_t lane;                          // and among the queue pairs on that
    std::uint8_t distance;                      // of the port from its rank
    std::uint16_t pkey;
    char port[58];  // for error texts
};
static_assert(sizeof(Offer) == 128 && sizeof(Offer) <= net::offer_bytes);

class Endpoint final : public net::NetEndpoint {
  public:
    /// lane: its number among those of two ranks by that port. slots: the link's, as that adapter knows them. Throws
    /// tuttiSystemError.
    Endpoint(const Port& port, int lane, std::shared_ptr<LinkSlots> slots, std::chrono::milliseconds silence_limit);
    ~Endpoint() override;

    std::vector<std::byte> offer() override;
    void meet(std::span<const std::byte> offer) override;
    void meet(const Offer& offer);
    const Port& port() const { return port_; }
    /// Of both ends of a connection.
    using Number = std::pair<int, unsigned>;  // lane, port
    Number number() const { return {mine_offer_.lane, mine_offer_.rail}; }
    static Number number_of(const Offer& offer) { return {offer.lane, offer.rail}; }
    bool said_bye() const { return bye_; }
    bool has_room() const override { return met_ && window_.has_room(requests_per_frame); }
    void queue(const net::Header& header, const std::byte* body, bool copied = false) override;
    bool knows(const std::byte* memory, std::size_t bytes) override;
    net::RemoteMemory expose(int channel, std::byte* memory, std::size_t bytes) override;
    void put(const net::Header& header, const std::byte* body, const std::byte* slot,
             const net::RemoteMemory* to) override;
    bool is_empty() const override { return true; }  // the adapter has it
    bool send() override { return false; }           // nothing waits here
    bool receive(net::Recipient& to) override;
    void abandon() override { bye_ = true; }
    std::vector<int> fds() const override { return {completions_.fd()}; }
    bool arm() override;
    std::string describe() const override;

  private:
    static constexpr unsigned requests_per_frame = 2;
    static constexpr unsigned repost_at = 64;

    void make_queue_pair(const ibv_device_attr& limits);
    void modify(ibv_qp_attr& attributes, int mask, const char* to);
    void connect(const Offer& peer);
    bool post_receives(unsigned count);
    bool poll();
    bool check_health();
    bool complete(const ibv_wc& completion, net::Recipient& to);
    bool arrived(std::uint32_t number, net::Recipient& to);
    bool flush();
    struct Body {
        ibv_sge from{};  // of no length: there is none
        std::uint64_t to = 0;
        std::uint32_t key = 0;
    };
    Frame& next_frame(const net::Header& header);
    void post(Frame& frame, std::size_t bytes, const Body& body);
    const ibv_mr* region_of(int channel);
    void linger();

    const Port port_;
    const Library& library_;
    const std::chrono::milliseconds silence_limit_;

    // In this order: what is below uses what is above.
    Ring ring_;
    const std::shared_ptr<LinkSlots> slots_;
    SendWindow window_;
    Completions completions_;
    Owned<ibv_qp> pair_;

    Offer mine_offer_{}, peer_offer_{};
    bool met_ = false, bye_ = false;
    bool inlines_ = true;                    // frames travel in work requests
    std::uint32_t sent_ = 0, received_ = 0;  // frames
    std::uint32_t unposted_ = 0;             // receives that have completed
    bool flushed_ = false;                   // what came with the completions at hand
    unsigned news_ = 0;                      // of the adapter, looked at
};

}  // namespace tutti::verbs
