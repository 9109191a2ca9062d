// The GPU's Machine for the interpreter. A block of threads runs one channel of one rank, and every thread runs the
// step loop. Work on an operand is done by one thread each (number of the operand modulo threads), work on data by all.
//
// Messages travel as on the host (transport/fifo.hpp) or, if small and between GPUs, in lines (simt.hpp): data and flag
// arrive together, and the cell is not used. Credits are the same for both.
#pragma once

#include "kernels/cuda/plan.hpp"
#include "kernels/cuda/reduce.hpp"
#include "kernels/interpreter.hpp"

namespace tutti::gpu {

/// The shared memory of a block. Small programs are copied here as a whole, so that steps need not wait for global
/// memory.
struct Shared {
    static constexpr int steps_here = 96, operands_here = 384;
    Term sources[max_operands];
    Term sinks[max_operands];
    Kind kind[max_operands];            // by sink: of the message, if it is one
    Reference reference[max_operands];  // by sink: where the message lies, if by reference
    Step step[steps_here];
    Operand operand[operands_here];
    End to[max_connections], from[max_connections];
    std::int32_t scaled;  // the source that is multiplied by the scalar; -1 if none
};

/// F: the format of elements (formats.hpp). Every thread of a block has its own Machine over the same Shared.
template <class F>
class Machine {
  public:
    TUTTI_DEVICE Machine(const Job& job, std::uint32_t channel, Shared& shared)
        : job_(job), plan_(job.plan), channel_(channel), s_(shared), limits_{&job.plan.control->abort, job.timeout_ns} {
        steps_ = gather(plan_.steps, plan_.step_count, s_.step, Shared::steps_here);
        operands_ = gather(plan_.operands, plan_.operand_count, s_.operand, Shared::operands_here);
        gather_ends(plan_.to + channel * plan_.to_count, plan_.to_count, s_.to);
        gather_ends(plan_.from + channel * plan_.from_count, plan_.from_count, s_.from);
        tiles_ = channel < job.tiles ? (job.tiles - channel + job.channels - 1) / job.channels : 0;
        scalar_ = job.scaled != 0 ? repeated_scalar() : 0;
        sync();
    }

    /// Runs all tiles of the channel. False if it gave up.
    TUTTI_DEVICE bool run() {
        Cursor at;
        return advance(*this, at) && finish();
    }
    /// Waits for what is still read of this rank's memory, then writes the ends back to global memory.
    TUTTI_DEVICE bool finish() {
        if (!settled()) return false;
        each(0, plan_.to_count, [&](std::uint32_t i) { *plan_.to[channel_ * plan_.to_count + i] = s_.to[i]; });
        each(0, plan_.from_count, [&](std::uint32_t i) { *plan_.from[channel_ * plan_.from_count + i] = s_.from[i]; });
        return true;
    }

    // The Machine of interpreter.hpp. ready() waits; false means that this block gives up.
    TUTTI_DEVICE std::uint32_t tiles() const { return tiles_; }
    TUTTI_DEVICE std::uint32_t steps() const { return plan_.step_count; }
    TUTTI_DEVICE const Step& step(std::uint32_t i) const { return steps_[i]; }

    TUTTI_DEVICE void begin_tile(std::uint32_t tile) {
        tile_ = tile;
        tile_offset_ = (static_cast<std::uint64_t>(tile) * job_.channels + channel_) * job_.tile;
        if (job_.by_reference == 0 || plan_.push_safe == 0) return;
        each(0, plan_.postable_count, [&](std::uint32_t i) {
            const Postable& l = plan_.postables[i];
            const std::uint64_t bytes = length(l.column) * element;
            End& end = s_.from[l.from];
            Reference where;
            if (bytes <= inline_bytes || !refer(end, l.slice, where)) return;
            PostedReceive& posted_receive = end.fifo->posted_receives[(end.next + l.ahead) % fifo_depth];
            posted_receive.where = where;
            posted_receive.bytes = static_cast<std::uint32_t>(bytes);
            store_release(word(posted_receive.turn), end.next + l.ahead + 1);
        });
    }

    TUTTI_DEVICE static constexpr bool skips(const Step&) { return false; }  // rows are even here

