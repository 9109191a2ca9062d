// The move of a layer to another communicator: where each part goes, and where its memory comes from.
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "dp/cover.hpp"
#include "dp/handover.hpp"
#include "dp/host_backend.hpp"
#include "dp/mover.hpp"
#include "harness/catch.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

/// Memory of the host: an allocation fails once a given number of blocks has been handed out.
class Scarce : public dp::HostBackend {
  public:
    std::byte* allocate(std::size_t bytes) override {
        if (left == 0) fail(tuttiSystemError, "a test: no memory");
        left -= left > 0;
        most = std::max(most, in_use += bytes);
        auto block = std::make_unique<std::byte[]>(bytes + 1);
        std::byte* const at = block.get();
        blocks_[at] = {std::move(block), bytes};
        return at;
    }
    void free(std::byte* memory) noexcept override {
        if (const auto its = blocks_.find(memory); its != blocks_.end()) {
            in_use -= its->second.second;
            blocks_.erase(its);
        }
    }

    int left = -1;  // no bound
    std::size_t in_use = 0, most = 0;

  private:
    std::map<std::byte*, std::pair<std::unique_ptr<std::byte[]>, std::size_t>> blocks_;
};

}  // namespace

TEST_CASE("cover: each element from one rank that has it, and what nobody has is named") {
    std::vector<dp::Parameter> parameters(2);
    for (std::size_t p = 0; p < 2; ++p) {
        parameters[p].name = p == 0 ? "a" : "b";
        parameters[p].count = p == 0 ? 100 : 37;
        parameters[p].type = parameters[p].grad_type = parameters[p].main_type = DataType::float32;
    }
    const std::vector<std::size_t> order = {1, 0};
    const dp::Dealing dealing{1 << 20, 1 << 20, 1, false, false};
    const auto whole = [&](const dp::Cover& cover) {
        std::vector<int> seen[2] = {std::vector<int>(100), std::vector<int>(37)};
        for (const dp::Origin& o : cover.origins)
            for (std::size_t i = 0; i < o.count; ++i) ++seen[o.parameter][o.first + i];
        for (const auto& its : seen)
            for (const int times : its) REQUIRE(times <= 1);
        return cover.lost.empty();
    };
    using H = dp::Holding;
    // Three shards; then one is lost; then one of four and one of two have what was lost, among others.
    std::vector<H> all = {{{3, 0}, 5}, {{3, 1}, 5}, {{3, 2}, 5}};
    REQUIRE(whole(dp::cover(parameters, order, dealing, all, 5)));
    all.erase(all.begin() + 1);
    REQUIRE_FALSE(whole(dp::cover(parameters, order, dealing, all, 5)));
    all.push_back({{2, 0}, 5});
    REQUIRE_FALSE(whole(dp::cover(parameters, order, dealing, all, 5)));
    all.push_back({{4, 1}, 5});
    all.push_back({{4, 2}, 5});
    REQUIRE(whole(dp::cover(parameters, order, dealing, all, 5)));
    all.back().whole = false;
    REQUIRE_FALSE(whole(dp::cover(parameters, order, dealing, all, 5)));
    // A server without a part; a group that is a step ahead, but not complete; newcomers are of no use.
    all = {{{2, 0, 2, 0}, 6}, {{2, 0, 2, 1}, 5}, {{2, 1, 2, 1}, 5}, {{1, -1}, 6}, {{1, 0}, 0}};
    dp::Standing standing = dp::last_whole_step(parameters, order, dealing, all);
    REQUIRE(standing.step == 5);
    REQUIRE(whole(standing.cover));
    all.erase(all.begin() + 1);
    standing = dp::last_whole_step(parameters, order, dealing, all);
    REQUIRE(standing.step == 6);
    REQUIRE_FALSE(standing.cover.lost.empty());
    all = {{{1, 0}, 1}, {{2, 0}, 2}, {{1, 0}, 0}};
    REQUIRE(dp::last_whole_step(parameters, order, dealing, all).step == 1);
    all = {{{2, 0}, 1}, {{1, 0}, 0}};
    REQUIRE(dp::last_whole_step(parameters, order, dealing, all).cover.lost.size() == 1);
}

