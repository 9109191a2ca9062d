// How a communicator ends: its own failures, those it hears of, and waits that can't succeed.
#include <algorithm>
#include <cstring>
#include <thread>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/peer_error.hpp"
#include "comm/communicator.hpp"

namespace tutti {
namespace {

/// How long a peer that is stopped inside a copy is waited for.
constexpr std::chrono::seconds longest_wait{10};

}  // namespace

void Communicator::heard(const Fault& fault) {
    {
        std::lock_guard lock(fault_mutex_);
        if (failed_.load(std::memory_order_relaxed)) return;
        fault_ = copy_of(fault);
        failed_.store(true, std::memory_order_release);
    }
    log(Level::info, "rank %d hears: %s", rank(), fault.text.c_str());
    if (gpu_) gpu_->abort();
    wake(connections_.page().wake_up);
}

std::optional<Fault> Communicator::fault() const {
    if (!failed()) return std::nullopt;
    std::lock_guard lock(fault_mutex_);
    return fault_;
}

/// What error comes from. A rank that dies is met with in many ways before the session tells of it, and so are the
/// ranks that end because of that; then the session's news are on their way.
Fault Communicator::cause_of(const Error& error) {
    const auto* const by_peer = dynamic_cast<const PeerError*>(&error);
    const Rank peer = by_peer == nullptr ? rank() : by_peer->peer();
    if (by_peer != nullptr && peer >= 0 && error.code() == tuttiRemoteError)
        if (const std::optional<Fault> news = session().fault_behind(peer, Clock::now() + std::chrono::seconds(1)))
            return *news;
    return {error.code(), peer, error.what(), rank(), false};
}

/// Needs no memory.
void Communicator::keep(const Error& error) {
    bool first = false;
    Fault cause;
    try {
        if (!failed()) cause = cause_of(error);
    } catch (...) {
        cause = {error.code(), rank(), no_memory, rank(), false};
    }
    const Rank origin = cause.origin;
    {
        std::lock_guard lock(fault_mutex_);
        if (!failed_.load(std::memory_order_relaxed)) {
            fault_ = std::move(cause);
            failed_.store(true, std::memory_order_release);
            first = true;
        }
    }
    if (gpu_) gpu_->abort();
    connections_.page().closed.store(1, std::memory_order_seq_cst);
    full_fence();
    wake(connections_.page().wake_up);
    if (!first) return;
    // What is wrong between ranks is everybody's error; what is wrong here is remote to the others.
    const bool shared = error.code() == tuttiInvalidUsage || error.code() == tuttiTimeout;
    Fault told{shared ? error.code() : tuttiRemoteError, origin, no_memory, rank(), false};
    try {
        const std::string what = error.what(), mine = text("rank %d", rank());
        told.text = shared || what.starts_with(mine) ? what : mine + ": " + what;
    } catch (const std::bad_alloc&) {
        log_caught("the text of an error");
    }
    session().raise(told);
}

void Communicator::fail(const Error& error) {
    keep(error);
    if (gpu_) close_parts(connections_.page().gates);
    if (connections_.engine() != nullptr) connections_.engine()->withdraw();
    // By peers that entered a step before they could see `closed`.
    const std::string doubt = until_untouched();
    if (doubt.empty()) return;
    log(Level::warn, "%s", doubt.c_str());
    const std::lock_guard lock(fault_mutex_);
    if (!fault_.text.ends_with(doubt)) fault_.text += "; " + doubt;
}

/// Waits for peers that are inside a step which may use this rank's memory. Such a step is short, unless its process is
/// stopped: it is waited for until it goes on or dies, for `longest_wait` at most. Empty; or else who may still use it.
std::string Communicator::until_untouched() {
    full_fence();
    const Deadline limit = Clock::now() + std::min<Clock::duration>(options_.timeout, longest_wait);
    const auto touching = [](const RankPage& page) { return page.touching.load(std::memory_order_acquire) != 0; };
    for (Rank peer = 0; peer < ranks(); ++peer) {
        const RankPage* const page = connections_.page_of(peer);
        if (page == nullptr) continue;
        for (int looks = 0; looks < 1000 && touching(*page); ++looks) std::this_thread::yield();
        while (touching(*page) && std::ranges::count(session().dead(), peer) == 0) {
            if (Clock::now() > limit)
                return text(
                    "%s may be stopped inside a copy from or to buffers of rank %d: do not use them for "
                    "anything else, nor free them, before it has gone on or was killed",
                    session().name(peer).c_str(), rank());
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }
    return {};
}

void Communicator::diagnose(HostExecution& execution, std::chrono::nanoseconds waited) {
    const HostExecution::Blocked blocked = execution.blocked_on();
    if (blocked.peer < 0) return;
    const Program& program = execution.program();
    const bool pair = program.collective == Collective::send || program.collective == Collective::recv;
    const Peer* const peer = connections_.find(blocked.peer);
    const RankPage* const page = connections_.page_of(blocked.peer);
    const auto mine = static_cast<std::uint32_t>(connections_.page().sequence.load(std::memory_order_relaxed)) - 1;
    std::string theirs;
    const std::string where = peer == nullptr ? "" : peer->link->describe();
    if (page != nullptr) {
        const auto begun = static_cast<std::uint32_t>(page->sequence.load(std::memory_order_acquire));
        if (!pair && begun - mine - 1 < board_entries) {
            const Call other = page->board[mine % board_entries].get();
            const Call own = connections_.page().board[mine % board_entries].get();
            // A later call may be told of first, by another socket.
            if (other.sequence == mine && other.signature != 0 && other.signature != own.signature)
                fail_by(blocked.peer, tuttiInvalidUsage,
                        "rank %d calls %s, but rank %d calls %s as collective number %u: all ranks must issue the "
                        "same operations "
                        "in the same order with the same count, type, op and root",
                        rank(), call_text(own).c_str(), blocked.peer, call_text(other).c_str(), mine);
        }
        theirs = begun == 0 ? where.empty() ? "has called no collective yet" : "has told of no collective yet"
                            : text("has called %u collectives, the last one %s", begun,
                                   call_text(page->board[(begun - 1) % board_entries].get()).c_str());
    }
    const char* what = blocked.for_message ? "a message from" : "space towards";
    // What came before the peer left may have come after the last look.
    if (connections_.has_left(blocked.peer) && !connections_.poll() && !execution.progress() && !execution.finished())
        fail_by(blocked.peer, tuttiRemoteError,
                "rank %d waits for %s rank %d in %s, which has destroyed its communicator", rank(), what, blocked.peer,
                std::string(name_of(program.collective)).c_str());
    if (waited < options_.timeout) return;
    fail_by(blocked.peer, tuttiTimeout,
            "rank %d waited %.1f s for %s rank %d in %s (channel %d, tile %u, step %u), which %s%s", rank(),
            static_cast<double>(waited.count()) * 1e-9, what, blocked.peer,
            std::string(name_of(program.collective)).c_str(), blocked.channel, blocked.at.tile, blocked.at.step,
            theirs.empty() ? "can't be seen" : theirs.c_str(), where.empty() ? "" : (" (" + where + ")").c_str());
}

PeerError Communicator::error_of(const gpu::Verdict& v) const {
    const Call call = gpu_->call_of(v);
    const std::string mine = call_text(call), whom = v.peer < 0 ? "a peer" : text("rank %d", v.peer);
    const std::string where = text("channel %u, tile %u, step %u", v.channel, v.tile, v.step);
    switch (v.cause) {
        case gpu::Verdict::timed_out:
            return {tuttiTimeout,
                    text("rank %d waited %.1f s for %s %s in %s (%s)%s", rank(),
                         static_cast<double>(options_.timeout.count()) * 1e-3,
                         v.source != 0 ? "a message from" : "space towards", whom.c_str(), mine.c_str(), where.c_str(),
                         connections_.told_by(v.peer).c_str()),
                    v.peer};
        case gpu::Verdict::other_call:
            return {tuttiInvalidUsage,
                    text("rank %d calls %s, but %s calls something else%s: all ranks must issue the same operations in "
                         "the same order with the same count, type, op and root",
                         rank(), mine.c_str(), whom.c_str(), connections_.told_by(v.peer).c_str()),
                    v.peer};
        case gpu::Verdict::few_signals:
        case gpu::Verdict::closed_window:
            return one_sided_error(v);
        default:
            return {tuttiInternalError,
                    text("rank %d: a message from %s in %s (%s): %llu was expected, %llu came", rank(), whom.c_str(),
                         mine.c_str(), where.c_str(), static_cast<unsigned long long>(v.expected),
                         static_cast<unsigned long long>(v.seen)),
                    v.peer};
    }
}

void Communicator::hear_verdict() {
    const gpu::Verdict* const verdict = gpu_->verdict();
    if (verdict == nullptr || failed()) return;
    keep(error_of(*verdict));
    close_parts(connections_.page().gates);
}

void Communicator::throw_verdict() {
    if (gpu_->verdict() == nullptr) return;
    hear_verdict();
    const Fault known = fault().value();
    const Error error(known.code, known.text);
    fail(error);
    throw error;
}

void Communicator::leave() {
    const Deadline limit = Clock::now() + options_.timeout;
    const auto drive = [&] {
        try {
            return connections_.poll();
        } catch (...) {  // nobody there will read it any more
            with_caught([&](const Error& error) { fail(error); });
            return false;
        }
    };
    // While something() and no fault: true if that has ended in time.
    const auto outlast = [&](const auto& something) {
        for (int looks = 0; !failed() && something(); ++looks) {
            if (Clock::now() > limit) return false;
            if (drive()) continue;
            if (looks < 1000)
                std::this_thread::yield();
            else
                std::this_thread::sleep_for(std::chrono::microseconds(500));
        }
        return true;
    };
    // Peers that see the word `leaving` look for nothing else that is to come.
    for (const auto& [peer_rank, its] : connections_.peers())
        outlast([&peer = its] { return peer.link && peer.link->pending(); });
    connections_.page().leaving.store(1, std::memory_order_release);
    close_parts(connections_.page().gates);
    if (gpu_) gpu_->finish();
    for (const auto& [peer_rank, its] : connections_.peers()) {
        const auto unread = [&, peer = peer_rank] {
            return !(suspended_ ? connections_.has_left(peer) : session().has_left(peer)) && connections_.unread(peer);
        };
        if (!connections_.all_in_process() && !outlast(unread))
            log(Level::warn, "rank %d leaves although rank %d has not read all that was sent to it", rank(), peer_rank);
    }
    // Ranks of one process can't wait for each other here: what they have sent stays in the kernel.
    const Deadline brief = Clock::now() + std::chrono::seconds(1);
    Engine* const engine = connections_.engine();
    while (engine != nullptr && engine->pending() && !failed() && Clock::now() < brief)
        if (!drive()) std::this_thread::yield();
    if (!suspended_) session().leave();
}

std::shared_ptr<Session> Communicator::suspend() {
    suspended_ = true;
    leave();
    session().rest();
    return connections_.shared_session();
}

std::vector<Rank> Communicator::failed_ranks() const {
    return session().failed_ranks(fault());
}

Operation Communicator::exchange_of_calls(const Operation& o) {
    my_call_ = {};
    my_call_.signature = 1;
    my_call_.collective = o.collective;
    my_call_.type = o.type;
    my_call_.op = o.call_op;
    my_call_.root = o.root;
    my_call_.count = o.rows ? o.rows->digest() : o.count;
    all_calls_.resize(static_cast<std::size_t>(ranks()));
    my_calls_.assign(gpu_ ? all_calls_.size() : 1, my_call_);
    Operation exchange;
    exchange.collective = gpu_ ? Collective::all_to_all : Collective::all_gather;  // see begin()
    exchange.type = DataType::uint8;
    exchange.count = sizeof(Call);
    exchange.input = my_calls_.data();
    exchange.output = all_calls_.data();
    return exchange;
}

void Communicator::compare_calls() const {
    for (Rank r = 0; r < ranks(); ++r) {
        const Call& theirs = all_calls_[static_cast<std::size_t>(r)];
        if (std::memcmp(&theirs, &my_call_, sizeof(Call)) == 0) continue;
        fail_by(r, tuttiInvalidUsage, "rank %d calls %s, but rank %d calls %s", rank(), call_text(my_call_).c_str(), r,
                call_text(theirs).c_str());
    }
}

}  // namespace tutti