    TUTTI_DEVICE bool ready(const Step& step, std::uint32_t&) {
        current_ = &step;
        bool good = true;
        each(0, step.sources + step.sinks, [&](std::uint32_t n) {
            const Operand& o = operands_[step.first + n];
            if (o.place != Place::peer || !good) return;
            good = n < step.sources ? arrived(s_.from[o.index]) : writable(s_.to[o.index], step, o.more);
        });
        return !sync_or(!good);
    }

    TUTTI_DEVICE Shortcut shortcut(std::uint32_t, std::uint32_t&) const { return Shortcut::none; }
    TUTTI_DEVICE void begin_step(const Step& step) {
        elements_ = length(step.column);
        bytes_ = elements_ * element;
        if (thread() == 0) s_.scaled = -1;
        if (job_.scaled != 0) sync();
    }

    TUTTI_DEVICE void load(const Step& step) {
        each(step.first, step.first + step.sources, [&](std::uint32_t i) { load(i); });
    }
    TUTTI_DEVICE void store(const Step& step) {
        each(step.first + step.sources, step.first + step.sources + step.sinks, [&](std::uint32_t i) { store(i); });
    }

    TUTTI_DEVICE void reduce(const Step& step) {
        lost_ = sync_or(lost_);
        if (lost_) return;
        Terms t;
        t.sources = s_.sources;
        t.sinks = s_.sinks;
        t.source_count = static_cast<int>(step.sources);
        t.sink_count = static_cast<int>(step.sinks);
        t.scaled = s_.scaled;
        t.divide_by = step.completes ? job_.divide_by : 0;
        t.scalar = scalar_;
        t.is_signed = job_.is_signed != 0;
        const Outcome outcome = gpu::reduce<F>(static_cast<ReduceOp>(job_.op), t, bytes_, limits_);
        if (outcome == Outcome::timed_out) lose(Verdict::timed_out, silent_peer(step), true, 0, 0);
        lost_ = sync_or(outcome != Outcome::met);
    }

    TUTTI_DEVICE void commit(const Step& step) {
        each(step.first + step.sources, step.first + step.sources + step.sinks, [&](std::uint32_t i) { commit(i); });
    }
    TUTTI_DEVICE void release(const Step& step) {
        each(step.first, step.first + step.sources, [&](std::uint32_t i) { release(i); });
    }

    TUTTI_DEVICE void end_step(const Step&) { sync(); }

  private:
    static constexpr std::uint64_t element = F::element;

    /// f(i) for all i of [begin, end), spread over the threads of the block.
    template <class Each>
    TUTTI_DEVICE void each(std::uint32_t begin, std::uint32_t end, Each&& f) const {
        for (std::uint32_t i = begin + thread(); i < end; i += threads()) f(i);
    }

    TUTTI_DEVICE void load(std::uint32_t i) {
        const std::uint32_t n = i - current_->first;
        const Operand& o = operands_[i];
        Term& term = s_.sources[n];
        term = {nullptr, 0};
        if (o.place != Place::peer) {
            if (o.place == Place::input && job_.scaled != 0) s_.scaled = static_cast<std::int32_t>(n);
            term.at = slice(o);
            return;
        }
        End& end = s_.from[o.index];
        if (in_lines(end)) {
            term.at = reinterpret_cast<std::byte*>(message_lines(end));
            term.flag = flag_of(end);
            return;
        }
        term.at = payload(end, o.more);
    }

    TUTTI_DEVICE void store(std::uint32_t i) {
        const std::uint32_t n = i - current_->first - current_->sources;
        const Operand& o = operands_[i];
        Term& term = s_.sinks[n];
        term = {nullptr, 0};
        if (o.place != Place::peer) {
            term.at = slice(o);
            return;
        }
        End& end = s_.to[o.index];
        if (in_lines(end)) {
            term.at = reinterpret_cast<std::byte*>(message_lines(end));
            term.flag = flag_of(end);
            return;
        }
        s_.kind[n] = choose_kind(end, o.more, term, s_.reference[n]);
    }

