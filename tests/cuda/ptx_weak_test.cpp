// Memory as lazy as it may be: what each order of PTX promises holds for every seed, and what it does not promise some
// seed breaks.
#include "ptx_weak.hpp"

#include <optional>

#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "ptx_code.hpp"

namespace tutti::ptx {
namespace {

/// Data, and then a flag, from a block to one of another GPU.
struct Message {
    std::optional<Scope> release = Scope::sys, acquire = Scope::sys;
    bool at_writer = false;                     // the data lie on its GPU, the flag on the reader's
    bool another_stores = false, meets = true;  // another thread has stored the data, and a barrier follows
    bool another_loads = false, waits = true;   // another thread loads them, behind a barrier
    std::uint32_t another = 1;                  // its number
    std::uint32_t warps = all_warps;            // that the barriers are for
    bool constant = false;
    bool same_gpu = false;
};

/// Whether the reader, which has seen the flag, finds old data.
bool is_stale(const Message& m, std::uint64_t seed) {
    alignas(128) std::uint64_t data[16] = {}, flag[16] = {};
    WeakGpu here(seed), there(seed + 1);
    Multiprocessor writer(here, 64), reader(m.same_gpu ? here : there, 64);
    const auto access = [&](std::uint64_t& word, bool home, bool another) {
        return Multiprocessor::Access{reinterpret_cast<std::byte*>(&word), 8, home, another ? m.another : 0};
    };
    const auto load = [&] {
        std::uint64_t value = 0;
        const auto from = access(data[3], m.same_gpu || !m.at_writer, m.another_loads);
        m.constant ? reader.load_constant(from, &value) : reader.load(from, &value);
        return value;
    };
    CHECK(load() == 0);
    const std::uint64_t one = 1;
    writer.store(access(data[3], m.same_gpu || m.at_writer, m.another_stores), &one);
    if (m.another_stores && m.meets) writer.barrier(m.warps);
    if (m.release) writer.release(0, *m.release);
    writer.store(access(flag[5], m.same_gpu, false), &one);
    std::uint64_t seen = 0;
    for (int ticks = 0; seen == 0; ++ticks) {
        REQUIRE(ticks < 100'000);
        writer.tick(false);
        reader.load_strong(access(flag[5], true, false), Scope::sys, &seen);
    }
    if (m.acquire) reader.acquire(0, *m.acquire);
    if (m.another_loads && m.waits) reader.barrier(m.warps);
    return load() == 0;
}

/// Of some seeds.
bool may_be_stale(const Message& m) {
    const std::uint64_t seed = harness::seed();
    for (std::uint64_t n = 0; n < 200; ++n)
        if (is_stale(m, seed + 2 * n)) return true;
    return false;
}

}  // namespace

TEST_CASE("weak memory: releases, and how far") {
    for (const bool at_writer : {false, true}) CHECK(!may_be_stale({.at_writer = at_writer}));
    CHECK(may_be_stale({.release = std::nullopt}));
    CHECK(may_be_stale({.release = Scope::cta}));
    CHECK(may_be_stale({.release = Scope::gpu}));  // what goes to another GPU is still on its way
    CHECK(!may_be_stale({.release = Scope::gpu, .at_writer = true}));
    CHECK(!may_be_stale({.release = Scope::gpu, .same_gpu = true}));
    CHECK(may_be_stale({.release = Scope::cta, .same_gpu = true}));
}

TEST_CASE("weak memory: acquires, and how far") {
    CHECK(may_be_stale({.acquire = std::nullopt}));
    CHECK(may_be_stale({.acquire = Scope::cta}));
    CHECK(!may_be_stale({.acquire = Scope::gpu}));
    CHECK(may_be_stale({.acquire = Scope::gpu, .at_writer = true}));  // from another GPU
    CHECK(!may_be_stale({.acquire = Scope::gpu, .same_gpu = true}));
    CHECK(may_be_stale({.constant = true}));
}

TEST_CASE("weak memory: other threads of the block, by a barrier alone") {
    CHECK(!may_be_stale({.another_stores = true}));
    CHECK(may_be_stale({.another_stores = true, .meets = false}));
    CHECK(!may_be_stale({.another_loads = true}));
    CHECK(may_be_stale({.another_loads = true, .waits = false}));
}

TEST_CASE("weak memory: a barrier serves the warps that it is for") {
    for (const bool stores : {false, true}) {
        const auto another = [&](std::uint32_t thread, std::uint32_t warps) {
            return may_be_stale(
                {.another_stores = stores, .another_loads = !stores, .another = thread, .warps = warps});
        };
        CHECK(!another(1, 1));
        CHECK(!another(32, 3));
        CHECK(another(32, 1));
        CHECK(another(32, 2));
    }
}

TEST_CASE("weak memory: a store and a load of something else, two blocks crosswise") {
    const auto both_miss = [](bool fenced, std::uint64_t seed) {
        alignas(128) std::uint64_t words[2][16] = {};
        WeakGpu gpu(seed);
        Multiprocessor blocks[2] = {{gpu, 1}, {gpu, 1}};
        std::uint64_t one = 1, seen[2] = {};
        for (int b = 0; b < 2; ++b) {
            blocks[b].store({reinterpret_cast<std::byte*>(words[b]), 8, true, 0}, &one);
            if (fenced) blocks[b].release(0, Scope::gpu), blocks[b].acquire(0, Scope::gpu);
            blocks[b].tick(false);
        }
        for (int b = 0; b < 2; ++b)
            blocks[b].load_strong({reinterpret_cast<std::byte*>(words[1 - b]), 8, true, 0}, Scope::gpu, &seen[b]);
        return seen[0] == 0 && seen[1] == 0;
    };
    int missed = 0;
    for (std::uint64_t n = 0; n < 200; ++n) {
        missed += both_miss(false, harness::seed() + n) ? 1 : 0;
        REQUIRE(!both_miss(true, harness::seed() + n));
    }
    CHECK(missed > 0);
}

TEST_CASE("weak memory: a block sees its own stores at once, and all of them arrive") {
    alignas(128) std::uint32_t words[32] = {};
    {
        WeakGpu gpu(harness::seed());
        Multiprocessor block(gpu, 1);
        for (int round = 1; round < 100; ++round)
            for (int w = 0; w < 32; ++w) {
                const bool home = w / 2 % 3 != 0;  // both halves of a word of 8 bytes lie in one place
                const Multiprocessor::Access at{reinterpret_cast<std::byte*>(words + w), 4, home, 0};
                const std::uint32_t stored = static_cast<std::uint32_t>(100 * w + round);
                std::uint32_t loaded = 0;
                block.store(at, &stored);
                if (w % 5 == 0) block.tick(w % 10 == 0);
                block.load(at, &loaded);
                REQUIRE(loaded == stored);
            }
    }
    for (std::uint32_t w = 0; w < 32; ++w) CHECK(words[w] == 100 * w + 99);
}

TEST_CASE("races within a block") {
    std::byte memory[16] = {};
    using Kind = Races::Kind;
    const auto race = [&](Kind first, Kind second, bool barrier, std::size_t apart = 0, std::uint32_t other = 1) {
        Races races;
        races.use(memory, 4, 0, first, "shared");
        if (barrier) races.barrier();
        try {
            races.use(memory + apart, 4, other, second, "shared");
        } catch (const Fault&) {
            return true;
        }
        return false;
    };
    for (const auto& [first, second] :
         {std::pair{Kind::store, Kind::store}, std::pair{Kind::store, Kind::load}, std::pair{Kind::load, Kind::store},
          std::pair{Kind::strong_store, Kind::load}, std::pair{Kind::store, Kind::strong_load}}) {
        CHECK(race(first, second, false));
        CHECK(race(first, second, false, 3));
        CHECK(!race(first, second, true));
        CHECK(!race(first, second, false, 4));
        CHECK(!race(first, second, false, 0, 0));
    }
    CHECK(!race(Kind::load, Kind::load, false));
    CHECK(!race(Kind::strong_store, Kind::strong_store, false));
}

TEST_CASE("races between warps, by the barriers that both come to") {
    std::byte memory[16] = {};
    using Kind = Races::Kind;
    Races races;
    const auto use = [&](std::uint32_t thread, Kind kind) {
        try {
            races.use(memory, 4, thread, kind, "shared");
        } catch (const Fault&) {
            return false;
        }
        return true;
    };
    CHECK(use(0, Kind::store));
    races.barrier(1), races.barrier(2);  // each warp's own
    CHECK(use(1, Kind::load));
    CHECK(!use(32, Kind::load));
    races.barrier(3);
    CHECK(use(32, Kind::load));
    CHECK(use(33, Kind::load));
    races.barrier(2);
    CHECK(!use(2, Kind::store));  // the other warp's loads
    races.barrier(6);
    races.barrier(5);  // the first warp knows of the second by the third
    CHECK(use(2, Kind::store));
    CHECK(!use(64, Kind::load));
    races.arrive(7, 2);  // and does not wait
    races.barrier(4, 7);
    CHECK(use(64, Kind::store));
    CHECK(!use(2, Kind::load));
    races.barrier();
    CHECK(use(2, Kind::load));
}

}  // namespace tutti::ptx
