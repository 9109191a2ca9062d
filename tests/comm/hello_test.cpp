// The Hello that ranks exchange when they join, in its wire format.
#include "comm/hello.hpp"

#include "base/result.hpp"
#include "harness/catch.hpp"

namespace tutti::test {
namespace {

Hello some_hello() {
    Hello h{};
    h.info = {0x123456789abcdef0, 0x0fedcba987654321, 0x1122334455667788, 4711, 3};
    h.info.addresses[0] = bootstrap::Address::loopback();
    h.info.addresses[0].port = 40000;
    h.gpu.device = -1;
    h.cores.set(5);
    h.fences = 1;
    h.version = TUTTI_VERSION_CODE;
    h.cache_kib = 32 << 10;
    h.core_cache_kib = 1 << 10;
    h.caches = 1;
    h.tuning = 0x8877665544332211;
    h.paths = 0x1020304050607080;
    h.place = -1;
    h.threads = 1;
    return h;
}

bool same(const Hello& a, const Hello& b) {
    return std::ranges::equal(std::as_bytes(std::span(&a, 1)), std::as_bytes(std::span(&b, 1)));
}

}  // namespace

TEST_CASE("what a rank tells of itself is read as it was packed, and a rank on a CPU tells little") {
    const Hello hello = some_hello();
    const auto small = packed(hello);
    CHECK(small.size() <= 118);
    CHECK(same(hello_from(small, 1, 0), hello));
    Hello full = hello;  // what a rank on a GPU might have
    for (std::size_t core = 0; core < full.cores.size(); core += 3) full.cores.set(core);
    full.gpu.device = 7;
    full.gpu.shareable = 1;
    full.gpu.arena.bytes.fill(std::byte{0xff});
    full.gpu.reach.fill(0x0100000000000001);
    full.info.addresses.fill(hello.info.addresses[0]);
    CHECK(same(hello_from(packed(full), 1, 0), full));
    CHECK(packed(full).size() < sizeof full);
}

TEST_CASE("what no rank can have packed is refused, wherever it is cut or changed") {
    const auto whole = packed(some_hello());
    const auto refused = [](std::span<const std::byte> info) {
        try {
            hello_from(info, 1, 0);
            return false;
        } catch (const Error& e) {
            return e.code() == tuttiInvalidUsage || e.code() == tuttiRemoteError;
        }
    };
    for (std::size_t size = 0; size < whole.size(); ++size) CHECK(refused(std::span(whole).first(size)));
    auto longer = whole;
    longer.insert(longer.end(), {std::byte{1}, std::byte{0}});
    CHECK(refused(longer));
    for (const std::size_t at : {std::size_t{0}, std::size_t{1}}) {  // of the first run: zeros, and others
        auto wrong = whole;
        wrong[at] = std::byte{0xff};
        CHECK(refused(wrong));
    }
}

TEST_CASE("a rank of an older or a newer version is refused by both versions' names") {
    for (const int version : {TUTTI_VERSION_CODE - 1, TUTTI_VERSION_CODE + 1}) {
        Hello hello = some_hello();
        hello.version = version;
        std::string said;
        try {
            hello_from(packed(hello), 1, 0);
        } catch (const Error& e) {
            said = e.what();
        }
        CHECK(said == text("rank 1 uses version %d of Tutti, rank 0 version %d", version, TUTTI_VERSION_CODE));
    }
}

TEST_CASE("a setting that must be the same on all ranks, and is not, is named") {
    const auto said = [](auto change) -> std::string {
        Demands theirs{}, ours{};
        change(theirs);
        try {
            compare(theirs, 1, ours, 0);
        } catch (const Error& e) {
            return e.code() == tuttiInvalidUsage ? e.what() : "another code";
        }
        return "";
    };
    CHECK(said([](Demands&) {}).empty());
    const auto names = [](const char* setting) {
        return text("rank 1 has another value of %s than rank 0: it must be the same on all ranks", setting);
    };
    CHECK(said([](Demands& d) { d.algorithm = 1; }) == names("config.algorithm (TUTTI_ALGO)"));
    CHECK(said([](Demands& d) { d.transport = 1; }) == names("config.transport (TUTTI_TRANSPORT)"));
    CHECK(said([](Demands& d) { d.channels = 1; }) == names("config.channels (TUTTI_CHANNELS)"));
    CHECK(said([](Demands& d) { d.reproducible = 1; }) == names("config.reproducible (TUTTI_REPRODUCIBLE)"));
    CHECK(said([](Demands& d) { d.check = 1; }) == names("config.check (TUTTI_CHECK)"));
    CHECK(said([](Demands& d) { d.general_kernel = 1; }) == names("TUTTI_GPU_SMALL"));
}

TEST_CASE("a census of GPUs has all ranks in it, or none") {
    Census cpus, mixed;
    Hello cpu = some_hello(), gpu = some_hello();
    gpu.gpu.device = 0;
    gpu.tuning = 5;
    for (int i = 0; i < 3; ++i) cpus.add(cpu);
    CHECK((cpus.infos.size() == 3 && cpus.gpus.empty() && cpus.other_tuning == -1 && cpus.only_core.back() == 5));
    mixed.add(cpu), mixed.add(gpu), mixed.add(cpu);
    CHECK(mixed.gpus.size() == 3);
    CHECK((mixed.gpus[0].device == -1 && mixed.gpus[1].device == 0 && mixed.gpus[2].device == -1));
    CHECK((mixed.other_tuning == 1 && mixed.other_paths == -1));
    CHECK(mixed.all_fence);
}

TEST_CASE("a census knows the first rank that does not ask for copy engines") {
    Census all, some;
    Hello asks = some_hello(), other = some_hello();
    asks.zero_cta = 1;
    for (int i = 0; i < 2; ++i) all.add(asks), some.add(asks);
    for (int i = 0; i < 2; ++i) some.add(other);
    CHECK((all.other_policy == -1 && some.other_policy == 2));
    asks.zero_cta = 2;
    CHECK_THROWS_AS(hello_from(packed(asks), 1, 0), Error);
}

TEST_CASE("who knows other paths between hosts may have measured the same of itself, and the other way round") {
    Census told;
    Hello hello = some_hello();
    told.add(hello);
    hello.paths = 0;
    told.add(hello);
    CHECK((told.other_tuning == -1 && told.other_paths == 1));
    hello.tuning = 0;
    told.add(hello);
    CHECK((told.other_tuning == 2 && told.other_paths == 1));
}

TEST_CASE("a rank has a core alone if it is bound to one, and no other rank of its host may run there") {
    const auto alone = [](std::initializer_list<std::pair<std::uint64_t, const char*>> host_and_cores) {
        Census all;
        for (const auto& [host, cores] : host_and_cores) {
            Hello h = some_hello();
            h.info.host = host;
            h.cores = Cores(cores);  // the lowest one last
            all.add(h);
        }
        std::vector<bool> each;
        for (Rank r = 0; r < static_cast<Rank>(host_and_cores.size()); ++r) each.push_back(all.has_core_alone(r));
        return each;
    };
    CHECK(alone({{1, "01"}, {1, "10"}, {1, "01"}}) == std::vector{false, true, false});
    CHECK(alone({{1, "01"}, {2, "01"}}) == std::vector{true, true});
    CHECK(alone({{1, "01"}, {1, "11"}}) == std::vector{false, false});
}

}  // namespace tutti::test
