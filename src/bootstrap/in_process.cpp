// Sessions whose members all live in one process: no sockets, no thread, one shared table.
#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "base/condition.hpp"
#include "base/config.hpp"
#include "base/peer_error.hpp"
#include "bootstrap/agreement.hpp"
#include "bootstrap/directory.hpp"
#include "bootstrap/service.hpp"
#include "bootstrap/session.hpp"

namespace tutti {
namespace bootstrap {
namespace {

using OnFault = std::function<void(const Fault&)>;

struct Seat {
    Bytes info;
    std::map<std::uint64_t, Fd> offers;
    OnFault listener;
    std::thread::id running;  // the thread that is calling the listener
    std::optional<Fault> fault;
    bool left = false;
    std::optional<Agreement> agreement;
    std::map<std::uint64_t, Bytes> notes;  // by exchange
};

struct Job : Agreement::Port {
    std::mutex mutex;
    Condition changed;
    std::vector<Seat> seats;
    const Secret secret = Secret::random();
    std::map<std::uint64_t, int> readers;  // by exchange
    Rank speaker = -1;                     // the rank whose agreement is running
    struct Letter {
        Rank from, to;
        Agree message;
    };
    std::deque<Letter> letters;

    void send(Rank to, const Agree& message) override { letters.push_back({speaker, to, message}); }
    void reach(Rank) override {}
    bool is_gone(Rank rank) const override { return seats[static_cast<std::size_t>(rank)].left; }

    /// Runs act on a rank's agreement, and delivers all messages that follow from it.
    template <class Act>
    void have(Rank rank, Act&& act) {
        speaker = rank;
        act(*seats[static_cast<std::size_t>(rank)].agreement);
        while (!letters.empty()) {
            const Letter letter = std::move(letters.front());
            letters.pop_front();
            speaker = letter.to;
            seats[static_cast<std::size_t>(letter.to)].agreement->received(letter.from, letter.message);
        }
        changed.notify_all();
    }

    /// Calls a rank's listener, once. Releases the lock meanwhile, so that the listener may use its session.
    void tell(Seat& seat, const Fault& fault, std::unique_lock<std::mutex>& lock) {
        if (!seat.listener || seat.left) return;
        const OnFault listener = std::move(seat.listener);
        seat.listener = nullptr;
        seat.running = std::this_thread::get_id();
        lock.unlock();
        listener(fault);
        lock.lock();
        seat.running = {};
        changed.notify_all();
    }
};

class InProcessSession : public Session {
  public:
    InProcessSession(std::shared_ptr<Job> job, Rank rank) : job_(std::move(job)), rank_(rank) {}
    ~InProcessSession() override {
        const bool orderly = has_left(rank_);
        if (!orderly) raise({tuttiRemoteError, rank_, text("rank %d gave up", rank_)});
        leave();
    }

    Rank rank() const override { return rank_; }
    int ranks() const override { return static_cast<int>(job_->seats.size()); }
    std::chrono::microseconds round_trip() const override {
        return std::chrono::microseconds(std::max(0, config().round_trip_us));
    }
    Bytes info(Rank rank) const override { return seat(rank).info; }

    bool is_here(Rank) const override { return true; }
    std::uint64_t process(Rank) const override { return process_id(); }
    Secret secret(std::string_view purpose) const override { return job_->secret.derive(purpose); }

    void offer(std::uint64_t key, const Fd& fd) override {
        Fd copy = fd.duplicate();
        std::lock_guard lock(job_->mutex);
        if (!mine().left) mine().offers[key] = std::move(copy);
        job_->changed.notify_all();
    }
    void withdraw(std::uint64_t key) override {
        std::lock_guard lock(job_->mutex);
        mine().offers.erase(key);
    }
    Fd fetch(Rank peer, std::uint64_t key, Deadline deadline) override;
    void on_fault(OnFault listener) override;
    void raise(const Fault& fault) override;
    std::optional<Fault> fault() const override {
        std::lock_guard lock(job_->mutex);
        return mine().fault;
    }
    std::optional<Fault> fault_behind(Rank peer, Deadline deadline) override;
    std::vector<Rank> dead() const override { return {}; }
    std::vector<Bytes> exchange(std::uint64_t number, View mine, Deadline deadline) override;
    Agreed agree(const std::vector<Rank>& out, bool ok, Deadline deadline) override;
    void leave() override;
    void rest() override {
        std::unique_lock lock(job_->mutex);
        mine().listener = nullptr;
        mine().offers.clear();
        wait_listener(lock);
    }
    bool has_left(Rank peer) const override {
        std::lock_guard lock(job_->mutex);
        return seat(peer).left;
    }

  private:
    void wait_listener(std::unique_lock<std::mutex>& lock);
    Seat& seat(Rank rank) const {
        if (rank < 0 || rank >= ranks()) fail(tuttiInvalidArgument, "there is no rank %d among %d", rank, ranks());
        return job_->seats[static_cast<std::size_t>(rank)];
    }
    Seat& mine() const { return seat(rank_); }

