#include "comm/faults.hpp"

#include <algorithm>
#include <functional>
#include <thread>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/peer_error.hpp"

namespace tutti {
namespace {

/// How long to wait for a peer that is stopped inside a copy.
constexpr std::chrono::seconds longest_wait{10};

/// error_of() for a put, a get or a wait for signals.
PeerError one_sided_error(const gpu::Verdict& v, const Connections& connections, std::chrono::milliseconds timeout) {
    if (v.cause == gpu::Verdict::few_signals)
        return {
            tuttiTimeout,
            text("rank %d waited %.1f s for %llu signals %u of rank %d, of which %llu have come%s", connections.rank(),
                 static_cast<double>(timeout.count()) * 1e-3, static_cast<unsigned long long>(v.expected), v.channel,
                 v.peer, static_cast<unsigned long long>(v.seen), connections.told_by(v.peer).c_str()),
            v.peer};
    if (v.peer != connections.rank() && connections.session().has_left(v.peer))
        return {tuttiRemoteError,
                text("rank %d %s rank %d, which has destroyed its communicator", connections.rank(),
                     v.source == 1 ? "gets from" : "puts to", v.peer),
                v.peer};
    return {tuttiInvalidUsage,
            text("rank %d %s %llu bytes %s a window that rank %d has deregistered", connections.rank(),
                 v.source == 1 ? "gets" : "puts", static_cast<unsigned long long>(v.expected),
                 v.source == 1 ? "from" : "into", v.peer),
            v.peer};
}

/// The error that a kernel's verdict on `call` stands for.
PeerError error_of(const gpu::Verdict& v, const Call& call, const Connections& connections,
                   std::chrono::milliseconds timeout) {
    const std::string mine = call_text(call), whom = v.peer < 0 ? "a peer" : text("rank %d", v.peer);
    const std::string where = text("channel %u, tile %u, step %u", v.channel, v.tile, v.step);
    switch (v.cause) {
        case gpu::Verdict::timed_out:
            return {
                tuttiTimeout,
                text("rank %d waited %.1f s for %s %s in %s (%s)%s", connections.rank(),
                     static_cast<double>(timeout.count()) * 1e-3, v.source != 0 ? "a message from" : "space towards",
                     whom.c_str(), mine.c_str(), where.c_str(), connections.told_by(v.peer).c_str()),
                v.peer};
        case gpu::Verdict::other_call:
            return {tuttiInvalidUsage,
                    text("rank %d calls %s, but %s calls something else%s: all ranks must issue the same operations in "
                         "the same order with the same count, type, op and root, and with buffers in windows of "
                         "TUTTI_WIN_COLL_SYMMETRIC on all ranks or on none",
                         connections.rank(), mine.c_str(), whom.c_str(), connections.told_by(v.peer).c_str()),
                    v.peer};
        case gpu::Verdict::few_signals:
        case gpu::Verdict::closed_window:
            return one_sided_error(v, connections, timeout);
        default:
            return {tuttiInternalError,
                    text("rank %d: a message from %s in %s (%s): %llu was expected, %llu came", connections.rank(),
                         whom.c_str(), mine.c_str(), where.c_str(), static_cast<unsigned long long>(v.expected),
                         static_cast<unsigned long long>(v.seen)),
                    v.peer};
    }
}

}  // namespace

void Faults::listen() {
    connections_.session().on_fault([this](const Fault& fault) { hear(fault); });
}

void Faults::raise() const {
    throw error();
}

void Faults::hear(const Fault& fault) {
    {
        std::lock_guard lock(mutex_);
        if (failed_.load(std::memory_order_relaxed)) return;
        fault_ = copy_of(fault);
        failed_.store(true, std::memory_order_release);
    }
    log(Level::info, "rank %d hears: %s", connections_.rank(), fault.text.c_str());
    if (gpu_ != nullptr) gpu_->abort();
    wake(connections_.page().wake_up);
}

std::optional<Fault> Faults::fault() const {
    if (!failed()) return std::nullopt;
    std::lock_guard lock(mutex_);
    return fault_;
}

/// The fault behind `error`. A rank's death shows in many ways before the session tells of it, and so does the end of
/// the ranks that fail because of it. For a remote error it therefore waits for the session's news, 1 s at most.
Fault Faults::cause_of(const Error& error) const {
    const auto* const by_peer = dynamic_cast<const PeerError*>(&error);
    const Rank peer = by_peer == nullptr ? connections_.rank() : by_peer->peer();
    if (by_peer != nullptr && peer >= 0 && error.code() == tuttiRemoteError)
        if (const std::optional<Fault> news =
                connections_.session().fault_behind(peer, Clock::now() + std::chrono::seconds(1)))
            return *news;
    return {error.code(), peer, error.what(), connections_.rank(), false};
}

Error Faults::error() const {
    const std::lock_guard lock(mutex_);
    return {fault_.code, fault_.text};
}

/// All of fail() but the waiting: keeps the error if it is the first one, stops the kernels, closes the page and tells
/// the other ranks. Works without memory.
void Faults::keep(const Error& error) {
    bool first = false;
    Fault cause;
    try {
        if (!failed()) cause = cause_of(error);
    } catch (...) {
        cause = {error.code(), connections_.rank(), no_memory, connections_.rank(), false};
    }
    const Rank origin = cause.origin;
    {
        std::lock_guard lock(mutex_);
        if (!failed_.load(std::memory_order_relaxed)) {
            fault_ = std::move(cause);
            failed_.store(true, std::memory_order_release);
            first = true;
        }
    }
    if (gpu_ != nullptr) gpu_->abort();
    connections_.page().closed.store(1, std::memory_order_seq_cst);
    full_fence();
    wake(connections_.page().wake_up);
    if (!first) return;
    // Wrong usage and time-outs are errors of all ranks alike; any other error of this rank is a remote one to the
    // others.
    const bool shared = error.code() == tuttiInvalidUsage || error.code() == tuttiTimeout;
    Fault told{shared ? error.code() : tuttiRemoteError, origin, no_memory, connections_.rank(), false};
    try {
        const std::string what = error.what(), mine = text("rank %d", connections_.rank());
        told.text = shared || what.starts_with(mine) ? what : mine + ": " + what;
    } catch (const std::bad_alloc&) {
        log_caught("the text of an error");
    }
    connections_.session().raise(told);
}

void Faults::fail(const Error& error) {
    keep(error);
    if (gpu_ != nullptr) close_parts(connections_.page().gates);
    if (connections_.engine() != nullptr) connections_.engine()->withdraw();
    // Peers may have entered a step before they could see `closed`.
    const std::string doubt = until_untouched();
    if (doubt.empty()) return;
    log(Level::warn, "%s", doubt.c_str());
    const std::lock_guard lock(mutex_);
    if (!fault_.text.ends_with(doubt)) fault_.text += "; " + doubt;
}

/// Waits for peers inside a step that may use this rank's memory. Such a step is short unless the peer's process is
/// stopped: then waits until it goes on or dies, `longest_wait` or the time-out at most. Returns which peer may still
/// use the memory, as a text; empty if none.
std::string Faults::until_untouched() const {
    full_fence();
    const Deadline limit = Clock::now() + std::min<Clock::duration>(timeout_, longest_wait);
    const auto touching = [](const RankPage& page) { return touching_threads(page) != 0; };
    for (Rank peer = 0; peer < connections_.ranks(); ++peer) {
        const RankPage* const page = connections_.page_of(peer);
        if (page == nullptr) continue;
        for (int looks = 0; looks < 1000 && touching(*page); ++looks) std::this_thread::yield();
        while (touching(*page) && std::ranges::count(connections_.session().dead(), peer) == 0) {
            if (Clock::now() > limit)
                return text(
                    "%s may be stopped inside a copy from or to buffers of rank %d: do not use them for "
                    "anything else, nor free them, before it has gone on or was killed",
                    connections_.session().name(peer).c_str(), connections_.rank());
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    return {};
}

bool Faults::close_parts(std::span<std::atomic<std::uint32_t>> gates) {
    bool any = false;
    for (auto& gate : gates) any |= gate.exchange(0, std::memory_order_seq_cst) != 0;
    if (!any || gpu_ == nullptr) return !any || until_untouched().empty();
    const auto first = static_cast<std::uint32_t>(&gates.front() - connections_.page().gates);
    return gpu_->boards().close(first, static_cast<std::uint32_t>(gates.size()), timeout_);
}

void Faults::diagnose(HostExecution& execution, Standstill& still) const {
    HostExecution::Blocked blocked;  // the first waiting channel's
    std::uint64_t motion = 0;
    const auto note = [&](const HostExecution::Blocked& one) {
        if (blocked.peer < 0) blocked = one;
        motion += connections_.motion(one.peer);
    };
    execution.blocked_on(std::ref(note));  // by reference, so that it takes no memory
    if (blocked.peer < 0) return;
    const std::chrono::nanoseconds waited = still.lasted(motion);
    const Program& program = execution.program();
    const bool pair = program.collective == Collective::send || program.collective == Collective::recv;
    const Peer* const peer = connections_.find(blocked.peer);
    const RankPage* const page = connections_.page_of(blocked.peer);
    const auto mine = static_cast<std::uint32_t>(connections_.page().sequence.load(std::memory_order_relaxed)) - 1;
    const auto begun = page == nullptr ? 0 : static_cast<std::uint32_t>(page->sequence.load(std::memory_order_acquire));
    if (!pair && page != nullptr && begun - mine - 1 < board_entries) {
        const Call other = page->board[mine % board_entries].get();
        const Call own = connections_.page().board[mine % board_entries].get();
        // Over several sockets, the news of a later call may arrive first.
        if (other.sequence == mine && other.signature != 0 && other.signature != own.signature)
            fail_by(blocked.peer, tuttiInvalidUsage,
                    "rank %d calls %s, but rank %d calls %s as collective number %u: all ranks must issue the same "
                    "operations in the same order with the same count, type, op and root",
                    connections_.rank(), call_text(own).c_str(), blocked.peer, call_text(other).c_str(), mine);
    }
    const char* what = blocked.for_message ? "a message from" : "space towards";
    if (connections_.has_left(blocked.peer)) {
        // What the peer sent before it left may have arrived since the last look.
        const std::uint64_t before = connections_.motion(blocked.peer);
        connections_.poll();
        const bool moved = execution.progress();
        if (moved) still.moved();
        if (moved || execution.finished() || connections_.motion(blocked.peer) != before) return;
        fail_by(blocked.peer, tuttiRemoteError,
                "rank %d waits for %s rank %d in %s, which has destroyed its communicator", connections_.rank(), what,
                blocked.peer, std::string(name_of(program.collective)).c_str());
    }
    if (waited < timeout_) return;
    const std::string theirs = connections_.last_call_of(blocked.peer);
    const std::string where = peer == nullptr ? "" : peer->link->describe();
    fail_by(blocked.peer, tuttiTimeout,
            "rank %d waited %.1f s for %s rank %d in %s (channel %d, tile %u, step %u), which %s%s",
            connections_.rank(), static_cast<double>(waited.count()) * 1e-9, what, blocked.peer,
            std::string(name_of(program.collective)).c_str(), blocked.channel, blocked.at.tile, blocked.at.step,
            theirs.empty() ? "can't be seen" : theirs.c_str(), where.empty() ? "" : (" (" + where + ")").c_str());
}

void Faults::hear_verdict() {
    const gpu::Verdict* const verdict = gpu_->verdict();
    if (verdict == nullptr || failed()) return;
    keep(error_of(*verdict, gpu_->call_of(*verdict), connections_, timeout_));
    close_parts(connections_.page().gates);
}

void Faults::throw_verdict() {
    if (gpu_->verdict() == nullptr) return;
    hear_verdict();
    fail(error());
    check();
}

}  // namespace tutti
