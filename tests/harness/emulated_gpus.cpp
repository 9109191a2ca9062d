#include "harness/emulated_gpus.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/os.hpp"
#include "base/result.hpp"
#include "harness/dma_buf.hpp"
#include "harness/open_elsewhere.hpp"
#include "kernels/cuda/flat.hpp"
#include "kernels/cuda/machine.hpp"
#include "kernels/cuda/meeting.hpp"
#include "kernels/cuda/one_sided.hpp"
#include "kernels/cuda/small.hpp"

namespace tutti::harness {
namespace {

using namespace gpu;

/// Room for the blocks of one device.
class Multiprocessors {
  public:
    explicit Multiprocessors(int blocks) : free_(blocks) {}
    void take() {
        std::unique_lock lock(mutex_);
        freed_.wait(lock, [this] { return free_ > 0; });
        --free_;
    }
    void give_back() {
        const std::lock_guard lock(mutex_);
        ++free_;
        freed_.notify_one();
    }

  private:
    std::mutex mutex_;
    std::condition_variable freed_;
    int free_;
};

/// Starts blocks in their order, as hardware does: the next one when a running block, of any launch, has ended.
/// Machine: of all threads of a block, which share an S.
template <class Machine, class S, class L>
void run_blocks(const L& launch, unsigned channels, unsigned jobs, unsigned size, Multiprocessors& device) {
    struct Running {
        explicit Running(unsigned size) : block(size), threads(size) {}
        Block block;
        S shared;
        std::atomic<unsigned> threads;  // that have not ended
    };
    std::vector<std::unique_ptr<Running>> blocks;
    std::vector<std::thread> threads;
    for (unsigned j = 0; j < jobs; ++j)
        for (unsigned channel = 0; channel < channels && channel < launch.jobs[j].channels; ++channel) {
            device.take();
            Running* const own = blocks.emplace_back(std::make_unique<Running>(size)).get();
            for (unsigned t = 0; t < size; ++t)
                threads.emplace_back([&launch, &device, j, channel, t, own] {
                    block = &own->block;
                    thread_number = t;
                    Machine(launch.jobs[j], channel, own->shared).run();
                    if (own->threads.fetch_sub(1) == 1) device.give_back();
                });
        }
    for (std::thread& t : threads) t.join();
}

/// As a Machine.
struct Attendant {
    const Meeting& meeting;
    struct Nothing {};
    Attendant(const Meeting& its, unsigned, Nothing&) : meeting(its) {}
    void run() const { run_meeting(meeting); }
};

/// Small ones by one thread: starting others would be most of the work.
void run_flat_blocks(const Flat& task, unsigned size) {
    const unsigned blocks = task.count > 2 * flat_tile ? 2 : 1;
    Block own(task.count > 64 ? size : 1);
    FlatShared shared;
    const auto work = [&](unsigned t) {
        block = &own;
        thread_number = t;
        for (unsigned b = 0; b < blocks; ++b) run_flat(task, b, blocks, shared);
    };
    std::vector<std::thread> threads;
    for (unsigned t = 1; t < own.threads; ++t) threads.emplace_back(work, t);
    work(0);
    for (std::thread& t : threads) t.join();
}

/// Two blocks at a time: none waits for another one.
void run_one_sided_blocks(const OneSidedTask& task, unsigned size, Multiprocessors& device) {
    const unsigned all = task.blocks() * task.jobs();
    std::atomic<unsigned> next{0};
    const auto work = [&] {
        for (unsigned number = next++; number < all; number = next++) {
            device.take();
            Block own(size);
            const auto run = [&](unsigned t) {
                block = &own;
                thread_number = t;
                rounds = 0;
                run_one_sided(task, number % task.blocks(), number / task.blocks());
            };
            std::vector<std::thread> threads;
            for (unsigned t = 1; t < size; ++t) threads.emplace_back(run, t);
            run(0);
            for (std::thread& t : threads) t.join();
            device.give_back();
        }
    };
    std::thread other;
    if (all > 1) other = std::thread(work);
    work();
    if (other.joinable()) other.join();
}

struct SharedFile {
    pid_t pid;
    int fd;
    ino_t inode;  // descriptors' numbers are used again
};

ino_t inode_of(const Fd& fd) {
    struct stat info {};
    if (fstat(fd.get(), &info) != 0) fail(tuttiUnhandledCudaError, "fstat: %s", std::strerror(errno));
    return info.st_ino;
}

/// A mark in a stream, once it has been reached.
class Mark {
  public:
    void reach() {
        const std::lock_guard lock(mutex_);
        reached_ = true;
        changed_.notify_all();
    }
    void wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return reached_; });
    }
    bool reached() {
        const std::lock_guard lock(mutex_);
        return reached_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool reached_ = false;
};
using Event = std::shared_ptr<Mark>;

}  // namespace