    TUTTI_DEVICE void commit(std::uint32_t i) {
        const Operand& o = operands_[i];
        if (o.place != Place::peer || lost_) return;
        End& end = s_.to[o.index];
        const std::uint32_t n = i - current_->first - current_->sources;
        const std::uint32_t bytes = end.part + static_cast<std::uint32_t>(bytes_);
        if (goes_on(end, o.more, in_lines(end) || s_.kind[n] == Kind::slot)) return;
        const std::uint32_t number = end.next++;
        if (in_lines(end)) return;
        Cell& cell = end.fifo->cells[number % fifo_depth];
        if (s_.kind[n] == Kind::reference) {
            cell.reference = s_.reference[n];
            end.last_reference = end.next;
            end.refers = 1;
        }
        cell.signature = job_.signature;
        cell.bytes = bytes;
        cell.kind = s_.kind[n];
        store_release(word(cell.turn), end.next);
    }

    TUTTI_DEVICE void release(std::uint32_t i) {
        const Operand& o = operands_[i];
        if (o.place != Place::peer || lost_) return;
        End& end = s_.from[o.index];
        const Cell& cell = end.fifo->cells[end.next % fifo_depth];
        if (goes_on(end, o.more, in_lines(end) || cell.kind == Kind::slot)) return;
        if (job_.by_reference != 0 && plan_.postable_count != 0)  // as Receiver::withdraw
            *word(end.fifo->posted_receives[end.next % fifo_depth].turn) = end.next;
        store_release(word(end.fifo->released), ++end.next);
    }

    TUTTI_DEVICE static std::uint32_t* word(std::atomic<std::uint32_t>& flag) {
        return reinterpret_cast<std::uint32_t*>(&flag);
    }

    template <class T>
    TUTTI_DEVICE T* gather(T* there, std::uint32_t count, std::remove_const_t<T>* here, std::uint32_t room) const {
        if (count > room) return there;
        each(0, count, [&](std::uint32_t i) { here[i] = there[i]; });
        return here;
    }
    TUTTI_DEVICE void gather_ends(End* const* there, std::uint32_t count, End* here) const {
        each(0, count, [&](std::uint32_t i) { here[i] = *there[i]; });
    }

    TUTTI_DEVICE std::uint64_t repeated_scalar() const {
        std::uint64_t one = job_.immediate;
        if (job_.scalar != nullptr)
            one = detail::load_word<element>(static_cast<const std::byte*>(job_.scalar), element);
        std::uint64_t all = one;
        for (std::uint64_t i = element; i < 8; i += element) all |= one << 8 * i;
        return all;
    }

    TUTTI_DEVICE std::uint64_t length(std::uint32_t column) const {
        const std::uint64_t begin = column * job_.block + tile_offset_;
        std::uint64_t end = begin + job_.tile;
        if (end > (column + 1) * job_.block) end = (column + 1) * job_.block;
        if (end > job_.count) end = job_.count;
        return begin < end ? end - begin : 0;
    }

    TUTTI_DEVICE const Buffer& buffer(Place place) const { return place == Place::input ? job_.input : job_.output; }

    TUTTI_DEVICE std::byte* slice(const Operand& o) const {
        const auto chunk = static_cast<std::uint32_t>(o.index);
        if (o.place == Place::scratch)
            return plan_.scratch + (channel_ * plan_.scratch_chunks + chunk) * plan_.scratch_stride;
        const std::uint64_t at = chunk / plan_.columns * job_.count + chunk % plan_.columns * job_.block + tile_offset_;
        return buffer(o.place).at + at * element;
    }

    /// Makes a reference to a slice of this rank for the peer of `end`. False if the peer can't access the slice.
    TUTTI_DEVICE bool refer(const End& end, const Operand& o, Reference& out) const {
        if (o.place == Place::scratch) return false;
        const Buffer& b = buffer(o.place);
        const std::byte* const at = slice(o);
        if (end.in_process != 0) {
            out = {0, reinterpret_cast<std::uint64_t>(at)};
            return b.shareable != 0;
        }
        out = {b.region, static_cast<std::uint64_t>(at - b.base)};
        return b.region != 0 && end.regions != nullptr;
    }
    TUTTI_DEVICE static bool sees_buffers(const End& end) { return end.in_process != 0 || end.regions != nullptr; }
    /// True if a reference that a peer has written is one that this rank can access.
    TUTTI_DEVICE static bool is_seen(const End& end, const Reference& reference) {
        if (reference.region == 0) return end.in_process != 0;
        return reference.region < max_regions && end.regions != nullptr && end.regions[reference.region] != nullptr;
    }
    TUTTI_DEVICE static std::byte* see(const End& end, const Reference& reference) {
        if (reference.region == 0) return reinterpret_cast<std::byte*>(reference.offset);
        return const_cast<std::byte*>(end.regions[reference.region]) + reference.offset;
    }

