// The kernel of small messages: runs a whole program at once, where the interpreter (machine.hpp) goes from step to
// step. All messages travel in lines, and a thread does the same words in every step: what it reads in a buffer is what
// it has written there itself. So steps need no barrier between them. Messages, credits, results and verdicts are those
// of the interpreter; ranks of one call may run either.
//
// One thread's instructions are what such a call waits for, so there are few of them, with few branches. Each operand's
// address is computed once, by a thread of its own. Memory is waited for once before the first step. Threads that read
// arguments at different places read them one after the other, so only those do that have to.
#pragma once

#include "kernels/cuda/reduce.hpp"
#include "kernels/cuda/small_plan.hpp"

namespace tutti::gpu {

/// A step of one channel.
struct alignas(16) SmallTask {
    std::uint8_t first, sources, sinks, copies;  // copies: 1 if nothing is computed
    std::uint32_t bytes;
    std::int32_t divide_by;  // 0: it is not
    std::uint32_t whole;     // so many bytes are whole words that begin at multiples of 8 bytes
};

/// The shared memory of a block.
struct SmallShared {
    Term terms[small_operands];
    SmallTask tasks[small_steps];
    struct {
        std::uint32_t* released;
        std::uint32_t next;
    } ends[2 * small_connections];
};

namespace detail {

/// A word of the first step's source, loaded ahead.
struct Early {
    std::uint64_t word = 0;
    bool is = false;  // it is loaded, and not used yet
};

TUTTI_DEVICE Line as_line(std::uint64_t word, std::uint32_t flag) {
    return {static_cast<std::uint32_t>(word), flag, static_cast<std::uint32_t>(word >> 32), flag};
}
TUTTI_DEVICE std::uint64_t as_word(const Line& line) {
    return line.low | static_cast<std::uint64_t>(line.high) << 32;
}
TUTTI_DEVICE const Line* line_of(const Term& term, std::uint32_t at) {
    return reinterpret_cast<const Line*>(term.at + 2 * at);
}
/// At once, where the compiler would load the flag first.
TUTTI_DEVICE Term load_term(const Term* from) {
    const Pack pack = *reinterpret_cast<const Pack*>(from);
    return {reinterpret_cast<std::byte*>(pack.word[0]), static_cast<std::uint32_t>(pack.word[1])};
}

template <class F, ReduceOp op>
TUTTI_DEVICE void add_small(typename F::Lane (&sum)[F::lanes], std::uint64_t word, bool first, bool is_signed) {
    typename F::Lane next[F::lanes];
    F::unpack(word, next);
    for (int i = 0; i < F::lanes; ++i) sum[i] = first ? next[i] : F::template combine<op>(sum[i], next[i], is_signed);
}
template <class F, ReduceOp op, std::uint32_t words>
TUTTI_DEVICE void add_words(typename F::Lane (&sum)[words][F::lanes], const std::uint64_t (&word)[words], bool first,
                            bool is_signed) {
    TUTTI_UNROLL
    for (std::uint32_t w = 0; w < words; ++w) add_small<F, op>(sum[w], word[w], first, is_signed);
}
template <class F, std::uint32_t words>
TUTTI_DEVICE void add_words(ReduceOp op, typename F::Lane (&sum)[words][F::lanes], const std::uint64_t (&word)[words],
                            bool first, bool is_signed) {
    switch (op) {
        case ReduceOp::sum:
            return add_words<F, ReduceOp::sum>(sum, word, first, is_signed);
        case ReduceOp::prod:
            return add_words<F, ReduceOp::prod>(sum, word, first, is_signed);
        case ReduceOp::max:
            return add_words<F, ReduceOp::max>(sum, word, first, is_signed);
        case ReduceOp::min:
            return add_words<F, ReduceOp::min>(sum, word, first, is_signed);
    }
}
template <class F>
TUTTI_DEVICE std::uint64_t finish_small(typename F::Lane (&sum)[F::lanes], std::int32_t divide_by, bool is_signed) {
    if (divide_by != 0)
        for (int i = 0; i < F::lanes; ++i) sum[i] = F::divide(sum[i], divide_by, is_signed);
    return F::pack(sum);
}

/// The word at `at`, of which `size` bytes are elements: any alignment. Rarely run.
template <class F, ReduceOp op>
TUTTI_DEVICE_APART Outcome reduce_word(const Term* sources, SmallTask t, bool is_signed, std::uint32_t at,
                                       std::uint32_t size, Limits limits) {
    typename F::Lane sum[F::lanes] = {};
    std::uint64_t word = 0;
    TUTTI_ROLLED
    for (std::uint32_t k = 0; k < t.sources; ++k) {
        const Term source = sources[k];
        if (source.flag == 0) {
            word = load_word<F::element>(source.at + at, size);
        } else {
            const LineSeen seen = wait_for_line(line_of(source, at), source.flag, limits);
            if (seen.outcome != Outcome::met) return seen.outcome;
            word = seen.data;
        }
        if (t.copies == 0) add_small<F, op>(sum, word, k == 0, is_signed);
    }
    if (t.copies == 0) word = finish_small<F>(sum, t.divide_by, is_signed);
    TUTTI_ROLLED
    for (std::uint32_t m = 0; m < t.sinks; ++m) {
        const Term sink = sources[t.sources + m];
        if (sink.flag != 0)
            store_line(reinterpret_cast<Line*>(sink.at + 2 * at), word, sink.flag);
        else if (t.copies == 0 || sink.at != sources[0].at)
            store_word<F::element>(sink.at + at, word, size);
    }
    return Outcome::met;
}

/// Waits until words that were asked for have come. its: where from; line: what has come; at: which words.
template <std::uint32_t ahead, std::uint32_t words>
TUTTI_DEVICE Outcome await_lines(const Term (&its)[ahead], Line (&line)[ahead][words], const std::uint32_t (&at)[words],
                                 const Limits& limits) {
    Patience patience;
    TUTTI_ROLLED
    for (;;) {
        bool all = true;
        TUTTI_UNROLL
        for (std::uint32_t j = 0; j < ahead; ++j) {
            TUTTI_UNROLL
            for (std::uint32_t w = 0; w < words; ++w) {
                if (line[j][w].flag_low == its[j].flag && line[j][w].flag_high == its[j].flag) continue;
                line[j][w] = load_line(line_of(its[j], at[w]));
                all = false;
            }
        }
        if (all) return Outcome::met;
        const Outcome outcome = patience.look(limits);
        if (outcome != Outcome::met) return outcome;
    }
}

/// As reduce_words, of whole words that begin at multiples of 8 bytes. Few instructions and few branches: where the
/// kinds of sources or sinks differ, loads and stores have a condition of their own. `words` words of each of `ahead`
/// sources are asked for at once, and so many stored.
template <class F, std::uint32_t ahead, std::uint32_t words>
TUTTI_DEVICE Outcome reduce_rounds(ReduceOp op, const Term* sources, const SmallTask& t, bool is_signed, Early& early,
                                   const Limits& limits) {
    const std::uint32_t apart = 8 * threads();
    TUTTI_ROLLED
    for (std::uint32_t first = 8 * thread(); first < t.whole; first += words * apart) {
        std::uint32_t at[words];
        TUTTI_UNROLL
        for (std::uint32_t w = 0; w < words; ++w) at[w] = first + w * apart;
        typename F::Lane sum[words][F::lanes] = {};
        std::uint64_t word[words] = {};
        const std::byte* there = nullptr;  // where the result of a copy is already
        TUTTI_ROLLED
        for (std::uint32_t k = 0; k < t.sources; k += ahead) {
            Term its[ahead] = {};
            Line line[ahead][words] = {};
            TUTTI_UNROLL
            for (std::uint32_t j = 0; j < ahead; ++j)
                if (k + j < t.sources) its[j] = load_term(sources + k + j);
            TUTTI_UNROLL
            for (std::uint32_t j = 0; j < ahead; ++j) {
                TUTTI_UNROLL
                for (std::uint32_t w = 0; w < words; ++w) {
                    const bool is = w == 0 || at[w] < t.whole, is_early = j == 0 && w == 0 && early.is;
                    std::uint64_t loaded = is_early ? early.word : 0;
                    if (k + j < t.sources && its[j].flag == 0 && !is_early && is)
                        loaded = *reinterpret_cast<const std::uint64_t*>(its[j].at + at[w]);
                    line[j][w] = as_line(loaded, its[j].flag);
                    if (its[j].flag != 0 && is) line[j][w] = load_line(line_of(its[j], at[w]));
                }
            }
            early.is = false;
            const Outcome outcome = await_lines(its, line, at, limits);
            if (outcome != Outcome::met) return outcome;
            if (k == 0 && its[0].flag == 0) there = its[0].at;
            TUTTI_UNROLL
            for (std::uint32_t j = 0; j < ahead; ++j) {
                if (k + j >= t.sources) break;
                TUTTI_UNROLL
                for (std::uint32_t w = 0; w < words; ++w) word[w] = as_word(line[j][w]);
                add_words<F>(op, sum, word, k + j == 0, is_signed);
            }
        }
        TUTTI_UNROLL
        for (std::uint32_t w = 0; w < words; ++w)  // a copy keeps every bit, of NaNs too
            if (t.copies == 0) word[w] = finish_small<F>(sum[w], t.divide_by, is_signed);
        const Term* const sinks = sources + t.sources;
        TUTTI_ROLLED
        for (std::uint32_t m = 0; m < t.sinks; m += ahead) {
            Term its[ahead] = {};
            TUTTI_UNROLL
            for (std::uint32_t j = 0; j < ahead; ++j)
                if (m + j < t.sinks) its[j] = load_term(sinks + m + j);
            TUTTI_UNROLL
            for (std::uint32_t j = 0; j < ahead; ++j) {
                const bool wanted = t.copies == 0 || its[j].at != there;
                TUTTI_UNROLL
                for (std::uint32_t w = 0; w < words; ++w) {
                    const bool is = w == 0 || at[w] < t.whole;
                    if (its[j].flag != 0 && is)
                        store_line(reinterpret_cast<Line*>(its[j].at + 2 * at[w]), word[w], its[j].flag);
                    if (m + j < t.sinks && its[j].flag == 0 && wanted && is)
                        *reinterpret_cast<std::uint64_t*>(its[j].at + at[w]) = word[w];
                }
            }
        }
    }
    return Outcome::met;
}

/// Where a thread has several words. A round trip takes as long for several as for one. Once for all operations: the
/// code would be too long.
template <class F>
TUTTI_DEVICE_APART Outcome reduce_wide(ReduceOp op, const Term* sources, SmallTask t, bool is_signed, Limits limits) {
    Early none;
    return reduce_rounds < F, 2, F::lanes == 8 ? 2 : 4 > (op, sources, t, is_signed, none, limits);
}

}  // namespace detail

/// F: the format of elements (formats.hpp). Every thread of a block has its own over the same SmallShared.
template <class F>
class Small {
  public:
    TUTTI_DEVICE Small(const SmallJob& job, std::uint32_t channel, SmallShared& shared)
        : job_(job),
          channel_(channel),
          s_(shared),
          limits_{&job.control->abort, std::uint64_t{job.timeout_ms} * 1'000'000} {}

