// The comparison of calls by config.check, without a communicator.
#include "comm/call_comparison.hpp"

#include <cstring>

#include "harness/catch.hpp"
#include "in_process.hpp"

using namespace tutti;

TEST_CASE("calls that differ in anything but their buffers are an error that names two ranks and both calls") {
    const Options options = Options::from(nullptr);
    const auto connections = harness::connections_of(2, options);
    CallComparison mine(*connections[0]), theirs(*connections[1]);
    const auto compare = [&](const Operation& here, const Operation& there) {
        const Operation gather = mine.exchange(here), other = theirs.exchange(there);
        REQUIRE(gather.collective == Collective::all_gather);
        REQUIRE(gather.count == sizeof(Call));
        auto* const all = static_cast<std::byte*>(gather.output);
        std::memcpy(all, gather.input, gather.count);  // as the exchange does it
        std::memcpy(all + gather.count, other.input, gather.count);
        mine.check();
    };
    float buffer = 0;
    Operation sum;
    sum.collective = Collective::all_reduce;
    sum.type = DataType::float32;
    sum.count = 10;
    Operation same = sum, longer = sum, rooted = sum, typed = sum;
    same.input = same.output = &buffer;
    longer.count = 11;
    rooted.root = 1;
    typed.type = DataType::int32;
    compare(sum, same);
    for (const Operation& other : {longer, rooted, typed}) {
        CHECK_THROWS_WITH(compare(sum, other),
                          Catch::StartsWith("rank 0 calls ") && Catch::Contains("but rank 1 calls "));
        compare(other, other);
    }
}