    TUTTI_DEVICE bool in_lines(const End& end) const { return job_.in_lines != 0 && end.lines != nullptr; }
    TUTTI_DEVICE Line* message_lines(const End& end) const {
        return end.lines + end.next % line_depth * end.line_stride + end.part / 8;
    }
    /// The flag of the next message's lines. Never 0, which is the flag of unwritten lines.
    TUTTI_DEVICE static std::uint32_t flag_of(const End& end) { return 2 * end.next + 1; }
    /// Advances `end` behind a part of its message. False if that was the last part.
    TUTTI_DEVICE bool goes_on(End& end, bool more, bool in_slot) const {
        end.under_way = more;
        end.part = more ? static_cast<std::uint32_t>(next_part(end.part, bytes_, in_slot)) : 0;
        return more;
    }

    TUTTI_DEVICE bool arrived(const End& end) {
        if (in_lines(end) || end.under_way != 0) return true;
        return await(end, end.fifo->cells[end.next % fifo_depth].turn, end.next + 1, 1, true).outcome == Outcome::met;
    }
    TUTTI_DEVICE bool writable(End& end, const Step& step, bool more) {
        const bool in_cell = more ? job_.in_cells != 0 : length(step.column) * element <= inline_bytes;
        const std::uint32_t depth = in_lines(end) ? line_depth : in_cell ? fifo_depth : slot_depth;
        // The reader of an empty message in lines waits for nothing, so it may return the credit before the message is
        // sent, and `released` may be ahead of `next`.
        const auto under_way = static_cast<std::int32_t>(end.next - end.released);
        if (under_way < static_cast<std::int32_t>(depth) || end.under_way != 0) return true;
        const WordSeen seen = await(end, end.fifo->released, end.next - depth + 1, 1u << 31, false);
        end.released = seen.value;
        return seen.outcome == Outcome::met;
    }
    /// Waits until no message by reference is still being read. False if this block gives up.
    TUTTI_DEVICE bool settled() {
        bool good = true;
        each(0, plan_.to_count, [&](std::uint32_t i) {
            End& end = s_.to[i];
            if (end.refers == 0 || !good) return;
            if (later(end.last_reference, end.released)) {
                const WordSeen seen = await(end, end.fifo->released, end.last_reference, 1u << 31, false);
                end.released = seen.value;
                good = seen.outcome == Outcome::met;
            }
            if (good) end.refers = 0;
        });
        return !sync_or(!good);
    }
    TUTTI_DEVICE WordSeen await(const End& end, std::atomic<std::uint32_t>& flag, std::uint32_t least,
                                std::uint32_t range, bool source) {
        const WordSeen seen = wait_for_word(word(flag), least, range, limits_);
        if (seen.outcome == Outcome::timed_out) lose(Verdict::timed_out, end.peer, source, 0, 0);
        return seen;
    }

    /// The address of the message, or its next part, that has arrived on this end. Writes a verdict and returns nullptr
    /// if signature, size or kind are not as expected.
    TUTTI_DEVICE std::byte* payload(End& end, bool more) {
        Cell& cell = end.fifo->cells[end.next % fifo_depth];
        if (cell.signature != job_.signature)
            return lose(Verdict::other_call, end.peer, true, job_.signature, cell.signature);
        const std::uint32_t until = end.part + static_cast<std::uint32_t>(bytes_);
        if (more ? cell.bytes < until : cell.bytes != until)
            return lose(Verdict::wrong_size, end.peer, true, until, cell.bytes);
        switch (cell.kind) {  // a peer may have written a kind that has no room for this length
            case Kind::inlined:
                if (until <= inline_bytes) return cell.payload + end.part;
                break;
            case Kind::slot:
                if (until <= end.slot_stride) return end.slots + end.next % slot_depth * end.slot_stride + end.part;
                break;
            case Kind::reference: {
                const Reference where = cell.reference;
                if (is_seen(end, where)) return see(end, where);
                break;
            }
            case Kind::landed:
                if (const Operand* place = first_slice_sink()) return slice(*place);
                break;
            case Kind::placed:
            case Kind::exchanged:  // both to Receivers only
                break;
        }
        return lose(Verdict::wrong_kind, end.peer, true, 0, static_cast<std::uint32_t>(cell.kind));
    }

