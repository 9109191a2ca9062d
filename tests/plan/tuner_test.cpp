#include "machine.hpp"

#include "base/result.hpp"
#include "harness/catch.hpp"
#include "transport/fifo.hpp"

using namespace tutti;

namespace {

std::string chosen(Tuner& tuner, Collective c, std::size_t bytes) {
    return std::string(tuner.choose({c, bytes}).algorithm->name);
}

std::string error_of(std::string_view list) {
    try {
        Allowed::parse(list);
    } catch (const Error& e) {
        CHECK(e.code() == tuttiInvalidUsage);
        return e.what();
    }
    return "";
}

}  // namespace

TEST_CASE("small sums take few rounds, large ones move few bytes") {
    for (const int n : {2, 3, 8, 16}) {
        INFO(n);
        Tuner tuner(machine(n, n), {}, false, nullptr);
        const ClosedForm small =
            tuner.choose({Collective::all_reduce, 8}).algorithm->closed_form(Collective::all_reduce, n);
        CHECK(small.rounds <= 4);
        const Candidate& large = tuner.choose({Collective::all_reduce, 64 << 20});
        const ClosedForm form = large.algorithm->closed_form(Collective::all_reduce, n);
        const int columns = large.algorithm->make({Collective::all_reduce, 0, n, 0}).columns;
        CHECK(form.busiest_rank <= 2 * columns);
        CHECK(large.tiling.tiles > 1);
    }
}

TEST_CASE("every candidate is priced, the best comes first and is what is chosen") {
    for (int c = 0; c < collectives; ++c) {
        const auto collective = static_cast<Collective>(c);
        if (collective == Collective::send || collective == Collective::recv) continue;
        for (const int n : {1, 2, 5, 64, 1000}) {
            Tuner tuner(machine(n, 4), {}, false, nullptr);
            for (const std::size_t bytes : {0u, 8u, 1u << 16, 1u << 26}) {
                INFO(name_of(collective) << " " << n << " " << bytes);
                const std::vector<Candidate> all = tuner.candidates({collective, bytes});
                REQUIRE(!all.empty());
                CHECK(all.front().algorithm == tuner.choose({collective, bytes}).algorithm);
                for (std::size_t i = 0; i < all.size(); ++i) {
                    if (!all[i].refusal.empty()) continue;
                    CHECK((all[i].time > 0 || n == 1));
                    CHECK(all[i].tiling.channels >= 1);
                    if (i > 0) CHECK(all[i - 1].time <= 1.1 * all[i].time);
                }
            }
        }
    }
}

TEST_CASE("what is chosen is the same whether all candidates are played through or only those that may win", "[long]") {
    for (int c = 0; c < collectives; ++c) {
        const auto collective = static_cast<Collective>(c);
        if (collective == Collective::send || collective == Collective::recv) continue;
        for (const int n : {2, 3, 8, 19, 64}) {
            for (const int cores : {1, 2, 64}) {
                for (const bool mappable : {false, true}) {
                    Platform p = machine(n, cores);
                    p.limits.reference = 16 * 1024;
                    if (n < 19 && mappable) p.place_on_cores(cores_in_turn(n, cores));
                    p.near_bytes = 1 << 20;
                    Tuner quick(p, {}, false, nullptr), thorough(p, {}, false, nullptr);
                    for (const std::size_t bytes : {8u, 1u << 20, 1u << 14, 1u << 26, 1u << 17}) {
                        INFO(name_of(collective) << " " << n << " on " << cores << ", " << bytes << " " << mappable);
                        const Question q{.collective = collective, .bytes = bytes, .mappable = mappable};
                        const Candidate &chosen = quick.choose(q), best = thorough.candidates(q).front();
                        CHECK(chosen.algorithm == best.algorithm);
                        CHECK(chosen.time == best.time);
                        CHECK(chosen.limits.tile == best.limits.tile);
                        CHECK(chosen.tiling.channels == best.tiling.channels);
                        if (bytes == 8 && n > 2 && cores < n && collective == Collective::all_reduce)
                            CHECK(quick.played() < thorough.played());
                    }
                }
            }
        }
    }
}