bool EmulatedGpus::emulates(tuttiDataType_t type) {
#ifdef TUTTI_FEW_TYPES
    return type <= tuttiUint64 || type == tuttiFloat32 || type == tuttiBfloat16;
#else
    return type < tuttiNumTypes;
#endif
}

EmulatedGpus::EmulatedGpus(int devices, int blocks, unsigned threads, bool peer_access)
    : devices_(devices), blocks_(blocks), threads_(threads), peer_access_(peer_access) {
    streams_[nullptr] = {0, std::make_unique<Stream>()};
    for (int d = 0; d < devices; ++d) multiprocessors_.push_back(std::make_shared<Multiprocessors>(blocks));
}

EmulatedGpus::~EmulatedGpus() = default;

void* EmulatedGpus::make_stream(int device, bool) {
    auto stream = std::make_unique<Stream>();
    void* const handle = stream.get();
    const std::lock_guard lock(mutex_);
    streams_[handle] = {device, std::move(stream)};
    return handle;
}

void EmulatedGpus::destroy_stream(void* stream) noexcept {
    std::unique_ptr<Stream> own;
    {
        const std::lock_guard lock(mutex_);
        own = std::move(streams_.at(stream).second);
        streams_.erase(stream);
    }
}

void EmulatedGpus::synchronize_stream(void* stream) {
    stream_of(stream).synchronize();
}

Stream& EmulatedGpus::stream_of(void* stream) const {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(stream);
    if (found == streams_.end()) fail(tuttiUnhandledCudaError, "%p is no stream", stream);
    return *found->second.second;
}

void EmulatedGpus::enqueue(void* stream, Work work) {
    {
        const std::lock_guard lock(mutex_);
        if (const auto graph = captured_.find(stream); graph != captured_.end())
            return graph->second.graph.push_back({std::move(work), nullptr});
    }
    stream_of(stream).enqueue(std::move(work));
}

void EmulatedGpus::begin_capture(void* stream) {
    const std::lock_guard lock(mutex_);
    captured_[stream].number = ++last_capture_;
}

EmulatedGpus::Graph EmulatedGpus::end_capture(void* stream) {
    const std::lock_guard lock(mutex_);
    return std::move(captured_.extract(stream).mapped().graph);
}

void EmulatedGpus::replay(const Graph& graph, void* stream) {
    for (const Node& node : graph) enqueue(stream, node.at_launch ? node.at_launch() : node.work);
}

std::uint64_t EmulatedGpus::capture(void* stream) const {
    const std::lock_guard lock(mutex_);
    const auto found = captured_.find(stream);
    return found == captured_.end() ? 0 : found->second.number;
}

void EmulatedGpus::enqueue_at_launch(void* stream, std::function<Work()> make) {
    const std::lock_guard lock(mutex_);
    const auto graph = captured_.find(stream);
    if (graph == captured_.end()) fail(tuttiUnhandledCudaError, "%p is not captured", stream);
    graph->second.graph.push_back({nullptr, std::move(make)});
}

DeviceInfo EmulatedGpus::info(int device) const {
    DeviceInfo info;
    info.name = "emulated";
    info.uuid[0] = static_cast<std::uint8_t>(device + 1);
    info.multiprocessors = info.blocks = blocks_;
    return info;
}

void EmulatedGpus::enable(int device, int peer) {
    if (!reaches(device, peer)) fail(tuttiUnhandledCudaError, "there is no peer access");
}

void EmulatedGpus::pin(std::byte* memory, std::size_t bytes) {
    if (reinterpret_cast<std::uintptr_t>(memory) % 4096 != 0 || bytes % 4096 != 0)
        fail(tuttiUnhandledCudaError, "these are no whole pages");
    const std::lock_guard lock(mutex_);
    const auto after = pinned_.lower_bound(memory);
    const bool overlaps = (after != pinned_.end() && after->first < memory + bytes) ||
                          (after != pinned_.begin() && std::prev(after)->first + std::prev(after)->second > memory);
    if (overlaps) fail(tuttiUnhandledCudaError, "a part of it is pinned already");
    pinned_[memory] = bytes;
}