    /// The first peer whose lines have not arrived; -1 if none.
    TUTTI_DEVICE std::int32_t silent_peer(const Step& step) const {
        for (std::uint32_t n = 0; n < step.sources; ++n) {
            const Term& source = s_.sources[n];
            if (source.flag == 0) continue;
            const Line last = load_line(reinterpret_cast<const Line*>(source.at) + (bytes_ - 1) / 8);
            if (last.flag_high != source.flag) return s_.from[operands_[step.first + n].index].peer;
        }
        return -1;
    }

    TUTTI_DEVICE const Operand* first_slice_sink() const {
        const Operand* const sinks = operands_ + current_->first + current_->sources;
        for (std::uint32_t m = 0; m < current_->sinks; ++m)
            if (sinks[m].place != Place::peer) return sinks + m;
        return nullptr;
    }
    /// The local slice that holds, after the step, the value that the step sends; nullptr if none does.
    TUTTI_DEVICE const Operand* shareable_slice() const {
        const Operand& source = operands_[current_->first];
        const bool scaled = job_.scaled != 0 && source.place == Place::input;
        const bool divides = job_.divide_by != 0 && current_->completes;
        if (current_->sources == 1 && source.place != Place::peer && !scaled && !divides) return &source;
        return first_slice_sink();
    }

    /// Decides how a message to `end` travels. Sets term.at to where this step stores it, or leaves nullptr and sets
    /// `reference`.
    TUTTI_DEVICE Kind choose_kind(End& end, bool more, Term& term, Reference& reference) {
        const bool alone = !more && end.under_way == 0;
        if (alone ? bytes_ <= inline_bytes : job_.in_cells != 0) {
            term.at = end.fifo->cells[end.next % fifo_depth].payload + end.part;
            return Kind::inlined;
        }
        if (job_.by_reference != 0 && alone) {
            const PostedReceive& posted_receive = end.fifo->posted_receives[end.next % fifo_depth];
            if (current_->sources > 1 && plan_.push_safe != 0 && sees_buffers(end) &&
                load_acquire(word(const_cast<PostedReceive&>(posted_receive).turn)) == end.next + 1 &&
                posted_receive.bytes == bytes_ && is_seen(end, posted_receive.where)) {
                term.at = see(end, posted_receive.where);
                return Kind::landed;
            }
            const Operand* const shared = plan_.pull_safe != 0 ? shareable_slice() : nullptr;
            if (shared != nullptr && refer(end, *shared, reference)) return Kind::reference;
        }
        if (end.part + bytes_ > end.slot_stride)  // wrong tiling: fail rather than overrun the slot
            lose(Verdict::wrong_size, end.peer, false, static_cast<std::uint32_t>(end.slot_stride),
                 end.part + static_cast<std::uint32_t>(bytes_));
        term.at = end.slots + end.next % slot_depth * end.slot_stride + end.part;
        return Kind::slot;
    }

    /// Gives up: the first caller on the GPU writes the verdict, and `abort` ends all other waits. Returns nullptr.
    TUTTI_DEVICE std::byte* lose(Verdict::Cause cause, std::int32_t peer, bool source, std::uint32_t expected,
                                 std::uint32_t seen) {
        give_up(*plan_.control, {0, cause, peer, source ? 1u : 0u, job_.call, channel_, tile_,
                                 static_cast<std::uint32_t>(current_ - steps_), expected, seen, 0});
        lost_ = true;
        return nullptr;
    }

    const Job& job_;
    const Plan& plan_;
    const std::uint32_t channel_;
    Shared& s_;
    const Limits limits_;
    const Step* steps_;
    const Operand* operands_;
    std::uint32_t tiles_, tile_ = 0;
    std::uint64_t scalar_ = 0;

    const Step* current_ = nullptr;
    std::uint64_t tile_offset_ = 0;  // elements, in each block (Job::block)
    std::uint64_t elements_ = 0, bytes_ = 0;
    bool lost_ = false;  // this thread has given up; after the barrier in reduce(), any thread of the block
};

}  // namespace tutti::gpu
