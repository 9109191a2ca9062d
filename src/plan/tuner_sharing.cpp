// What a tuner tells the other ranks of its host, and takes from them.
#include <algorithm>

#include "base/os.hpp"
#include "base/result.hpp"
#include "plan/tuner.hpp"

namespace tutti {

std::uint32_t number_of(const Algorithm& algorithm) {
    std::uint32_t hash = 0x811c9dc5u;  // FNV-1a
    for (const char c : algorithm.name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
    return hash;
}

/// A number for the question and the settings that bear on its decision: ranks with other settings do not share it.
std::uint64_t Tuner::number_of(const DecisionKey& key) const {
    const auto& [kind, width, mappable, altered] = key;
    const auto& [collective, uneven, root] = kind;
    const auto hash_of = [](const auto& files) { return static_cast<unsigned long long>(files ? files->hash() : 0); };
    const std::uint64_t hash = fnv(text("%s %d %llu %llu %d", allowed_.text().c_str(), reproducible_ ? 1 : 0,
                                        hash_of(tuning_), hash_of(own_), root));
    const std::uint64_t exact = static_cast<std::uint64_t>(collective) << 10 | static_cast<std::uint64_t>(width) << 3 |
                                std::uint64_t{uneven} << 2 | std::uint64_t{mappable} << 1 | std::uint64_t{altered};
    return std::uint64_t{1} << 63 | (hash << 18 & ~(std::uint64_t{1} << 63)) | exact;
}

Decision Tuner::decision_of(const Candidate& c) {
    return {.algorithm = tutti::number_of(*c.algorithm),
            .columns = c.shape.columns,
            .message_chunks = c.shape.message_chunks,
            .sends_slices = c.shape.sends_slices,
            .rows = c.rows,
            .tile = c.limits.tile,
            .channels = c.limits.slots.channels,
            .threads = c.price.threads,
            .time = c.time};
}

/// nullopt if it can't be this rank's decision, too.
std::optional<Candidate> Tuner::candidate_of(const Decision& d, const Question& q) const {
    const auto capable = capable_of(q.collective, std::get<Rank>(key_of(q)));
    const auto its = std::ranges::find(capable, d.algorithm, [](const Algorithm* a) { return tutti::number_of(*a); });
    Candidate c;
    c.limits = limits_of(q);
    const bool fits = its != capable.end() && d.columns > 0 && d.rows > 0 && d.tile > 0 && d.threads > 0 &&
                      d.channels > 0 && d.channels <= c.limits.slots.channels && d.message_chunks > 0 &&
                      static_cast<std::size_t>(d.message_chunks) <= c.limits.most_chunks();
    if (!fits) return std::nullopt;
    c.algorithm = *its;
    c.shape = {d.columns, d.message_chunks, d.sends_slices};
    c.limits.tile = d.tile;
    c.limits.slots.channels = d.channels;
    c.price.threads = d.threads;
    c.price.time = c.time = d.time;
    c.rows = d.rows;
    const auto rows = static_cast<std::size_t>(d.rows);
    c.tiling = c.tiling_of((q.bytes + rows - 1) / rows, 1);
    return c;
}

}  // namespace tutti