    /// Runs the program, if the job has this channel. False if it gave up.
    TUTTI_DEVICE bool run() { return begin() && run_steps() && finish(); }

    /// The parts of run(); false: it gives up. Each ends with a barrier, but for finish().
    TUTTI_DEVICE bool begin() { return !sync_or(!gather()); }
    TUTTI_DEVICE bool run_steps() {
        const Ended ended = run_all();
        if (ended.outcome == Outcome::timed_out) lose(silent_peer(s_.tasks[ended.step]), true, ended.step);
        return !sync_or(ended.outcome != Outcome::met);
    }
    /// Writes the ends back to global memory.
    TUTTI_DEVICE bool finish() {
        for (std::uint32_t i = thread(); i < ends(); i += threads()) {
            const std::uint32_t next = s_.ends[i].next + job_.messages[i];
            end(job_.numbers[i]).next = next;
            // The lines have been read, or the loops that wait for them would not have ended: a credit needs no fence.
            if (i >= job_.to_count) store_relaxed(s_.ends[i].released, next);
        }
        return true;
    }

  private:
    TUTTI_DEVICE std::uint32_t ends() const { return std::uint32_t{job_.to_count} + job_.from_count; }
    /// number: in the first channel.
    TUTTI_DEVICE End& end(std::uint32_t number) const { return job_.ends[number + channel_ * job_.stride]; }

