// Hierarchies: any two algorithms, hosts of any sizes. Chains: cores of any numbers of ranks.
#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "algorithms/prove.hpp"
#include "base/result.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "schedule/compose.hpp"

using namespace tutti;

namespace {

Make made_by(const char* name) {
    return find_algorithm(name)->maker();
}

using Nodes = std::vector<int>;

int ranks_of(const Nodes& nodes) {
    return std::accumulate(nodes.begin(), nodes.end(), 0);
}

/// All ways to write n as a sum, in every order: 2^(n-1).
std::vector<Nodes> partitions(int n) {
    std::vector<Nodes> all;
    for (unsigned cuts = 0; cuts < 1u << (n - 1); ++cuts) {
        Nodes nodes{1};
        for (int i = 0; i < n - 1; ++i)
            if ((cuts >> i & 1) != 0)
                nodes.push_back(1);
            else
                ++nodes.back();
        all.push_back(nodes);
    }
    return all;
}

std::string text_of(const Nodes& nodes) {
    std::string s;
    for (const int n : nodes) s += (s.empty() ? "" : "+") + std::to_string(n);
    return s;
}

template <class Visit>
void for_each_collective(const Algorithm& a, Visit visit) {
    for (int c = 0; c < collectives; ++c)
        if (a.supports(static_cast<Collective>(c))) visit(static_cast<Collective>(c));
}

/// All collectives of it, and all roots.
void check(const Algorithm& a, const Nodes& nodes) {
    const int n = ranks_of(nodes);
    for_each_collective(a, [&](Collective c) {
        for (Rank root = 0; root < (has_root(c) ? n : 1); ++root) {
            const Report r = prove(a, c, n, root, nodes);
            INFO(a.name << " " << name_of(c) << ", nodes " << text_of(nodes) << ", root " << root);
            REQUIRE(r.error == "");
        }
    });
}

}  // namespace

TEST_CASE("hierarchies of hosts of all sizes are right") {
    for (int n = 1; n <= (harness::sanitized ? 5 : 8); ++n)
        for (const Nodes& nodes : partitions(n)) {
            check(*find_algorithm("hierarchy"), nodes);
            for (const Algorithm& a : compositions())
                if (a.usual && n <= 6) check(a, nodes);
        }
}

TEST_CASE("chains over cores with any numbers of ranks are right, and pass from core to core once") {
    const auto check_chain = [](const Nodes& cores) {
        const int n = ranks_of(cores);
        INFO("ranks of cores " << text_of(cores));
        REQUIRE(prove(*find_algorithm("chain"), Collective::all_reduce, n, 0, {}, cores).error == "");
        std::vector<int> core_of;
        for (const int ranks : cores)
            core_of.insert(core_of.end(), static_cast<std::size_t>(ranks), core_of.empty() ? 0 : core_of.back() + 1);
        std::size_t partial = 0;  // sums that are not complete and go to another core
        for (const Program& p : all_programs(*find_algorithm("chain"), Collective::all_reduce, n, 0, {}, cores))
            for (const Step& s : p.steps)
                if (p.sinks(s).size() == 1 && p.sinks(s).front().place == Place::peer)
                    partial += core_of[static_cast<std::size_t>(p.rank)] !=
                               core_of[static_cast<std::size_t>(p.sinks(s).front().index)];
        if (n > 1) CHECK(partial == cores.size() * (cores.size() - 1));
    };
    for (int n = 1; n <= (harness::sanitized ? 6 : 9); ++n)
        for (const Nodes& cores : partitions(n)) check_chain(cores);
    std::mt19937 random(harness::seed());
    for (int i = 0; i < 12; ++i) {
        Nodes cores(1 + random() % 16);
        for (int& ranks : cores) ranks = 1 + static_cast<int>(random() % 4);
        check_chain(cores);
    }
}

TEST_CASE("any two algorithms make a hierarchy") {
    REQUIRE(compositions().size() > algorithms().size());
    for (const Algorithm& a : compositions()) {
        INFO(a.name);
        CHECK(find_algorithm(a.name) == &a);
        CHECK_FALSE(a.summary.empty());
        CHECK(a.family == "hierarchy");
        CHECK_THROWS_AS(a.make({Collective::barrier, 0, 2}), Error);
        for (const Nodes& nodes : {Nodes{3}, Nodes{1, 1, 1}, Nodes{2, 2}, Nodes{3, 5}, Nodes{1, 4, 2}, Nodes{4, 3, 5}})
            check(a, nodes);
    }
    CHECK(find_algorithm("direct+") == nullptr);
    CHECK(find_algorithm("flat+ring") == nullptr);  // flat has no reduce-scatter
    CHECK(find_algorithm("direct+hierarchy") == nullptr);
}