TEST_CASE("bound ranks that share cores: large sums pass from core to core once") {
    for (const int n : {4, 7, 8}) {
        INFO(n);
        Platform p = host_platform(n, 2, 260 << 20, 2 << 20, {&shm_transport()});
        Tuner unbound(p, {}, false, nullptr);
        CHECK(chosen(unbound, Collective::all_reduce, 1 << 20) != "chain");
        p.place_on_cores(cores_in_turn(n, 2));
        CHECK(p.cores == std::vector<int>{(n + 1) / 2, n / 2});
        Tuner bound(p, {}, false, nullptr);
        CHECK(chosen(bound, Collective::all_reduce, 1 << 20) == "chain");
        CHECK(chosen(bound, Collective::all_reduce, 8) != "chain");
    }
    Platform p = machine(4, 2);
    for (const std::vector<int>& elsewhere : {std::vector<int>{}, {0, 1, 0, 1}}) {  // unknown; a core's ranks apart
        p.place_on_cores(elsewhere);
        CHECK(p.core_of == elsewhere);
        CHECK(p.cores.empty());
    }
    p = machine(2, 2);  // nothing is shared
    p.place_on_cores({0, 1});
    CHECK(p.cores.empty());
}

TEST_CASE("many ranks: nothing that connects all with all, and no rehearsal") {
    Tuner tuner(machine(100'000, 128), {}, false, nullptr);
    const std::vector<Candidate> all = tuner.candidates({Collective::all_reduce, 1 << 20});
    CHECK(all.front().closed_form);
    for (const Candidate& c : all)
        if (c.algorithm->name == "direct") CHECK(c.refusal.find("connects") != std::string::npos);
}

TEST_CASE("reproducible sums are in rank order") {
    Tuner tuner(machine(8, 8), {}, true, nullptr);
    for (const std::size_t bytes : {8u, 1u << 12, 1u << 16, 1u << 24})
        CHECK(tuner.choose({Collective::all_reduce, bytes}).algorithm->in_rank_order(Collective::all_reduce));
    CHECK(chosen(tuner, Collective::barrier, 0) != "");
    // What was asked for is passed over where it does not add in that order.
    Tuner ring(machine(8, 8), Allowed::parse("ring"), true, nullptr);
    CHECK(chosen(ring, Collective::all_reduce, 1 << 20) == chosen(tuner, Collective::all_reduce, 1 << 20));
    CHECK(chosen(ring, Collective::all_gather, 1 << 20) == "ring");
}

TEST_CASE("lists of algorithms are obeyed, by collective, and where one is capable") {
    const auto with = [](const char* list, Collective c, std::size_t bytes) {
        Tuner tuner(machine(8, 8), Allowed::parse(list), false, nullptr);
        return chosen(tuner, c, bytes);
    };
    for (const std::size_t bytes : {8u, 1u << 20}) {
        CHECK(with("ring", Collective::all_reduce, bytes) == "ring");
        CHECK(with(" ring , tree ", Collective::all_reduce, bytes) != "direct");
        CHECK(with("all_reduce:tree;all_gather:ring", Collective::all_reduce, bytes) == "tree");
        CHECK(with("all_reduce:tree;all_gather:ring", Collective::all_gather, bytes) == "ring");
        CHECK(with("*:ring;all_reduce:tree", Collective::all_reduce, bytes) == "tree");
        for (const char* list : {"all_reduce:tree;", "all_reduce:tree; ;", ";all_reduce:tree"})
            CHECK(with(list, Collective::all_reduce, bytes) == "tree");
        CHECK(with("dissemination", Collective::all_reduce, bytes) == with("", Collective::all_reduce, bytes));
        const std::string best = with("", Collective::all_reduce, bytes);
        CHECK(with(("^" + best).c_str(), Collective::all_reduce, bytes) != best);
    }
    CHECK(error_of("rign").find("ring") != std::string::npos);
    CHECK(error_of("direct+rign").find("as direct+ring") != std::string::npos);
    CHECK(error_of("all_reduce:dissemination").find("not capable of all_reduce; these are: ring") != std::string::npos);
    CHECK(error_of("all_redcue:ring").find("all_reduce") != std::string::npos);
    CHECK(error_of("ring,,tree").find("''") != std::string::npos);
    CHECK(error_of("") == "");
}

TEST_CASE("between hosts the tuner compares hierarchies: few rounds across for small sums, few bytes for large ones") {
    const auto on_hosts = [](std::vector<int> nodes, const char* list = "") {
        int ranks = 0;
        Platform p = machine(0, 1 << 10);
        for (std::size_t host = 0; host < nodes.size(); ++host)
            for (int i = 0; i < nodes[host]; ++i, ++ranks) p.host_of.push_back(static_cast<int>(host));
        p.ranks = ranks;
        p.nodes = std::move(nodes);
        p.near = p.line;
        p.line = {20, 1 / 1e3};
        return Tuner(p, Allowed::parse(list), false, nullptr);
    };
    constexpr auto op = Collective::all_reduce;
    for (const std::vector<int>& nodes : {std::vector{4, 4}, std::vector{4, 4, 4, 4}, std::vector{3, 5, 4, 6}}) {
        Tuner tuner = on_hosts(nodes, "hierarchy");
        const auto far = [&](std::size_t bytes) {
            const std::string name = chosen(tuner, op, bytes);
            REQUIRE(name.starts_with("direct+"));
            return *find_algorithm(name.substr(7));
        };
        const int hosts = static_cast<int>(nodes.size());
        const Algorithm small = far(8), large = far(64 << 20);
        CHECK(small.closed_form(op, hosts).rounds == (hosts == 2 ? 1 : 2));
        const int columns = large.make({op, 0, hosts}).columns;
        CHECK(large.closed_form(op, hosts).busiest_rank * hosts ==
              2LL * (hosts - 1) * columns);                           // 2 (n-1)/n of the data
        CHECK(chosen(tuner, Collective::all_to_all, 1 << 20) != "");  // no list holds for what it can't do
        for (const Candidate& c : on_hosts(nodes).candidates({op, 1 << 20}))
            CHECK(c.algorithm->name != "hierarchy");  // which all of them are
    }
    // Rows, too, as long as they are short; and all-to-all, where messages between hosts cost.
    for (const Collective c : {Collective::all_gather, Collective::reduce_scatter, Collective::all_to_all}) {
        Tuner tuner = on_hosts({4, 4, 4, 4});
        INFO(name_of(c));
        CHECK(find_algorithm(chosen(tuner, c, 16 * 64))->family == "hierarchy");
        const std::string list = std::string(name_of(c)) + ":hierarchy", none = std::string(name_of(c)) + ":^hierarchy";
        Tuner asked = on_hosts({3, 5}, list.c_str()), not_asked = on_hosts({4, 4, 4, 4}, none.c_str());
        CHECK(find_algorithm(chosen(asked, c, 64 << 20))->family == "hierarchy");
        CHECK(find_algorithm(chosen(not_asked, c, 16 * 64))->family.empty());
    }
    // By name, one of them, whether usual or not; or all but one; or none.
    Tuner one = on_hosts({3, 5}, "all_reduce:ring+server2");
    CHECK(chosen(one, op, 8) == "ring+server2");
    CHECK(chosen(one, op, 64 << 20) == "ring+server2");
    Tuner all = on_hosts({3, 5}, "hierarchy");
    const std::string best = chosen(all, op, 1 << 20);
    Tuner others = on_hosts({3, 5}, ("^" + best).c_str());
    CHECK(chosen(others, op, 1 << 20) != best);
    for (const Candidate& c : on_hosts({3, 5}, "^hierarchy").candidates({op, 1 << 20}))
        CHECK((c.refusal.empty() == c.algorithm->family.empty() || c.algorithm->family.empty()));
    // Where there is one host, those that are asked for and no others.
    Tuner named(machine(8, 8), Allowed::parse("direct+ring"), false, nullptr);
    CHECK(chosen(named, op, 1 << 20) == "direct+ring");
    Tuner any(machine(8, 8), Allowed::parse("hierarchy"), false, nullptr);
    CHECK(chosen(any, op, 1 << 20) == "hierarchy");
    CHECK(error_of("broadcast:direct+doubling").find("not capable of broadcast") != std::string::npos);
    CHECK(error_of("direct+rign").find("there is no algorithm 'direct+rign'") != std::string::npos);
}

TEST_CASE("of very many ranks the form tells what is inside hosts") {
    Platform p = machine(16 * 8, 16 * 8);
    p.near = p.line;
    p.line = {20, 1 / 1e3};
    Tuner alike(p, {}, false, nullptr);
    CHECK(find_algorithm(chosen(alike, Collective::all_reduce, 64 << 20))->family.empty());
    for (int rank = 0; rank < p.ranks; ++rank) p.host_of.push_back(rank / 8);
    p.nodes.assign(16, 8);
    Tuner tuner(p, {}, false, nullptr);
    for (const std::size_t bytes : {8, 1 << 16, 64 << 20}) {
        const Candidate& best = tuner.choose({Collective::all_reduce, bytes});
        INFO(bytes << " " << best.algorithm->name);
        CHECK(best.closed_form);
        CHECK(best.algorithm->family == "hierarchy");
    }
    const ClosedForm f = find_algorithm("direct+ring")->form_on_hosts(Collective::all_reduce, 16, 8);
    CHECK(f.busiest_rank == 16 * 14 + 30);  // of 128 columns: 2 (k-1)/k of the data inside, 2 (m-1)/m of a rail's share
    CHECK(f.near_chunks == 16 * 14);
    CHECK(f.rounds - f.near_rounds == 30);
}

TEST_CASE("what was measured corrects what is computed") {
    const Platform platform = machine(4, 4);
    Tuner computed(platform, {}, false, nullptr);
    const auto all = computed.candidates({Collective::all_reduce, 1 << 16});
    const Candidate& first = all.at(0);
    const Candidate& second = all.at(1);
    auto tuning = std::make_shared<Tuning>();
    const auto measure = [&](const Candidate& c, double times) {
        tuning->add(Collective::all_reduce, std::string(c.algorithm->name), "shm", 4, {1 << 12, c.time});
        tuning->add(Collective::all_reduce, std::string(c.algorithm->name), "shm", 4, {1 << 16, c.time * times});
    };
    measure(first, 3);
    measure(second, 1);
    for (std::size_t i = 2; i < all.size(); ++i)
        if (all[i].refusal.empty()) measure(all[i], 1);
    Tuner tuned(platform, {}, false, tuning);
    CHECK(chosen(tuned, Collective::all_reduce, 1 << 16) == second.algorithm->name);
    // Between two points the correction is between theirs, beyond the last it stays.
    for (const Candidate& c : tuned.candidates({Collective::all_reduce, 1 << 20}))
        if (c.algorithm == first.algorithm) CHECK(c.correction == Approx(3));
    for (const Candidate& c : tuned.candidates({Collective::all_reduce, 1 << 14}))
        if (c.algorithm == second.algorithm) CHECK(c.correction > 1);
    // Of another number of ranks, or over another transport, nothing was measured.
    Platform other = platform;
    other.transport = "local";
    Tuner elsewhere(other, {}, false, tuning);
    for (const Candidate& c : elsewhere.candidates({Collective::all_reduce, 1 << 16})) CHECK(c.correction == 1);
}

TEST_CASE("channels can be forced") {
    Platform p = machine(4, 4);
    for (int channels = 1; channels <= 8; ++channels) {
        p.force_channels(channels);
        Tuner tuner(p, {}, false, nullptr);
        CHECK(tuner.choose({Collective::all_reduce, 64 << 20}).tiling.channels == channels);
    }
}

TEST_CASE("what a decision costs grows with the steps of all ranks, and a process pays it once") {
    const auto played = [](int ranks, Collective c) {
        Tuner tuner(machine(ranks, 2), {}, false, nullptr);
        tuner.choose({c, 4096});
        return tuner.played();
    };
    // 64 processes on two cores all pay it before their first operation: 10 ns and more for each of these.
    for (const Collective c : {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter}) {
        INFO(name_of(c));
        CHECK(played(64, c) < 500'000);
    }
    const auto ask = [](int ranks, const char* list) {
        return Tuner::shared(machine(ranks, 2), Allowed::parse(list), false, nullptr, nullptr);
    };
    const std::shared_ptr<Tuner> one = ask(64, "");
    one->choose({Collective::all_reduce, 4096});
    const std::size_t cost = one->played();
    CHECK(ask(64, "") == one);
    ask(64, "")->choose({Collective::all_reduce, 4096});
    CHECK(one->played() == cost);
    CHECK(ask(64, "ring") != one);
    CHECK(ask(63, "") != one);
}

TEST_CASE("all-to-all of large rows goes straight to every rank, however many they are, in bounded memory") {
    for (const int n : {8, 33, 64, 100, 1024}) {
        INFO(n);
        Tuner tuner(machine(n, n), {}, false, nullptr);
        const auto rows = static_cast<std::size_t>(n);
        const auto of = [&](std::size_t row) { return tuner.choose({Collective::all_to_all, row * rows}); };
        if (n > 8) CHECK(of(8).algorithm->name == "bruck");
        for (const std::size_t row : {std::size_t{64} << 10, std::size_t{4} << 20}) {
            const Candidate c = of(row);
            CHECK(c.algorithm->name == "direct");
            CHECK(c.tiling.tile <= tuner.platform().limits.slots.message);
            if (n > 32)
                CHECK(slot_depth * c.tiling.tile * static_cast<std::size_t>(c.tiling.channels) * (rows - 1) <=
                      64 << 20);
        }
    }
}

TEST_CASE("of very many ranks what a rank receives counts as what it sends") {
    Tuner tuner(machine(1000, 1000), {}, false, nullptr);
    CHECK(chosen(tuner, Collective::reduce, 64 << 20) != "flat");  // whose root would add up 999 times all of it
    const auto time = [&](Collective c, const char* name) {
        for (const Candidate& a : tuner.candidates({c, 1 << 20}))
            if (a.algorithm->name == name) return a.time;
        return 0.0;
    };
    CHECK(time(Collective::reduce, "tree") == time(Collective::broadcast, "tree"));
}
