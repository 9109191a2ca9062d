// Checkpoints. `path` is a text that names the parts, their lengths and hashes, the parameters and the step; the parts
// are `path`.<number>.<rank>of<ranks>, the number being another one in every save. A part is records of
// {parameter, first, count, bytes of a number, states}, then the values and each state as numbers. The new text takes
// the old one's place when all parts are on the disk: that moment is the save, and the old parts go after it.
#include <algorithm>
#include <cinttypes>

#include "base/files.hpp"
#include "base/os.hpp"
#include "dp/checkpoint.hpp"
#include "dp/hash.hpp"
#include "dp/numbers.hpp"
#include "dp/saved.hpp"

namespace tutti::dp {
namespace {

std::string part_path(const std::string& path, const Manifest& m, int rank) {
    return path + text(".%016" PRIx64 ".%dof%d", m.number, rank, m.ranks);
}

Manifest read_manifest(const std::string& path) {
    return manifest_from(read_file(path), path);
}

/// One line.
std::string shape(const Parameter& p) {
    std::string line = std::to_string(p.count) + " " + p.name;
    std::ranges::replace_if(
        line, [](unsigned char c) { return c < ' ' || c == 127; }, '?');
    return line;
}

void append(std::string& out, const void* data, std::size_t bytes) {
    out.append(static_cast<const char*>(data), bytes);
}

/// Records of what this rank saves of a bucket. What all ranks have, each of them writes a part of.
void append_bucket(std::string& content, const Bucket& b, const Storage& storage, const Ranks& ranks) {
    const bool replicated = storage.options().replicated();
    const auto share = [&](int r) {
        return b.count * static_cast<std::size_t>(r) / static_cast<std::size_t>(ranks.size());
    };
    const std::size_t begin = replicated ? share(ranks.rank()) : b.own_begin;
    const std::size_t end = replicated ? share(ranks.rank() + 1) : b.own_begin + b.own_count;
    const DataType type = state_type(b.data_type);
    const Backends& backends = storage.backends();
    const int states = states_of(storage.options().optimizer.kind);
    for (Piece piece : pieces_of(storage.layout(), storage.parameters(), b.index, begin, end)) {
        piece.at += begin - b.own_begin;
        const Record record{piece.parameter, piece.first, piece.count, static_cast<std::uint32_t>(size_of(type)),
                            static_cast<std::uint32_t>(states)};
        append(content, &record, sizeof record);
        const std::size_t at = piece.at * size_of(type), bytes = piece.count * size_of(type);
        std::vector<std::byte> values(bytes);
        if (b.states.master != nullptr) {
            backends.states->copy_now(values.data(), b.states.master + at, bytes);
        } else {
            std::vector<std::byte> here(piece.count * size_of(b.data_type));
            backends.values->copy_now(here.data(), storage.value_of(b, piece), here.size());
            convert(type, values.data(), b.data_type, here.data(), piece.count);
        }
        append(content, values.data(), bytes);
        for (int k = 0; k < states; ++k) {
            backends.states->copy_now(values.data(), b.states.state[k] + at, bytes);
            append(content, values.data(), bytes);
        }
    }
}

/// What the files have of the buckets of storage, checked.
std::vector<Restored> read_buckets(const std::string& path, const Manifest& m, const Storage& storage) {
    const std::vector<Bucket>& buckets = storage.buckets();
    std::vector<Restored> restored(buckets.size());
    for (const Bucket& b : buckets) {
        const std::size_t bytes = b.own_count * size_of(state_type(b.data_type));
        restored[b.index].values.resize(bytes);
        for (int k = 0; k < m.states; ++k) restored[b.index].state[k].resize(bytes);
    }
    std::vector<Destination> destinations;  // by parameter
    for (const std::size_t b : storage.layout().bucket)
        destinations.push_back({&buckets[b].mine, size_of(state_type(buckets[b].data_type)), &restored[b]});
    for (int r = 0; r < m.ranks; ++r) {
        const Manifest::Part& part = m.parts[static_cast<std::size_t>(r)];
        const std::string name = part_path(path, m, r), content = read_file(name, part.bytes);
        if (content.size() != part.bytes || hash(content) != part.hash)
            fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' is torn or was changed", name.c_str());
        read_part(content, name, m.states, destinations);
    }
    for (const Bucket& b : buckets) {
        std::size_t expected = 0;
        for (const Piece& piece : b.mine) expected += piece.count;
        if (const std::size_t found = restored[b.index].covered(); found != expected)
            fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' is incomplete: %zu of %zu elements", path.c_str(), found,
                 expected);
    }
    return restored;
}

/// Throws if the checkpoint is of other parameters, or of another kind of optimizer.
void compare(const std::string& path, const Manifest& m, const Storage& storage) {
    const std::vector<Parameter>& parameters = storage.parameters();
    for (std::size_t p = 0; p < std::max(parameters.size(), m.parameters.size()); ++p) {
        const std::string here = p < parameters.size() ? shape(parameters[p]) : "none";
        const std::string there = p < m.parameters.size() ? m.parameters[p] : "none";
        if (here != there)
            fail(tuttiInvalidUsage, "tuttiDpLoad: parameter %zu is '%s' (count and name), in '%s' it is '%s'", p,
                 here.c_str(), path.c_str(), there.c_str());
    }
    if (const int states = states_of(storage.options().optimizer.kind); m.states != states)
        fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' has %d states for every element, this optimizer has %d",
             path.c_str(), m.states, states);
}

}  // namespace

