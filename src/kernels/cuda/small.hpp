// The kernel of small messages: runs a whole program at once, where the interpreter (machine.hpp) goes from step to
// step. All messages travel in lines, and a thread does the same words in every step: what it reads in a buffer is what
// it has written there itself. So steps need no barrier between them. Messages, credits, results and verdicts are those
// of the interpreter; ranks of one call may run either.
//
// One thread's instructions are what such a call waits for, so there are few of them: its arguments hold the program,
// each operand's address is computed once, by a thread of its own, and memory is waited for once before the first step.
#pragma once

#include "kernels/cuda/plan.hpp"
#include "kernels/cuda/reduce.hpp"

namespace tutti::gpu {

inline constexpr std::uint32_t small_connections = 8;  // of a program, in each direction
inline constexpr std::uint32_t small_steps = 16, small_operands = 48;
inline constexpr unsigned small_jobs = 8;

/// As Operand.
struct SmallOperand {
    Place place;
    std::uint8_t message;  // of a peer: how many messages of the same connection the program has before it
    std::uint8_t index;    // of a peer: the index into SmallPlan::ends; of scratch: the chunk; else the column
    std::uint8_t row;
};

/// As Step.
struct SmallStep {
    std::uint8_t first, sources, sinks;
    std::uint8_t column : 7, completes : 1;
};

/// A program that can run here, and its connections. No connection has more messages than line_depth, so the credits of
/// a call are those of earlier calls.
struct SmallPlan {
    End* ends[2 * small_connections] = {};  // of the first channel: those that it sends by, then the others
    std::uint8_t messages[2 * small_connections] = {};
    SmallStep steps[small_steps] = {};
    SmallOperand operands[small_operands] = {};
    std::uint32_t stride = 0;  // from the end of one channel to that of the next one
    std::uint8_t step_count = 0, operand_count = 0, to_count = 0, from_count = 0;
};

/// One operation of one rank; as Job.
struct SmallJob {
    SmallPlan small;
    std::uint32_t scratch_chunks, channels, call;
    std::int32_t divide_by;
    Control* control;
    std::byte* input;
    std::byte* output;
    std::byte* scratch;
    std::uint64_t scratch_stride, count, block, tile, timeout_ns;
    std::uint8_t op, is_signed;
    std::uint8_t in_words;  // 1: every operand of memory begins at a multiple of 8 bytes
};

/// The argument of the kernel.
struct SmallLaunch {
    SmallJob jobs[small_jobs];
};
static_assert(std::is_trivially_copyable_v<SmallLaunch> && sizeof(SmallLaunch) <= 4096);

/// Whether the job can run here: it has a tile for each channel, and all its messages go in lines.
inline bool is_small(const Job& job) {
    return job.plan.small != nullptr && job.in_lines != 0 && job.tiles <= job.channels && job.scaled == 0;
}

/// element: its size in bytes.
inline SmallJob small_job(const Job& job, std::size_t element) {
    const Plan& p = job.plan;
    std::uint64_t starts = job.channels > 1 ? job.tile * element : 0;  // a multiple of 8 if all operands are
    for (const SmallOperand* o = p.small->operands; o < p.small->operands + p.small->operand_count; ++o) {
        if (o->place == Place::input) starts |= reinterpret_cast<std::uintptr_t>(job.input.at);
        if (o->place == Place::output) starts |= reinterpret_cast<std::uintptr_t>(job.output.at);
        if (o->place == Place::input || o->place == Place::output)
            starts |= (o->row * job.count + o->index * job.block) * element;
    }
    return {.small = *p.small,
            .scratch_chunks = p.scratch_chunks,
            .channels = job.channels,
            .call = job.call,
            .divide_by = job.divide_by,
            .control = p.control,
            .input = job.input.at,
            .output = job.output.at,
            .scratch = p.scratch,
            .scratch_stride = p.scratch_stride,
            .count = job.count,
            .block = job.block,
            .tile = job.tile,
            .timeout_ns = job.timeout_ns,
            .op = job.op,
            .is_signed = job.is_signed,
            .in_words = starts % 8 == 0};
}

/// The shared memory of a block.
struct SmallShared {
    Term terms[small_operands];
    struct {
        std::uint32_t bytes;
        SmallStep step;
    } steps[small_steps];
    struct {
        std::uint32_t* released;
        std::uint32_t next;
        std::int32_t peer;
    } ends[2 * small_connections];
};

namespace detail {

template <std::size_t element>
TUTTI_DEVICE_APART std::uint64_t load_elements(const std::byte* from, std::size_t size) {
    return load_word<element>(from, size);
}
template <std::size_t element>
TUTTI_DEVICE_APART void store_elements(std::byte* to, std::uint64_t word, std::size_t size) {
    store_word<element>(to, word, size);
}

/// A word of the first step's source, loaded ahead.
struct Early {
    std::uint64_t word = 0;
    bool is = false;  // it is loaded, and not used yet
};

/// One step of a block, see reduce_small().
struct SmallTerms {
    const Term* sources;  // and behind them the sinks
    std::uint32_t source_count, sink_count;
    std::uint32_t bytes;
    std::int32_t divide_by;  // 0: it is not
    bool is_signed, in_words;
};

/// As reduce_words, with fewer instructions from a word's arrival to where it is stored.
template <class F, ReduceOp op>
TUTTI_DEVICE Outcome reduce_small(const SmallTerms& t, Early& early, const Limits& limits) {
    constexpr std::uint32_t ahead = 4;  // words of so many sources are asked for at once
    const bool copies = t.source_count == 1 && t.divide_by == 0;
    const std::byte* const there = copies && t.sources[0].flag == 0 ? t.sources[0].at : nullptr;
    TUTTI_ROLLED
    for (std::uint32_t at = 8 * thread(); at < t.bytes; at += 8 * threads()) {
        const bool whole = t.in_words && at + 8 <= t.bytes;
        const std::uint32_t size = t.bytes - at < 8 ? t.bytes - at : 8;
        typename F::Lane sum[F::lanes] = {};
        std::uint64_t word = 0;
        TUTTI_ROLLED
        for (std::uint32_t k = 0; k < t.source_count; k += ahead) {
            const std::byte* from[ahead] = {};
            std::uint32_t flag[ahead] = {};
            Line line[ahead];
            TUTTI_UNROLL
            for (std::uint32_t j = 0; j < ahead; ++j) {
                if (k + j >= t.source_count) break;
                const Term& source = t.sources[k + j];
                flag[j] = source.flag;
                from[j] = source.at + (flag[j] != 0 ? 2 * at : at);
                if (flag[j] != 0) {
                    line[j] = load_line(reinterpret_cast<const Line*>(from[j]));
                    continue;
                }
                word = early.word;
                if (!early.is)
                    word = whole ? *reinterpret_cast<const std::uint64_t*>(from[j])
                                 : load_elements<F::element>(from[j], size);
                early.is = false;
                line[j] = {static_cast<std::uint32_t>(word), 0, static_cast<std::uint32_t>(word >> 32), 0};
            }
            TUTTI_UNROLL
            for (std::uint32_t j = 0; j < ahead; ++j) {
                if (k + j >= t.source_count) break;
                word = line[j].low | static_cast<std::uint64_t>(line[j].high) << 32;
                if (line[j].flag_low != flag[j] || line[j].flag_high != flag[j]) {
                    const LineSeen seen = wait_for_line(reinterpret_cast<const Line*>(from[j]), flag[j], limits);
                    if (seen.outcome != Outcome::met) return seen.outcome;
                    word = seen.data;
                }
                if (copies) continue;  // every bit is kept, of NaNs too
                typename F::Lane next[F::lanes];
                F::unpack(word, next);
                for (int i = 0; i < F::lanes; ++i)
                    sum[i] = k + j == 0 ? next[i] : F::template combine<op>(sum[i], next[i], t.is_signed);
            }
        }
        if (!copies) {
            if (t.divide_by != 0)
                for (int i = 0; i < F::lanes; ++i) sum[i] = F::divide(sum[i], t.divide_by, t.is_signed);
            word = F::pack(sum);
        }
        const Term* const sinks = t.sources + t.source_count;
        TUTTI_ROLLED
        for (std::uint32_t m = 0; m < t.sink_count; ++m) {
            const Term sink = sinks[m];
            if (sink.flag != 0)
                store_line(reinterpret_cast<Line*>(sink.at + 2 * at), word, sink.flag);
            else if (sink.at == there)
                continue;
            else if (whole)
                *reinterpret_cast<std::uint64_t*>(sink.at + at) = word;
            else
                store_elements<F::element>(sink.at + at, word, size);
        }
    }
    return Outcome::met;
}

}  // namespace detail

/// F: the format of elements (formats.hpp). Every thread of a block has its own over the same SmallShared.
template <class F>
class Small {
  public:
    TUTTI_DEVICE Small(const SmallJob& job, std::uint32_t channel, SmallShared& shared)
        : job_(job),
          plan_(job.small),
          channel_(channel),
          offset_(channel * job.tile),
          s_(shared),
          limits_{&job.control->abort, job.timeout_ns} {}