void EmulatedGpus::unpin(std::byte* memory) noexcept {
    const std::lock_guard lock(mutex_);
    pinned_.erase(memory);
}

std::byte* EmulatedGpus::seen(int, std::byte* pinned) const {
    const std::lock_guard lock(mutex_);
    if (!pinned_.contains(pinned)) fail(tuttiUnhandledCudaError, "%p is not pinned", static_cast<void*>(pinned));
    return pinned;
}

std::size_t EmulatedGpus::allocations() const {
    std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(
        std::ranges::count_if(allocations_, [](const auto& a) { return a.second.device >= 0; }));
}

std::size_t EmulatedGpus::pinned() const {
    const std::lock_guard lock(mutex_);
    std::size_t sum = 0;
    for (const auto& [begin, bytes] : pinned_) sum += bytes;
    return sum;
}

std::byte* EmulatedGpus::allocate(int device, std::size_t bytes) {
    Fd fd = make_memfd("emulated-gpu", bytes);
    Mapping mapping = Mapping::of(fd);
    std::byte* const base = mapping.base();
    const std::lock_guard lock(mutex_);
    allocations_.insert_or_assign(base, Allocation{device, std::move(mapping), std::move(fd), ++last_id_});
    return base;
}

std::byte* EmulatedGpus::allocate_from_pool(int device, std::size_t bytes) {
    std::byte* const memory = allocate(device, bytes);
    const std::lock_guard lock(mutex_);
    allocations_.at(memory).shareable = false;
    return memory;
}

void EmulatedGpus::free(int device, std::byte* memory) noexcept {
    const std::lock_guard lock(mutex_);
    const auto found = allocations_.find(memory);
    if (found == allocations_.end()) return;
    if (is_open_elsewhere(found->second.fd.get())) {  // CUDA leaves undefined what becomes of that
        std::fprintf(stderr, "emulated GPU %d: %zu bytes are freed that another process has open\n", device,
                     found->second.mapping.size());
        std::abort();
    }
    allocations_.erase(found);
}

std::byte* EmulatedGpus::allocate_pinned(std::size_t bytes) {
    return allocate(-1, bytes);
}

void EmulatedGpus::free_pinned(std::byte* memory) noexcept {
    free(-1, memory);
}

void EmulatedGpus::upload(int, std::byte* to, const void* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
}

Pointee EmulatedGpus::pointee(const void* pointer) const {
    const auto* const at = static_cast<const std::byte*>(pointer);
    const std::lock_guard lock(mutex_);
    auto found = allocations_.upper_bound(at);
    if (found == allocations_.begin()) return {};
    const Allocation& a = (--found)->second;
    if (at >= a.mapping.base() + a.mapping.size()) return {};
    if (a.device < 0) return {Pointee::Kind::pinned, 0, nullptr, 0, 0, true};
    return {Pointee::Kind::device, a.device, a.mapping.base(), a.mapping.size(), a.id, a.shareable};
}

Fd EmulatedGpus::export_pages(int device, std::byte* pages, std::size_t bytes) {
    if (device >= adapters.exports)
        fail(tuttiUnhandledCudaError, "the driver makes no dma-buf of GPU %d's memory", device);
    const Pointee p = pointee(pages);
    if (p.device != device || p.base == nullptr || pages + bytes > p.base + p.size ||
        reinterpret_cast<std::uintptr_t>(pages) % 4096 != 0 || bytes % 4096 != 0)
        fail(tuttiUnhandledCudaError, "these are no whole pages of an allocation of GPU %d", device);
    const std::lock_guard lock(mutex_);
    return make_dma_buf(allocations_.at(p.base).fd.get(), static_cast<std::uint64_t>(pages - p.base), bytes);
}

void EmulatedGpus::flush(int) {
    adapters.flush();
    const std::lock_guard lock(mutex_);
    ++flushes_;
}

int EmulatedGpus::flushes() const {
    const std::lock_guard lock(mutex_);
    return flushes_;
}

