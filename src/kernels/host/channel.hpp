// The host's Machine for the interpreter: one channel of a HostExecution.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "kernels/host/executor.hpp"
#include "kernels/reduce.hpp"

namespace tutti {

class HostChannel {
  public:
    HostChannel(const BoundProgram& bound, RankPage& page, int number, std::vector<Connection> to,
                std::vector<Connection> from);

    /// Job and layout live until it is finished.
    void start(const Job& job, const Layout& layout, std::byte* scratch);
    bool progress();  // true if anything moved
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
    bool skips(const Step& step) const {
        return rows_ != nullptr && tile_offset_ != 0 && !packs_ && length_of(step) <= tile_offset_;
    }
    bool ready(const Step& step, std::uint32_t& seen);
    void begin_step(const Step& step);
    void load(const Step& step);
    void store(const Step& step);
    void reduce(const Step& step);
    void commit(const Step& step);
    void release(const Step& step);
    void end_step(const Step& step);

  private:
    static std::size_t number(const Operand& peer) { return static_cast<std::size_t>(peer.index); }
    /// operand: of the program, as steps are. Inputs are only ever read: they are among the sources, or the same memory
    /// as an output. A buffer that has no data may lie nowhere.
    std::byte* slice(const Operand& operand) const {
        return reinterpret_cast<std::byte*>(tile_in_[static_cast<std::size_t>(operand.place)] +
                                            at_[&operand - operand_list_]);
    }
    /// Of all tiles together.
    std::size_t length_of(const Step& step) const { return lengths_[&step - step_list_]; }
    std::size_t length_in_tile(const Step& step) const {
        const std::size_t length = length_of(step);
        return length > tile_offset_ ? std::min(length - tile_offset_, job_->tile) : 0;
    }
    /// In the order of the program.
    std::span<const Operand> sources(const Step& step) const { return {operand_list_ + step.first, step.sources}; }
    std::span<const Operand> sinks(const Step& step) const {
        return {operand_list_ + step.first + step.sources, step.sinks};
    }
    const BoundProgram::Exchange& exchange_of(const Step& step) const { return exchange_list_[&step - step_list_]; }
    std::span<const Operand> receives(const Step& step) const {
        const BoundProgram::Exchange& e = exchange_of(step);
        return {message_list_ + e.first, e.received};
    }
    std::span<const Operand> sends(const Step& step) const {
        const BoundProgram::Exchange& e = exchange_of(step);
        return {message_list_ + e.first + e.received, e.sent};
    }
    bool can_go(const Operand& message, bool received) const {
        return received ? from_[number(message)].receiver->ready() : to_[number(message)].sender->ready(needs_slots_);
    }
    const std::byte* payload(const Operand& source);
    std::byte* payload_room(const Operand& sink);
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
    const BoundProgram::Exchange* exchange_list_;
    const Operand* message_list_;
    std::uint32_t steps_;
    const bool packs_;  // messages have several parts
    std::uint32_t tiles_ = 0;

    const Job* job_ = nullptr;
    const Rows* rows_ = nullptr;
    const std::size_t* at_ = nullptr;
    const std::size_t* lengths_ = nullptr;
    std::size_t element_ = 0;
    Cursor cursor_;
    bool needs_slots_ = false;  // a message may be too long for a cell
    bool streaming_ = false;    // buffers are too large to stay in the cache
    bool mappable_ = false;     // this rank's buffers, and those of all whose messages have come
    bool finished_ = true;

    // Of the tile and the step under way.
    std::size_t tile_offset_ = 0;  // elements into each block
    std::uintptr_t tile_in_[3]{};  // by Place: input, output, scratch
    std::size_t bytes_ = 0;
    std::uint32_t signature_ = 0;  // of the step's messages
    const Step* current_ = nullptr;
    bool touching_ = false;
    bool copies_ = false;  // the step has one source, which is not altered
    bool sinks_are_users_ = true;
    Reduction reduction_{};
    std::unique_ptr<const void*[]> sources_;  // of it; there is room for the longest step
    std::unique_ptr<void*[]> sinks_;
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
