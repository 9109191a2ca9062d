#include "comm/group.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>

#include "base/caught.hpp"
#include "base/per_thread.hpp"
#include "base/thread.hpp"
#include "comm/components.hpp"
#include "comm/gpu_launch.hpp"
#include "plan/pieces.hpp"

namespace tutti {
namespace {

/// Matches each send of a rank to itself with a receive from itself, in order. The receives do the copies; the sends
/// stay for the order on their streams. Throws tuttiInvalidUsage if one has no counterpart, or they differ in size or
/// type.
void copy_to_self(std::vector<Issued>& calls) {
    std::vector<CallToSelf> kinds;
    for (const Issued& call : calls) {
        const Operation& o = call.operation;
        const bool to_self = o.is_pair() && o.root == call.comm->rank();
        const auto kind = o.collective == Collective::send ? CallToSelf::Kind::send : CallToSelf::Kind::receive;
        kinds.push_back({call.comm.get(), to_self ? kind : CallToSelf::Kind::none});
    }
    const std::vector<std::size_t> meets = meetings_of(kinds);
    for (std::size_t i = 0; i < calls.size(); ++i) {
        if (kinds[i].kind == CallToSelf::Kind::none) continue;
        const Operation& o = calls[i].operation;
        const bool sends = kinds[i].kind == CallToSelf::Kind::send;
        if (meets[i] == unmet)
            fail(tuttiInvalidUsage, "rank %d %s itself without a %s itself in the same group", o.root,
                 sends ? "sends to" : "receives from", sends ? "receive from" : "send to");
        if (!sends) continue;
        Issued& receive = calls[meets[i]];
        if (receive.operation.count != o.count || receive.operation.type != o.type)
            fail(tuttiInvalidUsage,
                 "rank %d sends itself %zu elements and receives %zu from itself, or the types differ", o.root, o.count,
                 receive.operation.count);
        receive.operation.input = o.input;
        receive.sender_stream = calls[i].gpu_stream;
    }
}

std::vector<Batch> batches_of(const std::vector<Issued>& calls) {
    std::vector<Batch> batches;
    for (const Issued& call : calls) {
        auto batch = std::find_if(batches.begin(), batches.end(), [&](const Batch& b) { return b.comm == call.comm; });
        if (batch == batches.end()) {
            batches.push_back({call.comm, {}});
            batch = std::prev(batches.end());
        }
        batch->operations.push_back(call.operation);
        if (call.kept) batch->kept.push_back(call.kept);
    }
    return batches;
}

/// Synchronizes the streams of a component. One of them does the work, after all others have come to it; the others go
/// on when it has ended. Neither waits if all communicators of the component have failed: operations of others may hold
/// up a stream for long.
class Rendezvous {
  public:
    Rendezvous(std::size_t others, std::span<const Batch> batches) : missing_(static_cast<std::uint32_t>(others)) {
        for (const Batch& batch : batches) comms_.push_back(batch.comm);
    }
    /// For the other streams.
    void come_and_wait() {
        if (missing_.fetch_sub(1, std::memory_order_acq_rel) == 1) futex_wake_all(missing_);
        while (over_.load(std::memory_order_acquire) == 0 && !all_failed()) futex_wait(over_, 0, look_again);
    }
    /// For the stream that does the work.
    void wait_for_others() {
        while (const std::uint32_t missing = missing_.load(std::memory_order_acquire)) {
            if (all_failed()) return;
            futex_wait(missing_, missing, look_again);
        }
    }
    void end() {
        over_.store(1, std::memory_order_release);
        futex_wake_all(over_);
    }

