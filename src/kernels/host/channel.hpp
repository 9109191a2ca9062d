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

/// Owned by a HostExecution. One thread at a time: the one that drives the execution or, if threads share the job, the
/// one that has claimed the channel.
class HostChannel {
  public:
    HostChannel(const BoundProgram& bound, RankPage& page, int number, std::vector<Connection> to,
                std::vector<Connection> from);

    /// Begins this channel's tiles of a job. job, layout and scratch must stay valid until finished().
    void start(const Job& job, const Layout& layout, std::byte* scratch);
    bool progress();  // goes as far as possible; true if anything moved
    bool finished() const { return finished_; }
    bool mappable() const { return mappable_; }

    /// Takes the channel for this thread, if threads share the job. False if another thread has it.
    bool claim() {
        return !claimed_.load(std::memory_order_relaxed) && !claimed_.exchange(true, std::memory_order_acquire);
    }
    void give_back() { claimed_.store(false, std::memory_order_release); }

    HostExecution::Blocked blocked_on() const;  // as HostExecution's, for this channel
    bool waits_for_other_cores(std::int32_t core) const;

    // The Machine of interpreter.hpp.
    std::uint32_t tiles() const { return tiles_; }
    std::uint32_t steps() const { return steps_; }
    const Step& step(std::uint32_t i) const { return step_list_[i]; }
    void begin_tile(std::uint32_t tile);

    /// Steps without data are skipped by the ranks at both ends of their messages. The first tile skips none, so that
    /// every pair of ranks detects whether its counts agree.
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
    /// The address of a slice in the current tile. `operand` must be an element of operand_list_. Inputs are only read,
    /// unless they are the same memory as an output. The address of an empty buffer may be invalid.
    std::byte* slice(const Operand& operand) const {
        return reinterpret_cast<std::byte*>(tile_in_[static_cast<std::size_t>(operand.place)] +
                                            at_[&operand - operand_list_]);
    }
    /// In elements, of all tiles together.
    std::size_t length_of(const Step& step) const { return lengths_[&step - step_list_]; }
    std::size_t length_in_tile(const Step& step) const {
        const std::size_t length = length_of(step);
        return length > tile_offset_ ? std::min(length - tile_offset_, job_->tile) : 0;
    }
    /// Elements of operand_list_, in the order of the program.
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
    /// The index into RankPage::touching. Only in shared jobs do several steps run at once, at most one on each
    /// channel.
    std::size_t touching_number() const { return job_->threads > 1 ? 1 + static_cast<std::size_t>(number_) : 0; }
    bool settled();

    // The rarer cases, kept out of the inlined functions: references, posted receives, parts of messages.
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
    const bool packs_;         // messages may have several parts
    std::uint32_t tiles_ = 0;  // of the job, on this channel

    const Job* job_ = nullptr;
    const Rows* rows_ = nullptr;            // nullptr if the call is even
    const std::size_t* at_ = nullptr;       // as in Layout
    const std::size_t* lengths_ = nullptr;  // as in Layout
    std::size_t element_ = 0;               // in bytes
    Cursor cursor_;
    bool needs_slots_ = false;  // a message may be too long for a cell
    bool streaming_ = false;    // buffers are too large to stay in the cache
    bool mappable_ = false;     // this rank's buffers are, and those of all ranks behind messages received so far
    bool finished_ = true;

    // State of the current tile and step.
    std::size_t tile_offset_ = 0;  // elements, in each block
    std::uintptr_t tile_in_[3]{};  // by Place: where the tile begins in input, output, scratch
    std::size_t bytes_ = 0;        // of the step, in this tile
    std::uint32_t signature_ = 0;  // of the step's messages
    const Step* current_ = nullptr;
    bool touching_ = false;        // the step may access a peer's memory, see touch()
    bool copies_ = false;          // the step has one source, which is neither scaled nor divided
    bool sinks_are_users_ = true;  // no sink is a cell or a slot
    Reduction reduction_{};
    std::unique_ptr<const void*[]> sources_;  // of reduction_, with room for the longest step
    std::unique_ptr<void*[]> sinks_;
    struct Outgoing {
        Kind kind;
        Reference reference;
        bool under_way = false;  // some parts of the message have been written
        std::size_t at = 0;      // offset of the next part
    };
    std::vector<Outgoing> outgoing_;                // by connection
    std::vector<std::size_t> incoming_;             // by connection: offset of the next part; 0 unless packs_
    std::vector<WakeUp*> to_wake_;                  // sleeping peers, woken at the end of the step
    alignas(64) std::atomic<bool> claimed_{false};  // a thread has claim()ed the channel
};

}  // namespace tutti
