// The kernel of small messages: runs a whole program at once, where the interpreter (machine.hpp) goes from step to
// step. All messages travel in lines, and a thread does the same words in every step: what it reads in a buffer is what
// it has written there itself. So steps need no barrier between them. Messages, credits, results and verdicts are those
// of the interpreter; ranks of one call may run either.
//
// The kernel's code is small, its arguments name the ends, and it waits for memory once before the first step.
#pragma once

#include "kernels/cuda/plan.hpp"
#include "kernels/cuda/reduce.hpp"

namespace tutti::gpu {

inline constexpr std::uint32_t small_connections = 8;  // of a program, in each direction
inline constexpr std::uint32_t small_steps = 32, small_operands = 96;
inline constexpr unsigned small_jobs = 8;

/// As Operand.
struct SmallOperand {
    Place place;
    std::uint8_t message;  // of a peer: how many messages of the same connection the program has before it
    std::uint16_t index;   // of a peer: the index into SmallPlan::ends; of scratch: the chunk; else the column
    std::uint32_t row;
};

/// What a program that can run here has in addition, in device memory but for this struct itself. No connection has
/// more messages than line_depth, so the credits of a call are those of earlier calls.
struct SmallPlan {
    const SmallOperand* operands = nullptr;
    End* ends[2 * small_connections] = {};  // of the first channel: those that it sends by, then the others
    std::uint8_t messages[2 * small_connections] = {};
    std::uint32_t stride = 0;  // from the end of one channel to that of the next one
};

/// One operation of one rank; as Job.
struct SmallJob {
    SmallPlan small;
    const Step* steps;
    Control* control;
    std::byte* input;
    std::byte* output;
    std::byte* scratch;
    std::uint64_t scratch_stride, count, block, tile, timeout_ns;
    std::uint32_t step_count, operand_count, to_count, from_count, scratch_chunks, channels, call;
    std::int32_t divide_by;
    std::uint8_t op, is_signed;
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

inline SmallJob small_job(const Job& job) {
    const Plan& p = job.plan;
    return {.small = *p.small,
            .steps = p.steps,
            .control = p.control,
            .input = job.input.at,
            .output = job.output.at,
            .scratch = p.scratch,
            .scratch_stride = p.scratch_stride,
            .count = job.count,
            .block = job.block,
            .tile = job.tile,
            .timeout_ns = job.timeout_ns,
            .step_count = p.step_count,
            .operand_count = p.operand_count,
            .to_count = p.to_count,
            .from_count = p.from_count,
            .scratch_chunks = p.scratch_chunks,
            .channels = job.channels,
            .call = job.call,
            .divide_by = job.divide_by,
            .op = job.op,
            .is_signed = job.is_signed};
}

/// The shared memory of a block.
struct SmallShared {
    Term terms[small_operands];
    SmallOperand operands[small_operands];
    Step steps[small_steps];
    struct {
        Line* lines;
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

/// As load_word and store_word; the rare cases are calls.
template <std::size_t element>
TUTTI_DEVICE std::uint64_t load_apart(const std::byte* from, std::size_t size) {
    if (size == 8 && reinterpret_cast<std::uintptr_t>(from) % 8 == 0)
        return *reinterpret_cast<const std::uint64_t*>(from);
    return load_elements<element>(from, size);
}
template <std::size_t element>
TUTTI_DEVICE void store_apart(std::byte* to, std::uint64_t word, std::size_t size) {
    if (size == 8 && reinterpret_cast<std::uintptr_t>(to) % 8 == 0)
        *reinterpret_cast<std::uint64_t*>(to) = word;
    else
        store_elements<element>(to, word, size);
}

/// What lines of a few sources have brought so far.
struct Arrivals {
    static constexpr int most = 4;
    std::uint64_t data[most] = {};
    unsigned arrived = 0;  // bits

