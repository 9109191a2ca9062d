// Cards: what another rank tells of itself when it joins, and what is concluded from that.
#include "comm/choice.hpp"
#include "comm/hello.hpp"
#include "fuzz.hpp"
#include "topology/placement.hpp"
#include "tutti/tutti.h"

using namespace tutti;

FUZZ_TARGET(cards) {
    constexpr int ranks = 3;
    std::vector<Hello> hellos;
    std::vector<Card> cards;
    std::vector<gpu::Card> gpus;
    std::vector<Seat> seats;
    std::vector<std::uint64_t> hosts;
    const bool read = fuzz::accepts([&] {
        for (Rank r = 0; r < ranks; ++r) {
            std::vector<std::byte> card(sizeof(Hello));
            Hello plain{};
            plain.card.version = TUTTI_VERSION_CODE;
            plain.gpu.device = -1;
            std::memcpy(card.data(), &plain, sizeof plain);
            // Some fields, or all.
            for (unsigned changes = in.below(8); changes > 0; --changes) {
                const std::size_t at = in.number<std::uint16_t>() % card.size();
                in.fill(card.data() + at, std::min<std::size_t>(card.size() - at, 1 + in.below(16)));
            }
            if (in.below(32) == 1) in.fill(card.data(), card.size());
            if (in.below(32) == 1) card.resize(in.number<std::uint16_t>());
            hellos.push_back(hello_from(card, r, 0));
            cards.push_back(hellos.back().card);
            gpus.push_back(hellos.back().gpu);
            hosts.push_back(cards.back().host);
            seats.push_back({cards.back().host, static_cast<std::int32_t>(hellos.back().place)});
        }
    });
    if (!read) return;
    const std::vector<Rank> order = ring_order(seats);
    TUTTI_ASSERT(order.empty() || order.size() == ranks);
    for (const Card& card : cards) {
        for (const bootstrap::Address& door : card.doors) door.text();
        for (const Card& other : cards) fuzz::accepts([&] { choose_transport(card, other, ""); });
    }
    fuzz::accepts([&] {
        const gpu::Places places(cards, gpus, in.flag() ? "p2p" : "");
        for (Rank a = 0; a < ranks && places.any_on_gpu(); ++a)
            for (Rank b = 0; b < ranks; ++b)
                TUTTI_ASSERT((places.obstacle(a, b) == nullptr) == (places.obstacle(b, a) == nullptr));
        const GpuBudget budget = budget_of(places);
        if (places.any_on_gpu()) gpu_platform(ranks, budget);
    });
    const Platform host = host_platform(ranks, 4, hellos[0].cache_bytes, hellos[0].core_cache_bytes, shm_transport());
    TUTTI_ASSERT(spread(host, hosts, shm_transport().cost()).ranks == ranks);
}
