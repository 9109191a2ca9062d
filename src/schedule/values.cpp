#include "schedule/values.hpp"

#include <map>

#include "base/result.hpp"
#include "schedule/memory.hpp"
#include "schedule/text.hpp"

namespace tutti {
namespace {

constexpr std::uint32_t none = UINT32_MAX;

struct Value {
    static constexpr std::int32_t mixed = -1;     // contributions of different chunks
    static constexpr std::int32_t repeated = -2;  // contains a rank's contribution more than once

    std::int32_t chunk;         // of the contributors' input; negative (mixed, repeated) if useless
    std::uint32_t contributor;  // if there is only one, else none
    std::uint32_t set;          // if there are more: offset in bits_
    std::uint32_t count;        // number of contributors
    std::uint32_t expression;
    bool completed;
};

class Replayer {
  public:
    Replayer(std::span<const Program> programs, const Matching& matching, bool in_place, Expressions& expressions)
        : programs_(programs),
          matching_(matching),
          expressions_(expressions),
          words_((programs.size() + 63) / 64),
          parts_(matching.parts.size(), none) {
        for (std::uint32_t p = 0; p < programs.size(); ++p) {
            memory_.emplace_back(programs[p], in_place);
            held_.emplace_back(memory_[p].size(), none);
            writer_.emplace_back(memory_[p].size(), none);
            const std::uint32_t leaf = expressions.leaf(programs[p].rank);
            for (int c = 0; c < memory_[p].inputs(); ++c)
                held_[p][memory_[p][input(c)]] = add({c, p, 0, 1, leaf, false});
            if (programs[p].collective == Collective::send) senders_[{programs[p].rank, programs[p].root}] = p;
        }
    }

    Replay replay(std::span<const StepRef> run) {
        for (const StepRef turn : run)
            if (!execute(turn)) return std::move(result_);
        for (std::uint32_t p = 0; p < programs_.size(); ++p)
            if (!check_outputs(p)) return std::move(result_);
        return std::move(result_);
    }

  private:
    std::uint32_t add(const Value& value) {
        values_.push_back(value);
        return static_cast<std::uint32_t>(values_.size() - 1);
    }

    bool wrong(std::string error) {
        result_.error = std::move(error);
        return false;
    }

    bool execute(StepRef turn) {
        const auto [p, number] = turn;
        const Program& program = programs_[p];
        const Step& s = program.steps[number];
        terms_.clear();
        for (std::uint32_t i = s.first; i < s.first + s.sources; ++i) {
            const Operand o = program.operands[i];
            terms_.push_back(o.place == Place::peer ? parts_[matching_.part_of[p][i]] : held_[p][memory_[p][o]]);
            if (terms_.back() == none)
                return wrong(place_of(program, number) + ": reads " + text_of(o, true) +
                             " before anything is written there");
        }
        std::uint32_t result = s.sources == 1 ? terms_[0] : reduce();
        if (reduces(program.collective) && !complete(turn, s, result)) return false;
        for (std::uint32_t i = s.first + s.sources; i < s.first + s.sources + s.sinks; ++i) {
            const Operand o = program.operands[i];
            if (o.place == Place::peer) {
                parts_[matching_.part_of[p][i]] = result;
                continue;
            }
            held_[p][memory_[p][o]] = result;
            writer_[p][memory_[p][o]] = number;
        }
        return true;
    }

    // Unites the terms' contributors, which must be disjoint and have contributed the same chunk. Otherwise the value
    // is mixed or repeated, which is an error only if it gets into a result.
    std::uint32_t reduce() {
        Value sum{values_[terms_[0]].chunk, none, static_cast<std::uint32_t>(bits_.size()), 0,
                  Expressions::none,        false};
        bits_.resize(bits_.size() + words_);
        for (const std::uint32_t t : terms_) {
            const Value& term = values_[t];
            if (sum.chunk < 0) break;
            if (term.chunk != sum.chunk)
                sum.chunk = term.chunk < 0 ? term.chunk : Value::mixed;
            else if (!unite(sum, term))
                sum.chunk = Value::repeated;
        }
        if (sum.chunk < 0) return add(sum);
        expression_.clear();
        for (const std::uint32_t t : terms_) expression_.push_back(values_[t].expression);
        sum.expression = expressions_.sum(expression_);
        return add(sum);
    }

    bool unite(Value& sum, const Value& term) {
        sum.count += term.count;
        if (term.contributor != none) {
            std::uint64_t& word = bits_[sum.set + term.contributor / 64];
            const std::uint64_t bit = std::uint64_t{1} << term.contributor % 64;
            const bool fresh = (word & bit) == 0;
            word |= bit;
            return fresh;
        }
        std::uint64_t twice = 0;
        for (std::size_t w = 0; w < words_; ++w) {
            twice |= bits_[sum.set + w] & bits_[term.set + w];
            bits_[sum.set + w] |= bits_[term.set + w];
        }
        return twice == 0;
    }

