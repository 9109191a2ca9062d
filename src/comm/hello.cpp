#include "comm/hello.hpp"

#include <algorithm>
#include <bit>

#include "base/result.hpp"
#include "base/similar_rows.hpp"
#include "tutti/tutti.h"

namespace tutti {
namespace {

/// Whether these are TCP addresses, with empty entries only after the last one.
bool are_addresses(std::span<const bootstrap::Address> addresses) {
    using Family = bootstrap::Address::Family;
    const auto none = [](const bootstrap::Address& a) { return a.family == Family::none; };
    const auto last = std::ranges::find_if(addresses, none);
    return std::all_of(last, addresses.end(), none) &&
           std::all_of(addresses.begin(), last, [](const bootstrap::Address& a) {
               return a.family == Family::ipv4 || a.family == Family::ipv6;
           });
}

/// The first field with a value that no rank can have sent, for error texts; nullptr if there is none.
const char* wrong_field(const Hello& h) {
    if (!are_addresses(h.info.addresses)) return "its TCP addresses";
    if (h.gpu.device < -1 || h.gpu.blocks < 0 || h.gpu.shareable < 0 || h.gpu.shareable > 1 || h.gpu.multicast < 0 ||
        h.gpu.multicast > 1)
        return "its GPU";
    if (h.fences > 1) return "whether it allows fences";
    if (h.faulty > 1) return "whether its links are faulty";
    if (h.zero_cta > 1) return "whether it asks for copy engines";
    if (h.caches > INT32_MAX / 2) return "the number of its caches";
    if (h.threads < 1 || h.threads > collective_channels) return "the number of its threads";
    if (h.place < -1 || h.place > INT32_MAX) return "its place on its host";
    return nullptr;
}

/// The one core of a set; -1 if it has none, or several.
int only(const Cores& cores) {
    if (cores.count() != 1) return -1;
    int core = 0;
    while (!cores[static_cast<std::size_t>(core)]) ++core;
    return core;
}

/// Reverses packed(). False if `packed` does not stand for exactly as many bytes as `out` has.
bool unpack(std::span<const std::byte> packed, std::span<std::byte> out) {
    std::ranges::fill(out, std::byte{0});
    while (packed.size() >= 2) {
        const auto zeros = static_cast<std::size_t>(packed[0]), others = static_cast<std::size_t>(packed[1]);
        packed = packed.subspan(2);
        if (others > packed.size() || zeros + others > out.size()) return false;
        std::ranges::copy(packed.first(others), out.subspan(zeros).begin());
        packed = packed.subspan(others);
        out = out.subspan(zeros + others);
    }
    return packed.empty() && out.empty();
}

}  // namespace

std::vector<std::byte> packed(const Hello& hello) {
    std::vector<std::byte> out;
    append_runs(std::as_bytes(std::span(&hello, 1)), out);
    return out;
}

Hello hello_from(std::span<const std::byte> info, Rank rank, Rank self) {
    Hello hello;
    if (!unpack(info, std::as_writable_bytes(std::span(&hello, 1))))
        fail(tuttiInvalidUsage, "rank %d uses another version of Tutti than rank %d", rank, self);
    if (hello.version != TUTTI_VERSION_CODE)
        fail(tuttiInvalidUsage, "rank %d uses version %d of Tutti, rank %d version %d", rank, hello.version, self,
             TUTTI_VERSION_CODE);
    if (const char* const field = wrong_field(hello))
        fail(tuttiRemoteError, "rank %d: the endpoint info of rank %d can't be right: %s", self, rank, field);
    return hello;
}

void compare(const Demands& theirs, Rank their_rank, const Demands& ours, Rank our_rank) {
    if (theirs.programs != ours.programs && (theirs.programs == 0 || ours.programs == 0))
        fail(tuttiInvalidUsage,
             "rank %d has loaded algorithms of its own and rank %d has not: all ranks must load the same files "
             "(config.programs, TUTTI_PROGRAMS)",
             theirs.programs == 0 ? our_rank : their_rank, theirs.programs == 0 ? their_rank : our_rank);
    if (theirs.programs != ours.programs)
        fail(tuttiInvalidUsage,
             "rank %d has loaded other algorithms than rank %d: all ranks must load the same files in the same order "
             "(config.programs, TUTTI_PROGRAMS)",
             their_rank, our_rank);
    const auto same = [&](std::uint64_t its, std::uint64_t own, const char* setting) {
        if (its != own)
            fail(tuttiInvalidUsage, "rank %d has another value of %s than rank %d: it must be the same on all ranks",
                 their_rank, setting, our_rank);
    };
    same(theirs.algorithm, ours.algorithm, "config.algorithm (TUTTI_ALGO)");
    same(theirs.transport, ours.transport, "config.transport (TUTTI_TRANSPORT)");
    same(theirs.channels, ours.channels, "config.channels (TUTTI_CHANNELS)");
    same(theirs.reproducible, ours.reproducible, "config.reproducible (TUTTI_REPRODUCIBLE)");
    same(theirs.check, ours.check, "config.check (TUTTI_CHECK)");
    same(theirs.general_kernel, ours.general_kernel, "TUTTI_GPU_SMALL");
}

int Census::all_memories() const {
    int all = 0;
    for (const auto& [host, its] : memories) all += std::max(1, std::popcount(its));
    return all;
}

bool Census::has_core_alone(Rank rank) const {
    const auto own = static_cast<std::size_t>(rank);
    if (only_core[own] < 0) return false;
    for (std::size_t r = 0; r < seats.size(); ++r)
        if (r != own && seats[r].host == seats[own].host && (only_core[r] < 0 || only_core[r] == only_core[own]))
            return false;
    return true;
}

void Census::add(const Hello& h) {
    if (infos.empty()) tuning = h.tuning, paths = h.paths;
    if (h.caches > 0)
        caches = {std::size_t{h.cache_kib} << 10, static_cast<int>(h.caches), std::size_t{h.core_cache_kib} << 10};
    if (h.tuning != tuning && other_tuning < 0) other_tuning = static_cast<Rank>(infos.size());
    if (h.paths != paths && other_paths < 0) other_paths = static_cast<Rank>(infos.size());
    if (h.zero_cta == 0 && other_policy < 0) other_policy = static_cast<Rank>(infos.size());
    while (h.gpu.device >= 0 && gpus.size() < infos.size()) gpus.push_back({});  // the CPU ranks before it
    if (h.gpu.device >= 0 || !gpus.empty()) gpus.push_back(h.gpu);
    infos.push_back(h.info);
    seats.push_back({h.info.host, static_cast<std::int32_t>(h.place)});
    only_core.push_back(only(h.cores));
    cores[h.info.host] |= h.cores;
    memories[h.info.host] |= h.memories;
    threads_on[h.info.host] += h.threads;
    threads = infos.size() == 1 ? static_cast<int>(h.threads) : std::min(threads, static_cast<int>(h.threads));
    all_fence = all_fence && h.fences == 1;
    any_faulty = any_faulty || h.faulty != 0;
}

}  // namespace tutti
