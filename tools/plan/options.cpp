#include "plan/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "algorithms/prove.hpp"
#include "base/result.hpp"
#include "schedule/json.hpp"
#include "sizes.hpp"

namespace plan {

using namespace tutti;

namespace {

constexpr int most_ranks = 1 << 20;
constexpr int longest_round_trip_us = 60'000'000;  // as TUTTI_ROUND_TRIP_US

constexpr const char* usage =
    "usage: tutti-plan list [--op OP] | show --op OP --algo NAME --ranks N [--rank R] [--root R] | show --file F "
    "|\n"
    "       svg --op OP --algo NAME --ranks N [--root R] > FILE | svg --file F > FILE |\n"
    "       explain --op OP --ranks N [--bytes B] [--cores C] [--bound] [--transport T] [--round-trip US]\n"
    "               [--algo LIST] [--reproducible] |\n"
    "       verify --op OP --algo NAME --ranks N [--root R] | verify --all [--max-ranks N] | verify --file F |\n"
    "       export --algo NAME --ranks N [--op OP] [--root R] [--name NAME] > FILE\n"
    "Instead of --ranks N, --nodes says how many ranks each host has: 3,5.\n";

std::optional<Collective> collective_of(const std::string& name) {
    for (int c = 0; c < collectives; ++c)
        if (name_of(static_cast<Collective>(c)) == name) return static_cast<Collective>(c);
    return {};
}

/// Everything that --ranks, --root and --rank can get wrong.
void check_numbers(const Options& args, Collective op) {
    if (args.ranks < least_ranks(op))
        throw Usage(text("--ranks is %d, %s needs %d or more", args.ranks, name_of(op).data(), least_ranks(op)));
    const bool one_rank = args.rank.has_value();
    const int most = one_rank ? most_ranks : 4096;
    if (args.ranks > most)
        throw Usage(text("--ranks is %d; %s %d at most", args.ranks,
                         one_rank ? "one rank's program is made for" : "all ranks' programs are made for", most));
    if (args.root && !has_root(op)) throw Usage(text("--root: %s has no root", name_of(op).data()));
    for (const auto& [flag, value] : {std::pair("--root", args.root), std::pair("--rank", args.rank)})
        if (value && (*value < 0 || *value >= args.ranks))
            throw Usage(text("%s is %d, should be in 0..%d", flag, *value, args.ranks - 1));
}

/// --nodes says how many ranks there are, and --ranks must not say otherwise.
void count_nodes(Options& args) {
    if (args.nodes.empty()) return;
    if (!args.file.empty() || args.all) throw Usage("--nodes goes with --algo; what is in a file has its nodes");
    long long sum = 0;
    for (const int size : args.nodes) {
        if (size < 1) throw Usage(text("--nodes has a node of %d ranks, each has 1 or more", size));
        sum += size;
    }
    if (sum > most_ranks) throw Usage(text("--nodes has %lld ranks, %d at most", sum, most_ranks));
    if (args.ranks != 0 && args.ranks != sum)
        throw Usage(text("--nodes has %lld ranks, --ranks is %d; one of them is enough", sum, args.ranks));
    args.ranks = static_cast<int>(sum);
}

std::size_t parse_size(const std::string& text) {
    const std::optional<std::size_t> size = perf::size_of_text(text);
    if (!size) throw Usage("--bytes is '" + text + "'; " + perf::what_sizes_are);
    return *size;
}

const Transport& wanted_transport(const std::string& name) {
    std::string known;
    for (const Transport* t : transports()) {
        if (t->name() == name) return *t;
        known += (known.empty() ? "" : ", ") + std::string(t->name());
    }
    throw Usage(text("there is no --transport %s; there are %s", name.c_str(), known.c_str()));
}

void check_choice(const Options& args) {
    if (!args.op.empty()) wanted_op(args);
    if (!args.file.empty()) {
        if (!args.algorithm.empty()) throw Usage("--algo and --file exclude each other");
        return;
    }
    if (args.op.empty() || args.algorithm.empty() || args.ranks == 0)
        throw Usage("--op, --algo and --ranks are needed, or --file");
    wanted_algorithm(args, wanted_op(args));
    check_numbers(args, wanted_op(args));
}

void check_explain(Options& args, const std::string& bytes, const std::string& transport) {
    const Collective op = wanted_op(args);
    if (op == Collective::send || op == Collective::recv) throw Usage("--op: send and recv have one algorithm, pair");
    if (args.ranks < 1 || args.ranks > most_ranks)
        throw Usage(text("--ranks is %d, should be in 1..%d", args.ranks, most_ranks));
    args.bytes = parse_size(bytes);
    args.transport = &wanted_transport(!transport.empty() ? transport : args.nodes.size() > 1 ? "tcp" : "shm");
}

void check_verify(const Options& args) {
    if (!args.all) return check_choice(args);
    if (!(args.op.empty() && args.algorithm.empty() && args.ranks == 0 && args.file.empty()))
        throw Usage("verify takes either --all, or --op, --algo and --ranks, or --file");
    if (args.max_ranks < 1) throw Usage(text("--max-ranks is %d, at least 1 was expected", args.max_ranks));
}

void check_export(Options& args) {
    if (args.name.empty()) {
        args.name = "my_" + args.algorithm;
        std::ranges::replace(args.name, '+', '_');
    }
    if (!is_program_name(args.name)) throw Usage(text("--name %s: ", args.name.c_str()) + program_name_rule);
    if (!args.op.empty()) wanted_algorithm(args, wanted_op(args));
    const Algorithm* algorithm = find_algorithm(args.algorithm);
    if (algorithm == nullptr)
        throw Usage(text("there is no --algo %s; tutti-plan list shows them", args.algorithm.c_str()));
    for (int c = 0; c < collectives; ++c) {
        const auto op = static_cast<Collective>(c);
        const bool asked = !args.op.empty() && wanted_op(args) == op;
        if (!algorithm->supports(op) || !(asked || args.op.empty())) continue;
        if (least_ranks(op) > 1)
            throw Usage(text("%s concerns two ranks only; files hold programs of all ranks", name_of(op).data()));
        Options numbers = args;
        if (!asked && !has_root(op)) numbers.root.reset();
        check_numbers(numbers, op);
    }
}

void add_choice(CLI::App& command, Options& args) {
    command.add_option("--op", args.op, "collective, for instance all_reduce");
    command.add_option("--algo", args.algorithm, "algorithm, see list");
    command.add_option("--ranks", args.ranks, "number of ranks");
    command.add_option("--nodes", args.nodes, "how many of them each host has, as 3,5, for hierarchies")
        ->delimiter(',');
    command.add_option("--root", args.root, "root of a broadcast or reduce, 0 by default");
}

void add_file(CLI::App& command, Options& args) {
    command.add_option("--file", args.file, "programs in a file (docs/programs.md); --op, --ranks, --root choose some");
}

/// The texts of explain that become something else.
struct Texts {
    std::string bytes = "1M", transport;
};

void add_commands(CLI::App& app, Options& args, Texts& texts) {
    const auto command = [&](const char* name, const char* what, Command is) -> CLI::App& {
        return *app.add_subcommand(name, what)->callback([&args, is] { args.command = is; });
    };
    CLI::App& lists =
        command("list", "the algorithms; with --op the names of those that can do it, one per line", Command::list);
    lists.add_option("--op", args.op, "collective, for instance all_reduce");
    CLI::App& shows = command("show", "the programs of all ranks, or of --rank", Command::show);
    add_choice(shows, args);
    add_file(shows, args);
    shows.add_option("--rank", args.rank, "only this rank");
    CLI::App& draws = command("svg", "a picture of the programs: ranks as rows, time to the right", Command::draw);
    add_choice(draws, args);
    add_file(draws, args);
    CLI::App& explains =
        command("explain", "which algorithm a call gets, and why: all candidates, priced", Command::explain);
    explains.add_option("--op", args.op, "collective, for instance all_reduce")->required();
    explains.add_option("--bytes", texts.bytes, "of the larger of a rank's buffers, 1M by default");
    explains.add_option("--ranks", args.ranks, "number of ranks");
    explains.add_option("--nodes", args.nodes, "how many of them each host has, as 3,5, instead")->delimiter(',');
    explains.add_option("--cores", args.cores, "cores that they share, those of this machine by default")
        ->check(CLI::Range(1, most_ranks));
    explains.add_flag("--bound", args.bound, "each rank is bound to one of the cores, in turn");
    explains.add_option("--round-trip", args.round_trip_us, "how long one between hosts takes, in microseconds")
        ->check(CLI::Range(0, longest_round_trip_us));
    explains.add_option("--transport", texts.transport, "local, shm (default), or between hosts tcp (default), verbs");
    explains.add_option("--algo", args.algorithm, "only these, as TUTTI_ALGO lists them");
    explains.add_flag("--reproducible", args.reproducible, "sums in rank order only");
    CLI::App& verifies = command("verify", "prove one algorithm, or with --all every one", Command::verify);
    verifies.add_flag("--all", args.all,
                      "every algorithm and collective for 1 to --max-ranks ranks, and hierarchies of unequal hosts");
    verifies.add_option("--max-ranks", args.max_ranks, "for --all, 64 by default");
    add_choice(verifies, args);
    add_file(verifies, args);
    CLI::App& exports = command("export", "the programs of all ranks as a file, to change and to load", Command::write);
    add_choice(exports, args);
    exports.add_option("--name", args.name, "name of the algorithm in the file, my_ALGO by default");
    exports.get_option("--algo")->required();
}

void check(Options& args, const Texts& texts) {
    count_nodes(args);
    switch (args.command) {
        case Command::list:
            if (!args.op.empty()) wanted_op(args);
            return;
        case Command::show:
        case Command::draw:
            return check_choice(args);
        case Command::explain:
            return check_explain(args, texts.bytes, texts.transport);
        case Command::verify:
            return check_verify(args);
        case Command::write:
            return check_export(args);
    }
}

}  // namespace

NotUnderstood why_not(const std::exception& error) {
    return {2, std::string("tutti-plan: ") + error.what() + "\n" + usage};
}

Options understood(int argc, char** argv) {
    Options args;
    Texts texts;
    CLI::App app{"Lists, shows and proves collective algorithms", "tutti-plan"};
    app.require_subcommand(1);
    add_commands(app, args, texts);
    try {
        app.parse(argc, argv);
        check(args, texts);
    } catch (const CLI::CallForHelp&) {
        throw NotUnderstood{0, app.help()};
    } catch (const CLI::Error& error) {
        throw why_not(error);
    } catch (const Usage& error) {
        throw why_not(error);
    }
    return args;
}

Collective wanted_op(const Options& args) {
    if (const auto c = collective_of(args.op)) return *c;
    std::string known;
    for (int c = 0; c < collectives; ++c) known += (c ? ", " : "") + std::string(name_of(static_cast<Collective>(c)));
    throw Usage(text("there is no --op %s; there are %s", args.op.c_str(), known.c_str()));
}

const Algorithm& wanted_algorithm(const Options& args, Collective c) {
    const Algorithm* a = find_algorithm(args.algorithm);
    if (a && a->supports(c)) return *a;
    std::string able;
    for (const Algorithm& other : algorithms())
        if (other.supports(c)) able += (able.empty() ? "" : ", ") + std::string(other.name);
    throw Usage(text(a ? "%s cannot do %s; these can: %s" : "there is no --algo %s; for %s there are %s",
                     args.algorithm.c_str(), name_of(c).data(), able.c_str()));
}

}  // namespace plan
