// A rail: one reliable connection (RC queue pair) between two adapters. A message in a slot takes two work requests: an
// RDMA write from the sender's slot to the reader's, then a write with immediate that puts the message's frame into the
// reader's ring. A small message lies in its frame and takes one request, whose data is inline.
//
//     slot of `mine`  -- RDMA write ----------------->  the same slot of the peer's
//     header [+ up to 48 bytes]  -- write, immediate -->  ring[frame % ring_frames], and a completion
//
// Slots lie in arenas or, for a rank on a GPU, in that GPU's memory (transport/slots.hpp); the offer tells the peer
// where. Messages that arrive in GPU slots are flushed, once for each batch of completions, before the first of the
// batch is passed on.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "transport/net/endpoint.hpp"
#include "transport/verbs/completions.hpp"
#include "transport/verbs/link_slots.hpp"
#include "transport/verbs/ring.hpp"

namespace tutti::verbs {

/// What each end of a connection tells the other before they connect.
struct Offer {
    std::uint32_t version;
    std::uint32_t queue_pair, sequence;  // the queue pair's number, and its first packet sequence number
    std::uint16_t lid;                   // of the port; InfiniBand only
    std::uint8_t infiniband, mtu;        // 1 for InfiniBand, 0 for RoCE; an ibv_mtu
    Gid::Bytes gid;
    std::uint64_t ring, slots;                  // addresses of the ring and of the first slot that the peer writes
    std::uint32_t ring_key, slots_key;          // remote keys of both
    std::uint32_t channel_stride, slot_stride;  // as in SlotTable
    std::uint16_t rail;                         // Port::rail
    std::uint8_t lane;                          // index among the link's queue pairs on that port
    std::uint8_t distance;                      // Port::distance
    std::uint16_t pkey;
    char port[58];  // its name and address, for error texts
};
static_assert(sizeof(Offer) == 128 && sizeof(Offer) <= net::offer_bytes);

/// One queue pair with its ring. Owned by Rails; used under the engine's lock.
class Endpoint final : public net::NetEndpoint {
  public:
    /// lane: index among the link's queue pairs on that port. slots: the link's slots as registered with the port's
    /// adapter, shared by all rails over it. Throws tuttiSystemError.
    Endpoint(const Port& port, int lane, std::shared_ptr<LinkSlots> slots, std::chrono::milliseconds silence_limit);
    ~Endpoint() override;

    std::vector<std::byte> offer() override;
    void meet(std::span<const std::byte> offer) override;
    void meet(const Offer& offer);
    const Port& port() const { return port_; }
    /// Two ends with equal numbers form a rail: (lane, Port::rail).
    using Number = std::pair<int, unsigned>;
    Number number() const { return {mine_offer_.lane, mine_offer_.rail}; }
    static Number number_of(const Offer& offer) { return {offer.lane, offer.rail}; }
    bool said_bye() const { return bye_; }
    bool has_room() const override { return met_ && window_.has_room(requests_per_frame); }
    void queue(const net::Header& header, const std::byte* body, bool copied = false) override;
    bool knows(const std::byte* memory, std::size_t bytes) override;
    net::RemoteMemory expose(int channel, std::byte* memory, std::size_t bytes) override;
    void put(const net::Header& header, const std::byte* body, const std::byte* slot,
             const net::RemoteMemory* to) override;
    const void* adapter_of(int) const override { return port_.device.get(); }
    void write_to(const net::Header& header, const std::byte* body, std::span<const std::byte> data,
                  const net::RemoteMemory& to) override;
    bool reads_to(int channel, const std::byte* memory, std::size_t bytes) override;
    void read_from(int channel, std::span<std::byte> to, const net::RemoteMemory& from) override;
    bool take_read(int) override { return std::exchange(has_read_, false); }
    // All is handed to the adapter at once, so nothing is left to send.
    bool is_empty() const override { return true; }
    bool send() override { return false; }
    bool receive(net::Recipient& to) override;
    void abandon() override { bye_ = true; }
    std::vector<int> fds() const override { return {completions_.fd()}; }
    bool arm() override;
    std::string describe() const override;

  private:
    static constexpr unsigned requests_per_frame = 2;  // at most: the body's write and the frame's
    static constexpr unsigned repost_at = 64;          // completed receives before new ones are posted

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
        ibv_sge from{};         // length 0 if there is no body to write
        std::uint64_t to = 0;   // address at the peer
        std::uint32_t key = 0;  // remote key
    };
    Frame& next_frame(const net::Header& header);
    void post(Frame& frame, std::size_t bytes, const Body& body);
    std::optional<ibv_sge> local(int channel, std::span<const std::byte> data, Access access);
    void linger();

    const Port port_;
    const Library& library_;
    const std::chrono::milliseconds silence_limit_;

    // Destroyed in reverse order: the queue pair uses all members above it.
    Ring ring_;
    const std::shared_ptr<LinkSlots> slots_;
    SendWindow window_;
    Completions completions_;
    Owned<ibv_qp> pair_;

    Offer mine_offer_{}, peer_offer_{};
    bool met_ = false, bye_ = false;
    bool has_read_ = false;                  // what was to be read has arrived
    bool inlines_ = true;                    // frames are sent as inline data of their work requests
    std::uint32_t sent_ = 0, received_ = 0;  // frames so far
    std::uint32_t unposted_ = 0;             // receives that have completed and were not posted again
    bool flushed_ = false;                   // GPU slots were flushed for the current batch of completions
    unsigned news_ = 0;                      // Device::news() at the last check_health()
};

}  // namespace tutti::verbs
