#include "comm/gpu_side.hpp"

#include <algorithm>
#include <new>
#include <set>

#include "base/caught.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "transport/arena.hpp"

namespace tutti {
namespace {

gpu::Gpus& gpus_or_fail() {
    gpu::Gpus* found = gpu::gpus();
    if (found == nullptr)
        fail(tuttiUnhandledCudaError, "a CUDA communicator can't be made: %s", gpu::why_no_gpus().c_str());
    return *found;
}

}  // namespace

GpuSide::GpuSide(int device, int ranks) : gpus_(gpus_or_fail()), device_(device), launches_(gpus_, device) {
    if (device < 0 || device >= gpus_.count())
        fail(tuttiInvalidArgument, "there is no CUDA device %d; this machine has %d", device, gpus_.count());
    arena_ = gpu::Arena::make(gpus_, device, ranks);
    neighbours_.emplace(gpus_, device, *arena_);
    control_ = new (gpus_.allocate_pinned(sizeof(gpu::Control))) gpu::Control{};
}

GpuSide::~GpuSide() {
    finish();
    boards_.reset();
    neighbours_.reset();
    if (mates_.tenant) mates_.tenant->leave(mates_.seat);
    for (void* stream : spare_streams_) gpus_.destroy_stream(stream);
    gpus_.free_pinned(reinterpret_cast<std::byte*>(control_));
}

void GpuSide::connect(Session& session, const gpu::Places& places, const gpu::Budget& budget, Deadline deadline) {
    const Rank self = session.rank();
    budget_ = budget;
    move_in(places, self);
    warn_of_turns(places, self);
    ends_ = std::make_unique<gpu::Ends>(arena_, self, places, neighbours_->meet(session, places, deadline));
    neighbours_->borrow_through(*ends_, places);
    neighbours_->borrowers().keep_while([this] { return launches_.busy(); });
    pool_ = std::make_unique<gpu::Pool>(gpus_, device_, pool_bytes);
    if (!budget.through_host) boards_.emplace(gpus_, device_, *ends_, self, places, control_, neighbours_->lender());
}

/// Takes a seat beside the communicator's other ranks that are threads of this process on this device.
void GpuSide::move_in(const gpu::Places& places, Rank self) {
    for (Rank r = 0; r < places.ranks(); ++r) {
        if (!places.on_gpu(r) || places.info(r).process != places.info(self).process) continue;
        if (places.gpu(r).uuid != places.gpu(self).uuid) continue;
        if (r == self) mates_.seat = static_cast<int>(mates_.ranks.size());
        mates_.ranks.push_back(r);
    }
    const std::uint64_t key = places.gpu(mates_.ranks.front()).arena_key;
    mates_.tenant = gpu::Tenant::of(gpus_, device_, key, static_cast<int>(mates_.ranks.size()), budget_.share);
    mates_.tenant->watch(mates_.seat, &control_->verdict.done);
    if (mates_.seat != 0 || static_cast<int>(mates_.ranks.size()) < config().gpu_queues) return;
    log(Level::warn,
        "%zu ranks are threads of this process on GPU %d, whose streams share %d queues there: what stands in one "
        "behind a kernel that waits may be what that waits for. Set CUDA_DEVICE_MAX_CONNECTIONS=32 before the program "
        "starts, or let a thread's ranks call in groups",
        mates_.ranks.size(), device_, config().gpu_queues);
}

/// Warns if several processes of the communicator share the device in turn. Only the first rank on the device warns.
void GpuSide::warn_of_turns(const gpu::Places& places, Rank self) const {
    std::set<std::uint64_t> processes;
    for (Rank r = 0; r < places.ranks(); ++r) {
        if (!places.on_gpu(r) || places.gpu(r).uuid != places.gpu(self).uuid) continue;
        if (processes.empty() && r != self) return;
        processes.insert(places.info(r).process);
    }
    if (processes.size() < 2 || gpus_.info(device_).mps) return;
    log(Level::warn,
        "%zu processes of this communicator share GPU %d, which runs them in turn, and each waits for the others: "
        "every message takes a time slice, a large one many. Start the Multi-Process Service (nvidia-cuda-mps-control "
        "-d) before them, or make the ranks threads of one process",
        processes.size(), device_);
}

gpu::LaunchOrder* GpuSide::order() const {
    return config().launch_order_implicit && mates_.ranks.size() == 1 ? &mates_.tenant->residence().order() : nullptr;
}

void* GpuSide::spare_stream(std::size_t number, void* user) {
    const std::uint64_t capture = gpus_.capture(user);
    for (std::size_t i = 0;; ++i) {
        if (i == spare_streams_.size()) spare_streams_.push_back(gpus_.make_stream(device_));
        const std::uint64_t its = gpus_.capture(spare_streams_[i]);
        if (its != 0 && its != capture) continue;  // of a capture that has not ended
        if (number-- == 0) return spare_streams_[i];
    }
}

void GpuSide::attach(Rank peer, bool pair, const Connect& connect) {
    const int first = pair ? gpu::collective_channels : 0;
    const int channels = pair ? budget_.pair_channels : budget_.channels;
    for (int channel = first; channel < first + channels; ++channel) {
        if (ends_->attached(peer, channel)) continue;
        const Wires wires = connect(peer, pair ? pair_channel : channel);
        ends_->attach(peer, channel, wires.out, wires.in);
    }
}

std::unique_ptr<gpu::Program> GpuSide::upload(BoundProgram bound, bool pair) {
    const int first = pair ? gpu::collective_channels : 0;
    const int channels = pair ? budget_.pair_channels : budget_.channels;
    return std::make_unique<gpu::Program>(*pool_, std::move(bound), *ends_, first, channels, control_);
}

gpu::Buffer GpuSide::buffer(const void* pointer, std::size_t bytes, const char* name, Lends lends) {
    gpu::Buffer b;
    if (pointer == nullptr) return b;
    const gpu::Pointee p = gpus_.pointee(pointer);
    const auto* const at = static_cast<const std::byte*>(pointer);
    using Memory = gpu::Pointee::Kind;
    if (p.kind == Memory::host)
        fail(tuttiInvalidArgument,
             "%s %p is host memory, which GPU %d, where this rank is, can't use: pass device memory, or pinned", name,
             pointer, device_);
    if (p.kind == Memory::device && p.device != device_)
        fail(tuttiInvalidArgument, "%s %p is on GPU %d, the communicator on GPU %d", name, pointer, p.device, device_);
    if (p.kind == Memory::device && p.base != nullptr && at + bytes > p.base + p.size)
        fail(tuttiInvalidArgument, "%s %p needs %zu bytes, its allocation ends after %zu", name, pointer, bytes,
             static_cast<std::size_t>(p.base + p.size - at));
    b.at = const_cast<std::byte*>(at);
    if (lends != Lends::nothing) {
        const auto found = neighbours_->lender().find(p, at, bytes, lends == Lends::windows);
        b.region = found.number, b.base = found.base;
    }
    // Within a process an address means the same everywhere, but not every GPU can use it.
    b.shareable = p.kind == Memory::device ? p.peers || !budget_.across : budget_.by_reference;
    return b;
}

void GpuSide::check_stream(void* stream) const {
    const int device = gpus_.device_of(stream);
    if (stream != nullptr && device != device_)
        fail(tuttiInvalidArgument, "the stream is of GPU %d, the communicator on GPU %d", device, device_);
    launches_.check(stream);
    if (gpu::LaunchOrder* const kept = order()) kept->check(stream);
}

void GpuSide::check_mates(void* stream, std::uint64_t group) const {
    if (mates_.ranks.size() < 2 || gpus_.capturing(stream)) return;
    const int blocking = mates_.tenant->blocked_by(mates_.seat, gpus_.identity(stream), group);
    if (blocking < 0) return;
    const auto of_seat = [&](int seat) { return mates_.ranks[static_cast<std::size_t>(seat)]; };
    fail(tuttiInvalidUsage,
         "rank %d would wait for itself: on the same stream of GPU %d rank %d's kernel already waits for the one of "
         "this call. Give every rank a stream of its own, or let the ranks of a thread call in one group",
         of_seat(mates_.seat), device_, of_seat(blocking));
}

gpu::Job GpuSide::job(const Operation& o, const Tiling& tiling, const Call& call, gpu::Program& program,
                      std::chrono::milliseconds timeout, void* stream) {
    const tutti::Program& p = program.bound().program;
    const std::size_t element = size_of(o.type), row = o.count * element;
    // Messages name lent memory by number. A graph would keep a number that may mean other memory when it is replayed;
    // only the numbers of windows last.
    const bool lend = tiling.by_reference && budget_.lends && (o.symmetric || !gpus_.capturing(stream));
    if (lend && !o.symmetric) neighbours_->borrowers().look();
    const Lends lends = !lend ? Lends::nothing : o.symmetric ? Lends::windows : Lends::all;
    gpu::Job job;
    job.plan = program.plan(tiling.tile * element);
    // Buffers that the program does not use may be anything: users pass the root's arguments on all ranks.
    if (program.uses(Place::input))
        job.input = buffer(o.input, row * static_cast<std::size_t>(p.input_rows), "sendbuff", lends);
    if (program.uses(Place::output))
        job.output = buffer(o.output, row * static_cast<std::size_t>(p.output_rows), "recvbuff", lends);
    job.count = o.count;
    job.block = tiling.block;
    job.tile = tiling.tile;
    job.tiles = tiling.tiles;
    job.channels = static_cast<std::uint32_t>(std::min(tiling.channels, program.channels()));
    job.timeout_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(timeout).count());
    job.signature = call.signature;
    job.call = calls_.add(call);
    job.divide_by = o.average ? p.ranks : 0;
    job.op = static_cast<std::uint8_t>(o.op);
    job.is_signed = has_sign(o.type);
    job.scaled = o.premultiply;
    job.scalar = o.premultiply ? o.scalar : nullptr;
    job.immediate = o.immediate;
    job.by_reference = budget_.lends ? lend && knows_loans(job) : tiling.by_reference;
    job.in_lines = tiling.in_lines;
    job.in_cells =
        static_cast<std::size_t>(p.message_chunks) * std::min(tiling.tile, tiling.block) * element <= inline_bytes;
    return job;
}

