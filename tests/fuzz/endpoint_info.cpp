// Endpoint infos: what another rank tells of itself when it joins, and what is concluded from that.
#include "comm/hello.hpp"
#include "fuzz.hpp"
#include "plan/platform.hpp"
#include "topology/placement.hpp"
#include "tutti/tutti.h"

using namespace tutti;

FUZZ_TARGET(endpoint_info) {
    constexpr int ranks = 3;
    std::vector<Hello> hellos;
    std::vector<EndpointInfo> infos;
    std::vector<gpu::EndpointInfo> gpus;
    std::vector<Seat> seats;
    std::vector<std::uint64_t> hosts;
    const bool read = fuzz::accepts([&] {
        for (Rank r = 0; r < ranks; ++r) {
            Hello plain{};
            plain.info.version = TUTTI_VERSION_CODE;
            plain.gpu.device = -1;
            plain.threads = 1;
            const auto fields = std::as_writable_bytes(std::span(&plain, 1));
            // Some fields, or all; or what no Hello is packed into.
            for (unsigned changes = in.below(8); changes > 0; --changes) {
                const std::size_t at = in.number<std::uint16_t>() % fields.size();
                in.fill(fields.data() + at, std::min<std::size_t>(fields.size() - at, 1 + in.below(16)));
            }
            if (in.below(32) == 1) in.fill(fields.data(), fields.size());
            std::vector<std::byte> info = packed(plain);
            if (in.below(32) == 1) in.fill(info.data(), info.size());
            if (in.below(32) == 1) info.resize(in.number<std::uint16_t>());
            hellos.push_back(hello_from(info, r, 0));
            infos.push_back(hellos.back().info);
            gpus.push_back(hellos.back().gpu);
            hosts.push_back(infos.back().host);
            seats.push_back({infos.back().host, static_cast<std::int32_t>(hellos.back().place)});
        }
    });
    if (!read) return;
    const std::vector<Rank> order = ring_order(seats);
    TUTTI_ASSERT(order.empty() || order.size() == ranks);
    for (const EndpointInfo& info : infos) {
        for (const bootstrap::Address& address : info.addresses) address.text();
        for (const EndpointInfo& other : infos) fuzz::accepts([&] { choose_transport(info, other, ""); });
    }
    fuzz::accepts([&] {
        const gpu::Places places(infos, gpus, in.flag() ? "p2p" : "");
        for (Rank a = 0; a < ranks && places.any_on_gpu(); ++a)
            for (Rank b = 0; b < ranks; ++b)
                TUTTI_ASSERT((places.obstacle(a, b) == nullptr) == (places.obstacle(b, a) == nullptr));
        const gpu::Budget budget = gpu::budget_of(places);
        if (places.any_on_gpu()) gpu_platform(ranks, budget);
    });
    Platform host = host_platform(ranks, 4, hellos[0].cache_bytes, hellos[0].core_cache_bytes, {&shm_transport()});
    Census told;
    for (const Hello& hello : hellos) told.add(hello);
    host.share_among(told.threads, told.all_memories());
    TUTTI_ASSERT(host.rates.threads >= 1 && host.rates.streams >= ranks);
    TUTTI_ASSERT(spread(host, hosts, shm_transport().cost()).ranks == ranks);
}