    /// Runs the program. False if it gave up.
    TUTTI_DEVICE bool run() { return begin() && run_steps() && finish(); }

    /// The parts of run(); false: it gives up. Each ends with a barrier, but for finish().
    TUTTI_DEVICE bool begin() {
        load_early();
        return !sync_or(!gather());
    }
    TUTTI_DEVICE bool run_steps() {
        const Ended ended = run_all();
        if (ended.outcome == Outcome::timed_out) lose(silent_peer(s_.steps[ended.step].step), true, ended.step);
        return !sync_or(ended.outcome != Outcome::met);
    }
    /// Writes the ends back to global memory.
    TUTTI_DEVICE bool finish() {
        for (std::uint32_t i = thread(); i < ends(); i += threads()) {
            const std::uint32_t next = s_.ends[i].next + plan_.messages[i];
            end(i).next = next;
            // The lines have been read, or the loops that wait for them would not have ended: a credit needs no fence.
            if (i >= plan_.to_count) store_relaxed(s_.ends[i].released, next);
        }
        return true;
    }

  private:
    static constexpr std::uint64_t element = F::element;

    TUTTI_DEVICE std::uint32_t ends() const { return std::uint32_t{plan_.to_count} + plan_.from_count; }
    TUTTI_DEVICE End& end(std::uint32_t i) const { return plan_.ends[i][channel_ * plan_.stride]; }