    const std::shared_ptr<Job> job_;
    const Rank rank_;
};

Fd InProcessSession::fetch(Rank peer, std::uint64_t key, Deadline deadline) {
    std::unique_lock lock(job_->mutex);
    Seat& theirs = seat(peer);
    const bool in_time = job_->changed.wait_until(
        lock, deadline, [&] { return theirs.offers.contains(key) || theirs.left || mine().left || mine().fault; });
    if (const auto found = theirs.offers.find(key); found != theirs.offers.end()) return found->second.duplicate();
    if (mine().fault) throw PeerError(mine().fault->code, mine().fault->text, mine().fault->origin);
    if (!in_time)
        fail(tuttiTimeout, "rank %d did not offer descriptor %llu in time", peer, static_cast<unsigned long long>(key));
    fail_by(peer, tuttiRemoteError, "rank %d has left", theirs.left ? peer : rank_);
}

/// A rank that gives up closes its page before it raises the fault, so peers may see the one ahead of the other.
std::optional<Fault> InProcessSession::fault_behind(Rank peer, Deadline deadline) {
    if (const auto service = Service::running(); service && service->is_this_thread()) return fault();
    std::unique_lock lock(job_->mutex);
    const Seat& theirs = seat(peer);
    job_->changed.wait_until(lock, deadline, [&] { return mine().fault || mine().left || theirs.left; });
    return mine().fault;
}

std::vector<Bytes> InProcessSession::exchange(std::uint64_t number, View bytes, Deadline deadline) {
    std::unique_lock lock(job_->mutex);
    mine().notes[number] = Bytes(bytes.begin(), bytes.end());
    job_->changed.notify_all();
    Rank missing = -1;
    const auto over = [&] {
        missing = -1;
        for (Rank r = 0; r < ranks(); ++r) {
            if (seat(r).notes.contains(number)) continue;
            missing = r;
            if (seat(r).left) return true;
        }
        return missing < 0 || mine().left;
    };
    const bool in_time = job_->changed.wait_until(lock, deadline, over);
    if (missing >= 0 && in_time) fail_by(missing, tuttiRemoteError, "rank %d has destroyed its communicator", missing);
    if (missing >= 0) fail_by(missing, tuttiTimeout, "rank %d did not call the same function in time", missing);
    std::vector<Bytes> all;
    for (Rank r = 0; r < ranks(); ++r) all.push_back(seat(r).notes.at(number));
    if (++job_->readers[number] == ranks()) {
        job_->readers.erase(number);
        for (Seat& s : job_->seats) s.notes.erase(number);
    }
    return all;
}

Agreed InProcessSession::agree(const std::vector<Rank>& out, bool ok, Deadline deadline) {
    std::unique_lock lock(job_->mutex);
    Agreement& agreement = *mine().agreement;
    if (!mine().left) job_->have(rank_, [&](Agreement& a) { a.begin(out, ok); });
    job_->changed.wait_until(lock, deadline, [&] { return mine().left || !agreement.is_under_way(); });
    if (mine().left) fail(tuttiRemoteError, "rank %d has left", rank_);
    const Agreement::Value& value = agreement.outcome();
    if (!agreement.is_under_way()) return {value.ok, value.number, value.out, {}};
    const std::vector<Rank> awaited = agreement.awaited();
    agreement.cancel();
    fail(tuttiTimeout, "rank %d waited for rank%s %s to agree on who is left, until the time-out", rank_,
         awaited.size() == 1 ? "" : "s", list_ranks(awaited).c_str());
}

void InProcessSession::on_fault(OnFault listener) {
    std::unique_lock lock(job_->mutex);
    if (mine().left) return;
    mine().listener = std::move(listener);
    if (const auto fault = mine().fault) job_->tell(mine(), *fault, lock);
}

void InProcessSession::raise(const Fault& raised) {
    Fault fault = copy_of(raised);
    fault.teller = rank_;
    fault.died = fault.silent = false;
    std::unique_lock lock(job_->mutex);
    if (mine().fault) return;
    mine().fault = copy_of(fault);
    mine().listener = nullptr;  // the rank that raises a fault is not told of it
    for (Seat& s : job_->seats)
        if (!s.fault) s.fault = copy_of(fault);
    job_->changed.notify_all();
    for (Seat& s : job_->seats) job_->tell(s, fault, lock);
}

void InProcessSession::leave() {
    std::unique_lock lock(job_->mutex);
    mine().left = true;
    mine().listener = nullptr;
    mine().offers.clear();
    for (Rank r = 0; r < ranks(); ++r) {
        if (r == rank_)
            mine().agreement->cancel();
        else
            job_->have(r, [&](Agreement& agreement) { agreement.lost(rank_); });
    }
    job_->changed.notify_all();
    wait_listener(lock);
}

void InProcessSession::wait_listener(std::unique_lock<std::mutex>& lock) {
    job_->changed.wait(
        lock, [&] { return mine().running == std::thread::id{} || mine().running == std::this_thread::get_id(); });
}

}  // namespace
}  // namespace bootstrap

std::vector<std::shared_ptr<Session>> Session::in_process(std::vector<std::vector<std::byte>> infos) {
    using namespace bootstrap;
    start_crypto();
    auto job = std::make_shared<Job>();
    job->seats.resize(infos.size());
    std::vector<std::shared_ptr<Session>> sessions;
    for (std::size_t r = 0; r < infos.size(); ++r) {
        if (infos[r].size() > endpoint_info_limit)
            fail(tuttiInvalidArgument, "an endpoint info of %zu bytes: at most %zu are possible", infos[r].size(),
                 endpoint_info_limit);
        job->seats[r].info = std::move(infos[r]);
        job->seats[r].agreement.emplace(static_cast<Rank>(r), static_cast<int>(infos.size()), *job);
        sessions.push_back(std::make_shared<InProcessSession>(job, static_cast<Rank>(r)));
    }
    return sessions;
}

}  // namespace tutti
