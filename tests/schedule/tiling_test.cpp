#include "schedule/tiling.hpp"

#include <vector>

#include "base/result.hpp"
#include "harness/catch.hpp"

using namespace tutti;

namespace {

constexpr std::size_t counts[] = {0,      1,      2,      3,      15,      16,      17,      31,           32,
                                  33,     63,     64,     65,     1000,    4095,    4096,    4097,         8192,
                                  10'000, 65'535, 65'536, 65'537, 100'000, 999'999, 1 << 20, (1 << 22) + 1};

TileLimits hosts(std::size_t tile, int channels) {
    TileLimits l;
    l.slots = {256 * 1024, channels};
    l.tile = tile;
    l.reference = 16 * 1024;
    return l;
}

TileLimits uneven() {
    TileLimits l = hosts(64 * 1024, 2);
    l.uneven = true;
    return l;
}

TileLimits gpus(bool by_reference) {
    TileLimits l;
    l.line = 128;
    l.slots = {32 * 1024, 32, 16 * 1024};
    l.lines = {16 * 1024, 4, 4 * 1024};
    l.in_lines = 16 * 1024;
    if (by_reference) l.reference = 0, l.slices = 4 << 20;
    l.packed_references = false;
    return l;
}

TileLimits through_host() {
    TileLimits l = hosts(32 * 1024, 4);
    l.slots.message = 32 * 1024;
    l.lines = l.slots;
    l.in_lines = 16 * 1024;
    return l;
}

/// Every element of a row lies in one tile of one column, and every channel has a tile.
void check_cover(std::size_t count, std::size_t element, const TileShape& shape, const TileLimits& l, const Tiling& t) {
    INFO(count << " elements of " << element << " bytes in " << shape.columns << " columns, " << shape.message_chunks
               << " a message: tiles of " << t.tile << " of " << t.block);
    CHECK(t.tiles >= 1);
    CHECK(t.channels >= 1);
    if (!l.uneven) CHECK(static_cast<std::uint32_t>(t.channels) <= t.tiles);
    if (count == 0) return;
    const auto columns = static_cast<std::size_t>(shape.columns);
    CHECK(t.block * columns >= count);
    CHECK(t.tile > 0);
    CHECK(t.tile * t.tiles >= t.block);
    CHECK(t.tile * (t.tiles - 1) < t.block);
    if (columns > 1) CHECK(t.block * element % l.line == 0);
    if (t.tiles > 1) CHECK(t.tile * element % 64 == 0);
    const std::size_t bytes = t.tile * element * static_cast<std::size_t>(shape.message_chunks);
    const bool refers = shape.sends_slices && l.slices > 0 && t.by_reference;
    CHECK(bytes <= (t.in_lines ? l.lines.message : refers ? l.slices : l.slots.message));
    CHECK(t.tile * element <= l.tile);
    CHECK_FALSE((t.in_lines && t.by_reference));
}

}  // namespace

TEST_CASE("tiles cover every count once, within their limits, alike for every type") {
    const std::vector<TileLimits> all{hosts(16 * 1024, 1), hosts(256 * 1024, 8), hosts(64 * 1024, 4), uneven(),
                                      gpus(false),         gpus(true),           through_host()};
    for (const TileLimits& l : all)
        for (const int columns : {1, 2, 3, 7, 8, 56})
            for (const int packed : {1, 2, 5, 64})
                for (const bool slices : {false, true})
                    for (const std::size_t count : counts)
                        for (const std::size_t element : {1, 2, 4, 8}) {
                            if (l.uneven && columns > 1) continue;
                            const TileShape shape{columns, packed, slices};
                            const Tiling t = tile(count, element, shape, l);
                            check_cover(count, element, shape, l, t);
                            // The tuner asks in bytes.
                            Tiling bytes = tile(count * element, 1, shape, l);
                            if (columns == 1) CHECK(bytes.block == t.block * element);
                            CHECK(bytes.tile == t.tile * element);
                            CHECK(bytes.tiles == t.tiles);
                            CHECK(bytes.channels == t.channels);
                            CHECK(bytes.by_reference == t.by_reference);
                            CHECK(bytes.in_lines == t.in_lines);
                        }
}

TEST_CASE("of an uneven call tile and channels are the same whatever a rank's rows are") {
    const Tiling none = tile(0, 4, {1, 1}, uneven());
    CHECK(none.tiles == 1);
    for (const std::size_t count : counts) {
        const Tiling t = tile(count, 4, {1, 1}, uneven());
        CHECK(t.tile == none.tile);
        CHECK(t.channels == none.channels);
    }
}

TEST_CASE("on GPUs a block is dealt evenly to as many channels as it is worth") {
    const Tiling lines = tile(4096, 4, {1, 1}, gpus(true));
    CHECK(lines.in_lines);
    CHECK(lines.channels == 4);
    CHECK(lines.tile == 1024);
    const Tiling slots = tile(1 << 20, 4, {1, 1}, gpus(false));
    CHECK(slots.channels == 32);
    CHECK(slots.tile * 4 == 32 * 1024);
    const Tiling slices = tile(1 << 20, 4, {1, 1, true}, gpus(true));
    CHECK(slices.by_reference);
    CHECK(slices.tile * 4 == 128 * 1024);
    CHECK(tile(1 << 20, 4, {1, 2, true}, gpus(true)).tile * 4 == 16 * 1024);  // packed: in slots
}

TEST_CASE("a message that has no room for its chunks is refused") {
    CHECK_THROWS_AS(tile(1, 4, {1, 513}, through_host()), Error);
    CHECK_THROWS_AS(tile(0, 4, {1, 129}, gpus(false)), Error);  // also where it would go in slots
    CHECK(tile(1 << 20, 4, {1, 4096}, hosts(1 << 20, 1)).tile == 16);
}
