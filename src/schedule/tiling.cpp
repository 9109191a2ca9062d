#include "schedule/tiling.hpp"

#include <algorithm>

#include "base/result.hpp"

namespace tutti {
namespace {

std::size_t divide_up(std::size_t n, std::size_t by) {
    return (n + by - 1) / by;
}

}  // namespace

void TileLimits::keep_lines_within(int channels) {
    lines.channels = std::min(lines.channels, channels);
    in_lines = std::min(in_lines, static_cast<std::size_t>(lines.channels) * lines.message);
}

std::size_t TileLimits::most_chunks() const {
    return (in_lines > 0 ? std::min(slots.message, lines.message) : slots.message) / line;
}

Tiling tile(std::size_t count, std::size_t element, const TileShape& shape, const TileLimits& l) {
    const auto columns = static_cast<std::size_t>(shape.columns),
               packed = static_cast<std::size_t>(shape.message_chunks);
    const std::size_t line = l.line / element;  // elements
    if (packed > l.most_chunks())
        fail(tuttiInvalidUsage, "the algorithm packs %d chunks into a message, but only %zu fit: choose another one",
             shape.message_chunks, l.most_chunks());
    Tiling t;
    if (count == 0 && !l.uneven) return t;
    t.block = columns == 1 ? count : divide_up(divide_up(count, columns), line) * line;
    const std::size_t bytes = t.block * element;
    t.in_lines = l.in_lines > 0 && bytes * packed <= l.in_lines;
    const TileLimits::Way& way = t.in_lines ? l.lines : l.slots;
    const bool referable = !t.in_lines && (packed == 1 || l.packed_references);
    const std::size_t message = referable && shape.sends_slices && l.slices > 0 ? l.slices : way.message;
    t.tile = std::min(l.tile / element, message / packed / l.line * line);  // see next_part of the interpreter
    t.channels = way.channels;
    if (!l.uneven) t.tile = std::min(t.tile, t.block);
    if (way.share > 0) {
        const std::size_t worth = divide_up(t.in_lines ? bytes * packed : bytes, way.share);
        t.channels = static_cast<int>(std::clamp<std::size_t>(worth, 1, static_cast<std::size_t>(way.channels)));
        t.tile = std::min(t.tile, divide_up(divide_up(t.block, static_cast<std::size_t>(t.channels)), line) * line);
    }
    t.tiles = static_cast<std::uint32_t>(std::max<std::size_t>(divide_up(t.block, t.tile), 1));
    if (!l.uneven) t.channels = static_cast<int>(std::min(t.tiles, static_cast<std::uint32_t>(t.channels)));
    t.by_reference = referable && t.tile * element >= l.reference;
    return t;
}

}  // namespace tutti