Handle EmulatedGpus::share(int, const std::byte* allocation) {
    const std::lock_guard lock(mutex_);
    const Allocation& a = allocations_.at(allocation);
    if (!a.shareable) {
        ++refused_shares_;
        fail(tuttiUnhandledCudaError, "memory of a pool can't be shared");
    }
    const Fd& fd = a.fd;
    const SharedFile file{getpid(), fd.get(), inode_of(fd)};
    Handle handle;
    std::memcpy(handle.bytes.data(), &file, sizeof file);
    return handle;
}

std::byte* EmulatedGpus::open(int device, const Handle& handle) {
    if (!opens) fail(tuttiUnhandledCudaError, "memory of other processes can't be opened");
    SharedFile file;
    std::memcpy(&file, handle.bytes.data(), sizeof file);
    const std::string path = text("/proc/%d/fd/%d", file.pid, file.fd);
    Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (fd.get() < 0) fail(tuttiUnhandledCudaError, "%s can't be opened: %s", path.c_str(), std::strerror(errno));
    if (inode_of(fd) != file.inode) fail(tuttiUnhandledCudaError, "the memory was freed");
    note_open(fd.get());
    Mapping mapping = Mapping::of(fd);
    std::byte* const base = mapping.base();
    const std::lock_guard lock(mutex_);
    allocations_.insert_or_assign(base, Allocation{device, std::move(mapping), std::move(fd), ++last_id_});
    return base;
}

void EmulatedGpus::close(int, std::byte* opened) noexcept {
    const std::lock_guard lock(mutex_);
    allocations_.erase(opened);
}

/// Memory of pools is its own device's, unless they are told otherwise; nobody does.
void EmulatedGpus::watch(const Launch& launch, unsigned jobs) {
    for (unsigned j = 0; j < jobs; ++j)
        for (const Buffer* b : {&launch.jobs[j].input, &launch.jobs[j].output})
            if (b->at != nullptr && b->shareable != 0 && launch.jobs[j].by_reference != 0 && !pointee(b->at).peers) {
                const std::lock_guard lock(mutex_);
                ++offers_of_pools_;
            }
}

void EmulatedGpus::run(int device, DataType type, unsigned channels, unsigned jobs, unsigned, const SmallLaunch& launch,
                       void* stream) {
    ++small_launches_;
    {
        const std::lock_guard lock(mutex_);
        ++launches_;
        widest_ = std::max(widest_, static_cast<int>(channels));
    }
    auto copy = std::make_shared<SmallLaunch>(launch);
    auto room = std::static_pointer_cast<Multiprocessors>(multiprocessors_[static_cast<std::size_t>(device)]);
    enqueue(stream, [this, type, channels, jobs, copy, room]() -> std::optional<Error> {
        with_lanes_of(type, [&](auto lanes) {
            run_blocks<Small<decltype(lanes)>, SmallShared>(*copy, channels, jobs, threads_, *room);
        });
        return std::nullopt;
    });
}

void EmulatedGpus::launch(int device, DataType type, unsigned channels, unsigned jobs, const Launch& launch,
                          void* stream) {
    {
        const std::lock_guard lock(mutex_);
        ++launches_;
        widest_ = std::max(widest_, static_cast<int>(channels));
    }
    watch(launch, jobs);
    auto copy = std::make_shared<Launch>(launch);
    auto room = std::static_pointer_cast<Multiprocessors>(multiprocessors_[static_cast<std::size_t>(device)]);
    enqueue(stream, [this, type, channels, jobs, copy, room]() -> std::optional<Error> {
        with_lanes_of(type, [&](auto lanes) {
            run_blocks<Machine<decltype(lanes)>, Shared>(*copy, channels, jobs, threads_, *room);
        });
        return std::nullopt;
    });
}

void EmulatedGpus::run(int, const Flat& task, void* stream) {
    stream_of(stream).enqueue([this, task]() -> std::optional<Error> {
        run_flat_blocks(task, threads_);
        return std::nullopt;
    });
}

void EmulatedGpus::run(int device, const OneSidedTask& task, void* stream) {
    auto copy = std::make_shared<OneSidedTask>(task);
    auto room = std::static_pointer_cast<Multiprocessors>(multiprocessors_[static_cast<std::size_t>(device)]);
    enqueue(stream, [this, copy, room]() -> std::optional<Error> {
        run_one_sided_blocks(*copy, threads_, *room);
        return std::nullopt;
    });
}