    /// Asks for the thread's first word of the first step, if that is in a buffer.
    TUTTI_DEVICE void load_early() {
        const SmallStep step = plan_.steps[0];
        const SmallOperand first = plan_.operands[step.first];
        const bool in_buffer = first.place == Place::input || first.place == Place::output;
        if (!in_buffer || job_.in_words == 0 || 8 * thread() + 8 > bytes_of(step.column)) return;
        early_.word = *reinterpret_cast<const std::uint64_t*>(in_buffers(first) + 8 * thread());
        early_.is = true;
    }

    /// Brings terms, steps and ends into shared memory: each thread asks for what it brings at once. False if there is
    /// no room for the messages.
    TUTTI_DEVICE bool gather() {
        bool good = true;
        for (std::uint32_t i = thread(); i < plan_.operand_count || i < ends(); i += threads()) {
            Term its{};
            if (i < plan_.operand_count) its = term(plan_.operands[i]);
            if (i < plan_.step_count)
                s_.steps[i] = {static_cast<std::uint32_t>(bytes_of(plan_.steps[i].column)), plan_.steps[i]};
            if (i < ends()) {
                const End& own = end(i);
                std::uint32_t* const released = reinterpret_cast<std::uint32_t*>(&own.fifo->released);
                s_.ends[i] = {released, own.next, own.peer};
                if (i < plan_.to_count) good = good && writable(i, own);
            }
            if (i < plan_.operand_count) s_.terms[i] = its;
        }
        return good;
    }

