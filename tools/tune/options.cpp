#include "tune/options.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace tune {
namespace {

using tutti::Collective;

std::vector<Collective> wanted(const std::vector<std::string>& names) {
    std::vector<Collective> ops;
    std::string known;
    for (int c = 0; c < tutti::collectives; ++c) {
        const auto op = static_cast<Collective>(c);
        if (op == Collective::send || op == Collective::recv) continue;
        if (names.empty() || std::ranges::count(names, name_of(op)) > 0) ops.push_back(op);
        known += (known.empty() ? "" : ", ") + std::string(name_of(op));
    }
    for (const std::string& name : names)
        if (std::ranges::none_of(ops, [&](Collective op) { return name_of(op) == name; }))
            throw CLI::ValidationError("--op", "there is no " + name + " to measure; there are " + known);
    return ops;
}

}  // namespace

Options understood(int argc, char** argv, const std::string& out) {
    Options options;
    options.out = out;
    std::vector<std::string> ops;
    CLI::App app{
        "Measures every algorithm on this machine, which should do nothing else meanwhile, and keeps the figures "
        "where\n"
        "communicators find them. Not needed: without them the tuner computes. Figures of the file that are not\n"
        "measured anew stay.\n"
        "With --hosts, started as ranks on several hosts: measures the paths between these instead.",
        "tutti-tune"};
    CLI::Option* const ranks =
        app.add_option("-n,--ranks", options.ranks, "numbers of ranks (2, 4, 8)")->check(CLI::Range(2, most_ranks));
    CLI::Option* const op = app.add_option("--op", ops, "collectives (all)");
    app.add_option(
        "--transport", options.transports,
        "shm (ranks are processes), local (threads) (both); between hosts verbs, plugin, tcp (all there are)");
    const CLI::Option* const seconds =
        app.add_option("--seconds", options.seconds, "for each figure (0.02; between hosts 0.2)");
    CLI::Option* const power =
        app.add_option("--max-power", options.max_power, "largest size as a power of two (24: 16 MiB)")
            ->check(CLI::Range(3, most_powers - 1));
    app.add_flag("--hosts", options.hosts, "measure paths between hosts")
        ->excludes(ranks)
        ->excludes(op)
        ->excludes(power);
    app.add_option("--out", options.out, "the file (TUTTI_TUNING, or one in the cache directory)");
    app.add_flag("--quiet", options.quiet, "no progress");
    try {
        app.parse(argc, argv);
        if (!(options.seconds >= 1e-4 && options.seconds <= 10))  // nor is it nan
            throw CLI::ValidationError("--seconds", "0.0001 to 10 were expected");
        options.ops = wanted(ops);
        const std::vector<std::string> here{"shm", "local"}, between{"verbs", "plugin", "tcp"};
        for (const std::string& name : options.transports)
            if (std::ranges::count(options.hosts ? between : here, name) == 0)
                throw CLI::ValidationError(
                    "--transport",
                    name + (options.hosts ? " does not join hosts: verbs, plugin and tcp do"
                                          : " was not expected: shm and local are measured without --hosts"));
        if (options.transports.empty() && !options.hosts) options.transports = here;
        if (options.hosts && seconds->count() == 0) options.seconds = 0.2;
        if (options.out.empty())
            throw CLI::ValidationError("--out", "is needed: TUTTI_TUNING is none, or there is no HOME");
        if (!options.hosts && sizes(options) == 0)
            throw CLI::ValidationError("--max-power", "with so many ranks none has an element of so few bytes");
    } catch (const CLI::CallForHelp&) {
        throw NotUnderstood{0, app.help()};
    } catch (const CLI::Error& error) {
        throw NotUnderstood{2,
                            std::string("tutti-tune: ") + error.what() + "\nRun with --help for more information.\n"};
    }
    return options;
}

std::size_t row_count(Collective op, int power, int ranks) {
    const std::size_t bytes = std::size_t{1} << power;
    return (row_per_rank(op) ? bytes / static_cast<std::size_t>(ranks) : bytes) / sizeof(float);
}

std::vector<int> powers_of(const Options& options, Collective op, int ranks) {
    std::vector<int> powers;
    for (int power = 3; power <= (op == Collective::barrier ? 3 : options.max_power); ++power)
        if (op == Collective::barrier || row_count(op, power, ranks) > 0) powers.push_back(power);
    return powers;
}

int sizes(const Options& options) {
    std::size_t all = 0;
    for (const int ranks : options.ranks)
        for (const Collective op : options.ops) all += powers_of(options, op, ranks).size() * options.transports.size();
    return static_cast<int>(all);
}

}  // namespace tune
