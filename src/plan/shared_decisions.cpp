#include "plan/shared_decisions.hpp"

#include <chrono>
#include <utility>

#include "base/os.hpp"

namespace tutti {
namespace {

// A decision takes some 10 ms of a core. Whoever takes much longer is stopped or dead.
constexpr std::chrono::seconds longest_wait{1};

}  // namespace

void SharedDecisions::Duty::fulfil(const Decision& d) {
    if (entry_ == nullptr) return;
    entry_->algorithm = d.algorithm;
    entry_->columns = d.columns;
    entry_->message_chunks = d.message_chunks;
    entry_->sends_slices = d.sends_slices;
    entry_->rows = d.rows;
    entry_->tile = d.tile;
    entry_->channels = d.channels;
    entry_->threads = d.threads;
    entry_->time = d.time;
    end(decided);
}

void SharedDecisions::Duty::end(std::uint32_t state) {
    if (entry_ == nullptr) return;
    SharedDecision& entry = *std::exchange(entry_, nullptr);
    entry.state.store(state, std::memory_order_release);
    futex_wake_all(entry.state);
}

std::optional<Decision> SharedDecisions::ask(std::uint64_t question, Duty& duty) {
    for (SharedDecision& entry : page_.decisions) {
        std::uint64_t its = 0;
        if (entry.question.compare_exchange_strong(its, question)) return duty.entry_ = &entry, std::nullopt;
        if (its != question) continue;
        const Deadline limit = Clock::now() + longest_wait;
        std::uint32_t state;
        while ((state = entry.state.load(std::memory_order_acquire)) == deciding) {
            const Clock::duration left = limit - Clock::now();
            if (left <= Clock::duration::zero()) return std::nullopt;
            futex_wait(entry.state, deciding, left);
        }
        if (state != decided) return std::nullopt;
        return Decision{entry.algorithm,         entry.columns, entry.message_chunks,
                        entry.sends_slices != 0, entry.rows,    entry.tile,
                        entry.channels,          entry.threads, entry.time};
    }
    return std::nullopt;
}

}  // namespace tutti
