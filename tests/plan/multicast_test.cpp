#include "plan/multicast.hpp"

#include "base/result.hpp"
#include "harness/catch.hpp"
#include "plan/allowed.hpp"

using namespace tutti;

namespace {

Operation call(Collective collective, DataType type, ReduceOp op = ReduceOp::sum, std::size_t count = 1000) {
    Operation o;
    o.collective = collective;
    o.type = type;
    o.op = op;
    o.count = count;
    return o;
}

}  // namespace

TEST_CASE("which calls switches can do") {
    using Sum = gpu::MulticastSum;
    const auto sum = [](DataType type, ReduceOp op) { return multicast_sum(call(Collective::all_reduce, type, op)); };
    CHECK(sum(DataType::float32, ReduceOp::sum) == Sum::float32);
    CHECK(sum(DataType::bfloat16, ReduceOp::sum) == Sum::bfloat16);
    CHECK(sum(DataType::int64, ReduceOp::sum) == Sum::sum64);
    CHECK(sum(DataType::int32, ReduceOp::max) == Sum::max_s32);
    CHECK(sum(DataType::uint32, ReduceOp::min) == Sum::min_u32);
    CHECK(sum(DataType::uint64, ReduceOp::max) == Sum::max_u64);
    CHECK(!sum(DataType::float32, ReduceOp::max));
    CHECK(!sum(DataType::int32, ReduceOp::prod));
    CHECK(!sum(DataType::int8, ReduceOp::sum));
    CHECK(!sum(DataType::float8e4m3, ReduceOp::sum));
    Operation altered = call(Collective::all_reduce, DataType::float32);
    altered.average = true;
    CHECK(!multicast_sum(altered));
    altered.average = false, altered.premultiply = true;
    CHECK(!multicast_sum(altered));
    CHECK(multicast_sum(call(Collective::all_reduce, DataType::float32, ReduceOp::sum, 1)));
    CHECK(!multicast_sum(call(Collective::all_reduce, DataType::float32, ReduceOp::sum, 0)));
    CHECK(multicast_sum(call(Collective::reduce_scatter, DataType::float32, ReduceOp::sum, 4)));
    CHECK(!multicast_sum(call(Collective::reduce_scatter, DataType::float32, ReduceOp::sum, 5)));
    CHECK(multicast_sum(call(Collective::all_gather, DataType::uint8, ReduceOp::sum, 16)));
    CHECK(!multicast_sum(call(Collective::broadcast, DataType::float32)));
    CHECK(in_any_order(call(Collective::all_reduce, DataType::float32)));
    CHECK(!in_any_order(call(Collective::all_reduce, DataType::int32)));
    CHECK(!in_any_order(call(Collective::all_gather, DataType::float32)));
}

TEST_CASE("a call has a block for each part that is worth it, and no more than a rank can run") {
    CHECK(multicast_blocks_for(8, 8, 32) == 1);
    CHECK(multicast_blocks_for(8 * gpu::multicast_share, 8, 32) == 2);
    CHECK(multicast_blocks_for(std::size_t{1} << 30, 8, 32) == 32);
    CHECK(multicast_blocks_for(std::size_t{1} << 30, 8, 5) == 5);
}

TEST_CASE("lists name nvls, for the collectives that go by it") {
    const auto names = [](const char* list, Collective c) { return Allowed::parse(list).names(c, nvls); };
    CHECK(names("nvls", Collective::all_reduce));
    CHECK(names("ring;all_gather:nvls,direct", Collective::all_gather));
    CHECK(!names("ring;all_gather:nvls,direct", Collective::all_reduce));
    CHECK(!names("", Collective::all_reduce));
    CHECK(!names("^nvls", Collective::all_reduce));
    CHECK_THROWS_WITH(Allowed::parse("broadcast:nvls"),
                      Catch::Matchers::Contains("'nvls' is not capable of broadcast"));
}
