#include "comm/driver.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/caught.hpp"
#include "comm/backoff.hpp"
#include "comm/standstill.hpp"

namespace tutti {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// What a look has moved: nothing; only something else than the operation, or than some of several operations; or the
/// operation itself, or all of them.
enum class Motion { none, elsewhere, own };

/// Keeps helpers out of the open execution while it lives, so that its channels stand still for diagnose().
class Paused {
  public:
    /// crew: may be nullptr.
    explicit Paused(Crew* crew) : crew_(crew), execution_(crew != nullptr ? crew->close() : nullptr) {}
    ~Paused() {
        if (execution_ != nullptr) crew_->open(*execution_);
    }
    Paused(const Paused&) = delete;

  private:
    Crew* const crew_;
    HostExecution* const execution_;
};

/// The operations of one batch while they run, in queues whose heads are under way. Its destructor ends the batch's
/// turn.
class Work {
  public:
    explicit Work(Batch& batch) : comm_(*batch.comm), turn_(batch.turn), compare_only_(batch.compare_only) {
        for (const Operation& o : batch.operations)
            if (o.is_pair() && o.root == comm_.rank())
                to_itself_.push_back(o);
            else
                queues_[o.queue()].operations.push_back(o);
    }
    ~Work() {
        end_sharing();
        turn_.end();
    }
    Work(const Work&) = delete;

    Communicator& comm() { return comm_; }
    /// Sends the helpers out, before the buffers go back to their users.
    void end_sharing() {
        if (std::exchange(sharing_, false)) comm_.crew()->close();
    }
    TicketLock::Turn await_turn() { return turn_.await(); }
    bool finished() const { return queues_.empty() && to_itself_.empty(); }
    /// Whether threads of the rank share any of the operations.
    bool shares() {
        if (comm_.crew() == nullptr) return false;
        return std::ranges::any_of(queues_, [&](const auto& q) {
            return std::ranges::any_of(q.second.operations,
                                       [&](const Operation& o) { return comm_.planner().threads_of(o) > 1; });
        });
    }
    HostExecution* any() { return queues_.empty() ? nullptr : queues_.begin()->second.running; }

    Motion progress() {
        bool moved = !to_itself_.empty(), stands = false;
        for (const Operation& o : to_itself_)  // the send's buffer is the receive's input
            if (o.collective == Collective::recv) std::memmove(o.output, o.input, o.count * size_of(o.type));
        to_itself_.clear();
        for (auto q = queues_.begin(); q != queues_.end();) {
            Queue& queue = q->second;
            const OneSided* const o = queue.operations.front().one_sided;
            const bool its = o != nullptr ? advance(*o, queue) : run(queue, q->first);
            if (its) queue.still.moved();
            moved |= its;
            stands |= !its;
            q = queue.operations.empty() ? queues_.erase(q) : std::next(q);
        }
        moved |= comm_.connections().poll();
        if (finished()) comm_.connections().rest(false);
        return !stands ? Motion::own : moved ? Motion::elsewhere : Motion::none;
    }
    void diagnose() {
        const Paused alone(sharing_ ? comm_.crew() : nullptr);
        for (auto& [number, queue] : queues_)
            if (queue.running != nullptr)
                comm_.faults().diagnose(*queue.running, queue.still);
            else if (const OneSided* const o = queue.operations.front().one_sided)
                comm_.windows().diagnose(*o, queue.still);
    }

  private:
    struct Queue {
        std::deque<Operation> operations;
        HostExecution* running = nullptr;
        bool comparing = false, compared = false;  // check: `running` is the exchange of calls; it has run
        std::size_t put = 0;                       // bytes done of the one-sided operation at the head
        std::size_t asked = 0;                     // gets at the head that another host was asked for
        Standstill still = {};                     // of the operation at the head
    };

