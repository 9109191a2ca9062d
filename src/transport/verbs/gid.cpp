#include "transport/verbs/gid.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <tuple>

#include "base/result.hpp"

namespace tutti::verbs {

bool Gid::is_ipv4() const {
    static constexpr std::uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    return std::equal(std::begin(mapped), std::end(mapped), bytes.begin());
}

bool Gid::is_link_local() const {
    if (is_ipv4()) return bytes[12] == 169 && bytes[13] == 254;
    return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

std::string Gid::text() const {
    char out[INET6_ADDRSTRLEN] = "?";
    inet_ntop(is_ipv4() ? AF_INET : AF_INET6, bytes.data() + (is_ipv4() ? 12 : 0), out, sizeof out);
    return out;
}

std::uint64_t Gid::fabric() const {
    if (kind == Kind::roce1) return 3;
    if (kind == Kind::roce2) return is_ipv4() ? 1 : 2;
    std::uint64_t subnet = 0;
    for (int i = 0; i < 8; ++i) subnet = subnet << 8 | bytes[static_cast<std::size_t>(i)];
    return subnet > 3 ? subnet : 4;
}

const Gid* choose_gid(std::span<const Gid> table, int wish) {
    const auto badness = [](const Gid& g) {
        return std::tuple(g.kind == Gid::Kind::roce1, g.kind == Gid::Kind::roce2 && g.is_link_local(),
                          g.kind == Gid::Kind::roce2 && !g.is_ipv4(), g.index);
    };
    const Gid* best = nullptr;
    for (const Gid& g : table)
        if (wish >= 0 ? g.index == wish : best == nullptr || badness(g) < badness(*best)) best = &g;
    return best;
}

double speed_of(std::uint8_t width, std::uint8_t speed) {
    const int lanes = width == 1 ? 1 : width == 2 ? 4 : width == 4 ? 8 : width == 8 ? 12 : width == 16 ? 2 : 0;
    switch (speed) {
        case 1:
            return lanes * 2.5;
        case 2:
            return lanes * 5.0;
        case 4:  // QDR
        case 8:  // FDR10
            return lanes * 10.0;
        case 16:
            return lanes * 14.0;
        case 32:
            return lanes * 25.0;
        case 64:
            return lanes * 50.0;
        case 128:
            return lanes * 100.0;
        default:
            return 0;
    }
}

HcaList::HcaList(std::string_view text) {
    const std::string all(text);
    if (text.starts_with('^')) excludes_ = true, text.remove_prefix(1);
    if (text.starts_with('=')) exact_ = true, text.remove_prefix(1);
    while (!text.empty()) {
        std::string_view item = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), item.size() + 1));
        Entry entry;
        if (const std::size_t colon = item.find(':'); colon != std::string_view::npos) {
            const std::string_view port = item.substr(colon + 1);
            const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), entry.port);
            if (error != std::errc() || end != port.data() + port.size() || entry.port < 1)
                fail(tuttiInvalidUsage, "TUTTI_IB_HCA is '%s'; '%.*s' is not the number of a port", all.c_str(),
                     static_cast<int>(port.size()), port.data());
            item = item.substr(0, colon);
        }
        entry.name = item;
        if (!item.empty()) entries_.push_back(entry);
    }
}

bool HcaList::allows(std::string_view device, int port) const {
    if (entries_.empty()) return true;
    const bool listed = std::ranges::any_of(entries_, [&](const Entry& e) {
        return (exact_ ? device == e.name : device.starts_with(e.name)) && (e.port < 0 || e.port == port);
    });
    return listed != excludes_;
}

}  // namespace tutti::verbs