    /// Brings terms, tasks and ends into shared memory, and the first word into early_. All that comes from memory is
    /// asked for before anything is waited for. False if there is no room for the messages, or no such channel.
    TUTTI_DEVICE bool gather() {
        const bool here = channel_ < job_.channels;
        const std::uint32_t operands = here ? job_.operand_count : 0, connections = here ? ends() : 0,
                            steps = here ? job_.step_count : 0;
        bool good = here;
        ask_early(here);
        std::uint32_t i = thread();
        do {
            std::uint64_t at = 0;
            std::uint32_t kind = 0, number = 0;
            if (i < operands) at = job_.at[i], kind = job_.kind[i];
            if (i < connections) number = job_.numbers[i];
            Line* lines = nullptr;
            std::uint32_t message = 0, stride = 0;
            if (i < operands && kind != 0) {
                const End& its = end(static_cast<std::uint32_t>(at));
                lines = its.lines;
                stride = its.line_stride;
                message = its.next + kind - 1;
            }
            Fifo* fifo = nullptr;
            std::uint32_t next = 0, released = 0;
            if (i < connections) {
                const End& its = end(number);
                fifo = its.fifo;
                next = its.next;
                released = its.released;
            }
            if (i < steps) s_.tasks[i] = task(i);
            if (i < operands) {
                s_.terms[i] = {reinterpret_cast<std::byte*>(at + channel_ * job_.tile), 0};
                if (kind != 0)
                    s_.terms[i] = {reinterpret_cast<std::byte*>(lines + message % line_depth * stride),
                                   2 * message + 1};
            }
            if (i < connections) {
                s_.ends[i] = {reinterpret_cast<std::uint32_t*>(&fifo->released), next};
                if (i < job_.to_count) good = writable(i, released) && good;
            }
            i += threads();
        } while (i < operands || i < connections || i < steps);
        return good;
    }
    /// Asks for the thread's first word of the first step, if that is in a buffer. Without branches.
    TUTTI_DEVICE void ask_early(bool here) {
        const bool fits = 8 * thread() + 8 <= bytes_of(job_.steps[0].bytes);
        early_.is = (static_cast<int>(here) & static_cast<int>(fits) & static_cast<int>(job_.kind[0] == 0) &
                     static_cast<int>(job_.in_words != 0)) != 0;
        const std::uint64_t at = job_.at[0] + channel_ * job_.tile + 8 * thread();
        if (early_.is) early_.word = *reinterpret_cast<const std::uint64_t*>(at);
    }