void EmulatedGpus::run(int device, const MeetingLaunch& launch, void* stream) {
    ++meetings_;
    auto copy = std::make_shared<MeetingLaunch>(launch);
    auto room = std::static_pointer_cast<Multiprocessors>(multiprocessors_[static_cast<std::size_t>(device)]);
    enqueue(stream, [this, copy, room]() -> std::optional<Error> {
        run_blocks<Attendant, Attendant::Nothing>(*copy, Meeting::channels, copy->count, threads_, *room);
        return std::nullopt;
    });
}

void EmulatedGpus::copy(int, void* to, const void* from, std::size_t bytes, void* stream) {
    enqueue(stream, [=]() -> std::optional<Error> {
        std::memmove(to, from, bytes);
        return std::nullopt;
    });
}

void EmulatedGpus::call(int, void (*work)(void*), void* argument, void* stream) {
    ++host_functions_;
    enqueue(stream, [=]() -> std::optional<Error> {
        work(argument);
        return std::nullopt;
    });
}

int EmulatedGpus::device_of(void* stream) const {
    stream_of(stream);
    const std::lock_guard lock(mutex_);
    return streams_.at(stream).first;
}

void EmulatedGpus::mark(int, void*& event, void* stream) {
    auto reached = std::make_shared<Mark>();
    {
        const std::lock_guard lock(mutex_);
        if (event == nullptr) event = new Event;
        *static_cast<Event*>(event) = reached;
    }
    enqueue(stream, [reached]() -> std::optional<Error> {
        reached->reach();
        return std::nullopt;
    });
}

void EmulatedGpus::follow(int, void* event, void* stream) {
    enqueue(stream, [reached = mark_of(event)]() -> std::optional<Error> {
        if (reached != nullptr) static_cast<Mark*>(reached.get())->wait();
        return std::nullopt;
    });
}

void EmulatedGpus::mark_at_launch(int, void*& event, void* stream, void*&) {
    if (event == nullptr) event = new Event;
    enqueue_at_launch(stream, [this, event] {
        auto reached = std::make_shared<Mark>();
        const std::lock_guard lock(mutex_);
        *static_cast<Event*>(event) = reached;
        return Work([reached]() -> std::optional<Error> {
            reached->reach();
            return std::nullopt;
        });
    });
}

/// It is the first of a graph's, so that no mark of the same launch comes before it.
void EmulatedGpus::follow_at_launch(int, void*& event, void* stream) {
    if (event == nullptr) event = new Event;
    enqueue_at_launch(stream, [this, event] {
        return Work([reached = mark_of(event)]() -> std::optional<Error> {
            if (reached != nullptr) static_cast<Mark*>(reached.get())->wait();
            return std::nullopt;
        });
    });
}

bool EmulatedGpus::reached(int, void* event) const {
    const std::shared_ptr<void> mark = mark_of(event);
    return mark == nullptr || static_cast<Mark*>(mark.get())->reached();
}

void EmulatedGpus::await(int, void* event) noexcept {
    if (const std::shared_ptr<void> mark = mark_of(event)) static_cast<Mark*>(mark.get())->wait();
}

void EmulatedGpus::drop(int, void* event) noexcept {
    const std::lock_guard lock(mutex_);
    delete static_cast<Event*>(event);
}

std::shared_ptr<void> EmulatedGpus::mark_of(void* event) const {
    const std::lock_guard lock(mutex_);
    return *static_cast<Event*>(event);
}

int EmulatedGpus::offers_of_pools() const {
    const std::lock_guard lock(mutex_);
    return offers_of_pools_;
}

int EmulatedGpus::refused_shares() const {
    const std::lock_guard lock(mutex_);
    return refused_shares_;
}

const std::byte* EmulatedGpus::find_allocation(std::size_t bytes) const {
    const std::lock_guard lock(mutex_);
    for (const auto& [base, allocation] : allocations_)
        if (allocation.mapping.size() == bytes) return base;
    return nullptr;
}

int EmulatedGpus::widest() const {
    const std::lock_guard lock(mutex_);
    return widest_;
}

int EmulatedGpus::launches() const {
    const std::lock_guard lock(mutex_);
    return launches_;
}

}  // namespace tutti::harness
