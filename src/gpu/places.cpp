#include "gpu/places.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>

#include "base/result.hpp"

namespace tutti::gpu {

std::uint64_t short_of(const Uuid& uuid) {
    std::uint64_t halves[2];
    static_assert(sizeof halves == sizeof uuid);
    std::memcpy(halves, uuid.data(), sizeof halves);
    const std::uint64_t mixed = halves[0] ^ (halves[1] * 0x9e3779b97f4a7c15u);
    return mixed == 0 ? 1 : mixed;
}

Places::Places(const SimilarRows<tutti::EndpointInfo>& infos, SimilarRows<EndpointInfo> gpus, std::string_view only)
    : only_(only) {
    bool any = false;
    for (std::size_t r = 0; r < gpus.size() && !any; ++r) any = gpus[r].device >= 0;
    if (!any) return;
    infos_ = infos;
    gpus_ = std::move(gpus);
    std::map<std::uint64_t, int> seated;  // by host
    for (Rank r = 0; r < ranks(); ++r) {
        const int seat = on_gpu(r) ? seated[info(r).host]++ : -1;
        seats_.push_back(seat < seats(ranks()) ? seat : -1);
    }
    through_host_ = find_host_pair();
}

const char* Places::obstacle(Rank a, Rank b) const {
    if (!on_gpu(a) || !on_gpu(b)) return "one of them is on a CPU";
    if (!only_.empty() && only_ != "p2p") return "that transport is the only one allowed";
    if (info(a).host != info(b).host) return "they are on different hosts";
    if (seat(a) < 0 || seat(b) < 0) return "too many ranks are on the GPUs of that host";
    const auto reaches = [&](Rank from, Rank to) {
        const EndpointInfo info = gpu(from);
        return std::ranges::find(info.reach, short_of(gpu(to).uuid)) != info.reach.end();
    };
    if (!reaches(a, b) || !reaches(b, a)) return "the GPUs have no peer access";
    if (info(a).process != info(b).process && (gpu(a).shareable == 0 || gpu(b).shareable == 0))
        return "GPU memory can't be shared between the processes";
    return nullptr;
}

std::string Places::multicast_obstacle() const {
    if (!any_on_gpu() || through_host()) return "p2p does not join all ranks on GPUs";
    if (ranks() < 2) return "the rank is alone";
    std::map<Uuid, Rank> of;
    for (Rank r = 0; r < ranks(); ++r) {
        const EndpointInfo info = gpu(r);
        const auto [before, is_first] = of.try_emplace(info.uuid, r);
        if (!is_first) return text("ranks %d and %d share a GPU", before->second, r);
        if (info.multicast == 0)
            return text(
                "rank %d's GPU or driver has no multicast, or TUTTI_GPU_VIRTUAL=1 or TUTTI_GPU_MULTICAST=1 is "
                "missing there",
                r);
    }
    return "";
}

bool Places::linked(Rank a, Rank b) const {
    const auto has_link = [&](Rank from, Rank to) {
        const EndpointInfo info = gpu(from);
        const auto found = std::ranges::find(info.reach, short_of(gpu(to).uuid));
        return found != info.reach.end() && (info.linked >> (found - info.reach.begin()) & 1) != 0;
    };
    return has_link(a, b) && has_link(b, a);
}

bool Places::share_processes() const {
    std::set<std::uint64_t> processes;
    for (Rank r = 0; r < ranks(); ++r)
        if (on_gpu(r) && !processes.insert(info(r).process).second) return true;
    return false;
}

bool Places::find_host_pair() const {
    for (Rank r = 0; r < ranks(); ++r)  // rank 0 first: it is most often in such a pair
        if (r != 0 && !p2p(0, r)) return true;
    for (Rank a = 1; a < ranks(); ++a)
        for (Rank b = a + 1; b < ranks(); ++b)
            if (!p2p(a, b)) return true;
    return false;
}

}  // namespace tutti::gpu
