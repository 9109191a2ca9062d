#include "schedule/check.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include "base/result.hpp"
#include "schedule/text.hpp"

namespace tutti {
namespace {

bool is_pair(Collective c) {
    return c == Collective::send || c == Collective::recv;
}

long long chunks_of(const Program& p, Place place) {
    switch (place) {
        case Place::input:
            return 1LL * p.input_rows * p.columns;
        case Place::output:
            return 1LL * p.output_rows * p.columns;
        case Place::scratch:
            return p.scratch_chunks;
        case Place::peer:
            break;
    }
    return 0;
}

// A program that uses all its chunks has at least one operand for each. Far more chunks than operands are a typing
// error or an attack, and verification would need memory for each chunk.
std::string wrong_sizes(const Program& p) {
    const Program expected = program_for({p.collective, p.rank, p.ranks, p.root});
    if (p.columns < 1) return text("there are %d columns, at least 1 was expected", p.columns);
    if (p.input_rows != expected.input_rows)
        return text("there are %d rows of input, %d were expected", p.input_rows, expected.input_rows);
    if (p.output_rows != expected.output_rows)
        return text("there are %d rows of output, %d were expected", p.output_rows, expected.output_rows);
    if (p.scratch_chunks < 0) return text("there are %d chunks of scratch", p.scratch_chunks);
    if (p.message_chunks < 1) return text("messages have %d chunks, at least 1 was expected", p.message_chunks);
    constexpr long long plenty = 4096;
    for (const Place place : {Place::input, Place::output, Place::scratch})
        if (chunks_of(p, place) > static_cast<long long>(p.operands.size()) + plenty)
            return text("there are %lld chunks, but only %zu operands to use them", chunks_of(p, place),
                        p.operands.size());
    return {};
}

std::string wrong_header(const Program& p) {
    if (static_cast<int>(p.collective) >= collectives)
        return text("there is no collective %d", static_cast<int>(p.collective));
    if (p.ranks < 1) return text("there are %d ranks, at least 1 was expected", p.ranks);
    if (p.rank < 0 || p.rank >= p.ranks) return text("the rank is not in 0..%d", p.ranks - 1);
    if (has_root(p.collective) && (p.root < 0 || p.root >= p.ranks))
        return text("the root is %d, but should be in 0..%d", p.root, p.ranks - 1);
    if (is_pair(p.collective) && (p.root < 0 || p.root >= p.ranks || p.root == p.rank))
        return text("the peer is %d, but should be another rank in 0..%d", p.root, p.ranks - 1);
    return wrong_sizes(p);
}

std::string wrong_slice(const Program& p, const Step& s, Operand o, bool source) {
    if (o.more) return "is a slice, and only messages have parts";
    if (o.index < 0 || o.index >= chunks_of(p, o.place))
        return text("there are %lld such chunks", chunks_of(p, o.place));
    if (o.index % p.columns != static_cast<int>(s.column))
        return text("is of column %d, the step is of column %u", o.index % p.columns, static_cast<unsigned>(s.column));
    if (o.place == Place::input && !source) return "the input is the user's and is not written to";
    if (p.rank != p.root && p.collective == Collective::broadcast && o.place == Place::input)
        return text("only the root, rank %d, has an input", p.root);
    if (p.rank != p.root && p.collective == Collective::reduce && o.place == Place::output)
        return text("only the root, rank %d, has an output", p.root);
    return {};
}

std::string wrong_operand(const Program& p, const Step& s, Operand o, bool source) {
    if (static_cast<int>(o.place) > static_cast<int>(Place::peer)) return "there is no such place";
    if (o.place != Place::peer) return wrong_slice(p, s, o, source);
    if (o.index < 0 || o.index >= p.ranks) return text("there are %d ranks", p.ranks);
    if (o.index == p.rank) return "is the rank itself";
    return {};
}

// A peer may appear once on each side, because an executor asks each connection once whether a step can run.
std::string wrong_peers(const Program& p, const Step& s, bool source) {
    std::vector<Rank> peers;
    for (const Operand o : source ? p.sources(s) : p.sinks(s))
        if (o.place == Place::peer) peers.push_back(o.index);
    std::ranges::sort(peers);
    const auto twice = std::ranges::adjacent_find(peers);
    if (twice == peers.end()) return {};
    return text(source ? "receives from rank %d twice: a step takes one message, or part of one, from a rank"
                       : "sends to rank %d twice: a step makes one message, or part of one, for a rank",
                *twice);
}

std::string wrong_step(const Program& p, const Step& s) {
    if (s.sources == 0) return "it has no source";
    if (s.sinks == 0) return "it has no sink";
    if (std::uint64_t{s.first} + s.sources + s.sinks > p.operands.size())
        return text("the program has only %zu operands", p.operands.size());
    if (s.column >= static_cast<unsigned>(p.columns))
        return text("column %u of %d", static_cast<unsigned>(s.column), p.columns);
    const std::string_view name = name_of(p.collective);
    if (!reduces(p.collective) && s.sources != 1)
        return text("%s has nothing to add, 1 source was expected", name.data());
    if (!reduces(p.collective) && s.completes) return text("%s has no reduction to complete", name.data());
    for (std::uint32_t i = 0; i < s.sources + s.sinks; ++i) {
        const bool source = i < s.sources;
        const std::string wrong = wrong_operand(p, s, p.operands[s.first + i], source);
        if (wrong.empty()) continue;
        return text("%s %u, %s: ", source ? "source" : "sink", source ? i : i - s.sources,
                    text_of(p.operands[s.first + i], source).c_str()) +
               wrong;
    }
    const std::string wrong = wrong_peers(p, s, true);
    return wrong.empty() ? wrong_peers(p, s, false) : wrong;
}

std::string wrong_program(const Program& p) {
    if (const std::string wrong = wrong_header(p); !wrong.empty()) return text("rank %d: ", p.rank) + wrong;
    for (std::size_t i = 0; i < p.steps.size(); ++i)
        if (const std::string wrong = wrong_step(p, p.steps[i]); !wrong.empty()) return place_of(p, i) + ": " + wrong;
    return {};
}

// Any number of sends and receives is allowed, but each needs its counterpart.
std::string wrong_pairs(std::span<const Program> programs) {
    std::map<std::pair<Rank, Rank>, int> open[2];
    for (const Program& p : programs) {
        const bool sends = p.collective == Collective::send;
        if (!is_pair(p.collective))
            return text("rank %d: %s among sends and receives", p.rank, name_of(p.collective).data());
        const std::pair key = sends ? std::pair(p.rank, p.root) : std::pair(p.root, p.rank);
        if (++open[sends][key] > 1)
            return text("rank %d: has a second %s with rank %d", p.rank, name_of(p.collective).data(), p.root);
    }
    for (const bool sends : {false, true})
        for (const auto& [key, _] : open[sends])
            if (!open[!sends].contains(key))
                return text("rank %d has a %s with rank %d, which has none with it", sends ? key.first : key.second,
                            sends ? "send" : "recv", sends ? key.second : key.first);
    return {};
}

std::string wrong_set(std::span<const Program> programs) {
    const Program& first = programs.front();
    for (const Program& p : programs) {
        if (p.ranks != first.ranks) return text("rank %d: is of %d ranks, others of %d", p.rank, p.ranks, first.ranks);
        if (p.columns != first.columns)
            return text("rank %d: has %d columns, others have %d", p.rank, p.columns, first.columns);
        if (p.message_chunks != first.message_chunks)
            return text("rank %d: has messages of up to %d chunks, others of up to %d", p.rank, p.message_chunks,
                        first.message_chunks);
    }
    if (is_pair(first.collective)) return wrong_pairs(programs);
    if (programs.size() != static_cast<std::size_t>(first.ranks))
        return text("there are %zu programs for %d ranks", programs.size(), first.ranks);
    for (std::size_t i = 0; i < programs.size(); ++i) {
        const Program& p = programs[i];
        if (p.rank != static_cast<Rank>(i))
            return text("program %zu is of rank %d: each rank's was expected in order", i, p.rank);
        if (p.collective != first.collective)
            return text("rank %d: is a %s, others a %s", p.rank, name_of(p.collective).data(),
                        name_of(first.collective).data());
        if (has_root(p.collective) && p.root != first.root)
            return text("rank %d: has root %d, others have %d", p.rank, p.root, first.root);
    }
    return {};
}

}  // namespace

std::string ill_formed(std::span<const Program> programs) {
    if (programs.empty()) return "there are no programs";
    for (const Program& p : programs)
        if (std::string wrong = wrong_program(p); !wrong.empty()) return wrong;
    return wrong_set(programs);
}

}  // namespace tutti
