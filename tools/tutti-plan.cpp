// tutti-plan: lists the algorithms, shows their programs, proves them, writes them to files; the same for programs in
// files. Works on schedules alone: no communicator, no network.
#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <thread>

#include "algorithms/algorithms.hpp"
#include "algorithms/prove.hpp"
#include "algorithms/user.hpp"
#include "base/os.hpp"
#include "base/result.hpp"
#include "plan/options.hpp"
#include "plan/tuner.hpp"
#include "schedule/draw.hpp"
#include "schedule/json.hpp"
#include "schedule/text.hpp"
#include "schedule/verify.hpp"
#include "transport/fifo.hpp"

namespace {

using namespace tutti;
using namespace plan;

// One question: which programs? Those of an algorithm, or of a set in a file.
struct Choice {
    Collective op;
    std::string name;
    std::vector<Program> programs;
};

/// The sets of a file that --op, --ranks and --root leave.
std::vector<const ProgramSet*> wanted_sets(const Options& args, const ProgramFile& file) {
    std::vector<const ProgramSet*> wanted;
    for (const ProgramSet& s : file.sets)
        if ((args.op.empty() || s.collective == wanted_op(args)) && (args.ranks == 0 || s.ranks == args.ranks) &&
            (!args.root || s.root == *args.root))
            wanted.push_back(&s);
    if (wanted.empty())
        throw Usage(text("none of the %zu sets in %s is what was asked for", file.sets.size(), args.file.c_str()));
    return wanted;
}

std::vector<Choice> choose(const Options& args) {
    std::vector<Choice> choices;
    if (!args.file.empty()) {
        const ProgramFile file = programs_from(read_file(args.file), args.file);
        for (const ProgramSet* s : wanted_sets(args, file)) {
            choices.push_back({s->collective, file.name, s->programs});
            if (args.rank && (*args.rank < 0 || *args.rank >= s->ranks))
                throw Usage(text("--rank is %d, should be in 0..%d", *args.rank, s->ranks - 1));
            if (args.rank) choices.back().programs = {s->programs[static_cast<std::size_t>(*args.rank)]};
        }
        return choices;
    }
    const Collective op = wanted_op(args);
    const Algorithm& algorithm = wanted_algorithm(args, op);
    const Rank root = args.root.value_or(0);
    return {{op, args.algorithm,
             args.rank ? programs_of(algorithm, op, *args.rank, args.ranks, root, args.nodes)
                       : all_programs(algorithm, op, args.ranks, root, args.nodes)}};
}

int list(const Options& args) {
    if (args.op.empty()) {
        for (const Algorithm& a : algorithms()) {
            std::string ops;
            for (int c = 0; c < collectives; ++c)
                if (a.supports(static_cast<Collective>(c)))
                    ops += " " + std::string(name_of(static_cast<Collective>(c)));
            std::printf("%-16s %s;%s\n", a.name.data(), a.summary.data(), ops.c_str());
        }
        return 0;
    }
    const Collective op = wanted_op(args);
    for (const Algorithm& a : algorithms())
        if (a.supports(op)) std::printf("%s\n", a.name.data());
    return 0;
}

int show(const Options& args) {
    bool first = true;
    for (const Choice& choice : choose(args))
        for (const Program& p : choice.programs) {
            std::printf("%s%s", first ? "" : "\n", text_of(p).c_str());
            first = false;
        }
    return 0;
}

int draw(const Options& args) {
    const std::vector<Choice> choices = choose(args);
    if (choices.size() > 1)
        throw Usage(text("there are %zu sets in %s; --op, --ranks and --root choose one for the picture",
                         choices.size(), args.file.c_str()));
    const auto& [op, name, programs] = choices.front();
    const int ranks = programs.front().ranks;
    if (ranks > 32) throw Usage(text("there are %d ranks; a picture has room for 32", ranks));
    if (const Report r = verify(programs); !r.ok) fail(tuttiInvalidUsage, "%s", r.error.c_str());
    std::string title = text("%s by %s, %d ranks", name_of(op).data(), name.c_str(), ranks);
    for (std::size_t i = 0; i < args.nodes.size(); ++i)
        title += (i == 0 ? " on hosts of " : "+") + text("%d", args.nodes[i]);
    std::fputs(svg_of(programs, title).c_str(), stdout);
    return 0;
}

/// What decides between the best and the next: the largest part of the difference.
std::string reason(const Candidate& best, const Candidate& next) {
    if (best.correction != 1 && best.price.time > next.price.time)
        return "measured to be faster, though computed slower";
    if (best.price.time > next.price.time) return "about as fast, and its busiest rank has less to do, or waits less";
    const double chain = next.price.chain - best.price.chain, work = next.price.work - best.price.work;
    const double lost = next.price.lost - best.price.lost;
    const double tiles = (next.price.time - next.price.chain) - (best.price.time - best.price.chain);
    if (tiles > chain && best.tiling.tiles > 1)
        return text("its tiles follow each other faster: %.3g us less after the first", tiles);
    if (lost > std::max(chain, work)) return text("the cores lose %.3g us less by waits and switches", lost);
    if (chain >= work) return text("the chain of its first tile is %.3g us shorter", chain);
    return text("it is %.3g us less work for the cores", work);
}

int explain(const Options& args) {
    const Collective op = wanted_op(args);
    const int cores = args.cores > 0 ? args.cores : static_cast<int>(std::thread::hardware_concurrency());
    const std::shared_ptr<const Tuning> tuning = Tuning::of_this_machine();
    std::vector<std::uint64_t> hosts;  // of each rank
    for (std::size_t host = 0; host < args.nodes.size(); ++host)
        hosts.insert(hosts.end(), static_cast<std::size_t>(args.nodes[host]), host);
    const Caches caches = Caches::here();
    Platform platform = host_platform(args.ranks, cores, caches.largest, caches.of_core, {args.transport});
    platform = spread(std::move(platform), hosts, shm_transport().cost());
    if (args.bound) platform.place_on_cores(cores_in_turn(args.ranks, cores));
    if (args.transport->needs_engine()) platform.stretch(std::chrono::microseconds(args.round_trip_us));
    const std::string path_by = platform.transport;
    const Tuning::Path* const path = platform.take_path(*tuning);
    Tuner tuner(std::move(platform), Allowed::parse(args.algorithm), args.reproducible, tuning);
    const std::vector<Candidate> all = tuner.candidates({op, args.bytes});
    std::printf("%s of %zu bytes, %d ranks on %d cores, %s: predicted times in microseconds%s\n\n", name_of(op).data(),
                args.bytes, args.ranks, cores, args.transport->name().data(),
                tuning->empty() ? "" : ", corrected by what tutti-tune has measured");
    if (path != nullptr)
        std::printf("paths between hosts by %s: %.3g us, %.3g GB/s, as tutti-tune has measured\n\n", path_by.c_str(),
                    path->latency_us, 1e-3 / path->us_per_byte);
    std::printf("%-24s %10s %8s %6s %6s %10s %10s %10s %10s %7s %10s\n", "algorithm", "time", "tile", "tiles",
                "channels", "chain", "busiest", "all work", "lost", "waits", "correction");
    for (const Candidate& c : all) {
        if (!c.refusal.empty())
            std::printf("%-24s %10s %s\n", c.algorithm->name.data(), "-", c.refusal.c_str());
        else
            std::printf("%-24s %10.4g %8zu %6u %6d %10.4g %10.4g %10.4g %10.4g %7lld %10.3g%s\n",
                        c.algorithm->name.data(), c.time, c.tiling.tile, c.tiling.tiles, c.tiling.channels,
                        c.price.chain, c.price.busiest, c.price.work, c.price.lost, c.price.waits, c.correction,
                        c.closed_form ? "  (closed form)" : "");
    }
    if (!all.empty() && all.front().refusal.empty()) {
        std::printf("\n%s is chosen", all.front().algorithm->name.data());
        if (all.size() > 1 && all[1].refusal.empty())
            std::printf(" over %s: %s", all[1].algorithm->name.data(), reason(all[0], all[1]).c_str());
        std::printf(".\n");
    }
    std::printf(
        "chain: one tile from its first step to its last; busiest: the work of the busiest rank for a tile; all work: "
        "of all\n"
        "ranks, which the cores share; lost: what each core loses by waits and switches; waits: how often ranks have "
        "nothing to "
        "do.\ndocs/tuning.md has the formula.\n");
    return 0;
}

const char* yes(bool safe) {
    return safe ? "safe" : "no";
}

void print(const Report& r, const std::string& name, const Program& first) {
    const int columns = first.columns;
    std::printf("%s %s, %d ranks%s: proven\n", name.c_str(), name_of(first.collective).data(), first.ranks,
                has_root(first.collective) ? text(", root %d", first.root).c_str() : "");
    std::printf("least FIFO depth  %d\n", r.fifo_depth);
    std::printf("steps             %d\n", r.steps);
    std::printf("rounds            %d\n", r.rounds);
    for (const auto& [what, chunks] :
         {std::pair("busiest link", r.busiest_link), std::pair("busiest rank", r.busiest_rank)})
        std::printf("%-17s %lld chunk%s = %lld/%d of the count (%.4g)\n", what, chunks, chunks == 1 ? "" : "s", chunks,
                    columns, static_cast<double>(chunks) / columns);
    std::printf("pull              %s%s%s\n", yes(r.pull_safe), r.pull_safe ? "" : ": ", r.pull_hazard.c_str());
    std::printf("push              %s%s%s\n", yes(r.push_safe), r.push_safe ? "" : ": ", r.push_hazard.c_str());
    std::printf("uneven rows       %s%s%s\n", yes(r.uneven_safe), r.uneven_safe ? "" : ": ", r.uneven_hazard.c_str());
}

int verify_one(const Options& args) {
    const Choice choice = choose(args).front();
    const Report r = prove(*find_algorithm(choice.name), choice.op, args.ranks, args.root.value_or(0), args.nodes);
    if (!r.ok)
        fail(tuttiInternalError, "%s %s, %d ranks: %s", choice.name.c_str(), name_of(choice.op).data(), args.ranks,
             r.error.c_str());
    print(r, choice.name, choice.programs.front());
    return 0;
}

/// All that a communicator would check.
int verify_file(const Options& args) {
    constexpr int slots = static_cast<int>(slot_depth);
    UserAlgorithms loaded(0, slots);  // of no ranks: reads, and proves nothing yet
    const ProgramFile& file = loaded.add(read_file(args.file), args.file);
    for (const ProgramSet* s : wanted_sets(args, file)) print(proven(file, *s, slots), file.name, s->programs.front());
    return 0;
}

/// Every collective of the algorithm and every root, unless --op and --root say which.
int export_file(const Options& args) {
    ProgramFile file;
    file.name = args.name;
    const Algorithm* algorithm = find_algorithm(args.algorithm);
    file.summary = algorithm->summary;
    for (int c = 0; c < collectives; ++c) {
        const auto op = static_cast<Collective>(c);
        if (!algorithm->supports(op) || !(args.op.empty() || wanted_op(args) == op)) continue;
        const Rank last = has_root(op) && !args.root ? args.ranks - 1 : args.root.value_or(0);
        for (Rank root = args.root.value_or(0); root <= last; ++root)
            file.sets.push_back(
                {op, args.ranks, root, all_programs(*algorithm, op, args.ranks, root, args.nodes), 0, {}, {}});
    }
    std::fputs(json_of(file).c_str(), stdout);
    return 0;
}

struct Tally {
    int steps = 0, fifo_depth = 0, rounds = 0;
    long long busiest_link = 0, programs = 0;
    bool pull_safe = true, push_safe = true;