TEST_CASE("hierarchies keep their closed forms where nodes are the usual ones", "[long]") {
    for (const Algorithm& a : compositions())
        for_each_collective(a, [&](Collective c) {
            for (const int n : {1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 16, 20, 24, 28, 64}) {
                if (n > 24 && (harness::sanitized || !a.usual)) continue;
                const Report r = prove(a, c, n, n / 3);
                INFO(a.name << " " << name_of(c) << ", " << n << " ranks");
                REQUIRE(r.error == "");
            }
        });
}

TEST_CASE("hierarchies of many hosts are right") {
    std::mt19937 random(harness::seed());
    for (int i = 0; i < (harness::sanitized ? 3 : 12); ++i) {
        Nodes nodes(1 + random() % 12);
        for (int& size : nodes) size = 1 + static_cast<int>(random() % 9);
        INFO("nodes " << text_of(nodes));
        const int n = ranks_of(nodes);
        for (const Algorithm& a : compositions()) {
            if (!a.usual && random() % 8 != 0) continue;
            for_each_collective(a, [&](Collective c) {
                const Report r = prove(a, c, n, static_cast<Rank>(random() % static_cast<unsigned>(n)), nodes);
                INFO(a.name << " " << name_of(c));
                REQUIRE(r.error == "");
            });
        }
    }
}

TEST_CASE("hosts are joined by rails, as many as the smallest one has ranks") {
    struct Wanted {
        Nodes nodes;
        int rails;
    };
    for (const auto& [nodes, rails] : {Wanted{{4, 4}, 4}, Wanted{{3, 5}, 3}, Wanted{{1, 4, 2}, 1}, Wanted{{5, 2}, 2}}) {
        const int n = ranks_of(nodes);
        std::vector<std::pair<int, int>> seat;  // host, place
        for (int host = 0; host < static_cast<int>(nodes.size()); ++host)
            for (int place = 0; place < nodes[static_cast<std::size_t>(host)]; ++place) seat.emplace_back(host, place);
        for (const Algorithm& a : compositions()) {
            if (!a.supports(Collective::all_reduce)) continue;
            std::set<int> used;
            long long left = 0;  // chunks
            const std::vector<Program> programs = all_programs(a, Collective::all_reduce, n, 0, nodes);
            for (const Program& p : programs)
                for (const Step& s : p.steps)
                    for (const Operand& o : p.sinks(s)) {
                        if (o.place != Place::peer) continue;
                        const auto from = seat[static_cast<std::size_t>(p.rank)];
                        const auto to = seat[static_cast<std::size_t>(o.index)];
                        if (from.first == to.first) continue;
                        REQUIRE(from.second == to.second);
                        used.insert(from.second);
                        if (from.first == 0) ++left;
                    }
            INFO(a.name << ", nodes " << text_of(nodes));
            CHECK(used.size() == static_cast<std::size_t>(rails));
            // Of 2 hosts, each gives away its sum at most once (twice where one of them serves both columns of halves).
            if (nodes.size() == 2) CHECK(left <= programs.front().columns);
        }
    }
}

namespace {

/// What goes from one host to another, by these: chunks, and messages.
using Traffic = std::map<std::pair<int, int>, std::pair<int, int>>;

Traffic between_hosts(std::span<const Program> programs, const Nodes& nodes) {
    std::vector<int> host_of;
    for (std::size_t host = 0; host < nodes.size(); ++host)
        host_of.insert(host_of.end(), static_cast<std::size_t>(nodes[host]), static_cast<int>(host));
    Traffic all;
    for (const Program& p : programs)
        for (const Step& s : p.steps)
            for (const Operand& o : p.sinks(s)) {
                if (o.place != Place::peer) continue;
                const int from = host_of[static_cast<std::size_t>(p.rank)],
                          to = host_of[static_cast<std::size_t>(o.index)];
                if (from == to) continue;
                auto& [chunks, messages] = all[{from, to}];
                ++chunks;
                messages += !o.more;
            }
    return all;
}

}  // namespace

