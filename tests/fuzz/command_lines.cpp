// The command lines of tutti-run and of the *_perf programs.
#include <cmath>

#include "fuzz.hpp"
#include "options.hpp"
#include "run/options.hpp"

FUZZ_TARGET(command_lines) {
    const bool run = in.flag();
    std::vector<std::string> words{"program"};
    while (!in.empty() && words.size() < 20) words.push_back(in.line());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const auto count = static_cast<int>(words.size());
    try {
        if (run) {
            const run::Options o = run::understood(count, arguments.data());
            TUTTI_ASSERT(o.ranks >= 1 && o.ranks <= 65536 && !o.command.empty());
            TUTTI_ASSERT(o.timeout >= 0 && o.timeout <= 1e9);
            for (const auto& [name, value] : o.variables) TUTTI_ASSERT(!name.empty() && name.find('=') == name.npos);
            return;
        }
        const perf::Options o = perf::understood("all_reduce_perf", count, arguments.data());
        TUTTI_ASSERT(o.min_bytes <= o.max_bytes && o.max_bytes <= 1e15);
        if (o.min_bytes < o.max_bytes) TUTTI_ASSERT(o.next(o.min_bytes) > o.min_bytes);
        TUTTI_ASSERT(o.iterations >= 1 && o.threads >= 1 && o.ranks_per_thread >= 1 && o.aggregate >= 1);
        TUTTI_ASSERT(o.skip_iterations >= 0 && o.graphs >= 0 && o.unalign >= 0 && o.cycles >= 0);
        TUTTI_ASSERT(!o.ops.empty() && !o.types.empty());
    } catch (const run::NotUnderstood& because) {
        TUTTI_ASSERT(!because.text.empty());
    } catch (const perf::NotUnderstood& because) {
        TUTTI_ASSERT(!because.text.empty());
    }
}