gpu::MulticastJob GpuSide::multicast_job(const Operation& o, gpu::MulticastSum sum, Rank self, int ranks,
                                         std::chrono::milliseconds timeout) const {
    gpu::MulticastJob job{};
    job.kind = o.collective == Collective::all_reduce       ? gpu::MulticastJob::all_reduce
               : o.collective == Collective::reduce_scatter ? gpu::MulticastJob::reduce_scatter
                                                            : gpu::MulticastJob::all_gather;
    job.sum = sum;
    job.bytes = o.count * size_of(o.type);
    job.control = control_;
    job.timeout_ns = static_cast<std::uint64_t>(std::chrono::nanoseconds(timeout).count());
    job.rank = static_cast<std::uint32_t>(self);
    job.ranks = static_cast<std::uint32_t>(ranks);
    const std::size_t meetings = gpu::Layout{gpu::Places::seats(ranks)}.meetings();
    for (Rank r = 0; r < ranks; ++r) job.meetings[r] = reinterpret_cast<gpu::Meetings*>(ends_->arena_of(r) + meetings);
    return job;
}

void GpuSide::number(gpu::MulticastJob& job, const Call& call) {
    job.signature = call.signature;
    job.call = calls_.add(call);
}

gpu::Put GpuSide::put(const OneSided& o) {
    gpu::Put put = boards_->signal(o.peer, o.signal);
    put.gets = o.kind == OneSided::Kind::get;
    if (o.bytes == 0) return put;
    const WindowPart& part = o.window->parts[static_cast<std::size_t>(o.peer)];
    auto* const theirs = reinterpret_cast<std::byte*>(part.where.offset + o.offset);
    put.to = put.gets == 1 ? buffer(o.to, o.bytes, "localbuff", Lends::nothing).at : theirs;
    put.from = put.gets == 1 ? theirs : buffer(o.from, o.bytes, "localbuff", Lends::nothing).at;
    put.gate = part.gate;
    put.key = part.key;
    gpu::Boards::share(put, o.bytes);
    return put;
}