TEST_CASE(
    "rows enter every other host once, and sums of rows leave it once, on as many rails as the smallest has ranks") {
    for (const Nodes& nodes : {Nodes{3, 5}, Nodes{4, 4, 4}, Nodes{1, 4, 2}, Nodes{2, 7, 3}})
        for (const Algorithm& a : compositions()) {
            if (!a.usual || !a.supports(Collective::all_gather)) continue;
            INFO(a.name << ", nodes " << text_of(nodes));
            const int n = ranks_of(nodes), rails = std::ranges::min(nodes);
            for (const Collective c : {Collective::all_gather, Collective::reduce_scatter}) {
                if (!a.supports(c)) continue;
                std::vector<int> chunks(nodes.size());
                for (const auto& [hosts, counts] : between_hosts(all_programs(a, c, n, 0, nodes), nodes)) {
                    const int here = c == Collective::all_gather ? hosts.second : hosts.first;
                    chunks[static_cast<std::size_t>(here)] += counts.first;
                    CHECK(counts.second % rails == 0);
                }
                for (std::size_t host = 0; host < nodes.size(); ++host) CHECK(chunks[host] == n - nodes[host]);
            }
        }
}

TEST_CASE("in an all-to-all two hosts exchange one message for each rail, with every row once") {
    const Algorithm& a = *find_algorithm("direct+direct");
    for (const Nodes& nodes : {Nodes{3, 5}, Nodes{4, 4, 4}, Nodes{1, 4, 2}, Nodes{2, 7, 3}}) {
        INFO("nodes " << text_of(nodes));
        const int n = ranks_of(nodes), rails = std::ranges::min(nodes);
        const std::vector<Program> programs = all_programs(a, Collective::all_to_all, n, 0, nodes);
        for (const auto& [hosts, counts] : between_hosts(programs, nodes)) {
            CHECK(counts.first ==
                  nodes[static_cast<std::size_t>(hosts.first)] * nodes[static_cast<std::size_t>(hosts.second)]);
            CHECK(counts.second == rails);
        }
    }
    CHECK_FALSE(find_algorithm("direct+ring")->supports(Collective::all_to_all));
    CHECK_FALSE(a.uneven_safe(Collective::all_to_all));
    CHECK(a.uneven_safe(Collective::all_gather));
}

TEST_CASE(
    "what is broadcast enters every other host once, and what is reduced leaves it once, in as many columns as it "
    "likes") {
    const Nodes nodes{3, 5, 2};
    const int n = ranks_of(nodes);
    const auto host_of = [&](Rank r) { return r < 3 ? 0 : r < 8 ? 1 : 2; };
    for (const char* const across : {"tree", "double_tree", "direct", "ring"})
        for (const Collective c : {Collective::broadcast, Collective::reduce})
            for (Rank root = 0; root < n; ++root) {
                std::vector<Program> programs;
                for (Rank r = 0; r < n; ++r)
                    programs.push_back(hierarchical(made_by("bruck"), made_by(across), {c, r, n, root, nodes}));
                INFO(name_of(c) << ", root " << root);
                const Report report = verify(programs);
                REQUIRE(report.error == "");
                REQUIRE((report.pull_safe && report.push_safe && report.fifo_depth <= 2));
                std::vector<int> entered(nodes.size()), left(nodes.size());
                for (const Program& p : programs)
                    for (const Step& s : p.steps)
                        for (const Operand& o : p.sinks(s))
                            if (o.place == Place::peer && host_of(p.rank) != host_of(o.index)) {
                                ++left[static_cast<std::size_t>(host_of(p.rank))];
                                ++entered[static_cast<std::size_t>(host_of(o.index))];
                            }
                for (int host = 0; host < 3; ++host) {
                    if (host == host_of(root)) continue;
                    const auto h = static_cast<std::size_t>(host);
                    CHECK((c == Collective::broadcast ? entered : left)[h] == programs[0].columns);
                }
            }
}

TEST_CASE("nodes of nodes: a hierarchy may be what runs across") {
    const Nodes hosts{2, 3, 2, 2, 4}, racks{3, 2};
    const int n = ranks_of(hosts);
    const Make across = [&](const Request& q) {
        Request of_racks = q;
        of_racks.nodes = racks;
        return hierarchical(made_by("ring"), made_by("tree"), of_racks);
    };
    std::vector<Program> programs;
    for (Rank r = 0; r < n; ++r)
        programs.push_back(hierarchical(made_by("direct"), across, {Collective::all_reduce, r, n, 0, hosts}));
    const Report report = verify(programs);
    REQUIRE(report.error == "");
    CHECK(different_order(programs, report) == "");
    CHECK(report.fifo_depth <= 2);
}
