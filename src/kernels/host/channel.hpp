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
    HostChannel(const BoundProgram& bound, RankPage& page, int number, std::span<const Connection> to,
                std::span<const Connection> from);

    /// Begins this channel's tiles of a job. job, layout and scratch must stay valid until finished().
    void start(const Job& job, const Layout& layout, std::byte* scratch);
    bool progress();  // goes as far as possible; true if anything moved
    bool finished() const { return job_ == nullptr; }
    bool mappable() const { return mappable_; }

    /// Takes the channel for this thread, if threads share the job. False if another thread has it.
    bool claim() {
        return !claimed_.load(std::memory_order_relaxed) && !claimed_.exchange(true, std::memory_order_acquire);
    }
    void give_back() { claimed_.store(false, std::memory_order_release); }

    HostExecution::Blocked blocked_on() const;  // as HostExecution's, for this channel
    bool waits_for_other_cores(std::int32_t core) const;

    // The Machine of interpreter.hpp. It is only given the step at the cursor.
    std::uint32_t tiles() const { return tiles_; }
    std::uint32_t steps() const { return step_count_; }
    const Layout::Step& step(std::uint32_t i) const { return steps_[i]; }
    void begin_tile(std::uint32_t tile);

    /// Steps without data are skipped by the ranks at both ends of their messages. The first tile skips none, so that
    /// every pair of ranks detects whether its counts agree.
    bool skips(const Layout::Step& step) const {
        return job_->rows != nullptr && tile_offset_ != 0 && !packs() && step.length <= tile_offset_;
    }
    bool ready(const Layout::Step& step, std::uint32_t& seen);
    Shortcut shortcut(std::uint32_t number, std::uint32_t& seen);
    void begin_step(const Layout::Step& step);
    void load(const Layout::Step& step);
    void store(const Layout::Step& step);
    void reduce(const Layout::Step& step);
    void commit(const Layout::Step& step);
    void release(const Layout::Step& step);
    void end_step(const Layout::Step& step);

  private:
    /// A connection with the message that is being written to it, or read from it.
    struct Outgoing : Connection {
        Kind kind{};
        Reference reference{};
        bool under_way = false;  // some parts of the message have been written
        std::size_t at = 0;      // offset of the next part
    };
    struct Incoming : Connection {
        std::size_t at = 0;  // offset of the next part
    };
    Outgoing& outgoing(const Operand& sink) { return to_[static_cast<std::size_t>(sink.index)]; }
    Incoming& incoming(const Operand& source) { return from_[static_cast<std::size_t>(source.index)]; }

    /// The address of a slice in the current tile. Inputs are only read, unless they are the same memory as an output.
    /// The address of an empty buffer may be invalid.
    std::byte* slice(const Layout::Step& step, const Operand& operand) const {
        return in_tile(operand.place, step.at[&operand - step.operands]);
    }
    std::byte* in_tile(Place place, std::size_t at) const {
        return reinterpret_cast<std::byte*>(tile_in_[static_cast<std::size_t>(place)] + at);
    }
    const Layout::Step& current() const { return steps_[cursor_.step]; }
    std::size_t length_in_tile(const Layout::Step& step) const {
        return step.length > tile_offset_ ? std::min(step.length - tile_offset_, job_->tile) : 0;
    }
    bool packs() const { return bound_.program.message_chunks > 1; }  // messages may have several parts

    // Messages are numbered as in Layout::Step::messages of the current step.
    Shortcut send(const Layout::Short& step, std::uint32_t& seen);
    Shortcut receive(const Layout::Short& step, std::uint32_t& seen);
    Shortcut reduce(const Layout::Short& step, const Layout::Step& all, std::uint32_t& seen);
    const std::byte* message(const Receiver& receiver, std::size_t bytes);
    std::byte* source(const Layout::Short& step) const { return in_tile(step.from, step.source_at); }
    std::byte* sink(const Layout::Short& step) const { return in_tile(step.to, step.sink_at); }

    const Connection& connection_of(std::uint32_t message) const;
    bool can_go(std::uint32_t message) const;

    const std::byte* payload(const Operand& source);
    static const std::byte* arrived(const Receiver& receiver, std::size_t end);
    std::byte* payload_room(const Operand& sink);
    const std::byte* shareable_slice() const;
    void touch(const Connection& connection);
    bool settled() const;

    // The rarer cases, kept out of the inlined functions: references, posted receives, parts of messages, cold memory.
    std::uint16_t cold_sources(const Layout::Step& step);
    const std::byte* source_elsewhere(const Connection& connection, const Cell& cell);
    std::byte* slot_or_elsewhere(Outgoing& out, bool alone);
    bool goes_on(Outgoing& out, const Operand& operand, std::size_t& bytes) const;
    void describe_elsewhere(const Outgoing& out) const;

    Rank peer_of(const Connection& connection) const;
    void wake_later(WakeUp& wake_up) {
        std::atomic_signal_fence(std::memory_order_seq_cst);  // as in wake()
        if (wake_up.sleeping.load(std::memory_order_relaxed) != 0) [[unlikely]]
            to_wake_.push_back(&wake_up);
    }
    [[noreturn]] void mismatch(const Connection& connection) const;

    const BoundProgram& bound_;
    const int number_;
    std::vector<Outgoing> to_;
    std::vector<Incoming> from_;
    std::vector<Sender*> senders_;      // of to_, for the short way
    std::vector<Receiver*> receivers_;  // of from_

    // The job; nullptr if it is finished.
    const Job* job_ = nullptr;
    const Layout* layout_ = nullptr;
    const Layout::Step* steps_ = nullptr;
    const Layout::Short* shorts_ = nullptr;
    std::uint32_t step_count_ = 0, tiles_ = 0;  // on this channel
    bool scales_ = false;                       // inputs are multiplied
    Cursor cursor_;
    bool mappable_ = false;  // this rank's buffers are, and those of all ranks behind messages received so far

    // The current tile and step.
    std::size_t tile_offset_ = 0;  // elements, in each block
    std::uintptr_t tile_in_[3]{};  // by Place: where the tile begins in input, output, scratch
    std::size_t bytes_ = 0;        // of the step, in this tile
    std::uint32_t signature_ = 0;  // of the step's messages
    const WakeUp& own_;            // this rank's
    Touching touching_;            // while the step may access a peer's memory
    Reduction reduction_{};
    std::unique_ptr<const void*[]> sources_;  // of reduction_, with room for the longest step
    std::unique_ptr<void*[]> sinks_;
    std::vector<WakeUp*> to_wake_;                  // sleeping peers, woken at the end of the step
    alignas(64) std::atomic<bool> claimed_{false};  // a thread has claim()ed the channel
};

}  // namespace tutti
