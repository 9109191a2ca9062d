// The host's Machine for the interpreter: one channel of a HostExecution.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "kernels/host/executor.hpp"
#include "kernels/reduce.hpp"

namespace tutti {

/// The places that a step's sources or sinks have, gathered operand by operand. There is room for the longest step.
template <typename Pointer>
class Gathered {
  public:
    explicit Gathered(std::size_t most) : places_(new Pointer[most]) {}
    void clear() { count_ = 0; }
    void push(Pointer place) { places_[count_++] = place; }
    void remove(const void* place) {
        count_ = std::remove(places_.get(), places_.get() + count_, place) - places_.get();
    }
    std::ptrdiff_t count() const { return count_; }
    const Pointer* data() const { return places_.get(); }
    Pointer front() const { return places_[0]; }

  private:
    std::unique_ptr<Pointer[]> places_;
    std::ptrdiff_t count_ = 0;
};

class HostChannel {
  public:
    HostChannel(const BoundProgram& bound, RankPage& page, int number, std::vector<Connection> to,
                std::vector<Connection> from);

    void start(const Job& job, std::byte* scratch);  // job lives until it is finished
    bool progress();                                 // true if anything moved
    bool finished() const { return finished_; }
    bool mappable() const { return mappable_; }

    /// Where several threads share a job, only the one that has claimed a channel touches it. False: another one has.
    bool claim() {
        return !claimed_.load(std::memory_order_relaxed) && !claimed_.exchange(true, std::memory_order_acquire);
    }
    void give_back() { claimed_.store(false, std::memory_order_release); }

    HostExecution::Blocked blocked_on() const;
    bool waits_for_other_cores(std::int32_t core) const;

    // The interpreter's side.
    std::uint32_t tiles() const { return tiles_; }
    std::uint32_t steps() const { return steps_; }
    const Step& step(std::uint32_t i) const { return step_list_[i]; }
    void begin_tile(std::uint32_t tile);

    /// Steps without data are passed over by the ranks at both ends of their messages alike. The first tile has them
    /// all, so that every pair of ranks finds out whether it agrees.
    bool skips(const Step& step) const { return rows_ != nullptr && has_no_data(step); }
    bool ready(const Step& step, std::uint32_t& seen);
    void begin_step(const Step& step);
    template <class F>
    void each(std::uint32_t begin, std::uint32_t end, F&& f) {
        for (std::uint32_t i = begin; i < end; ++i) f(i);
    }
    void load(std::uint32_t i);
    void store(std::uint32_t i);
    void reduce(const Step& step);
    void commit(std::uint32_t i);
    void release(std::uint32_t i);
    void end_step(const Step& step);

  private:
    static std::size_t number(const Operand& peer) { return static_cast<std::size_t>(peer.index); }
    std::byte* slice(const Operand& operand) const {
        const auto chunk = static_cast<std::size_t>(operand.index);
        if (operand.place == Place::scratch) return scratch_ + chunk * job_->tile * element_;
        if (rows_ != nullptr) [[unlikely]]
            return uneven_slice(operand);
        std::size_t at = chunk * job_->block + tile_offset_;
        if (chunk >= columns_) at = chunk / columns_ * job_->count + chunk % columns_ * job_->block + tile_offset_;
        // Inputs are only ever read: they are among the sources, or the same memory as an output.
        const std::byte* base = operand.place == Place::input ? job_->input : job_->output;
        return const_cast<std::byte*>(base) + at * element_;
    }
    std::size_t length(std::uint32_t column) const;

    // Uneven calls; apart from the rest, which is to stay small.
    const Row& row_at(const Operand& slice) const;
    const Row& row_of(const Step& step) const;
    std::byte* uneven_slice(const Operand& operand) const;
    bool has_no_data(const Step& step) const;
    void begin_uneven(const Step& step);

    const Operand* first_slice_sink(const Step& step) const;
    const std::byte* shareable_slice(const Step& step) const;
    void touch(const Connection& connection);
    void end_touch();
    /// Only jobs that are shared have steps that run at the same time, on each channel one.
    std::size_t touching_number() const { return job_->threads > 1 ? 1 + static_cast<std::size_t>(number_) : 0; }
    bool settled();

    // What is not in cells, nor all of a message in a slot; apart as well.
    const std::byte* source_elsewhere(const Connection& connection, const Cell& cell);
    std::byte* slot_or_elsewhere(const Operand& operand, bool alone);
    bool goes_on(const Operand& operand, std::size_t& bytes);
    void describe_elsewhere(const Connection& connection, Kind kind, const Reference& reference);

    Rank peer_of(const Connection& connection) const;
    void wake_later(WakeUp& wake_up) {
        std::atomic_signal_fence(std::memory_order_seq_cst);  // as in wake()
        if (wake_up.sleeping.load(std::memory_order_relaxed) != 0) [[unlikely]]
            to_wake_.push_back(&wake_up);
    }
    [[noreturn]] void mismatch(const Connection& connection) const;

    const BoundProgram& bound_;
    RankPage& page_;
    const int number_;
    std::vector<Connection> to_, from_;
    const Step* step_list_;
    const Operand* operand_list_;
    std::uint32_t steps_;
    const std::size_t columns_;
    const bool packs_;  // messages have several parts
    std::uint32_t tiles_ = 0;

    const Job* job_ = nullptr;
    const Rows* rows_ = nullptr;
    std::size_t element_ = 0;
    std::byte* scratch_ = nullptr;
    Cursor cursor_;
    bool needs_slots_ = false;  // a message may be too long for a cell
    bool streaming_ = false;    // buffers are too large to stay in the cache
    bool mappable_ = false;     // this rank's buffers, and those of all whose messages have come
    bool finished_ = true;

    // Of the tile and the step under way.
    std::size_t tile_offset_ = 0;  // elements into each block
    std::size_t elements_ = 0;
    std::size_t bytes_ = 0;
    std::size_t row_ = 0;          // uneven: elements of the row that the step is of
    std::uint32_t signature_ = 0;  // of the step's messages
    const Step* current_ = nullptr;
    bool touching_ = false;
    int scaled_source_ = -1;
    bool sinks_are_users_ = true;
    Gathered<const void*> sources_;
    Gathered<void*> sinks_;
    struct Outgoing {
        Kind kind;
        Reference reference;
        bool under_way = false;  // parts of the message are in it already
        std::size_t at = 0;      // where the next one goes
    };
    std::vector<Outgoing> outgoing_;     // by connection
    std::vector<std::size_t> incoming_;  // by connection: where the next part of the message begins; 0 unless packs_
    std::vector<WakeUp*> to_wake_;
    alignas(64) std::atomic<bool> claimed_{false};
};

}  // namespace tutti
