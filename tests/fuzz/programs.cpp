// Algorithms of the user's own: JSON, read and proven.
#include "algorithms/user.hpp"
#include "fuzz.hpp"
#include "transport/fifo.hpp"

using namespace tutti;

FUZZ_TARGET(programs) {
    const std::string json = in.rest();
    try {
        const ProgramFile file = programs_from(json, "f.json");
        const std::string again = json_of(file);
        TUTTI_ASSERT(json_of(programs_from(again, "f.json")) == again);
        for (const ProgramSet& set : file.sets) {
            std::size_t steps = 0;
            for (const Program& p : set.programs) steps += p.steps.size();
            if (set.ranks <= 8 && steps <= 128) UserAlgorithms(set.ranks, slot_depth).add(json, "f.json");
        }
    } catch (const Error& error) {
        const std::string_view why = error.what();
        TUTTI_ASSERT(error.code() == tuttiInvalidUsage && why.starts_with("f.json:"));
        const long line = std::strtol(why.data() + 7, nullptr, 10);
        TUTTI_ASSERT(line >= 1 && line <= 1 + std::ranges::count(json, '\n'));
        TUTTI_ASSERT(std::ranges::none_of(why, [](unsigned char c) { return c < ' ' && c != '\n'; }));
    }
}