    /// As Machine::writable, for all messages of the call.
    TUTTI_DEVICE bool writable(std::uint32_t i, const End& own) {
        const std::uint32_t least = own.next + plan_.messages[i] - line_depth;  // so many are to be read
        if (static_cast<std::int32_t>(least - own.released) <= 0) return true;
        const WordSeen seen = wait_for_word(s_.ends[i].released, least, 1u << 31, limits_);
        if (seen.outcome == Outcome::timed_out) lose(own.peer, false, 0);
        end(i).released = seen.value;
        return seen.outcome == Outcome::met;
    }

    TUTTI_DEVICE Term term(const SmallOperand& o) const {
        if (o.place == Place::peer) {
            const End& its = end(o.index);
            const std::uint32_t number = its.next + o.message;
            return {reinterpret_cast<std::byte*>(its.lines + number % line_depth * lines_per_message), 2 * number + 1};
        }
        if (o.place == Place::scratch)
            return {job_.scratch + (channel_ * job_.scratch_chunks + o.index) * job_.scratch_stride, 0};
        return {in_buffers(o), 0};
    }
    TUTTI_DEVICE std::byte* in_buffers(const SmallOperand& o) const {
        const std::uint64_t at = o.row * job_.count + o.index * job_.block + offset_;
        return (o.place == Place::input ? job_.input : job_.output) + at * element;
    }

    /// As Machine::length, in bytes.
    TUTTI_DEVICE std::uint64_t bytes_of(std::uint32_t column) const {
        const std::uint64_t begin = column * job_.block + offset_;
        std::uint64_t until = begin + job_.tile;
        if (until > (column + 1) * job_.block) until = (column + 1) * job_.block;
        if (until > job_.count) until = job_.count;
        return begin < until ? (until - begin) * element : 0;
    }

    struct Ended {
        Outcome outcome;
        std::uint32_t step;
    };
    TUTTI_DEVICE Ended run_all() {
        switch (static_cast<ReduceOp>(job_.op)) {
            case ReduceOp::sum:
                return run_all<ReduceOp::sum>();
            case ReduceOp::prod:
                return run_all<ReduceOp::prod>();
            case ReduceOp::max:
                return run_all<ReduceOp::max>();
            case ReduceOp::min:
                return run_all<ReduceOp::min>();
        }
        return {Outcome::met, 0};
    }
    template <ReduceOp op>
    TUTTI_DEVICE Ended run_all() {
        TUTTI_ROLLED
        for (std::uint32_t i = 0; i < plan_.step_count; ++i) {
            const SmallStep step = s_.steps[i].step;
            const detail::SmallTerms t{s_.terms + step.first,
                                       step.sources,
                                       step.sinks,
                                       s_.steps[i].bytes,
                                       step.completes != 0 ? job_.divide_by : 0,
                                       job_.is_signed != 0,
                                       job_.in_words != 0};
            const Outcome outcome = detail::reduce_small<F, op>(t, early_, limits_);
            if (outcome != Outcome::met) return {outcome, i};
        }
        return {Outcome::met, 0};
    }

    /// The first peer whose lines have not arrived; -1 if none.
    TUTTI_DEVICE std::int32_t silent_peer(const SmallStep& step) const {
        for (std::uint32_t n = step.first; n < std::uint32_t{step.first} + step.sources; ++n) {
            if (s_.terms[n].flag == 0) continue;
            const std::uint64_t words = (bytes_of(step.column) + 7) / 8;
            const Line last = load_line(reinterpret_cast<const Line*>(s_.terms[n].at) + words - 1);
            if (last.flag_high != s_.terms[n].flag) return s_.ends[plan_.operands[n].index].peer;
        }
        return -1;
    }

    TUTTI_DEVICE void lose(std::int32_t peer, bool source, std::uint32_t step) {
        give_up(*job_.control, {0, Verdict::timed_out, peer, source ? 1u : 0u, job_.call, channel_, 0, step, 0, 0, 0});
    }

    const SmallJob& job_;
    const SmallPlan& plan_;
    const std::uint32_t channel_;
    const std::uint64_t offset_;  // elements, in each block (Job::block)
    SmallShared& s_;
    const Limits limits_;
    detail::Early early_;
};

}  // namespace tutti::gpu
