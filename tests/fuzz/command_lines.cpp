// The command lines of tutti-run, tutti-plan, tutti-tune, tutti-topo and the *_perf programs.

#include "algorithms/prove.hpp"
#include "fuzz.hpp"
#include "options.hpp"
#include "plan/options.hpp"
#include "run/options.hpp"
#include "topo/options.hpp"
#include "tune/options.hpp"

using namespace tutti;

namespace {

void check(const run::Options& o) {
    TUTTI_ASSERT(o.ranks >= 1 && o.ranks <= 65536 && !o.command.empty());
    TUTTI_ASSERT(o.timeout >= 0 && o.timeout <= 1e9);
    for (const auto& [name, value] : o.variables) TUTTI_ASSERT(!name.empty() && name.find('=') == name.npos);
}

void check(const perf::Options& o) {
    TUTTI_ASSERT(o.min_bytes <= o.max_bytes && o.max_bytes <= 1e15);
    if (o.min_bytes < o.max_bytes) TUTTI_ASSERT(o.next(o.min_bytes) > o.min_bytes);
    TUTTI_ASSERT(o.iterations >= 1 && o.threads >= 1 && o.ranks_per_thread >= 1 && o.aggregate >= 1);
    TUTTI_ASSERT(o.skip_iterations >= 0 && o.graphs >= 0 && o.unalign >= 0 && o.cycles >= 0);
    TUTTI_ASSERT(!o.ops.empty() && !o.types.empty());
}

/// What its commands take for granted, by which they make programs and index tables.
void check(const plan::Options& o) {
    const bool makes = o.command != plan::Command::list && o.file.empty() && !o.all;
    if (!o.op.empty()) plan::wanted_op(o);
    if (makes && !o.op.empty() && o.command != plan::Command::explain) {
        const Collective op = plan::wanted_op(o);
        plan::wanted_algorithm(o, op);
        TUTTI_ASSERT(o.ranks >= least_ranks(op) && o.ranks <= (o.rank ? 1 << 20 : 4096));
        TUTTI_ASSERT(!o.rank || (*o.rank >= 0 && *o.rank < o.ranks));
        TUTTI_ASSERT(!o.root || (*o.root >= 0 && *o.root < o.ranks));
    }
    if (makes) {
        long long on_nodes = 0;
        for (const int size : o.nodes) on_nodes += size;
        TUTTI_ASSERT(o.ranks >= 1 && o.ranks <= 1 << 20 && (o.nodes.empty() || on_nodes == o.ranks));
    }
    if (o.command == plan::Command::explain) TUTTI_ASSERT(o.transport != nullptr && o.bytes <= 1e15);
    if (o.command == plan::Command::write) TUTTI_ASSERT(!o.name.empty() && find_algorithm(o.algorithm) != nullptr);
    TUTTI_ASSERT(!o.all || o.max_ranks >= 1);
}

void check(const tune::Options& o) {
    TUTTI_ASSERT((o.hosts || tune::sizes(o) >= 1) && !o.out.empty() && o.seconds >= 1e-4 && o.seconds <= 10);
    for (const int ranks : o.ranks)
        for (const Collective op : o.ops)
            for (const int power : tune::powers_of(o, op, ranks)) TUTTI_ASSERT(power >= 3 && power < tune::most_powers);
}

void understand(unsigned program, int count, char** arguments) {
    switch (program) {
        case 0:
            return check(perf::understood("all_reduce_perf", count, arguments));
        case 1:
            return check(run::understood(count, arguments));
        case 2:
            return check(plan::understood(count, arguments));
        case 3:
            return check(tune::understood(count, arguments, ""));
        default:
            return void(topo::understood(count, arguments));
    }
}

}  // namespace

FUZZ_TARGET(command_lines) {
    const unsigned program = in.below(5);
    std::vector<std::string> words{"program"};
    while (!in.empty() && words.size() < 20) words.push_back(in.line());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    try {
        understand(program, static_cast<int>(words.size()), arguments.data());
    } catch (const run::NotUnderstood& because) {
        TUTTI_ASSERT(!because.text.empty());
    } catch (const perf::NotUnderstood& because) {
        TUTTI_ASSERT(!because.text.empty());
    } catch (const command_line::NotUnderstood& because) {
        TUTTI_ASSERT(!because.text.empty());
    }
}
