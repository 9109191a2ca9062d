// What ranks call where kernels take part.
#include "plan/pieces.hpp"

#include "harness/catch.hpp"

using namespace tutti;

namespace {

const float in[16] = {};
float out[16] = {};

Operation operation(Collective collective, std::size_t count, const Rows* rows = nullptr) {
    Operation o;
    o.collective = collective;
    o.type = DataType::float32;
    o.count = count;
    o.rows = rows;
    o.input = in;
    o.output = out;
    return o;
}

}  // namespace

TEST_CASE("what is only moved is called as bytes, what is summed as it is") {
    const std::vector<Operation> moved = pieces_of(operation(Collective::all_to_all, 5), 0, 2);
    REQUIRE(moved.size() == 1);
    CHECK(moved[0].type == DataType::uint8);
    CHECK(moved[0].count == 20);
    const std::vector<Operation> summed = pieces_of(operation(Collective::reduce_scatter, 5), 0, 2);
    REQUIRE(summed.size() == 1);
    CHECK(summed[0].type == DataType::float32);
    CHECK(summed[0].count == 5);
}

TEST_CASE("an uneven exchange is sends and receives by ascending peer, and a copy of what goes to itself") {
    // Rank 1 of 3 has 2, 3 and no elements for the others, and gets 1, 3 and 4.
    const Rows rows{{{0, 2}, {2, 3}, {5, 0}}, {{0, 1}, {1, 3}, {4, 4}}, 4};
    const std::vector<Operation> pieces = pieces_of(operation(Collective::all_to_all, 4, &rows), 1, 3);
    REQUIRE(pieces.size() == 4);
    const auto check = [&](const Operation& o, Collective collective, Rank peer, std::size_t count, const void* input,
                           const void* output) {
        CHECK(o.collective == collective);
        CHECK(o.root == peer);
        CHECK(o.type == DataType::uint8);
        CHECK(o.count == 4 * count);
        CHECK(o.input == input);
        CHECK(o.output == output);
        CHECK(o.rows == nullptr);
    };
    check(pieces[0], Collective::send, 0, 2, in, nullptr);
    check(pieces[1], Collective::recv, 0, 1, nullptr, out);
    check(pieces[2], Collective::recv, 1, 3, in + 2, out + 1);
    check(pieces[3], Collective::recv, 2, 4, nullptr, out + 4);
}

TEST_CASE("of uneven sums, each rank's is a reduction to it, where it has elements") {
    const Rows rows{{{0, 2}, {2, 0}, {2, 5}}, {{0, 5}}, 5};
    const std::vector<Operation> pieces = pieces_of(operation(Collective::reduce_scatter, 5, &rows), 2, 3);
    REQUIRE(pieces.size() == 2);
    for (const Operation& o : pieces) {
        CHECK(o.collective == Collective::reduce);
        CHECK(o.type == DataType::float32);
    }
    CHECK(pieces[0].root == 0);
    CHECK(pieces[0].count == 2);
    CHECK(pieces[0].output == nullptr);
    CHECK(pieces[1].root == 2);
    CHECK(pieces[1].input == in + 2);
    CHECK(pieces[1].output == out);
}
