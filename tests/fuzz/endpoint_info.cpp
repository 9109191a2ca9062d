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
    Census told;
    std::vector<Seat> seats;
    std::vector<std::uint64_t> hosts;
    const bool read = fuzz::accepts([&] {
        for (Rank r = 0; r < ranks; ++r) {
            Hello plain{};
            plain.version = TUTTI_VERSION_CODE;
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
            told.add(hellos.back());
            hosts.push_back(hellos.back().info.host);
            seats.push_back({hellos.back().info.host, static_cast<std::int32_t>(hellos.back().place)});
        }
    });
    if (!read) return;
    const std::vector<Rank> order = ring_order(seats);
    TUTTI_ASSERT(order.empty() || order.size() == ranks);
    for (std::size_t r = 0; r < ranks; ++r) {
        const EndpointInfo info = told.infos[r], sent = hellos[r].info;
        TUTTI_ASSERT(std::memcmp(&info, &sent, sizeof info) == 0);
        for (const bootstrap::Address& address : info.addresses) address.text();
        for (const Hello& other : hellos) fuzz::accepts([&] { choose_transport(info, other.info, ""); });
    }
    fuzz::accepts([&] {
        const gpu::Places places(told.infos, told.gpus, in.flag() ? "p2p" : "");
        for (Rank a = 0; a < ranks && places.any_on_gpu(); ++a)
            for (Rank b = 0; b < ranks; ++b)
                TUTTI_ASSERT((places.obstacle(a, b) == nullptr) == (places.obstacle(b, a) == nullptr));
        const gpu::Budget budget = gpu::budget_of(places);
        if (places.any_on_gpu()) gpu_platform(ranks, budget);
    });
    TUTTI_ASSERT(told.caches.share(ranks) <= told.caches.largest);
    Platform host = host_platform(ranks, 4, told.caches.largest, told.caches.of_core, {&shm_transport()});
    host.share_among(told.threads, told.all_memories());
    TUTTI_ASSERT(host.rates.threads >= 1 && host.rates.streams >= ranks);
    TUTTI_ASSERT(spread(host, hosts, shm_transport().cost()).ranks == ranks);
}