gpu::Meeting GpuSide::meeting(const Call& call, std::chrono::milliseconds timeout) {
    copies_ = true;
    gpu::Meeting meeting = boards_->meeting(timeout);
    meeting.signature = call.signature;
    meeting.call = calls_.add(call);
    return meeting;
}

/// Whether messages can name lent memory at all. If not, kernels need not look in peers' memory, message by message.
bool GpuSide::knows_loans(const gpu::Job& job) {
    return job.input.region != 0 || job.output.region != 0 || neighbours_->borrowers().have_any();
}

void GpuSide::before_launch(void* stream, Engine* engine) {
    launches_.before_launch(stream);
    const auto begin = [](void* its) { static_cast<Engine*>(its)->serve(true); };
    if (engine != nullptr && gpus_.capturing(stream)) gpus_.call(device_, begin, engine, stream);
}

void GpuSide::leave_engine(Engine* engine, void* stream) {
    const auto end = [](void* its) { static_cast<Engine*>(its)->serve(false); };
    if (engine != nullptr && gpus_.capturing(stream)) gpus_.call(device_, end, engine, stream);
}

void GpuSide::after_launch(void* stream, Engine* engine) {
    launches_.after_launch(stream);
    if (mates_.tenant) mates_.tenant->launched(mates_.seat, launches_.event());
    if (copies_ || (engine != nullptr && !gpus_.capturing(stream))) launches_.watch();
    if (engine != nullptr && !gpus_.capturing(stream)) engine->launched();
}

void GpuSide::abort() {
    __atomic_store_n(&control_->abort, 1, __ATOMIC_RELEASE);
    if (mates_.tenant) mates_.tenant->forsake(mates_.seat);
}

const gpu::Verdict* GpuSide::verdict() const {
    return __atomic_load_n(&control_->verdict.done, __ATOMIC_ACQUIRE) != 0 ? &control_->verdict : nullptr;
}

}  // namespace tutti
