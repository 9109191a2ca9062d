// What tutti-tune has written, or somebody else.
#include "plan/tuning.hpp"
#include "fuzz.hpp"

using namespace tutti;

FUZZ_TARGET(tuning) {
    const std::string json = in.rest();
    static const std::string here = machine_name();
    fuzz::accepts([&] {
        const Tuning tuning = Tuning::from_json(json, "t.json", "a machine");
        const Tuning again = Tuning::from_json(tuning.to_json(), "t.json", here);
        TUTTI_ASSERT(again.hash() == tuning.hash() && again.hash_of_paths() == tuning.hash_of_paths());
    });
}