    void add(const Report& r) {
        steps = std::max(steps, r.steps);
        fifo_depth = std::max(fifo_depth, r.fifo_depth);
        rounds = std::max(rounds, r.rounds);
        busiest_link = std::max(busiest_link, r.busiest_link);
        programs += static_cast<long long>(r.order.size());
        pull_safe = pull_safe && r.pull_safe;
        push_safe = push_safe && r.push_safe;
    }
};

std::set<Rank> roots_to_try(Collective c, int ranks) {
    if (!has_root(c)) return {0};
    return {0, ranks / 2, ranks - 1, 1 % ranks};
}

void print(const Tally& tally, const Algorithm& a, Collective op, const std::string& range) {
    std::printf("%-16s %-15s %s  steps %-4d fifo %d  rounds %-4d busiest link %-4lld pull %-5s push %s\n",
                a.name.data(), name_of(op).data(), range.c_str(), tally.steps, tally.fifo_depth, tally.rounds,
                tally.busiest_link, yes(tally.pull_safe), yes(tally.push_safe));
}

/// Proves one, or says what is wrong.
bool proves(const Algorithm& a, Collective op, int ranks, Rank root, std::span<const int> nodes, Tally& tally) {
    const Report r = prove(a, op, ranks, root, nodes);
    if (r.ok) tally.add(r);
    std::string hosts;
    for (const int size : nodes) hosts += (hosts.empty() ? ", hosts of " : "+") + std::to_string(size);
    if (!r.ok)
        std::fprintf(stderr, "%s %s, %d ranks%s, root %d: %s\n", a.name.data(), name_of(op).data(), ranks,
                     hosts.c_str(), root, r.error.c_str());
    return r.ok;
}

/// So many ranks on hosts of whatever sizes: bit i of `cuts` says whether a host ends after rank i.
std::vector<int> hosts_of(int ranks, unsigned cuts) {
    std::vector<int> nodes{1};
    for (int i = 0; i < ranks - 1; ++i)
        if ((cuts >> i & 1) != 0)
            nodes.push_back(1);
        else
            ++nodes.back();
    return nodes;
}

/// Every composition, on every way to put the ranks on hosts. Returns how many programs; -1: one is wrong.
long long verify_hierarchies(int most) {
    long long programs = 0;
    for (const Algorithm& a : compositions())
        for (int c = 0; c < collectives; ++c) {
            const auto op = static_cast<Collective>(c);
            if (!a.supports(op)) continue;
            Tally tally;
            for (int n = 1; n <= most; ++n)
                for (unsigned cuts = 0; cuts < 1u << (n - 1); ++cuts)
                    for (const Rank root : roots_to_try(op, n))
                        if (!proves(a, op, n, root, hosts_of(n, cuts), tally)) return -1;
            print(tally, a, op, text("hosts of all sizes, n 1..%d", most));
            programs += tally.programs;
        }
    return programs;
}

int verify_all(const Options& args) {
    long long programs = 0;
    for (const Algorithm& a : algorithms())
        for (int c = 0; c < collectives; ++c) {
            const auto op = static_cast<Collective>(c);
            if (!a.supports(op)) continue;
            Tally tally;
            for (int n = least_ranks(op); n <= args.max_ranks; ++n)
                for (const Rank root : roots_to_try(op, n))
                    if (!proves(a, op, n, root, {}, tally)) return 1;
            print(tally, a, op, text("n %d..%d", least_ranks(op), args.max_ranks));
            programs += tally.programs;
        }
    const long long hierarchies = verify_hierarchies(std::min(args.max_ranks, 7));
    if (hierarchies < 0) return 1;
    programs += hierarchies;
    std::printf("%lld programs proven\n", programs);
    return 0;
}

int carried_out(const Options& args) {
    switch (args.command) {
        case Command::list:
            return list(args);
        case Command::show:
            return show(args);
        case Command::draw:
            return draw(args);
        case Command::explain:
            return explain(args);
        case Command::verify:
            if (args.all) return verify_all(args);
            return args.file.empty() ? verify_one(args) : verify_file(args);
        case Command::write:
            return export_file(args);
    }
    return 2;
}

}  // namespace

int main(int argc, char** argv) {
    try {
        return command_line::written("tutti-plan", carried_out(understood(argc, argv)));
    } catch (const NotUnderstood& because) {
        return because.say();
    } catch (const Usage& error) {
        return why_not(error).say();
    } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