void save_checkpoint(const std::string& path, const Ranks& ranks, const Storage& storage, Manifest m) {
    m.ranks = ranks.size();
    m.states = states_of(storage.options().optimizer.kind);
    random_bytes(&m.number, sizeof m.number);
    ranks.broadcast(std::span(&m.number, 1), 0);
    for (const Parameter& p : storage.parameters()) m.parameters.push_back(shape(p));
    std::string content;
    for (const Bucket& b : storage.buckets()) append_bucket(content, b, storage, ranks);
    const std::string part = part_path(path, m, ranks.rank());
    bool named = false;  // for all that this rank knows, the text names its part
    try {
        ranks.all_or_none([&] { replace_file(part, content); });
        const Manifest::Part mine{content.size(), hash(content)};
        named = true;  // rank 0 may write the text from here on, also where others don't hear of it
        m.parts = ranks.exchange(mine);
        Manifest old;
        const std::vector<Verdict> all = ranks.verdicts(Verdict::of([&] {
            if (ranks.rank() != 0) return;
            if (file_exists(path)) guarded([&] { old = read_manifest(path); });
            replace_file(path, text_of(m));
        }));
        named = all.empty();
        judge(all);
        for (int r = 0; r < old.ranks; ++r) remove_file(part_path(path, old, r));
    } catch (...) {
        if (!named) remove_file(part);
        throw;
    }
}

Manifest load_checkpoint(const std::string& path, const Ranks& ranks, Storage& storage) {
    Manifest m;
    std::vector<Restored> restored;
    ranks.all_or_none([&] {
        m = read_manifest(path);
        compare(path, m, storage);
        restored = read_buckets(path, m, storage);
    });
    const Backends& backends = storage.backends();
    for (const Bucket& b : storage.buckets()) {
        const Restored& r = restored[b.index];
        const std::size_t size = size_of(b.data_type);
        std::vector<std::byte> here(b.own_count * size);
        convert(b.data_type, here.data(), state_type(b.data_type), r.values.data(), b.own_count);
        if (b.host_data != nullptr) backends.states->copy(b.host_data, here.data(), here.size());
        for (const Piece& piece : b.mine)
            backends.values->copy(storage.value_of(b, piece), here.data() + piece.at * size, piece.count * size);
        if (b.states.master != nullptr) backends.states->copy(b.states.master, r.values.data(), r.values.size());
        for (int k = 0; k < m.states; ++k)
            backends.states->copy(b.states.state[k], r.state[k].data(), r.state[k].size());
        for (const BackendPtr& backend : {backends.values, backends.states}) backend->settle();  // before `here` goes
    }
    return m;
}

}  // namespace tutti::dp
