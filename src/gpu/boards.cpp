#include "gpu/boards.hpp"

#include <algorithm>
#include <new>

#include "base/log.hpp"
#include "base/result.hpp"
#include "transport/arena.hpp"

namespace tutti::gpu {

static_assert(Board::seats == most_seats && Board::signals == signals_per_peer && Board::gates == most_windows);

Boards::Boards(Gpus& gpus, int device, const Ends& ends, Rank self, const Places& places, Control* control,
               Lender& lender)
    : gpus_(gpus), device_(device), ends_(ends), self_(self), places_(places), control_(control), lender_(lender) {
    for (Rank r = 0; r < places.ranks(); ++r) {
        const bool here = places.info(r).process == places.info(self).process;
        leaves_process_ |= !here;
        leaves_device_ |= here && places.gpu(r).uuid != places.gpu(self).uuid;
    }
}

Boards::~Boards() {
    if (event_ != nullptr) gpus_.drop(device_, event_);
    if (stream_ != nullptr) gpus_.destroy_stream(stream_);
    if (answer_ != nullptr) gpus_.free_pinned(reinterpret_cast<std::byte*>(answer_));
}

Board* Boards::board_of(Rank r) const {
    return reinterpret_cast<Board*>(ends_.arena_of(r) + Layout{Places::seats(places_.ranks())}.board());
}

Put Boards::signal(Rank peer, int number) const {
    Put put{};
    put.mine = board_of(self_);
    put.theirs = board_of(peer);
    put.control = control_;
    put.peer = peer;
    put.seat = static_cast<std::uint32_t>(places_.seat(self_));
    put.peers_seat = static_cast<std::uint32_t>(places_.seat(peer));
    put.signal = static_cast<std::uint32_t>(number);
    put.blocks = 1;
    return put;
}

void Boards::share(Put& put, std::size_t bytes) {
    put.bytes = bytes;
    put.blocks =
        static_cast<std::uint32_t>(std::clamp<std::size_t>((bytes + block_share - 1) / block_share, 1, put_blocks));
}

SignalWait Boards::wait(std::chrono::milliseconds timeout) const {
    SignalWait wait{};
    wait.mine = board_of(self_);
    wait.control = control_;
    wait.timeout_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(timeout).count());
    return wait;
}

Wanted Boards::wanted(Rank peer, int signal, std::uint64_t count) const {
    return {count, peer, static_cast<std::uint16_t>(places_.seat(peer)), static_cast<std::uint16_t>(signal)};
}

Meeting Boards::meeting(std::chrono::milliseconds timeout) const {
    const Layout layout{Places::seats(places_.ranks())};
    const int seat = places_.seat(self_);
    Meeting meeting{};
    meeting.ends = ends_.all();
    meeting.stride = static_cast<std::uint32_t>(channels_per_peer) * Ends::stride;
    meeting.ranks = places_.ranks();
    meeting.self = self_;
    meeting.seat = static_cast<std::uint32_t>(seat);
    meeting.board = layout.board() - layout.fifo(seat, 0);
    meeting.control = control_;
    meeting.timeout_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(timeout).count());
    return meeting;
}

Exposed Boards::expose(const void* memory, std::size_t bytes, bool here, Pointee* permitted) const {
    if (bytes == 0) return {};
    const Pointee p = gpus_.pointee(memory);
    const auto* const at = static_cast<const std::byte*>(memory);
    if (p.kind != Pointee::Kind::device || p.device != device_)
        fail(tuttiInvalidArgument, "rank %d: %p is no memory of GPU %d, where this rank is", self_, memory, device_);
    if (p.base != nullptr && at + bytes > p.base + p.size)
        fail(tuttiInvalidArgument, "rank %d: the window at %p needs %zu bytes, its allocation ends after %zu", self_,
             memory, bytes, static_cast<std::size_t>(p.base + p.size - at));
    if (leaves_device_ && !p.peers && !here)
        fail(tuttiInvalidArgument, "rank %d: other GPUs can't reach %p, take memory of cudaMalloc", self_, memory);
    if (!leaves_process_) return {};
    try {
        if (p.base == nullptr) fail(tuttiInvalidArgument, "it is in no allocation");
        *permitted = lender_.permit(p, at, bytes);
        return {lender_.lend_now(*permitted), static_cast<std::uint64_t>(at - permitted->base)};
    } catch (const Error& error) {
        fail(tuttiInvalidArgument, "rank %d: other processes can't reach %p, take memory of cudaMalloc: %s", self_,
             memory, error.what());
    }
}

/// Sets gates to `key`, and waits until no peer uses a window if key is 0. A kernel does it, so that its accesses are
/// ordered with those of peers' kernels. False if `abort` or the time-out ended the wait. Hold mutex_.
bool Boards::change(std::uint32_t first, std::uint32_t count, std::uint32_t key, const std::uint32_t* abort,
                    std::chrono::milliseconds timeout) {
    __atomic_store_n(&answer_->untouched, 0, __ATOMIC_RELAXED);
    OneSidedTask task{};
    task.kind = OneSidedTask::Kind::gates;
    task.gates = {board_of(self_),
                  first,
                  count,
                  key,
                  abort,
                  static_cast<std::uint64_t>(std::chrono::nanoseconds(timeout).count()),
                  &answer_->untouched};
    gpus_.run(device_, task, stream_);
    gpus_.mark(device_, event_, stream_);
    gpus_.await(device_, event_);
    return __atomic_load_n(&answer_->untouched, __ATOMIC_ACQUIRE) != 0;
}

void Boards::open(std::uint32_t gate, std::uint32_t key) {
    const std::lock_guard lock(mutex_);
    if (answer_ == nullptr) answer_ = new (gpus_.allocate_pinned(sizeof(Answer))) Answer{};
    if (stream_ == nullptr) stream_ = gpus_.make_stream(device_, true);
    if (!change(gate, 1, key, &answer_->never, std::chrono::milliseconds(0)))
        fail(tuttiUnhandledCudaError, "rank %d: a kernel that opens a window on GPU %d did not run", self_, device_);
}

bool Boards::close(std::uint32_t first, std::uint32_t count, std::chrono::milliseconds timeout) noexcept {
    const std::lock_guard lock(mutex_);
    if (stream_ == nullptr) return true;
    try {
        if (change(first, count, 0, &control_->abort, timeout)) return true;
        const bool failed = __atomic_load_n(&control_->abort, __ATOMIC_ACQUIRE) != 0;
        return failed && change(first, count, 0, &answer_->never, std::chrono::milliseconds(200));
    } catch (const std::exception& error) {
        log(Level::warn, "rank %d can't take its windows back: %s", self_, error.what());
        return false;
    }
}

}  // namespace tutti::gpu
