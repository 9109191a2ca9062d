// Decisions that the ranks of one host share.
#include "plan/shared_decisions.hpp"

#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "base/result.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "machine.hpp"

using namespace tutti;

namespace {

/// The page of a host's first rank, and a tuner for each of several processes of that host.
struct Host {
    std::unique_ptr<RankPage> page = std::make_unique<RankPage>();  // zeroed, as an arena is
    SharedDecisions decisions{*page};

    static Tuner tuner(int ranks, const char* allowed = "") {
        return {machine(ranks, 2), Allowed::parse(allowed), false, nullptr};
    }
    std::size_t in_use() const {
        std::size_t used = 0;
        for (const SharedDecision& entry : page->decisions) used += entry.question.load() != 0;
        return used;
    }
};

void same(const Candidate& a, const Candidate& b) {
    CHECK(a.algorithm == b.algorithm);
    CHECK(a.shape == b.shape);
    CHECK(a.limits == b.limits);
    CHECK(a.tiling == b.tiling);
    CHECK(a.price.threads == b.price.threads);
    CHECK(a.time == b.time);
    for (const std::size_t count : {0u, 1u, 1000u, 1u << 20}) CHECK(a.tiling_of(count, 4) == b.tiling_of(count, 4));
}

bool refuses(Tuner& tuner, const Question& q, SharedDecisions* shared = nullptr) {
    try {
        return tuner.choose(q, shared).algorithm == nullptr;
    } catch (const Error& error) {
        return error.code() == tuttiInvalidUsage;
    }
}

}  // namespace

TEST_CASE("one rank of a host decides for all, as each would have decided") {
    for (const int ranks : {3, 8, 24})
        for (int c = 0; c < collectives; ++c) {
            const auto collective = static_cast<Collective>(c);
            if (collective == Collective::send || collective == Collective::recv) continue;
            Host host;
            Tuner alone = Host::tuner(ranks), first = Host::tuner(ranks), second = Host::tuner(ranks);
            for (const std::size_t bytes : {0u, 8u, 5000u, 1u << 20})
                for (const bool uneven : {false, true})
                    for (const bool altered : {false, true}) {
                        CAPTURE(ranks, name_of(collective), bytes, uneven, altered);
                        const Question q{
                            .collective = collective, .bytes = bytes, .uneven = uneven, .altered = altered};
                        if (refuses(alone, q)) {
                            CHECK((refuses(first, q, &host.decisions) && refuses(second, q, &host.decisions)));
                            continue;
                        }
                        const Candidate& own = alone.choose(q);
                        same(own, first.choose(q, &host.decisions));
                        same(own, second.choose(q, &host.decisions));
                    }
            CHECK(host.in_use() > 0);
            CHECK(first.played() > 0);
            CHECK(second.played() == 0);
        }
}

TEST_CASE("ranks with other settings do not share a decision") {
    Host host;
    Tuner ring = Host::tuner(8, "ring"), tree = Host::tuner(8, "tree");
    const Question q{.collective = Collective::all_reduce, .bytes = 8};
    CHECK(ring.choose(q, &host.decisions).algorithm->name == "ring");
    CHECK(tree.choose(q, &host.decisions).algorithm->name == "tree");
    CHECK(host.in_use() == 2);
}

TEST_CASE("what there is no room for is decided by each rank") {
    Host host;
    Tuner alone = Host::tuner(4), first = Host::tuner(4), second = Host::tuner(4);
    for (int width = 0; width < 30; ++width) {
        const Question q{.collective = Collective::all_reduce, .bytes = std::size_t{1} << width};
        const Candidate& own = alone.choose(q);
        same(own, first.choose(q, &host.decisions));
        same(own, second.choose(q, &host.decisions));
    }
    CHECK(host.in_use() == most_shared_decisions);
}

TEST_CASE("a rank that can't decide sends the others on; one that does not come back is not waited for") {
    Host host;
    {
        SharedDecisions::Duty duty;
        CHECK_FALSE(host.decisions.ask(7, duty));
    }
    SharedDecisions::Duty none, stopped, late;
    CHECK_FALSE(host.decisions.ask(7, none));
    CHECK_FALSE(host.decisions.ask(8, stopped));
    CHECK_FALSE(host.decisions.ask(8, late));  // after a second
    none.fulfil({}), late.fulfil({});          // nobody waits for these
    stopped.fulfil({.algorithm = 3, .tile = 5});
    const auto decision = host.decisions.ask(8, none);
    REQUIRE(decision);
    CHECK((decision->algorithm == 3 && decision->tile == 5));
    CHECK_FALSE(host.decisions.ask(7, none));
}

TEST_CASE("many ranks that ask at the same time get one decision") {
    Host host;
    std::atomic<int> decided{0};
    std::vector<std::thread> ranks;
    for (int r = 0; r < 8; ++r)
        ranks.emplace_back([&] {
            for (std::uint64_t question = 1; question <= most_shared_decisions; ++question) {
                SharedDecisions::Duty duty;
                const auto known = host.decisions.ask(question, duty);
                if (known && known->tile != question) std::terminate();
                if (known) continue;
                ++decided;
                duty.fulfil({.tile = question});
            }
        });
    for (std::thread& rank : ranks) rank.join();
    CHECK(decided == static_cast<int>(most_shared_decisions));
}

TEST_CASE("entries with anything in them never lead to a call that can't run") {
    Host host;
    std::minstd_rand random(static_cast<unsigned>(harness::seed()));
    Tuner owner = Host::tuner(5);
    const Question q{.collective = Collective::all_reduce, .bytes = 1 << 20};
    owner.choose(q, &host.decisions);
    SharedDecision& entry = host.page->decisions[0];
    REQUIRE(entry.question != 0);
    const auto any = [&] { return static_cast<std::int32_t>(random() % 2 == 0 ? random() % 9 : random() * 2); };
    for (int i = 0; i < 300; ++i) {
        for (std::int32_t* const field :
             {&entry.columns, &entry.message_chunks, &entry.sends_slices, &entry.rows, &entry.channels, &entry.threads})
            if (random() % 4 == 0) *field = any();
        if (random() % 4 == 0) entry.tile = random() % 2 == 0 ? static_cast<std::uint64_t>(any()) : random();
        if (random() % 8 == 0) entry.algorithm ^= random();
        Tuner reader = Host::tuner(5);
        const Candidate& chosen = reader.choose(q, &host.decisions);
        CHECK(chosen.tiling.channels > 0);
        CHECK(chosen.tiling.channels <= 8);
        CHECK(chosen.tiling.tile > 0);
        CHECK(chosen.algorithm->supports(q.collective));
    }
}