    void begin_sharing(HostExecution& execution) {
        sharing_ = true;
        comm_.crew()->open(execution);
    }
    /// Progresses the operation at the head, which is not one-sided, and begins it first if need be; true if it moved.
    bool run(Queue& queue, int number) {
        if (queue.running == nullptr) {
            queue.comparing = comm_.options().check && number == 0 && !queue.compared;
            const Operation& next = queue.operations.front();
            queue.running = &comm_.begin(queue.comparing ? comm_.comparison().exchange(next) : next);
            if (queue.running->threads() > 1) begin_sharing(*queue.running);
        }
        const bool shared = queue.running->threads() > 1;
        bool moved = queue.running->progress();
        if (shared) moved |= comm_.crew()->news();
        if (!queue.running->finished()) return moved;
        if (shared) end_sharing();
        queue.running = nullptr;
        if (queue.comparing) comm_.comparison().check();
        queue.compared = queue.comparing && !compare_only_ && queue.operations.front().moves();
        if (!queue.compared) queue.operations.pop_front();
        return true;
    }
    /// Progresses the one-sided operation at the head; true if anything moved. Gets that follow each other are asked
    /// for at once. A put waits for the gets before it, since it may send what they get.
    bool advance(const OneSided& operation, Queue& queue) {
        const std::size_t before = queue.put, asked = queue.asked;
        const auto& all = queue.operations;
        while (queue.asked < all.size() && comm_.windows().ask(*all[queue.asked].one_sided)) ++queue.asked;
        if (!comm_.windows().advance(operation, queue.put)) return queue.put != before || queue.asked != asked;
        queue.operations.pop_front();
        queue.put = 0;
        if (queue.asked > 0) --queue.asked;
        return true;
    }
    Communicator& comm_;
    Reservation& turn_;
    const bool compare_only_;
    std::map<int, Queue> queues_;
    std::vector<Operation> to_itself_;
    bool sharing_ = false;  // helpers are let into what runs in queue 0
};

/// Sleeps until a peer wakes comm, for `at_most` at most. look() is the last look before that. If the kernel can fence
/// all cores, no later wake-up is missed; otherwise one can be, and the sleep takes 1 ms at most. rest() hands the
/// network to the background. Does not sleep if either returns true.
template <class Look, class Rest>
void sleep_on(Communicator& comm, std::chrono::nanoseconds at_most, Look&& look, Rest&& rest) {
    WakeUp& wake_up = comm.connections().page().wake_up;
    const bool all_fence = comm.waiting().all_fence;
    const std::uint32_t word = wake_up.word.load(std::memory_order_acquire);
    wake_up.sleeping.store(1, std::memory_order_seq_cst);
    const bool wake_ups_reach_us = all_fence && fence_all_cores();
    if (!look() && !rest()) futex_wait(wake_up.word, word, wake_ups_reach_us ? at_most : milliseconds(1));
    wake_up.sleeping.store(0, std::memory_order_relaxed);
}

/// Where something else moves again and again, what stands still is diagnosed once in so many of these motions. They
/// are less than a sleep apart.
constexpr unsigned motions_per_diagnosis = 64;

/// Progresses `work` until it is finished; spins, yields and sleeps while nothing moves. work.finished() may throw.
template <class Work>
void look_after(Work& work, Backoff& backoff) {
    unsigned elsewhere = 0;  // motions elsewhere since the last one of the work's own
    while (!work.finished()) {
        if (const Motion motion = work.progress(); motion != Motion::none) {
            backoff.reset();
            elsewhere = motion == Motion::own ? 0 : elsewhere + 1;
            if (elsewhere % motions_per_diagnosis == motions_per_diagnosis - 1) work.diagnose();
            continue;
        }
        if (backoff.stay_awake(work.execution())) continue;
        Motion news = Motion::none;
        const auto look = [&] { return (news = work.progress()) != Motion::none; };
        const auto rest = [&] { return (news = work.rest() ? Motion::elsewhere : Motion::none) != Motion::none; };
        sleep_on(work.wakes(), work.longest_sleep(), look, rest);
        if (news == Motion::none) news = work.progress();
        if (news != Motion::own) work.diagnose();
        if (news == Motion::none) continue;
        backoff.reset();
        work.rouse();
    }
}

/// One operation that this thread runs alone.
class Single {
  public:
    Single(Communicator& comm, HostExecution& execution) : comm_(comm), execution_(execution) {}
    bool finished() const {
        if (execution_.finished()) return true;
        comm_.faults().check();
        return false;
    }
    [[gnu::hot]] Motion progress() {
        const bool moved = execution_.progress();
        if (moved) still_.moved();
        if (execution_.finished()) return Motion::own;
        const bool polled = comm_.connections().poll(), failed = comm_.faults().failed();
        return moved ? Motion::own : polled || failed ? Motion::elsewhere : Motion::none;
    }
    void rouse() const {}
    bool rest() { return comm_.connections().rest(true); }
    void diagnose() {
        if (!finished()) comm_.faults().diagnose(execution_, still_);
    }
    HostExecution* execution() const { return &execution_; }
    Communicator& wakes() const { return comm_; }
    milliseconds longest_sleep() const { return milliseconds(20); }

  protected:
    Standstill still_;

  private:
    Communicator& comm_;
    HostExecution& execution_;
};

/// One operation that the rank's threads share. The destructor returns when no helper is inside any more.
class Shared : public Single {
  public:
    Shared(Communicator& comm, HostExecution& execution) : Single(comm, execution), crew_(*comm.crew()) {
        crew_.open(execution);
    }
    ~Shared() { crew_.close(); }
    Motion progress() {
        const Motion motion = Single::progress();
        if (!crew_.news()) return motion;
        still_.moved();
        return Motion::own;
    }
    void diagnose() {
        const Paused alone(&crew_);
        if (progress() != Motion::own) Single::diagnose();
    }
    void rouse() { crew_.rouse(); }

