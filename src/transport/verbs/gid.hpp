// Chooses ports of adapters and their addresses. Pure functions of tables, so that tests need no adapter.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::verbs {

/// An entry of a port's GID table.
struct Gid {
    enum class Kind : std::uint8_t { infiniband, roce1, roce2 };  // roce1: not routable; roce2: over UDP
    using Bytes = std::array<std::uint8_t, 16>;

    int index = 0;  // in the table
    Kind kind = Kind::infiniband;
    Bytes bytes{};  // in network order; an IPv4 address is mapped into IPv6

    bool is_ipv4() const;
    bool is_link_local() const;
    std::string text() const;  // "10.0.0.1", "fe80::1"
    /// Equal for ports that are assumed to reach each other; never 0. On InfiniBand it is the subnet. RoCE v2 may be
    /// routed, so there it is the kind of address.
    std::uint64_t fabric() const;
};

/// Prefers RoCE v2 to v1, then routable addresses to link-local ones, then IPv4 to IPv6, then the lowest index.
/// wish: the index to take instead; -1 if there is no wish. nullptr if the table has no such entry.
const Gid* choose_gid(std::span<const Gid> table, int wish);

/// A port's speed in Gbit/s, from ibv_port_attr's active_width and active_speed; 0 if they are unknown values.
double speed_of(std::uint8_t width, std::uint8_t speed);

/// Whether a port is too slow to share the work of the fastest. Channels are dealt to ports in equal parts, so two
/// ports together are as fast as twice the slower one.
constexpr bool is_slow(double speed, double fastest) {
    return speed > 0 && 2 * speed < fastest;
}

/// Whether ports with these partition keys may talk: their keys must be equal but for the highest bit, which marks a
/// full member, and at least one of them must be a full member.
constexpr bool share_partition(std::uint16_t a, std::uint16_t b) {
    return ((a ^ b) & 0x7fff) == 0 && ((a | b) & 0x8000) != 0;
}

/// TUTTI_IB_HCA, in NCCL's syntax: prefixes of adapters' names, each with an optional :port, separated by commas. A
/// leading ^ excludes them, a leading = demands exact names, and an empty list allows all.
class HcaList {
  public:
    /// Throws tuttiInvalidUsage if a port is not a number.
    explicit HcaList(std::string_view text);
    bool allows(std::string_view device, int port) const;

  private:
    struct Entry {
        std::string name;
        int port = -1;  // -1 for any
    };
    std::vector<Entry> entries_;
    bool excludes_ = false, exact_ = false;
};

}  // namespace tutti::verbs
