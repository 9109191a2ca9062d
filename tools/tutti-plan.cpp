// tutti-plan: lists the algorithms, shows their programs, proves them, writes them to files; the same for programs in
// files. Works on schedules alone: no communicator, no network.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "algorithms/algorithms.hpp"
#include "algorithms/prove.hpp"
#include "algorithms/user.hpp"
#include "base/os.hpp"
#include "base/result.hpp"
#include "comm/choice.hpp"
#include "schedule/draw.hpp"
#include "schedule/json.hpp"
#include "schedule/text.hpp"
#include "schedule/verify.hpp"
#include "transport/fifo.hpp"
#include "tuner/tuner.hpp"

namespace {

using namespace tutti;

struct Arguments {
    std::string op, algorithm, file, name;
    int ranks = 0, max_ranks = 64;
    std::optional<int> rank, root;
    std::vector<int> nodes;
    bool all = false;
    std::string bytes = "1M", transport;
    int cores = 0;
    bool reproducible = false;
};

/// A wrong command line: the reason, on one line.
struct Usage : std::runtime_error {
    using std::runtime_error::runtime_error;
};

std::optional<Collective> collective_of(const std::string& name) {
    for (int c = 0; c < collectives; ++c)
        if (name_of(static_cast<Collective>(c)) == name) return static_cast<Collective>(c);
    return {};
}

Collective wanted_op(const Arguments& args) {
    if (const auto c = collective_of(args.op)) return *c;
    std::string known;
    for (int c = 0; c < collectives; ++c) known += (c ? ", " : "") + std::string(name_of(static_cast<Collective>(c)));
    throw Usage(text("there is no --op %s; there are %s", args.op.c_str(), known.c_str()));
}

const Algorithm& wanted_algorithm(const Arguments& args, Collective c) {
    const Algorithm* a = find_algorithm(args.algorithm);
    if (a && a->supports(c)) return *a;
    std::string able;
    for (const Algorithm& other : algorithms())
        if (other.supports(c)) able += (able.empty() ? "" : ", ") + std::string(other.name);
    throw Usage(text(a ? "%s cannot do %s; these can: %s" : "there is no --algo %s; for %s there are %s",
                     args.algorithm.c_str(), name_of(c).data(), able.c_str()));
}

/// Everything that --ranks, --root and --rank can get wrong.
void check_numbers(const Arguments& args, Collective op) {
    if (args.ranks < least_ranks(op))
        throw Usage(text("--ranks is %d, %s needs %d or more", args.ranks, name_of(op).data(), least_ranks(op)));
    const bool one_rank = args.rank.has_value();
    const int most = one_rank ? 1 << 20 : 4096;
    if (args.ranks > most)
        throw Usage(text("--ranks is %d; %s %d at most", args.ranks,
                         one_rank ? "one rank's program is made for" : "all ranks' programs are made for", most));
    if (args.root && !has_root(op)) throw Usage(text("--root: %s has no root", name_of(op).data()));
    for (const auto& [flag, value] : {std::pair("--root", args.root), std::pair("--rank", args.rank)})
        if (value && (*value < 0 || *value >= args.ranks))
            throw Usage(text("%s is %d, should be in 0..%d", flag, *value, args.ranks - 1));
}

/// --nodes says how many ranks there are, and --ranks must not say otherwise.
void count_nodes(Arguments& args) {
    if (args.nodes.empty()) return;
    if (!args.file.empty() || args.all) throw Usage("--nodes goes with --algo; what is in a file has its nodes");
    long long sum = 0;
    for (const int size : args.nodes) {
        if (size < 1) throw Usage(text("--nodes has a node of %d ranks, each has 1 or more", size));
        sum += size;
    }
    if (sum > 1 << 20) throw Usage(text("--nodes has %lld ranks, %d at most", sum, 1 << 20));
    if (args.ranks != 0 && args.ranks != sum)
        throw Usage(text("--nodes has %lld ranks, --ranks is %d; one of them is enough", sum, args.ranks));
    args.ranks = static_cast<int>(sum);
}

// One question: which programs? Those of an algorithm, or of a set in a file.
struct Choice {
    Collective op;
    std::string name;
    std::vector<Program> programs;
};

/// The sets of a file that --op, --ranks and --root leave.
std::vector<const ProgramSet*> wanted_sets(const Arguments& args, const ProgramFile& file) {
    if (!args.algorithm.empty()) throw Usage("--algo and --file exclude each other");
    std::vector<const ProgramSet*> wanted;
    for (const ProgramSet& s : file.sets)
        if ((args.op.empty() || s.collective == wanted_op(args)) && (args.ranks == 0 || s.ranks == args.ranks) &&
            (!args.root || s.root == *args.root))
            wanted.push_back(&s);
    if (wanted.empty())
        throw Usage(text("none of the %zu sets in %s is what was asked for", file.sets.size(), args.file.c_str()));
    return wanted;
}

std::vector<Choice> choose(const Arguments& args) {
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
    if (args.op.empty() || args.algorithm.empty() || args.ranks == 0)
        throw Usage("--op, --algo and --ranks are needed, or --file");
    const Collective op = wanted_op(args);
    const Algorithm& algorithm = wanted_algorithm(args, op);
    check_numbers(args, op);
    const Rank root = args.root.value_or(0);
    return {{op, args.algorithm,
             args.rank ? programs_of(algorithm, op, *args.rank, args.ranks, root, args.nodes)
                       : all_programs(algorithm, op, args.ranks, root, args.nodes)}};
}

int list(const Arguments& args) {
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

int show(const Arguments& args) {
    bool first = true;
    for (const Choice& choice : choose(args))
        for (const Program& p : choice.programs) {
            std::printf("%s%s", first ? "" : "\n", text_of(p).c_str());
            first = false;
        }
    return 0;
}

int draw(const Arguments& args) {
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

std::size_t size_of_text(const std::string& text) {
    std::size_t used = 0, unit = 0;
    double value = -1;
    try {
        value = std::stod(text, &used);
    } catch (const std::exception&) {
    }
    static constexpr std::string_view units = "BKMG";
    constexpr double most = 1e15;
    if (used + 1 == text.size())
        unit = units.find(static_cast<char>(std::toupper(static_cast<unsigned char>(text[used]))));
    if (unit != std::string_view::npos) value *= static_cast<double>(std::size_t{1} << (10 * unit));
    if (used == 0 || text.size() > used + 1 || unit == std::string_view::npos || !(value >= 0) || value > most)
        throw Usage("--bytes is '" + text + "'; sizes look like 8, 4K, 1.5M, 2G, and are 1e15 at most");
    return static_cast<std::size_t>(value);
}

/// What decides between the best and the next: the largest part of the difference.
std::string reason(const Candidate& best, const Candidate& next) {
    if (best.correction != 1 && best.price.time > next.price.time)
        return "measured to be faster, though computed slower";
    if (best.price.time > next.price.time) return "about as fast, and its busiest rank has less to do, or waits less";
    const double chain = next.price.chain - best.price.chain, work = next.price.work - best.price.work;
    const double lost = next.price.lost - best.price.lost;
    const double tiles = (next.price.time - next.price.chain) - (best.price.time - best.price.chain);
    if (tiles > chain && best.tiles > 1)
        return text("its tiles follow each other faster: %.3g us less after the first", tiles);
    if (lost > std::max(chain, work)) return text("the cores lose %.3g us less by waits and switches", lost);
    if (chain >= work) return text("the chain of its first tile is %.3g us shorter", chain);
    return text("it is %.3g us less work for the cores", work);
}

int explain(const Arguments& args) {
    const Collective op = wanted_op(args);
    if (op == Collective::send || op == Collective::recv) throw Usage("--op: send and recv have one algorithm, pair");
    if (args.ranks < 1 || args.ranks > 1 << 20)
        throw Usage(text("--ranks is %d, should be in 1..%d", args.ranks, 1 << 20));
    const std::size_t bytes = size_of_text(args.bytes);
    const std::string wanted = !args.transport.empty() ? args.transport : args.nodes.size() > 1 ? "tcp" : "shm";
    const Transport* transport = nullptr;
    std::string known;
    for (const Transport* t : transports()) {
        if (t->name() == wanted) transport = t;
        known += (known.empty() ? "" : ", ") + std::string(t->name());
    }
    if (transport == nullptr)
        throw Usage(text("there is no --transport %s; there are %s", wanted.c_str(), known.c_str()));
    const int cores = args.cores > 0 ? args.cores : static_cast<int>(std::thread::hardware_concurrency());
    const std::shared_ptr<const Tuning> tuning = Tuning::of_this_machine();
    std::vector<std::uint64_t> hosts;  // of each rank
    for (std::size_t host = 0; host < args.nodes.size(); ++host)
        hosts.insert(hosts.end(), static_cast<std::size_t>(args.nodes[host]), host);
    Platform platform = host_platform(args.ranks, cores, largest_cache(), core_cache(), *transport);
    Tuner tuner(spread(std::move(platform), hosts, shm_transport().cost()), Allowed::parse(args.algorithm),
                args.reproducible, tuning);
    const std::vector<Candidate> all = tuner.candidates({op, bytes});
    std::printf("%s of %zu bytes, %d ranks on %d cores, %s: predicted times in microseconds%s\n\n", name_of(op).data(),
                bytes, args.ranks, cores, wanted.c_str(),
                tuning->empty() ? "" : ", corrected by what tutti-tune has measured");
    std::printf("%-24s %10s %8s %6s %6s %10s %10s %10s %10s %7s %10s\n", "algorithm", "time", "tile", "tiles",
                "channels", "chain", "busiest", "all work", "lost", "waits", "correction");
    for (const Candidate& c : all) {
        if (!c.refusal.empty())
            std::printf("%-24s %10s %s\n", c.algorithm->name.data(), "-", c.refusal.c_str());
        else
            std::printf("%-24s %10.4g %8zu %6u %6d %10.4g %10.4g %10.4g %10.4g %7lld %10.3g%s\n",
                        c.algorithm->name.data(), c.time, c.chunk_bytes, c.tiles, c.chunking.channels, c.price.chain,
                        c.price.busiest, c.price.work, c.price.lost, c.price.waits, c.correction,
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

int verify_one(const Arguments& args) {
    const Choice choice = choose(args).front();
    const Report r = prove(*find_algorithm(choice.name), choice.op, args.ranks, args.root.value_or(0), args.nodes);
    if (!r.ok)
        fail(tuttiInternalError, "%s %s, %d ranks: %s", choice.name.c_str(), name_of(choice.op).data(), args.ranks,
             r.error.c_str());
    print(r, choice.name, choice.programs.front());
    return 0;
}

/// All that a communicator would check.
int verify_file(const Arguments& args) {
    constexpr int slots = static_cast<int>(slot_depth);
    UserAlgorithms loaded(0, slots);  // of no ranks: reads, and proves nothing yet
    const ProgramFile& file = loaded.add(read_file(args.file), args.file);
    for (const ProgramSet* s : wanted_sets(args, file)) print(proven(file, *s, slots), file.name, s->programs.front());
    return 0;
}

/// Every collective of the algorithm and every root, unless --op and --root say which.
int export_file(const Arguments& args) {
    ProgramFile file;
    file.name = args.name.empty() ? "my_" + args.algorithm : args.name;
    if (args.name.empty()) std::ranges::replace(file.name, '+', '_');
    if (!is_program_name(file.name)) throw Usage(text("--name %s: ", file.name.c_str()) + program_name_rule);
    if (!args.op.empty()) wanted_algorithm(args, wanted_op(args));
    const Algorithm* algorithm = find_algorithm(args.algorithm);
    if (algorithm == nullptr)
        throw Usage(text("there is no --algo %s; tutti-plan list shows them", args.algorithm.c_str()));
    file.summary = algorithm->summary;
    for (int c = 0; c < collectives; ++c) {
        const auto op = static_cast<Collective>(c);
        const bool asked = !args.op.empty() && wanted_op(args) == op;
        if (!algorithm->supports(op) || !(asked || args.op.empty())) continue;
        if (least_ranks(op) > 1)
            throw Usage(text("%s concerns two ranks only; files hold programs of all ranks", name_of(op).data()));
        Arguments numbers = args;
        if (!asked && !has_root(op)) numbers.root.reset();
        check_numbers(numbers, op);
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

int verify_all(const Arguments& args) {
    if (args.max_ranks < 1) throw Usage(text("--max-ranks is %d, at least 1 was expected", args.max_ranks));
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

int verify_command(const Arguments& args) {
    if (args.all && !(args.op.empty() && args.algorithm.empty() && args.ranks == 0 && args.file.empty()))
        throw Usage("verify takes either --all, or --op, --algo and --ranks, or --file");
    if (args.all) return verify_all(args);
    return args.file.empty() ? verify_one(args) : verify_file(args);
}

void add_choice(CLI::App& command, Arguments& args) {
    command.add_option("--op", args.op, "collective, for instance all_reduce");
    command.add_option("--algo", args.algorithm, "algorithm, see list");
    command.add_option("--ranks", args.ranks, "number of ranks");
    command.add_option("--nodes", args.nodes, "how many of them each host has, as 3,5, for hierarchies")
        ->delimiter(',');
    command.add_option("--root", args.root, "root of a broadcast or reduce, 0 by default");
}

void add_file(CLI::App& command, Arguments& args) {
    command.add_option("--file", args.file, "programs in a file (docs/programs.md); --op, --ranks, --root choose some");
}

}  // namespace

int main(int argc, char** argv) {
    Arguments args;
    CLI::App app{"Lists, shows and proves collective algorithms", "tutti-plan"};
    app.require_subcommand(1);
    CLI::App& lists =
        *app.add_subcommand("list", "the algorithms; with --op the names of those that can do it, one per line");
    lists.add_option("--op", args.op, "collective, for instance all_reduce");
    CLI::App& shows = *app.add_subcommand("show", "the programs of all ranks, or of --rank");
    add_choice(shows, args);
    add_file(shows, args);
    shows.add_option("--rank", args.rank, "only this rank");
    CLI::App& draws = *app.add_subcommand("svg", "a picture of the programs: ranks as rows, time to the right");
    add_choice(draws, args);
    add_file(draws, args);
    CLI::App& explains = *app.add_subcommand("explain", "which algorithm a call gets, and why: all candidates, priced");
    explains.add_option("--op", args.op, "collective, for instance all_reduce")->required();
    explains.add_option("--bytes", args.bytes, "of the larger of a rank's buffers, 1M by default");
    explains.add_option("--ranks", args.ranks, "number of ranks");
    explains.add_option("--nodes", args.nodes, "how many of them each host has, as 3,5, instead")->delimiter(',');
    explains.add_option("--cores", args.cores, "cores that they share, those of this machine by default");
    explains.add_option("--transport", args.transport, "local, shm (default), or between hosts tcp (default), verbs");
    explains.add_option("--algo", args.algorithm, "only these, as TUTTI_ALGO lists them");
    explains.add_flag("--reproducible", args.reproducible, "sums in rank order only");
    CLI::App& verifies = *app.add_subcommand("verify", "prove one algorithm, or with --all every one");
    verifies.add_flag("--all", args.all,
                      "every algorithm and collective for 1 to --max-ranks ranks, and hierarchies of unequal hosts");
    verifies.add_option("--max-ranks", args.max_ranks, "for --all, 64 by default");
    add_choice(verifies, args);
    add_file(verifies, args);
    CLI::App& exports = *app.add_subcommand("export", "the programs of all ranks as a file, to change and to load");
    add_choice(exports, args);
    exports.add_option("--name", args.name, "name of the algorithm in the file, my_ALGO by default");
    exports.get_option("--algo")->required();

    const char* usage =
        "usage: tutti-plan list [--op OP] | show --op OP --algo NAME --ranks N [--rank R] [--root R] | show --file F "
        "|\n"
        "       svg --op OP --algo NAME --ranks N [--root R] > FILE | svg --file F > FILE |\n"
        "       explain --op OP --ranks N [--bytes B] [--cores C] [--transport T] [--algo LIST] [--reproducible] |\n"
        "       verify --op OP --algo NAME --ranks N [--root R] | verify --all [--max-ranks N] | verify --file F |\n"
        "       export --algo NAME --ranks N [--op OP] [--root R] [--name NAME] > FILE\n";
    try {
        app.parse(argc, argv);
        count_nodes(args);
        if (lists.parsed()) return list(args);
        if (draws.parsed()) return draw(args);
        if (explains.parsed()) return explain(args);
        if (exports.parsed()) return export_file(args);
        return shows.parsed() ? show(args) : verify_command(args);
    } catch (const CLI::CallForHelp& help) {
        return app.exit(help);
    } catch (const CLI::ParseError& error) {
        std::fprintf(stderr, "tutti-plan: %s\n%s", error.what(), usage);
    } catch (const Usage& error) {
        std::fprintf(stderr, "tutti-plan: %s\n%s", error.what(), usage);
    } catch (const Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 1;
    }
    return 2;
}
