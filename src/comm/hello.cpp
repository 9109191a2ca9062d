#include "comm/hello.hpp"

#include <algorithm>
#include <cstring>

#include "base/result.hpp"
#include "tutti/tutti.h"

namespace tutti {
namespace {

/// TCP addresses, and none behind the last one.
bool are_addresses(std::span<const bootstrap::Address> addresses) {
    using Family = bootstrap::Address::Family;
    const auto none = [](const bootstrap::Address& a) { return a.family == Family::none; };
    const auto last = std::ranges::find_if(addresses, none);
    return std::all_of(last, addresses.end(), none) &&
           std::all_of(addresses.begin(), last, [](const bootstrap::Address& a) {
               return a.family == Family::ipv4 || a.family == Family::ipv6;
           });
}

/// The field that no rank sends so; nullptr if there is none.
const char* wrong_field(const Hello& h) {
    constexpr std::uint64_t most_cache = std::uint64_t{1} << 50;
    if (!are_addresses(h.info.addresses)) return "its TCP addresses";
    if (h.gpu.device < -1 || h.gpu.blocks < 0 || h.gpu.shareable < 0 || h.gpu.shareable > 1) return "its GPU";
    if (h.fences > 1) return "whether it allows fences";
    if (h.faulty > 1) return "whether its links are faulty";
    if (h.cache_bytes > most_cache || h.core_cache_bytes > most_cache) return "the size of its caches";
    if (h.place < -1 || h.place > INT32_MAX) return "its place on its host";
    return nullptr;
}

}  // namespace

Hello hello_from(std::span<const std::byte> info, Rank rank, Rank self) {
    Hello hello;
    if (info.size() != sizeof hello)
        fail(tuttiInvalidUsage, "rank %d uses another version of Tutti than rank %d", rank, self);
    std::memcpy(&hello, info.data(), sizeof hello);
    if (hello.info.version != TUTTI_VERSION_CODE)
        fail(tuttiInvalidUsage, "rank %d uses version %d of Tutti, rank %d version %d", rank, hello.info.version, self,
             TUTTI_VERSION_CODE);
    if (const char* const field = wrong_field(hello))
        fail(tuttiRemoteError, "rank %d: the endpoint info of rank %d can't be right: %s", self, rank, field);
    return hello;
}

}  // namespace tutti
