// Checkpoints. `path` is a text that names the parts, their lengths and hashes, the parameters and the step; the parts
// are `path`.<number>.<rank>of<ranks>, the number being another one in every save. A part is records of
// {parameter, first, count, bytes of a number, states}, then the values and each state as numbers. The new text takes
// the old one's place when all parts are on the disk: that moment is the save, and the old parts go after it.
#include <algorithm>
#include <cinttypes>

#include "base/files.hpp"
#include "dp/engine.hpp"
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

}  // namespace

/// Whether this is the moment for a checkpoint, and there is a path.
void Engine::check_file(const char* function, const char* path) const {
    if (path == nullptr || *path == '\0') fail(tuttiInvalidArgument, "%s: path is empty", function);
    if (phase_ == Phase::collecting) fail(tuttiInvalidUsage, "%s: in the middle of an iteration", function);
}

void Engine::save(const char* given) {
    agree([&] { check_file("tuttiDpSave", given); });
    const std::string path = given;
    wait();
    Manifest m;
    m.ranks = ranks_;
    m.step = steps_;
    m.states = states_of(options_.optimizer.kind);
    random_bytes(&m.number, sizeof m.number);
    must(tuttiBroadcast(&m.number, &m.number, 1, tuttiUint64, 0, cpu_comm_, nullptr));
    for (const Parameter& p : parameters_) m.parameters.push_back(shape(p));
    m.updates = updates_;
    std::string content;
    for (const auto& b : buckets_) {
        // What all ranks have, each of them writes a part of.
        const auto share = [&](int r) {
            return b->count * static_cast<std::size_t>(r) / static_cast<std::size_t>(ranks_);
        };
        const std::size_t begin = options_.replicated() ? share(rank_) : b->own_begin;
        const std::size_t end = options_.replicated() ? share(rank_ + 1) : b->own_begin + b->own_count;
        const DataType type = state_type(b->data_type);
        for (Piece piece : pieces_of(layout_, parameters_, b->index, begin, end)) {
            piece.at += begin - b->own_begin;
            const Record record{piece.parameter, piece.first, piece.count, static_cast<std::uint32_t>(size_of(type)),
                                static_cast<std::uint32_t>(m.states)};
            append(content, &record, sizeof record);
            const std::size_t at = piece.at * size_of(type), bytes = piece.count * size_of(type);
            std::vector<std::byte> values(bytes);
            if (b->states.master != nullptr) {
                states_backend_->copy_now(values.data(), b->states.master + at, bytes);
            } else {
                std::vector<std::byte> here(piece.count * size_of(b->data_type));
                backend_->copy_now(here.data(), value_of(*b, piece), here.size());
                convert(type, values.data(), b->data_type, here.data(), piece.count);
            }
            append(content, values.data(), bytes);
            for (int k = 0; k < m.states; ++k) {
                states_backend_->copy_now(values.data(), b->states.state[k] + at, bytes);
                append(content, values.data(), bytes);
            }
        }
    }
    const std::string part = part_path(path, m, rank_);
    bool named = false;  // for all that this rank knows, the text names its part
    try {
        all_or_none(cpu_comm_, ranks_, [&] { replace_file(part, content); });
        const Manifest::Part mine{content.size(), hash(content)};
        named = true;  // rank 0 may write the text from here on, also where others don't hear of it
        m.parts = exchange(cpu_comm_, ranks_, mine);
        Manifest old;
        const std::vector<Verdict> all = verdicts(cpu_comm_, ranks_, Verdict::of([&] {
                                                      if (rank_ != 0) return;
                                                      if (file_exists(path))
                                                          guarded([&] { old = read_manifest(path); });
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

void Engine::restore(const std::string& path, Manifest& m, std::vector<Restored>& restored) const {
    m = read_manifest(path);
    for (std::size_t p = 0; p < std::max(parameters_.size(), m.parameters.size()); ++p) {
        const std::string here = p < parameters_.size() ? shape(parameters_[p]) : "none";
        const std::string there = p < m.parameters.size() ? m.parameters[p] : "none";
        if (here != there)
            fail(tuttiInvalidUsage, "tuttiDpLoad: parameter %zu is '%s' (count and name), in '%s' it is '%s'", p,
                 here.c_str(), path.c_str(), there.c_str());
    }
    const int states = states_of(options_.optimizer.kind);
    if (m.states != states)
        fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' has %d states for every element, this optimizer has %d",
             path.c_str(), m.states, states);
    for (const auto& b : buckets_) {
        const std::size_t bytes = b->own_count * size_of(state_type(b->data_type));
        Restored& r = restored.emplace_back();
        r.values.resize(bytes);
        for (int k = 0; k < states; ++k) r.state[k].resize(bytes);
    }
    std::vector<Destination> destinations;  // by parameter
    for (const std::size_t b : layout_.bucket)
        destinations.push_back({&buckets_[b]->mine, size_of(state_type(buckets_[b]->data_type)), &restored[b]});
    for (int r = 0; r < m.ranks; ++r) {
        const Manifest::Part& part = m.parts[static_cast<std::size_t>(r)];
        const std::string name = part_path(path, m, r), content = read_file(name, part.bytes);
        if (content.size() != part.bytes || hash(content) != part.hash)
            fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' is torn or was changed", name.c_str());
        read_part(content, name, states, destinations);
    }
    for (std::size_t b = 0; b < buckets_.size(); ++b) {
        std::size_t expected = 0;
        for (const Piece& piece : buckets_[b]->mine) expected += piece.count;
        if (const std::size_t found = restored[b].covered(); found != expected)
            fail(tuttiInvalidUsage, "tuttiDpLoad: '%s' is incomplete: %zu of %zu elements", path.c_str(), found,
                 expected);
    }
}

void Engine::load(const char* given) {
    agree([&] {
        check_file("tuttiDpLoad", given);
        refuse_gathered("tuttiDpLoad");
    });
    const std::string path = given;
    forget_gathered();
    wait();
    Manifest m;
    std::vector<Restored> restored;
    all_or_none(cpu_comm_, ranks_, [&] { restore(path, m, restored); });
    const bool stages = options_.asynchronous();  // else values lie as they are sent
    auto staged = stages ? std::make_unique<Block>(backend_, largest_values()) : nullptr;
    for (const auto& b : buckets_) {
        Restored& r = restored[b->index];
        const DataType type = state_type(b->data_type);
        std::vector<std::byte> here(b->own_count * size_of(b->data_type));
        convert(b->data_type, here.data(), type, r.values.data(), b->own_count);
        if (b->host_data != nullptr) states_backend_->copy(b->host_data, here.data(), here.size());
        for (const Piece& piece : b->mine)
            backend_->copy(value_of(*b, piece), here.data() + piece.at * size_of(b->data_type),
                           piece.count * size_of(b->data_type));
        if (b->states.master != nullptr) states_backend_->copy(b->states.master, r.values.data(), r.values.size());
        for (int k = 0; k < m.states; ++k)
            states_backend_->copy(b->states.state[k], r.state[k].data(), r.state[k].size());
        for (const BackendPtr& backend : {backend_, states_backend_}) backend->settle();  // before `here` and `r` go
        if (options_.replicated() || options_.mode == tuttiDpZero3) continue;
        std::byte* values = b->data != nullptr ? b->data : staged->base();
        spread(*b, values);
        if (communication_ != backend_) communication_->settle();
        copy_out(*b, values);
    }
    staged.reset();
    sweep();
    steps_ = updated_ = received_ = statistics_.steps = m.step;
    updates_ = m.updates;
    phase_ = Phase::idle;
}

}  // namespace tutti::dp