    bool full(const Value& v) const { return v.chunk >= 0 && v.count == programs_.size(); }

    // Checks the `completes` flag of a step. It must be set exactly on steps that add and have every rank's
    // contribution; with one rank, on the copy.
    bool complete(StepRef turn, const Step& s, std::uint32_t& result) {
        Value value = values_[result];
        const bool adds = s.sources > 1 || programs_.size() == 1;
        const auto here = [&] { return place_of(programs_[turn.program], turn.step); };
        if (!s.completes) {
            if (full(value) && s.sources > 1)
                return wrong(here() + ": has every rank's contribution now, but is not said to complete");
            return true;
        }
        if (!full(value)) return wrong(here() + ": is said to complete, but has " + described(value));
        if (!adds || value.completed) return wrong(here() + ": is said to complete what was complete before");
        value.completed = true;
        result = add(value);
        return true;
    }

    // What an output chunk must hold: its contributor (none: all ranks), and the chunk of the contributor's input.
    std::pair<std::uint32_t, int> expected(const Program& p, int chunk) const {
        switch (p.collective) {
            case Collective::all_reduce:
            case Collective::reduce:
                return {none, chunk};
            case Collective::reduce_scatter:
                return {none, p.rank * p.columns + chunk};
            case Collective::all_gather:
                return {chunk / p.columns, chunk % p.columns};
            case Collective::broadcast:
                return {p.root, chunk};
            case Collective::gather:
                return {chunk / p.columns, chunk % p.columns};
            case Collective::scatter:
                return {p.root, p.rank * p.columns + chunk};
            case Collective::all_to_all:
                return {chunk / p.columns, p.rank * p.columns + chunk % p.columns};
            case Collective::recv:
                return {senders_.at({p.root, p.rank}), chunk};
            case Collective::send:
            case Collective::barrier:
                break;
        }
        return {none, -1};
    }

    bool check_outputs(std::uint32_t number) {
        const Program& p = programs_[number];
        result_.order.emplace_back(memory_[number].outputs(), Expressions::none);
        if (p.collective == Collective::reduce && p.rank != p.root) return true;
        if (p.collective == Collective::barrier) return true;  // its chunks are empty, see missed() of verify.cpp
        for (int c = 0; c < memory_[number].outputs(); ++c) {
            const std::size_t at = memory_[number][output(c)];
            const auto [contributor, chunk] = expected(p, c);
            const std::string where = text("rank %d: out[%d] ", p.rank, c);
            const std::string wanted =
                (contributor == none ? "every rank's" : text("rank %d's", programs_[contributor].rank)) +
                text(" in[%d] was expected", chunk);
            // In place the output may hold the right input without having been written.
            if (held_[number][at] == none) return wrong(where + "is never written, " + wanted);
            const Value& value = values_[held_[number][at]];
            const bool whole = contributor == none ? full(value) : value.contributor == contributor;
            const std::uint32_t step = writer_[number][at];
            if (!whole || value.chunk != chunk)
                return wrong(where + "has " + described(value) + ", " + wanted +
                             (step == none ? "" : "; last written by " + place_of(p, step)));
            if (reduces(p.collective) && !value.completed)
                return wrong(where + "is complete, but no step of its way said so; last written by " +
                             (step == none ? "nobody" : place_of(p, step)));
            result_.order[number][c] = value.expression;
        }
        return true;
    }

    std::string described(const Value& v) const {
        if (v.chunk == Value::mixed) return "a mixture of different chunks";
        if (v.chunk == Value::repeated) return "the contribution of a rank more than once";
        if (v.contributor != none) return text("rank %d's in[%d]", programs_[v.contributor].rank, v.chunk);
        if (full(v)) return text("every rank's in[%d]", v.chunk);
        for (std::uint32_t p = 0; p < programs_.size(); ++p)
            if ((bits_[v.set + p / 64] >> p % 64 & 1) == 0)
                return text("in[%d] of %u ranks, without rank %d's", v.chunk, v.count, programs_[p].rank);
        return "nothing";
    }

    std::span<const Program> programs_;
    const Matching& matching_;
    Expressions& expressions_;
    const std::size_t words_;
    std::vector<Value> values_;
    std::vector<std::uint64_t> bits_;
    std::vector<Memory> memory_;
    std::vector<std::vector<std::uint32_t>> held_, writer_;  // [program][place]: value; step that wrote it
    std::vector<std::uint32_t> parts_;                       // [part]: value
    std::map<std::pair<Rank, Rank>, std::uint32_t> senders_;
    std::vector<std::uint32_t> terms_, expression_;
    Replay result_;
};

}  // namespace

Replay replay(std::span<const Program> programs, const Matching& matching, std::span<const StepRef> run, bool in_place,
              Expressions& expressions) {
    return Replayer(programs, matching, in_place, expressions).replay(run);
}

}  // namespace tutti