TEST_CASE("cover: in asynchronous modes each part as its owner has it, and else what was received last") {
    std::vector<dp::Parameter> parameters(1);
    parameters[0].name = "a";
    parameters[0].count = 96;
    parameters[0].type = parameters[0].grad_type = parameters[0].main_type = DataType::float32;
    const std::vector<std::size_t> order = {0};
    const dp::Dealing dealing{1 << 20, 1 << 20, 1, false, false};
    using H = dp::Holding;
    const auto plan = [&](std::vector<H> all) { return dp::newest_parts(parameters, order, dealing, std::move(all)); };
    // Owners differ by a step; a newcomer has everything, and does not count.
    dp::Standing standing = plan({{{3, 0}, 5}, {{1, 0}, 0, true, true}, {{3, 2}, 6}, {{3, 1}, 5}});
    REQUIRE((standing.step == 6 && standing.root == 2));
    REQUIRE(standing.cover.lost.empty());
    REQUIRE(standing.cover.origins.size() == 3);
    // The second owner has died, the first one's update has failed: what rank 3 has received is the newest.
    standing = plan({{{3, 0}, 5, false, false, 3},
                     {{1, 0}, 9, true, true, 9},
                     {{3, 2}, 6, true, false, 4},
                     {{3, -1}, 5, true, false, 5}});
    REQUIRE((standing.step == 6 && standing.root == 2));
    REQUIRE(standing.cover.lost.size() == 1);
    REQUIRE(standing.cover.lost[0].count == 64);
    REQUIRE(standing.cover.origins.size() == 2);
    REQUIRE((standing.cover.origins[1].bare && standing.cover.origins[1].rank == 3));
    // Layers that were alone: the one with the most steps counts.
    standing = plan({{{1, 0}, 0, true, true}, {{1, 0}, 7, true, true, 7}});
    REQUIRE((standing.step == 7 && standing.root == 1 && standing.cover.origins[0].rank == 1));
}

TEST_CASE("a move for which there was no memory is made again, and loses nothing; never more than twice is held") {
    const tuttiComm_t comm = harness::join(new_id(), 0, 1, true);
    {
        dp::Ranks ranks;
        ranks.join(comm, dp::Ranks::meet(comm, false, {}), {dp::Shards{}});
        for (const auto mode : {tuttiDpServer, tuttiDpZero1, tuttiDpZero3})
            for (int allocations = 0, failures = 1; failures > 0; ++allocations) {
                CAPTURE(mode, allocations);
                const std::vector<tuttiDpParameter_t> given = registered(tuttiFloat32);
                tuttiDpConfig_t config = harness::config_for(mode);
                dp::Registration registration;
                registration.options = dp::read_options(&config, given, 1);
                registration.parameters = dp::read_parameters("a test", given, registration.options);
                dp::size_buckets(registration.options, registration.parameters);
                const std::vector<std::size_t> order = dp::backward_order(registration.parameters);
                const auto memory = std::make_shared<Scarce>();
                dp::Backends backends;
                backends.values = backends.jobs = backends.states = memory;
                dp::Storage storage(registration, backends);
                storage.create(dp::Shards{}, order);
                for (const dp::Bucket& b : storage.buckets())
                    for (std::byte* const at : {b.own_data, b.states.state[0], b.states.state[1]})
                        if (at != nullptr) std::fill_n(reinterpret_cast<float*>(at), b.own_count, 3.0f);
                std::memset(storage.values_of(4), 42, 3 * sizeof(int));
                const std::size_t once = memory->in_use;
                memory->most = once;

                dp::Handover handover(ranks, storage);
                const dp::Progress progress{2, 2, 2};
                memory->left = allocations;
                try {
                    handover.begin(progress, order);
                    failures = 0;  // it ends later, then
                } catch (const Error&) {
                }
                memory->left = -1;
                const dp::Standing plan = handover.begin(progress, order);
                REQUIRE(plan.step == 2);
                REQUIRE(plan.cover.lost.empty());
                handover.pass_on(plan.cover);
                handover.end();
                bool right = *reinterpret_cast<unsigned char*>(storage.values_of(4)) == 42;
                for (const dp::Bucket& b : storage.buckets())
                    for (const dp::Piece& piece : b.mine)
                        for (std::byte* const at : {b.own_data, b.states.state[0], b.states.state[1]})
                            for (std::size_t i = 0; at != nullptr && i < piece.count; ++i)
                                right &= reinterpret_cast<float*>(at)[piece.at + i] == 3;
                REQUIRE(right);
                REQUIRE(memory->in_use == once);
                REQUIRE(memory->most <= 2 * once);
            }
    }
    tuttiCommDestroy(comm);
}
