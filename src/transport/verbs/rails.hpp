// A link's connections by several ports that both ends have, and several queue pairs on each: channels are dealt to
// them. Ends that count their ports alike use those with equal numbers together, as rails that may have nothing to do
// with each other; of these the ones that are nearest to both ranks.
//
// What a rail can't do any more is the trouble of all: the link leaves them, and makes new ones without that port.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/verbs/endpoint.hpp"

namespace tutti::verbs {

inline constexpr std::size_t most_ports = 4;  // of a link: each knows the whole inbox
inline constexpr std::size_t most_rails = 8;  // each has its ring
static_assert(most_rails * sizeof(Offer) <= net::offer_bytes);

using Rail = verbs::Endpoint;

class Rails : public net::NetEndpoint {
  public:
    /// By at most most_ports of ports, different ones for different pairs of ranks, and so many queue pairs on each, as
    /// far as most_rails go. Throws tuttiSystemError.
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
    void check(const Rail& rail);

    const int shift_;  // so that the first channels of different pairs go by different rails
    std::vector<std::unique_ptr<Rail>> rails_;
};

}  // namespace tutti::verbs