  private:
    static constexpr std::chrono::milliseconds look_again{10};
    bool all_failed() const {
        return std::ranges::all_of(comms_, [](const CommunicatorPtr& comm) { return comm->faults().failed(); });
    }
    std::vector<CommunicatorPtr> comms_;
    std::atomic<std::uint32_t> missing_, over_{0};
};

void issue_component(const std::vector<Issued>& calls) {
    std::vector<StreamPtr> streams;
    for (const Issued& call : calls)
        if (std::find(streams.begin(), streams.end(), call.stream) == streams.end()) streams.push_back(call.stream);
    // If the null stream takes part, the calling thread does the work.
    const auto here = std::find(streams.begin(), streams.end(), nullptr);
    if (here != streams.end()) std::iter_swap(streams.begin(), here);
    const auto batches = std::make_shared<std::vector<Batch>>(batches_of(calls));
    if (streams.size() == 1 && streams[0] == nullptr && batches->size() == 1) {
        const InTurn turn(*batches->front().comm->ticket_lock());
        if (const std::optional<Error> error = run_batches(*batches)) throw *error;
        return;
    }
    for (Batch& batch : *batches) batch.turn = Reservation(batch.comm->ticket_lock());
    const auto rendezvous = std::make_shared<Rendezvous>(streams.size() - 1, *batches);
    const auto run = [batches, rendezvous] {
        rendezvous->wait_for_others();
        std::optional<Error> error = run_batches(*batches);
        batches->clear();
        rendezvous->end();
        return error;
    };
    std::vector<std::pair<Stream*, Stream::Job>> jobs;
    if (streams[0] != nullptr) jobs.emplace_back(streams[0].get(), run);
    for (std::size_t i = 1; i < streams.size(); ++i)
        jobs.emplace_back(streams[i].get(), [rendezvous]() -> std::optional<Error> {
            rendezvous->come_and_wait();
            return std::nullopt;
        });
    Stream::enqueue_on_all(std::move(jobs));
    if (streams[0] != nullptr) return;
    if (std::optional<Error> error = run()) throw *error;
}

/// Runs the first join in the calling thread and each other one on a thread of its own; all of them, or none if a
/// thread can't be started. Rethrows the first failure after all have ended.
void run_concurrently(const std::vector<Join>& joins) {
    std::vector<std::exception_ptr> failures(joins.size());
    std::vector<std::uint32_t> tickets(joins.size());
    std::vector<Thread> threads;
    std::promise<bool> all_started;
    const std::shared_future<bool> begins = all_started.get_future().share();
    const auto run = [&](std::size_t i) {
        std::optional<InTurn> turn;
        if (joins[i].turns != nullptr) turn.emplace(*joins[i].turns, tickets[i]);
        try {
            joins[i].work();
        } catch (...) {
            failures[i] = std::current_exception();
        }
    };
    try {
        threads.reserve(joins.size());
        for (std::size_t i = 1; i < joins.size(); ++i)
            threads.push_back(start_thread("tutti-join", [&run, begins, i] {
                if (begins.get()) run(i);
            }));
        for (std::size_t i = 0; i < joins.size(); ++i)
            if (joins[i].turns != nullptr) tickets[i] = joins[i].turns->ticket();
        all_started.set_value(true);
        run(0);
    } catch (...) {
        failures.front() = std::current_exception();
        all_started.set_value(false);
    }
    for (Thread& t : threads) t.join();
    for (const std::exception_ptr& failure : failures)
        if (failure) std::rethrow_exception(failure);
}

/// For ranks on CPUs: throws tuttiInvalidArgument if a buffer is GPU memory.
void check_host_memory(const Operation& o, Rank rank) {
    const gpu::Gpus* const gpus = gpu::gpus();
    if (gpus == nullptr) return;
    for (const void* pointer : {o.input, static_cast<const void*>(o.output)}) {
        if (pointer == nullptr) continue;
        const gpu::Pointee p = gpus->pointee(pointer);
        if (p.kind == gpu::Pointee::Kind::device)
            fail(tuttiInvalidArgument, "%s %p is memory of GPU %d, and rank %d is on a CPU: pass host memory",
                 pointer == o.input ? "sendbuff" : "recvbuff", pointer, p.device, rank);
    }
}

/// Replaces calls of CPU ranks, in which other ranks' kernels take part, by the pieces that those kernels run.
void match_kernels(std::vector<Issued>& calls) {
    std::vector<Issued> matched;
    for (Issued& call : calls) {
        if (!call.comm->through_host() || call.comm->gpu() != nullptr) {
            matched.push_back(std::move(call));
            continue;
        }
        check_host_memory(call.operation, call.comm->rank());
        for (const Operation& piece : pieces_of(call.operation, call.comm->rank(), call.comm->ranks())) {
            matched.push_back(call);
            matched.back().operation = piece;
        }
    }
    calls = std::move(matched);
}

/// For Options::check on GPUs: the hosts compare the calls before kernels move anything.
void compare_calls(std::span<const Issued> calls) {
    std::vector<Issued> compared;
    for (const Issued& call : calls)
        if (call.comm->options().check && call.operation.queue() == 0) compared.push_back(call);
    if (compared.empty()) return;
    std::vector<Batch> batches = batches_of(compared);
    for (Batch& batch : batches) {
        batch.compare_only = true;
        batch.turn = Reservation(batch.comm->ticket_lock());
    }
    if (const std::optional<Error> error = run_batches(batches)) throw *error;
}

/// The calls that move anything, all on GPUs.
void launch(std::span<Issued> calls) {
    compare_calls(calls);
    const auto end = std::remove_if(calls.begin(), calls.end(), [](const Issued& c) { return !c.operation.moves(); });
    const auto count = static_cast<std::size_t>(end - calls.begin());
    if (count > 0) launch_together(calls.first(count));
}

}  // namespace

void issue(std::vector<Issued> calls) {
    if (calls.size() == 1 && calls.front().comm->gpu() != nullptr && !calls.front().operation.is_pair())
        return launch(calls);  // nothing to sort
    copy_to_self(calls);
    match_kernels(calls);
    const auto on_gpus = std::stable_partition(calls.begin(), calls.end(),
                                               [](const Issued& call) { return call.comm->gpu() == nullptr; });
    if (on_gpus != calls.end()) {
        launch(std::span(on_gpus, calls.end()));
        calls.erase(on_gpus, calls.end());
    }
    std::vector<Component::Key> keys;
    for (const Issued& call : calls) keys.push_back({call.comm.get(), call.stream.get()});
    std::optional<Error> first;
    for (const Component& component : components_of(keys)) {
        std::vector<Issued> members;
        for (const std::size_t i : component.members) members.push_back(calls[i]);
        keep_first(first, [&] { issue_component(members); });
    }
    if (first) throw *first;
}

constinit std::atomic<int> Group::open_{0};
thread_local constinit int Group::depth_ = 0;

Group& Group::mine() {
    return of_this_thread<Group>();
}

void Group::refuse(const Error& error) {
    if (!refused_) refused_ = error;
}

/// Closes a level; true if it was the outermost one.
bool Group::close() {
    if (--depth_ > 0) return false;
    open_.fetch_sub(1, std::memory_order_relaxed);
    return true;
}

bool Group::end() {
    if (depth_ == 0) fail(tuttiInvalidUsage, "tuttiGroupEnd without tuttiGroupStart");
    if (!close()) return false;
    std::vector<Issued> calls = std::exchange(calls_, {});
    std::vector<Join> joins = std::exchange(joins_, {});
    std::optional<Error> refused = std::exchange(refused_, std::nullopt);
    const bool goes_on = std::exchange(begun_, false);
    if (refused) throw *refused;
    if (!joins.empty()) run_concurrently(joins);
    if (!calls.empty()) issue(std::move(calls));
    return goes_on;
}

double Group::simulate_end() {
    if (depth_ == 0) fail(tuttiInvalidUsage, "tuttiGroupSimulateEnd without tuttiGroupStart");
    if (depth_ > 1) fail(tuttiInvalidUsage, "tuttiGroupSimulateEnd inside of another group: only the outermost one");
    close();
    const std::vector<Issued> calls = std::exchange(calls_, {});
    const bool makes = !std::exchange(joins_, {}).empty();
    const std::optional<Error> refused = std::exchange(refused_, std::nullopt);
    if (std::exchange(begun_, false) || makes)
        fail(tuttiInvalidUsage, "tuttiGroupSimulateEnd: the group makes communicators, which has no price");
    if (refused) throw *refused;
    struct Load {
        double collectives = 0, longest_pair = 0;  // these add up; those run side by side
    };
    std::map<Communicator*, Load> loads;
    double longest = 0;
    for (const Issued& call : calls) {
        Load& load = loads[call.comm.get()];
        const double time = call.comm->planner().expected_time(call.operation);
        if (call.operation.queue() == 0)
            load.collectives += time;
        else
            load.longest_pair = std::max(load.longest_pair, time);
        longest = std::max(longest, load.collectives + load.longest_pair);
    }
    return longest;
}

}  // namespace tutti
