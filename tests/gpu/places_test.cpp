// Which ranks reach each other by p2p: a pure function of the endpoint infos, with one result at both ends.
#include <string>
#include <vector>

#include "base/result.hpp"
#include "gpu/arena.hpp"
#include "gpu/budget.hpp"
#include "gpu/places.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using gpu::Places;

namespace {

struct Somebody {
    std::uint64_t host, process;
    int device;                     // also what tells it from others on its host; -1: a CPU
    std::vector<int> reached = {};  // beside its own
    bool shareable = true;
    bool nvlink = true;  // else by PCIe
};

gpu::Uuid uuid_of(std::uint64_t host, int device) {
    gpu::Uuid uuid{};
    uuid[0] = static_cast<std::uint8_t>(device + 1), uuid[8] = static_cast<std::uint8_t>(host);
    return uuid;
}

Places places_of(const std::vector<Somebody>& ranks, std::string_view only = "") {
    SimilarRows<EndpointInfo> infos;
    SimilarRows<gpu::EndpointInfo> gpus;
    for (const Somebody& r : ranks) {
        infos.push_back({.host = r.host, .process = r.process, .arena_key = 0, .pid = 0, .arena_descriptor = -1});
        gpu::EndpointInfo info;
        if (r.device >= 0) {
            info.device = 0;  // in its process
            info.blocks = 16;
            info.shareable = r.shareable;
            info.uuid = uuid_of(r.host, r.device);
            info.reach[0] = gpu::short_of(info.uuid);
            info.linked = 1;
            for (std::size_t i = 0; i < r.reached.size(); ++i) {
                info.reach[i + 1] = gpu::short_of(uuid_of(r.host, r.reached[i]));
                if (r.nvlink) info.linked |= 2u << i;
            }
        }
        gpus.push_back(info);
    }
    return Places(infos, gpus, only);
}

std::string why_not(const Places& places, Rank a, Rank b) {
    const char *there = places.obstacle(a, b), *back = places.obstacle(b, a);
    REQUIRE((there == nullptr) == (back == nullptr));
    if (there == nullptr) return "";
    CHECK(std::string(there) == back);
    return there;
}

}  // namespace

TEST_CASE("GPUs, their places: why two ranks are not joined by p2p, or that they are") {
    CHECK(why_not(places_of({{1, 1, 0}, {1, 1, 0}}), 0, 1).empty());
    CHECK(why_not(places_of({{1, 1, 0}, {1, 2, 0}}), 0, 1).empty());
    CHECK(why_not(places_of({{1, 1, 0, {1}}, {1, 2, 1, {0}}}), 0, 1).empty());
    CHECK(why_not(places_of({{1, 1, 0}, {1, 1, -1}}), 0, 1) == "one of them is on a CPU");
    CHECK(why_not(places_of({{1, 1, 0}, {2, 1, 0}}), 0, 1) == "they are on different hosts");
    CHECK(why_not(places_of({{1, 1, 0}, {1, 2, 1}}), 0, 1) == "the GPUs have no peer access");
    CHECK(why_not(places_of({{1, 1, 0, {1}}, {1, 2, 1}}), 0, 1) == "the GPUs have no peer access");
    CHECK(why_not(places_of({{1, 1, 0}, {1, 2, 0, {}, false}}), 0, 1) ==
          "GPU memory can't be shared between the processes");
    CHECK(why_not(places_of({{1, 1, 0, {}, false}, {1, 1, 0, {}, false}}), 0, 1).empty());
    CHECK(why_not(places_of({{1, 1, 0}, {1, 1, 0}}, "shm"), 0, 1) == "that transport is the only one allowed");
    CHECK(why_not(places_of({{1, 1, 0}, {1, 1, 0}}, "p2p"), 0, 1).empty());
}

TEST_CASE("GPUs, their places: one pair that p2p does not join changes how all are cut") {
    CHECK_FALSE(places_of({{1, 1, -1}, {2, 2, -1}}).through_host());  // no GPU at all
    CHECK_FALSE(places_of({{1, 1, 0}, {1, 2, 0}, {1, 3, 0}}).through_host());
    CHECK(places_of({{1, 1, 0, {1, 2}}, {1, 2, 1, {0}}, {1, 3, 2, {0}}}).through_host());
    const Places mixed = places_of({{1, 1, 0}, {1, 2, 0}, {1, 3, -1}});
    const gpu::Budget budget = gpu::budget_of(mixed);
    CHECK(budget.through_host);
    CHECK_FALSE(budget.by_reference);
    CHECK(budget.channels == 4);  // of the 8 blocks that each of two has
    TileLimits hosts;
    hosts.slots = {1 << 20, 100};
    const TileLimits limits = gpu::through_host(hosts, budget);
    const Tiling c = tile(10'000'000, 4, {3, 1}, limits);
    CHECK(c.channels == 4);
    CHECK(c.tile * 4 <= gpu::least_slot_bytes);
    CHECK_FALSE(c.in_lines);
    CHECK(tile(100, 4, {1, 1}, limits).in_lines);
}

