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
    std::uint64_t scratch_stride, timeout_ns;
    std::uint32_t count, block, tile;
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
    return job.plan.small != nullptr && job.in_lines != 0 && job.tiles <= job.channels && job.scaled == 0 &&
           job.count + job.block <= INT32_MAX / 8;
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
            .timeout_ns = job.timeout_ns,
            .count = static_cast<std::uint32_t>(job.count),
            .block = static_cast<std::uint32_t>(job.block),
            .tile = static_cast<std::uint32_t>(job.tile),
            .op = job.op,
            .is_signed = job.is_signed,
            .in_words = starts % 8 == 0};
}

/// The shared memory of a block.
struct SmallShared {
    Term terms[small_operands];
    struct {
        std::uint32_t* released;
        std::uint32_t next;
    } ends[2 * small_connections];
    std::uint32_t bytes[small_steps];
};

namespace detail {

/// A word of the first step's source, loaded ahead.
struct Early {
    std::uint64_t word = 0;
    bool is = false;  // it is loaded, and not used yet
};

/// One step of a block.
struct SmallTerms {
    const Term* sources;  // and behind them the sinks
    std::uint32_t source_count, sink_count;
    std::int32_t divide_by;  // 0: it is not
    bool is_signed;

    TUTTI_DEVICE bool copies() const { return source_count == 1 && divide_by == 0; }
    /// Where the result of a copy is already.
    TUTTI_DEVICE const std::byte* there() const { return copies() && sources[0].flag == 0 ? sources[0].at : nullptr; }
};

template <class F, ReduceOp op>
TUTTI_DEVICE void add_small(typename F::Lane (&sum)[F::lanes], std::uint64_t word, bool first, bool is_signed) {
    typename F::Lane next[F::lanes];
    F::unpack(word, next);
    for (int i = 0; i < F::lanes; ++i) sum[i] = first ? next[i] : F::template combine<op>(sum[i], next[i], is_signed);
}
template <class F>
TUTTI_DEVICE std::uint64_t finish_small(typename F::Lane (&sum)[F::lanes], const SmallTerms& t) {
    if (t.divide_by != 0)
        for (int i = 0; i < F::lanes; ++i) sum[i] = F::divide(sum[i], t.divide_by, t.is_signed);
    return F::pack(sum);
}

/// The word at `at`, of which `size` bytes are elements: any alignment. Rarely run.
template <class F, ReduceOp op>
TUTTI_DEVICE_APART Outcome reduce_word(SmallTerms t, std::uint32_t at, std::uint32_t size, Limits limits) {
    typename F::Lane sum[F::lanes] = {};
    std::uint64_t word = 0;
    TUTTI_ROLLED
    for (std::uint32_t k = 0; k < t.source_count; ++k) {
        const Term source = t.sources[k];
        if (source.flag == 0) {
            word = load_word<F::element>(source.at + at, size);
        } else {
            const LineSeen seen = wait_for_line(reinterpret_cast<const Line*>(source.at + 2 * at), source.flag, limits);
            if (seen.outcome != Outcome::met) return seen.outcome;
            word = seen.data;
        }
        if (!t.copies()) add_small<F, op>(sum, word, k == 0, t.is_signed);
    }
    if (!t.copies()) word = finish_small<F>(sum, t);
    TUTTI_ROLLED
    for (std::uint32_t m = 0; m < t.sink_count; ++m) {
        const Term sink = t.sources[t.source_count + m];
        if (sink.flag != 0)
            store_line(reinterpret_cast<Line*>(sink.at + 2 * at), word, sink.flag);
        else if (sink.at != t.there())
            store_word<F::element>(sink.at + at, word, size);
    }
    return Outcome::met;
}

/// As reduce_words, of whole words that begin at multiples of 8 bytes, in few instructions.
template <class F, ReduceOp op>
TUTTI_DEVICE Outcome reduce_small(const SmallTerms& t, std::uint32_t bytes, Early& early, const Limits& limits) {
    constexpr std::uint32_t ahead = 4;  // words of so many sources are asked for at once
    const Term* const sinks = t.sources + t.source_count;
    const std::byte* const there = t.there();
    TUTTI_ROLLED
    for (std::uint32_t at = 8 * thread(); at < bytes; at += 8 * threads()) {
        typename F::Lane sum[F::lanes] = {};
        std::uint64_t word = 0;
        TUTTI_ROLLED
        for (std::uint32_t k = 0; k < t.source_count; k += ahead) {
            const Term* const its = t.sources + k;
            const std::uint32_t left = t.source_count - k;
            Line line[ahead];
            TUTTI_UNROLL
            for (std::uint32_t j = 0; j < ahead; ++j) {
                if (j >= left) break;
                if (its[j].flag != 0) {
                    line[j] = load_line(reinterpret_cast<const Line*>(its[j].at + 2 * at));
                } else {
                    word = early.is ? early.word : *reinterpret_cast<const std::uint64_t*>(its[j].at + at);
                    early.is = false;
                    line[j] = {static_cast<std::uint32_t>(word), 0, static_cast<std::uint32_t>(word >> 32), 0};
                }
            }
            TUTTI_UNROLL
            for (std::uint32_t j = 0; j < ahead; ++j) {
                if (j >= left) break;
                word = line[j].low | static_cast<std::uint64_t>(line[j].high) << 32;
                if (line[j].flag_low != its[j].flag || line[j].flag_high != its[j].flag) {
                    const LineSeen seen =
                        wait_for_line(reinterpret_cast<const Line*>(its[j].at + 2 * at), its[j].flag, limits);
                    if (seen.outcome != Outcome::met) return seen.outcome;
                    word = seen.data;
                }
                add_small<F, op>(sum, word, k + j == 0, t.is_signed);
            }
        }
        if (!t.copies()) word = finish_small<F>(sum, t);  // a copy keeps every bit, of NaNs too
        TUTTI_ROLLED
        for (std::uint32_t m = 0; m < t.sink_count; ++m) {
            const Term sink = sinks[m];
            if (sink.flag != 0)
                store_line(reinterpret_cast<Line*>(sink.at + 2 * at), word, sink.flag);
            else if (sink.at != there)
                *reinterpret_cast<std::uint64_t*>(sink.at + at) = word;
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
    TUTTI_DEVICE bool begin() { return !sync_or(!gather()); }
    TUTTI_DEVICE bool run_steps() {
        const Ended ended = run_all();
        if (ended.outcome == Outcome::timed_out) lose(silent_peer(plan_.steps[ended.step]), true, ended.step);
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

    /// Brings terms, steps and ends into shared memory, and the first word into early_. All that comes from memory is
    /// asked for before anything is waited for. False if there is no room for the messages.
    TUTTI_DEVICE bool gather() {
        bool good = true;
        TUTTI_ROLLED
        for (std::uint32_t i = thread(); i < plan_.operand_count || i < ends(); i += threads()) {
            const SmallOperand o = plan_.operands[i < plan_.operand_count ? i : 0];
            const bool by_peer = o.place == Place::peer, has_end = i < ends();
            Line* lines = nullptr;
            std::uint32_t number = 0;
            if (by_peer) lines = end(o.index).lines, number = end(o.index).next + o.message;
            Fifo* fifo = nullptr;
            std::uint32_t next = 0, released = 0;
            if (has_end) fifo = end(i).fifo, next = end(i).next, released = end(i).released;
            if (i == thread()) ask_early();
            Term its{};
            if (by_peer)
                its = {reinterpret_cast<std::byte*>(lines + number % line_depth * lines_per_message), 2 * number + 1};
            else
                its.at = address(o);
            if (i < plan_.operand_count) s_.terms[i] = its;
            if (i < plan_.step_count) s_.bytes[i] = bytes_of(plan_.steps[i].column);
            if (!has_end) continue;
            s_.ends[i] = {reinterpret_cast<std::uint32_t*>(&fifo->released), next};
            if (i < plan_.to_count) good = writable(i, released) && good;
        }
        return good;
    }
    /// Asks for the thread's first word of the first step, if that is in a buffer.
    TUTTI_DEVICE void ask_early() {
        const SmallStep step = plan_.steps[0];
        const SmallOperand first = plan_.operands[step.first];
        if (first.place == Place::peer || job_.in_words == 0 || 8 * thread() + 8 > bytes_of(step.column)) return;
        early_.word = *reinterpret_cast<const std::uint64_t*>(address(first) + 8 * thread());
        early_.is = true;
    }

    /// As Machine::writable, for all messages of the call.
    TUTTI_DEVICE bool writable(std::uint32_t i, std::uint32_t released) {
        const std::uint32_t least = s_.ends[i].next + plan_.messages[i] - line_depth;  // so many are to be read
        if (static_cast<std::int32_t>(least - released) <= 0) return true;
        const WordSeen seen = wait_for_word(s_.ends[i].released, least, 1u << 31, limits_);
        if (seen.outcome == Outcome::timed_out) lose(end(i).peer, false, 0);
        end(i).released = seen.value;
        return seen.outcome == Outcome::met;
    }

    TUTTI_DEVICE std::byte* address(const SmallOperand& o) const {
        if (o.place == Place::scratch)
            return job_.scratch + (channel_ * job_.scratch_chunks + o.index) * job_.scratch_stride;
        const std::uint64_t at = std::uint64_t{o.row} * job_.count + (o.index * job_.block + offset_);
        return (o.place == Place::input ? job_.input : job_.output) + at * element;
    }

    /// As Machine::length, in bytes.
    TUTTI_DEVICE std::uint32_t bytes_of(std::uint32_t column) const {
        const std::uint32_t begin = column * job_.block + offset_, of_column = begin - offset_ + job_.block;
        std::uint32_t until = begin + job_.tile;
        if (until > of_column) until = of_column;
        if (until > job_.count) until = job_.count;
        return begin < until ? (until - begin) * static_cast<std::uint32_t>(element) : 0;
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
            const SmallStep step = plan_.steps[i];
            const detail::SmallTerms t{s_.terms + step.first, step.sources, step.sinks,
                                       step.completes != 0 ? job_.divide_by : 0, job_.is_signed != 0};
            const std::uint32_t bytes = s_.bytes[i], whole = job_.in_words != 0 ? bytes & ~7u : 0;
            Outcome outcome = detail::reduce_small<F, op>(t, whole, early_, limits_);
            if (whole < bytes && outcome == Outcome::met) outcome = rest<op>(t, whole, bytes);
            if (outcome != Outcome::met) return {outcome, i};
        }
        return {Outcome::met, 0};
    }
    /// The words of a step that reduce_small() leaves. Each thread has the same ones in every step, as there.
    template <ReduceOp op>
    TUTTI_DEVICE Outcome rest(const detail::SmallTerms& t, std::uint32_t whole, std::uint32_t bytes) {
        Outcome outcome = Outcome::met;
        TUTTI_ROLLED
        for (std::uint32_t at = 8 * thread(); at < bytes && outcome == Outcome::met; at += 8 * threads())
            if (at >= whole) outcome = detail::reduce_word<F, op>(t, at, bytes - at < 8 ? bytes - at : 8, limits_);
        return outcome;
    }

    /// The first peer whose lines have not arrived; -1 if none.
    TUTTI_DEVICE std::int32_t silent_peer(const SmallStep& step) const {
        for (std::uint32_t n = step.first; n < std::uint32_t{step.first} + step.sources; ++n) {
            if (s_.terms[n].flag == 0) continue;
            const std::uint32_t words = (bytes_of(step.column) + 7) / 8;
            const Line last = load_line(reinterpret_cast<const Line*>(s_.terms[n].at) + words - 1);
            if (last.flag_high != s_.terms[n].flag) return end(plan_.operands[n].index).peer;
        }
        return -1;
    }

    TUTTI_DEVICE void lose(std::int32_t peer, bool source, std::uint32_t step) {
        give_up(*job_.control, {0, Verdict::timed_out, peer, source ? 1u : 0u, job_.call, channel_, 0, step, 0, 0, 0});
    }

    const SmallJob& job_;
    const SmallPlan& plan_;
    const std::uint32_t channel_;
    const std::uint32_t offset_;  // elements, in each block (Job::block)
    SmallShared& s_;
    const Limits limits_;
    detail::Early early_;
};

}  // namespace tutti::gpu
