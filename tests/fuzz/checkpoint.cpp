// Checkpoints: the text behind its hash, and parts.
#include <cinttypes>

#include "dp/hash.hpp"
#include "dp/saved.hpp"
#include "fuzz.hpp"

using namespace tutti;
using namespace tutti::dp;

namespace {

void read_text(std::string text, bool put_right) {
    if (put_right) {
        text.insert(0, "tutti-checkpoint 1\n");
        text += tutti::text("end %016" PRIx64 "\n", hash(text));
    }
    fuzz::accepts([&] {
        const Manifest m = manifest_from(text, "checkpoint");
        TUTTI_ASSERT(m.ranks >= 1 && m.parts.size() == static_cast<std::size_t>(m.ranks));
        TUTTI_ASSERT(m.states >= 0 && m.states <= most_states && m.step >= 0);
        TUTTI_ASSERT(m.updates.size() == m.parameters.size());
        const std::string again = text_of(m);
        TUTTI_ASSERT(text_of(manifest_from(again, "checkpoint")) == again);
    });
}

/// Two parameters in one bucket, of which this rank owns [2, 10) and [0, 5): 13 elements.
void read_records(fuzz::Input& in) {
    const std::vector<Piece> pieces{{0, 2, 8, 0}, {1, 0, 5, 8}};
    const int states = static_cast<int>(in.below(most_states + 1));
    const std::size_t size = in.flag() ? 4 : 8;
    Restored restored;
    restored.values.resize(13 * size);
    for (int k = 0; k < states; ++k) restored.state[k].resize(13 * size);
    const Destination to[] = {{&pieces, size, &restored}, {&pieces, size, &restored}};
    std::string content;
    while (!in.empty() && content.size() < 4096) {
        Record record{in.below(3), in.below(16), in.below(16), static_cast<std::uint32_t>(size),
                      static_cast<std::uint32_t>(states)};
        if (in.below(8) == 1) in.fill(&record, sizeof record);
        content.append(reinterpret_cast<const char*>(&record), sizeof record);
        content.append(in.below(8) == 1 ? in.number<std::uint8_t>()
                                        : record.count % 64 * size * static_cast<std::size_t>(states + 1),
                       '\7');
    }
    if (in.below(8) == 1) content.resize(content.size() - std::min<std::size_t>(content.size(), in.below(64)));
    fuzz::accepts([&] {
        read_part(content, "part", states, to);
        const auto written = static_cast<std::size_t>(std::ranges::count(restored.values, std::byte{7})) / size;
        TUTTI_ASSERT(written <= restored.covered() && restored.covered() <= 13);
    });
}

}  // namespace

FUZZ_TARGET(checkpoint) {
    if (in.flag()) return read_records(in);
    const bool put_right = in.flag();
    read_text(in.rest(), put_right);
}