TEST_CASE("GPUs, their places: ranks lend memory where several processes are joined, and none has two ranks on a GPU") {
    const auto lends = [](const std::vector<Somebody>& ranks) { return gpu::budget_of(places_of(ranks)).lends; };
    CHECK(lends({{1, 1, 0}, {1, 2, 0}}));
    CHECK(lends({{1, 1, 0, {1}}, {1, 1, 1, {0}}, {1, 2, 0, {1}}, {1, 2, 1, {0}}}));
    CHECK_FALSE(lends({{1, 1, 0}, {1, 1, 0}}));  // addresses do
    CHECK_FALSE(lends({{1, 1, 0}, {1, 1, 0}, {1, 2, 0}}));
    CHECK_FALSE(lends({{1, 1, 0}, {1, 2, -1}}));
}

TEST_CASE("GPUs, their places: messages in lines are longer where NVLink joins all, and there is memory for that") {
    const auto line = [](const std::vector<Somebody>& ranks) { return gpu::budget_of(places_of(ranks)).line; };
    constexpr std::size_t least = gpu::least_line_bytes;
    CHECK(line({{1, 1, 0}, {1, 2, 0}}) == 2 * least);
    CHECK(line({{1, 1, 0, {1}}, {1, 2, 1, {0}}}) == 2 * least);
    CHECK(line({{1, 1, 0, {1}, true, false}, {1, 2, 1, {0}, true, false}}) == least);
    CHECK(line({{1, 1, 0, {1}}, {1, 2, 1, {0}, true, false}}) == least);
    CHECK(line({{1, 1, 0}, {1, 1, 0}, {1, 1, 1, {0}}}) == least);  // through host memory
    for (const int ranks : {8, 9}) {
        std::vector<Somebody> all;
        for (int r = 0; r < ranks; ++r) {
            all.push_back({1, static_cast<std::uint64_t>(r), r});
            for (int peer = 0; peer < ranks; ++peer)
                if (peer != r) all.back().reached.push_back(peer);
        }
        CHECK(line(all) == (ranks == 8 ? 2 * least : least));
        all[3].nvlink = false;
        CHECK(line(all) == least);
    }
}

TEST_CASE("GPUs, their arenas: what grows with the ranks lies apart, and 16 ranks take less than 96 MiB") {
    for (int seats = 1; seats <= gpu::most_seats; ++seats) {
        CAPTURE(seats);
        const gpu::Layout layout{seats};
        const int last = gpu::channels_per_peer - 1;
        const std::size_t lines = gpu::line_depth * 2 * gpu::line_bytes_of(seats);
        CHECK(layout.fifo(seats - 1, last) + sizeof(Fifo) <= layout.slots(0, 0));
        CHECK(layout.slots(seats - 1, last) + slot_depth * gpu::slot_bytes_of(seats) <= layout.lines(0, 0));
        CHECK(layout.lines(0, 0) + lines == layout.lines(0, 1));
        CHECK(layout.lines(0, gpu::line_channels - 1) + lines == layout.lines(0, gpu::collective_channels));
        CHECK(layout.lines(seats - 1, last) + lines == layout.board());
        if (seats <= 16) CHECK(layout.size() < std::size_t{95} << 20);  // and 1 MiB of programs
    }
}

TEST_CASE("GPUs, their places: ranks for whom there is no room in an arena go through the host") {
    std::vector<Somebody> ranks;
    for (int r = 0; r < gpu::most_seats + 2; ++r) ranks.push_back({1, static_cast<std::uint64_t>(r), 0});
    ranks[0].device = -1;
    const Places places = places_of(ranks);
    CHECK(places.seat(0) == -1);
    for (Rank r = 1; r <= gpu::most_seats; ++r) CHECK(places.seat(r) == r - 1);
    CHECK(places.p2p(1, gpu::most_seats));
    CHECK(why_not(places, 1, gpu::most_seats + 1) == "too many ranks are on the GPUs of that host");
    CHECK_THROWS_AS(gpu::budget_of(places), Error);  // 33 ranks, and a GPU with 16 blocks
}