    TUTTI_DEVICE std::uint64_t of(int j) const {
        return j == 0 ? data[0] : j == 1 ? data[1] : j == 2 ? data[2] : data[3];  // an index would take a frame
    }
};

/// Asks for the lines at `at` of all of them at once.
TUTTI_DEVICE Arrivals look(const Terms& t, int first, std::size_t at) {
    Line line[Arrivals::most];
    std::uint32_t flag[Arrivals::most];
    TUTTI_UNROLL
    for (int j = 0; j < Arrivals::most; ++j) {
        flag[j] = first + j < t.source_count ? t.sources[first + j].flag : 0;
        if (flag[j] != 0) line[j] = load_line(reinterpret_cast<const Line*>(t.sources[first + j].at) + at / 8);
    }
    Arrivals a;
    TUTTI_UNROLL
    for (int j = 0; j < Arrivals::most; ++j) {
        a.data[j] = flag[j] != 0 ? line[j].low | static_cast<std::uint64_t>(line[j].high) << 32 : 0;
        if (flag[j] != 0 && line[j].flag_low == flag[j] && line[j].flag_high == flag[j]) a.arrived |= 1u << j;
    }
    return a;
}

/// As reduce_words, of which little code is left: every launch fetches it anew.
template <class F, ReduceOp op>
TUTTI_DEVICE Outcome reduce_small(const Terms& t, std::size_t end, const Limits& limits) {
    const std::byte* const there = in_place(t);
    TUTTI_ROLLED
    for (std::size_t at = 8 * thread(); at < end; at += 8 * threads()) {
        const std::size_t size = end - at < 8 ? end - at : 8;
        Lanes<F> sum{};
        std::uint64_t word = 0;
        Arrivals arrivals{};
        TUTTI_ROLLED
        for (int k = 0; k < t.source_count; ++k) {
            const int j = k % Arrivals::most;
            if (j == 0) arrivals = look(t, k, at);
            const Term& source = t.sources[k];
            word = arrivals.of(j);
            if (source.flag == 0) {
                word = load_apart<F::element>(source.at + at, size);
            } else if ((arrivals.arrived >> j & 1) == 0) {
                const auto* const from = reinterpret_cast<const Line*>(source.at) + at / 8;
                const LineSeen seen = wait_for_line(from, source.flag, limits);
                if (seen.outcome != Outcome::met) return seen.outcome;
                word = seen.data;
            }
            const Lanes<F> next = brought<F>(word, k, t);
            if (k == 0)
                sum = next;
            else
                add<F, op>(sum, next, t);
        }
        if (!is_copy(t)) word = finished<F>(sum, t);  // a copy keeps every bit, of NaNs too
        TUTTI_ROLLED
        for (int m = 0; m < t.sink_count; ++m) {
            const Term& sink = t.sinks[m];
            if (sink.flag != 0)
                store_line(reinterpret_cast<Line*>(sink.at) + at / 8, word, sink.flag);
            else if (is_wanted(sink, there))
                store_apart<F::element>(sink.at + at, word, size);
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
          channel_(channel),
          offset_(channel * job.tile),
          s_(shared),
          limits_{&job.control->abort, job.timeout_ns} {}

    /// Runs the program. False if it gave up.
    TUTTI_DEVICE bool run() { return begin() && run_steps() && finish(); }

    /// The parts of run(); false: it gives up. Each ends with a barrier, but for finish().
    TUTTI_DEVICE bool begin() {
        if (sync_or(!gather())) return false;
        for (std::uint32_t i = thread(); i < job_.operand_count; i += threads()) s_.terms[i] = term(s_.operands[i]);
        sync();
        return true;
    }
    TUTTI_DEVICE bool run_steps() {
        const Ended ended = run_all();
        if (ended.outcome == Outcome::timed_out) lose(silent_peer(s_.steps[ended.step]), true, ended.step);
        return !sync_or(ended.outcome != Outcome::met);
    }
    /// Writes the ends back to global memory.
    TUTTI_DEVICE bool finish() {
        for (std::uint32_t i = thread(); i < job_.to_count + job_.from_count; i += threads()) {
            const std::uint32_t next = s_.ends[i].next + job_.small.messages[i];
            end(i).next = next;
            // The lines have been read, or the loops that wait for them would not have ended: a credit needs no fence.
            if (i >= job_.to_count) store_relaxed(s_.ends[i].released, next);
        }
        return true;
    }

  private:
    static constexpr std::uint64_t element = F::element;

    TUTTI_DEVICE End& end(std::uint32_t i) const { return job_.small.ends[i][channel_ * job_.small.stride]; }

    /// Brings the program and the ends into shared memory, all asked for at once. False if there is no room for the
    /// messages.
    TUTTI_DEVICE bool gather() {
        const std::uint32_t ends = job_.to_count + job_.from_count;
        bool good = true;
        for (std::uint32_t i = thread(); i < job_.operand_count || i < job_.step_count || i < ends; i += threads()) {
            SmallOperand operand{};
            Step step{};
            End own;
            if (i < job_.operand_count) operand = job_.small.operands[i];
            if (i < job_.step_count) step = job_.steps[i];
            if (i < ends) own = end(i);
            if (i < job_.operand_count) s_.operands[i] = operand;
            if (i < job_.step_count) s_.steps[i] = step;
            if (i >= ends) continue;
            s_.ends[i] = {own.lines, reinterpret_cast<std::uint32_t*>(&own.fifo->released), own.next, own.peer};
            if (i < job_.to_count) good = good && writable(i, own);
        }
        return good;
    }

    /// As Machine::writable, for all messages of the call.
    TUTTI_DEVICE bool writable(std::uint32_t i, const End& own) {
        const std::uint32_t least = own.next + job_.small.messages[i] - line_depth;  // so many are to be read
        if (static_cast<std::int32_t>(least - own.released) <= 0) return true;
        const WordSeen seen = wait_for_word(s_.ends[i].released, least, 1u << 31, limits_);
        if (seen.outcome == Outcome::timed_out) lose(own.peer, false, 0);
        end(i).released = seen.value;
        return seen.outcome == Outcome::met;
    }

    TUTTI_DEVICE Term term(const SmallOperand& o) const {
        if (o.place == Place::peer) {
            const auto& end = s_.ends[o.index];
            const std::uint32_t number = end.next + o.message;
            return {reinterpret_cast<std::byte*>(end.lines + number % line_depth * lines_per_message), 2 * number + 1};
        }
        if (o.place == Place::scratch)
            return {job_.scratch + (channel_ * job_.scratch_chunks + o.index) * job_.scratch_stride, 0};
        const std::uint64_t at = o.row * job_.count + o.index * job_.block + offset_;
        return {(o.place == Place::input ? job_.input : job_.output) + at * element, 0};
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
        for (std::uint32_t i = 0; i < job_.step_count; ++i) {
            const Step& step = s_.steps[i];
            Terms t;
            t.sources = s_.terms + step.first;
            t.sinks = t.sources + step.sources;
            t.source_count = static_cast<int>(step.sources);
            t.sink_count = static_cast<int>(step.sinks);
            t.scaled = -1;
            t.divide_by = step.completes ? job_.divide_by : 0;
            t.scalar = 0;
            t.is_signed = job_.is_signed != 0;
            const Outcome outcome = detail::reduce_small<F, op>(t, bytes_of(step.column), limits_);
            if (outcome != Outcome::met) return {outcome, i};
        }
        return {Outcome::met, 0};
    }

    /// The first peer whose lines have not arrived; -1 if none.
    TUTTI_DEVICE std::int32_t silent_peer(const Step& step) const {
        for (std::uint32_t n = step.first; n < step.first + step.sources; ++n) {
            if (s_.terms[n].flag == 0) continue;
            const std::uint64_t words = (bytes_of(step.column) + 7) / 8;
            const Line last = load_line(reinterpret_cast<const Line*>(s_.terms[n].at) + words - 1);
            if (last.flag_high != s_.terms[n].flag) return s_.ends[s_.operands[n].index].peer;
        }
        return -1;
    }

    TUTTI_DEVICE void lose(std::int32_t peer, bool source, std::uint32_t step) {
        give_up(*job_.control, {0, Verdict::timed_out, peer, source ? 1u : 0u, job_.call, channel_, 0, step, 0, 0, 0});
    }

    const SmallJob& job_;
    const std::uint32_t channel_;
    const std::uint64_t offset_;  // elements, in each block (Job::block)
    SmallShared& s_;
    const Limits limits_;
};

}  // namespace tutti::gpu
