// A link's rails: connections over several ports, with several queue pairs on each. Channels are dealt to them.
// A rail joins ports of equal number (Port::rail) at both ends, so rails may be separate networks. Of all such pairs
// of ports, a link uses those with the shortest distance to both ranks.
//
// If one rail fails, the whole endpoint fails: the link drops it, and opens another one without the failed port.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/verbs/endpoint.hpp"

namespace tutti::verbs {

inline constexpr std::size_t most_ports = 4;  // of a link; each adapter registers the link's whole inbox
inline constexpr std::size_t most_rails = 8;  // of a link; each rail has a ring of its own
static_assert(most_rails * sizeof(Offer) <= net::offer_bytes);

using Rail = verbs::Endpoint;

/// The endpoint of a link over verbs. Owned by the link; used under the engine's lock.
class Rails : public net::NetEndpoint {
  public:
    /// Makes rails over `ports`; of more than most_ports, over the nearest most_ports / 2 and the first others of an
    /// order that the peer has too, and that differs between pairs of ranks. queue_pairs: rails on each port, bounded
    /// so that there are at most most_rails in all. Throws tuttiSystemError.
    Rails(const std::vector<Port>& ports, int queue_pairs, Rank self, Rank peer, const net::LinkMemory& memory,
          std::chrono::milliseconds silence_limit);

    std::vector<std::byte> offer() override;
    void meet(std::span<const std::byte> offer) override;
    bool has_room() const override;
    void queue(const net::Header& header, const std::byte* body, bool copied = false) override;
    bool knows(const std::byte* memory, std::size_t bytes) override;
    net::RemoteMemory expose(int channel, std::byte* memory, std::size_t bytes) override;
    void put(const net::Header& header, const std::byte* body, const std::byte* slot,
             const net::RemoteMemory* to) override;
    const void* adapter_of(int channel) const override { return of(channel).adapter_of(channel); }
    unsigned ways() const override { return static_cast<unsigned>(rails_.size()); }
    const void* adapter_by(unsigned way) const override { return by(way).adapter_of(one_sided_channel); }
    void write_to(const net::Header& header, const std::byte* body, std::span<const std::byte> data,
                  const net::RemoteMemory& to) override;
    bool reads_to(int channel, const std::byte* memory, std::size_t bytes) override;
    void read_from(int channel, std::span<std::byte> to, const net::RemoteMemory& from) override;
    bool take_read(int channel) override { return of(channel).take_read(channel); }
    bool is_empty() const override;
    bool send() override { return false; }
    bool receive(net::Recipient& to) override;
    void abandon() override;
    std::vector<int> fds() const override;
    bool arm() override;
    std::uint64_t broken() const override;
    std::string describe() const override;

  private:
    class Gate;
    Rail& of(int channel) const;
    Rail& of(const net::Header& header) const;
    Rail& by(std::uint64_t way) const;
    void check(const Rail& rail);

    const int shift_;  // added to the channel's number, so that different pairs of ranks begin at different rails
    std::vector<std::unique_ptr<Rail>> rails_;
};

}  // namespace tutti::verbs