    TUTTI_DEVICE SmallTask task(std::uint32_t i) const {
        const auto step = job_.steps[i];
        const std::uint32_t bytes = bytes_of(step.bytes);
        const std::int32_t divide_by = step.completes != 0 ? job_.divide_by : 0;
        const std::uint8_t copies = step.sources == 1 && divide_by == 0;
        return {step.first, step.sources, step.sinks, copies, bytes, divide_by, job_.in_words != 0 ? bytes & ~7u : 0};
    }

    /// As Machine::writable, for all messages of the call.
    TUTTI_DEVICE bool writable(std::uint32_t i, std::uint32_t released) {
        const std::uint32_t least = s_.ends[i].next + job_.messages[i] - line_depth;  // so many are to be read
        if (static_cast<std::int32_t>(least - released) <= 0) return true;
        const WordSeen seen = wait_for_word(s_.ends[i].released, least, 1u << 31, limits_);
        End& its = end(job_.numbers[i]);
        if (seen.outcome == Outcome::timed_out) lose(its.peer, false, 0);
        its.released = seen.value;
        return seen.outcome == Outcome::met;
    }

    /// As Machine::length, in bytes: those of this channel, if all have so many.
    TUTTI_DEVICE std::uint32_t bytes_of(std::uint32_t all) const {
        const std::uint32_t begin = channel_ * job_.tile;
        const std::uint32_t left = all > begin ? all - begin : 0;
        return left < job_.tile ? left : job_.tile;
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
            const SmallTask t = s_.tasks[i];
            const Term* const sources = s_.terms + t.first;
            Outcome outcome = Outcome::met;
            if (t.whole > 8 * threads()) {
                outcome = detail::reduce_wide<F>(op, sources, t, job_.is_signed != 0, limits_);
                early_.is = false;
            } else {
                outcome = detail::reduce_rounds<F, 4, 1>(op, sources, t, job_.is_signed != 0, early_, limits_);
            }
            if (t.whole < t.bytes && outcome == Outcome::met) outcome = rest<op>(sources, t);
            if (outcome != Outcome::met) return {outcome, i};
        }
        return {Outcome::met, 0};
    }
    /// The words of a step that reduce_rounds() leaves. Each thread has the same ones in every step, as there.
    template <ReduceOp op>
    TUTTI_DEVICE Outcome rest(const Term* sources, const SmallTask& t) {
        Outcome outcome = Outcome::met;
        TUTTI_ROLLED
        for (std::uint32_t at = 8 * thread(); at < t.bytes && outcome == Outcome::met; at += 8 * threads())
            if (at >= t.whole)
                outcome = detail::reduce_word<F, op>(sources, t, job_.is_signed != 0, at,
                                                     t.bytes - at < 8 ? t.bytes - at : 8, limits_);
        return outcome;
    }

    /// The first peer whose lines have not arrived; -1 if none.
    TUTTI_DEVICE std::int32_t silent_peer(const SmallTask& t) const {
        for (std::uint32_t n = t.first; n < std::uint32_t{t.first} + t.sources; ++n) {
            if (s_.terms[n].flag == 0) continue;
            const Line last = load_line(detail::line_of(s_.terms[n], (t.bytes - 1) / 8 * 8));
            if (last.flag_high != s_.terms[n].flag) return end(static_cast<std::uint32_t>(job_.at[n])).peer;
        }
        return -1;
    }

    TUTTI_DEVICE void lose(std::int32_t peer, bool source, std::uint32_t step) {
        give_up(*job_.control, {0, Verdict::timed_out, peer, source ? 1u : 0u, job_.call, channel_, 0, step, 0, 0, 0});
    }

    const SmallJob& job_;
    const std::uint32_t channel_;
    SmallShared& s_;
    const Limits limits_;
    detail::Early early_;
};

}  // namespace tutti::gpu