  private:
    Crew& crew_;
};

/// Not inlined, so that the path of operations that are not shared stays compact.
[[gnu::noinline]] void run_shared(Communicator& comm, HostExecution& execution) {
    comm.crew()->run([&] {
        Backoff backoff(comm.waiting().oversubscribed || comm.waiting().crowded, false,
                        comm.connections().page().wake_up, comm.waiting().trust_in_yields);
        Shared shared(comm, execution);
        look_after(shared, backoff);
    });
}

/// The batches that one thread runs side by side, and the first error of those that have ended.
class SharedThread {
  public:
    explicit SharedThread(std::span<Batch> batches) {
        for (Batch& batch : batches) work_.push_back(std::make_unique<Work>(batch));
    }
    std::optional<Error> run() {
        await_turns();
        if (work_.empty()) return std::move(first_);
        bool oversubscribed = work_.size() > 1;
        for (const auto& w : work_) {
            const Waiting& waiting = w->comm().waiting();
            oversubscribed |= waiting.oversubscribed || (waiting.crowded && w->shares());
        }
        microseconds trust = wakes().waiting().trust_in_yields;
        const auto work_off = [&] {
            Backoff backoff(oversubscribed, false, wakes().connections().page().wake_up, trust);
            look_after(*this, backoff);
        };
        if (Crew* const crew = lender())
            crew->run(work_off);
        else
            work_off();
        return std::move(first_);
    }

    bool finished() const { return work_.empty(); }
    Motion progress() {
        return look([](Work& w) { return w.progress(); });
    }
    void rouse() {
        for (auto& w : work_)
            if (w->comm().crew() != nullptr) w->comm().crew()->rouse();
    }
    bool rest() {
        bool moved = false;
        for (auto& w : work_) moved |= w->comm().connections().rest(true);
        return moved;
    }
    void diagnose() {
        look([](Work& w) { return w.diagnose(), Motion::none; });
    }
    HostExecution* execution() const { return nullptr; }
    /// The ranks that this thread drives wake each other by running. It can sleep on only one rank's wake-up, so with
    /// several ranks the sleep is short.
    Communicator& wakes() const { return work_.front()->comm(); }
    milliseconds longest_sleep() const { return work_.size() == 1 ? milliseconds(20) : milliseconds(1); }

  private:
    /// Calls act for every batch. A batch whose communicator fails ends; the others go on (they hear of the fault if it
    /// concerns them).
    template <class Act>
    Motion look(Act&& act) {
        bool any = false, all = true;
        for (auto w = work_.begin(); w != work_.end();) {
            Communicator& comm = (*w)->comm();
            try {
                comm.faults().check();
                const Motion its = act(**w);
                any |= its != Motion::none;
                all &= its == Motion::own;
            } catch (...) {
                (*w)->end_sharing();
                with_caught([&](const Error& error) { comm.faults().fail(error); });
                if (!first_) first_ = comm.faults().error();
                w = work_.erase(w);
                any = true;
                continue;
            }
            w = (*w)->finished() ? work_.erase(w) : std::next(w);
        }
        return all ? Motion::own : any ? Motion::elsewhere : Motion::none;
    }

    /// Waits until all batches have their turns. A batch whose communicator fails meanwhile ends at once.
    void await_turns() {
        for (bool all_inside = false; !all_inside;) {
            all_inside = true;
            look([&](Work& w) {
                // Only the first batch that is outside waits: the turns come in any order.
                if (all_inside) all_inside = w.await_turn() == TicketLock::Turn::inside;
                return Motion::none;
            });
        }
    }

    /// The crew of the first communicator with a call to share; nullptr if there is none. Threads are lent for one
    /// communicator of a group only.
    Crew* lender() {
        const auto found = std::ranges::find_if(work_, [](const auto& w) { return w->shares(); });
        return found == work_.end() ? nullptr : (*found)->comm().crew();
    }

    std::vector<std::unique_ptr<Work>> work_;
    std::optional<Error> first_;
};

}  // namespace

namespace {

/// Runs what begin() begins.
template <class Begin>
inline void run(Communicator& comm, Begin&& begin) {
    comm.faults().check();
    try {
        HostExecution& execution = begin();
        if (execution.threads() > 1) [[unlikely]] {
            run_shared(comm, execution);
        } else {
            Single single(comm, execution);
            single.progress();  // what is sent now is under way while this rank prepares to wait
            if (!execution.finished()) {
                Waiting& waiting = comm.waiting();
                Backoff backoff(waiting.oversubscribed, waiting.alone, comm.connections().page().wake_up,
                                waiting.trust_in_yields);
                look_after(single, backoff);
            }
        }
        comm.connections().rest(false);
    } catch (const Error& error) {
        comm.faults().fail(error);
        comm.faults().check();  // the fault may be the cause behind this error
    } catch (...) {
        comm.faults().fail(caught());
        throw;
    }
}

}  // namespace

void run_one(Communicator& comm, const Operation& operation) {
    run(comm, [&]() -> HostExecution& { return comm.begin(operation); });
}

[[gnu::hot]] void run_again(Communicator& comm, const void* input, void* output) {
    run(comm, [&]() -> HostExecution& { return comm.begin_again(input, output); });
}

std::optional<Error> run_batches(std::span<Batch> batches) {
    try {
        return SharedThread(batches).run();
    } catch (...) {
        const Error error = caught();  // the operations will not run any more, and other ranks wait for them
        for (Batch& batch : batches) batch.comm->faults().fail(error);
        return error;
    }
}

}  // namespace tutti
