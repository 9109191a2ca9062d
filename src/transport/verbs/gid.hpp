// Which port of which adapter is used, and by which of its addresses: decided on tables, so that it can be tested
// without any.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::verbs {

/// An entry of a port's table of addresses.
struct Gid {
    enum class Kind : std::uint8_t { infiniband, roce1, roce2 };  // roce1: within an Ethernet only; roce2: over UDP
    using Bytes = std::array<std::uint8_t, 16>;

    int index = 0;
    Kind kind = Kind::infiniband;
    Bytes bytes{};

    bool is_ipv4() const;
    bool is_link_local() const;
    std::string text() const;  // "10.0.0.1", "fe80::1"
    /// Equal on ports that are taken to reach each other, never 0: on InfiniBand the subnet; RoCE may be routed, so the
    /// kind of address.
    std::uint64_t fabric() const;
};

/// RoCE v2 before v1, IPv4 before IPv6, what is routed before what is local to the link, then the lowest index. wish:
/// the index to take instead; -1: none. nullptr if there is none such.
const Gid* choose_gid(std::span<const Gid> table, int wish);

/// A port's speed in Gbit/s, from ibv_port_attr's active_width and active_speed; 0: nobody knows.
double speed_of(std::uint8_t width, std::uint8_t speed);

/// Whether a port is better left alone beside a faster one: channels are dealt to ports in equal parts, so two ports
/// are as fast as twice the slower one.
constexpr bool is_slow(double speed, double fastest) {
    return speed > 0 && 2 * speed < fastest;
}

/// Whether ports with these partition keys may talk: keys are equal but for the highest bit, which a full member has,
/// and one of two members is a full one.
constexpr bool share_partition(std::uint16_t a, std::uint16_t b) {
    return ((a ^ b) & 0x7fff) == 0 && ((a | b) & 0x8000) != 0;
}

/// TUTTI_IB_HCA, in NCCL's syntax: prefixes of adapters' names, each with an optional :port, separated by commas; a
/// leading ^ excludes them, a leading = demands exact names; empty: all.
class HcaList {
  public:
    /// Throws tuttiInvalidUsage if a port is not a number.
    explicit HcaList(std::string_view text);
    bool allows(std::string_view device, int port) const;

  private:
    struct Entry {
        std::string name;
        int port = -1;  // any
    };
    std::vector<Entry> entries_;
    bool excludes_ = false, exact_ = false;
};

}  // namespace tutti::verbs
