#include "comm/gpu_one_sided.hpp"

#include <algorithm>
#include <optional>
#include <span>

#include "comm/gpu_launch.hpp"

namespace tutti {
namespace {

constexpr int blocks_of_wait = 1;

/// Room on the device for a wait's block. The constructor waits for it; the destructor says that the wait is enqueued.
class BlockReservation {
  public:
    BlockReservation(const Communicator& comm, void* stream, std::uint64_t group)
        : stay_(comm.gpu()->stay(blocks_of_wait, false, stream, group)) {
        const auto since = Clock::now();
        stay_.tenant->residence().enter({&stay_, 1}, [&] { check_wait_for_room(comm, since); });
    }
    ~BlockReservation() { stay_.tenant->residence().entered({&stay_, 1}, true); }
    BlockReservation(const BlockReservation&) = delete;

  private:
    gpu::Stay stay_;
};

}  // namespace

void OneSidedCalls::add(const Issued& call) {
    const OneSided& o = *call.operation.one_sided;
    if (o.kind == OneSided::Kind::wait)
        add_wait(*call.comm, o, call.gpu_stream);
    else
        add_put(*call.comm, o, call.gpu_stream);
}

/// Adds a put, a get or a signal. Those of one communicator and stream to different peers share a launch; those to the
/// same peer go into different ones, whose order is theirs.
void OneSidedCalls::add_put(Communicator& comm, const OneSided& o, void* stream) {
    const gpu::Put put = comm.gpu()->put(o);
    const auto last = std::find_if(puts_.rbegin(), puts_.rend(), [&](const Task& t) { return t.comm == &comm; });
    const auto takes_it = [&](const Task& t) {
        const std::span others(t.task.puts.put, t.task.puts.count);
        return t.stream == stream && others.size() < gpu::max_puts &&
               std::ranges::none_of(others, [&](const gpu::Put& other) { return other.peer == put.peer; });
    };
    const bool joins = last != puts_.rend() && takes_it(*last);
    if (!joins) puts_.push_back({&comm, stream});  // the kind of a new task is puts
    gpu::Puts& puts = (joins ? *last : puts_.back()).task.puts;
    puts.put[puts.count++] = put;
    puts.blocks = std::max(puts.blocks, put.blocks);
}

void OneSidedCalls::add_wait(Communicator& comm, const OneSided& o, void* stream) {
    const gpu::Boards& boards = comm.gpu()->boards();
    bool full = true;
    for (const OneSided::Wanted& wanted : o.wanted) {
        if (wanted.count == 0) continue;
        if (full) {
            waits_.push_back({&comm, stream});
            waits_.back().task.kind = gpu::OneSidedTask::Kind::wait;
            waits_.back().task.wait = boards.wait(comm.options().timeout);
        }
        gpu::SignalWait& wait = waits_.back().task.wait;
        wait.wanted[wait.count++] = boards.wanted(wanted.peer, wanted.signal, wanted.count);
        full = wait.count == gpu::max_wanted;
    }
}

void OneSidedCalls::enqueue(const Task& t, bool& begun) {
    GpuSide& side = *t.comm->gpu();
    side.before_launch(t.stream);
    side.gpus().run(side.device(), t.task, t.stream);
    begun = true;
    side.after_launch(t.stream);
}

void OneSidedCalls::enqueue_puts(bool& begun) const {
    for (const Task& t : puts_) enqueue(t, begun);
}

void OneSidedCalls::enqueue_waits(std::uint64_t group, bool& begun) const {
    for (const Task& t : waits_) {
        std::optional<BlockReservation> room;
        if (t.comm->gpu()->gpus().capturing(t.stream))  // a graph's launch asks for no room
            t.comm->gpu()->tenant()->captured(blocks_of_wait);
        else
            room.emplace(*t.comm, t.stream, group);
        std::optional<gpu::LaunchOrder::Turn> turn;
        if (gpu::LaunchOrder* const order = t.comm->gpu()->order()) turn.emplace(*order).before(t.stream);
        enqueue(t, begun);
        if (turn) turn->after(t.stream);
    }
}

}  // namespace tutti
