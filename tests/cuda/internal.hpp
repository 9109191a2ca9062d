// What the parts of the runtime on hosts have in common. All state is under one mutex; kernels, copies and host
// functions run without it.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/types.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/os.hpp"
#include "on_hosts.hpp"
#include "ptx.hpp"
#include "ptx_weak.hpp"

namespace tutti::on_hosts {

struct Refusal {
    cudaError_t code;
};
[[noreturn]] inline void refuse(cudaError_t code) {
    throw Refusal{code};
}
inline void require(bool holds, cudaError_t otherwise) {
    if (!holds) refuse(otherwise);
}

struct Function;  // a registered kernel
struct Stream;
struct Device;
struct Graph;
struct GraphEvents;

struct Launch {
    ptx::Kernel kernel;
    std::vector<std::byte> parameters;
    ptx::Dim grid, block;
    std::size_t shared = 0;      // bytes
    int per_multiprocessor = 1;  // blocks at a time
};

/// What is enqueued, or captured: at most one of work, launch and graph. None: a mark.
struct Task {
    std::string what;  // for messages
    std::function<void()> work = {};
    bool host_function = false;  // its work is the user's
    std::shared_ptr<const Launch> launch = {};
    std::shared_ptr<const Graph> graph = {};
    std::shared_ptr<GraphEvents> events = {};           // of a graph
    const void *follows = nullptr, *records = nullptr;  // nodes of graphs: an event
    Device* device = nullptr;
    int priority = 0;
};

/// A task that is under way.
struct Op {
    Task task;
    const Stream* stream = nullptr;          // none: a node of a graph
    std::vector<std::shared_ptr<Op>> after;  // these first; empty once it has begun
    std::shared_ptr<Op> parent;              // the launch of the graph
    std::shared_ptr<Op> mark;                // what stands for this node where others follow its event
    std::size_t nodes_left = 0;
    unsigned blocks_begun = 0, blocks_ended = 0;
    bool begun = false, placed = false, done = false;  // placed: its queue may go on
    Clock::time_point enqueued = Clock::now(), finished;
};
using OpRef = std::shared_ptr<Op>;

struct Graph {
    struct Node {
        Task task;
        std::vector<std::size_t> after;
    };
    std::vector<Node> nodes;
};

/// What a launch of a graph finds and leaves in events, by nodes: CUDA looks at them, and moves them, when the graph is
/// launched, as if the nodes were enqueued then.
struct GraphEvents {
    std::map<std::size_t, OpRef> followed, recorded;
};

/// A capture from its beginning to its end.
struct Capture {
    unsigned long long number;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    Stream* origin;
    std::shared_ptr<Graph> graph = std::make_shared<Graph>();
    std::vector<Stream*> streams;
    std::vector<std::size_t> left_out = {};     // nodes that need not be joined
    std::vector<cudaGraphNode_t> told = {};     // by cudaStreamGetCaptureInfo
    std::vector<cudaGraphEdgeData> edges = {};  // likewise
    bool valid = true, ended = false;
};

using Queue = std::deque<OpRef>;

struct Stream {
    Device* device = nullptr;
    int number = 0, priority = 0;
    std::uintptr_t handle = 0;  // that of a destroyed stream is given to the next one, as a driver may
    bool blocking = true, legacy = false, alive = true;
    Queue* queue = nullptr;
    OpRef last;
    std::shared_ptr<Capture> capture;
    std::vector<std::size_t> tail;  // the nodes that the next one follows
};

struct Event {
    Device* device = nullptr;
    bool timing = true;
    OpRef op;                          // where it was recorded
    std::shared_ptr<Capture> capture;  // or in which capture
    std::vector<std::size_t> nodes;
};

struct Device {
    static constexpr int whole = 720720;  // of a multiprocessor: a block takes whole / (blocks at a time)
    int number = 0, contexts_made = 0;
    Stream legacy;
    struct Queues {
        std::vector<std::unique_ptr<Queue>> all;
        std::size_t next = 0;
    };
    std::map<int, Queues> queues;  // by priority
    std::vector<OpRef> live;       // enqueued and not done
    std::vector<OpRef> loose;      // nodes of graphs that wait
    std::vector<OpRef> kernels;    // whose blocks begin, in this order
    std::vector<int> room;         // of each multiprocessor
    std::set<const Function*> loaded;
    std::set<int> peers;
    std::size_t used = 0;  // bytes
    std::unique_ptr<ptx::WeakGpu> weak;
    std::unique_ptr<ptx::Memory> reach;
    cudaError_t failure = cudaSuccess;
};

struct Allocation {
    enum class Kind { device, pool, opened, mapped, pinned, registered };  // mapped: virtual memory
    Kind kind;
    std::byte* base;
    std::size_t bytes;
    int device;            // of opened ones: of the context that did
    bool managed = false;  // of kind pool: no other process can open either
    unsigned long long id = 0;
    Mapping mapping = {};
    Fd fd = {};
    std::size_t offset = 0;   // of base in the mapping
    unsigned opened = 0;      // so many times
    std::string handle = {};  // by which it was opened
    Traffic traffic = {};
    CUmemGenericAllocationHandle physical = 0;      // of a mapped one
    std::map<int, unsigned long long> access = {};  // to a mapped one, by device: what cuMemSetAccess was given last
    bool on_device() const { return kind <= Kind::mapped; }
};

constexpr int no_device = -2;  // of an object of multicast

/// What cuMemCreate makes, or cuMulticastCreate. It lives as long as it has a handle or is mapped.
struct Physical {
    Fd fd;
    std::size_t bytes;
    int device;
    bool imported, shareable;
    int handles = 1, mappings = 0;                         // mappings: bindings to multicast, too
    Mapping multicast = {};                                // of an object of multicast: what processes share of it
    std::vector<CUmemGenericAllocationHandle> bound = {};  // to it, by this process
    bool is_multicast() const { return multicast.base() != nullptr; }
};

struct Machine {
    Settings settings;
    pid_t pid = 0;
    bool initialized = false;  // the driver
    std::vector<std::unique_ptr<Device>> devices;
    std::vector<std::unique_ptr<Stream>> streams;  // destroyed ones, too: handles are never used again
    std::map<const void*, std::unique_ptr<Event>> events;
    std::map<const void*, std::shared_ptr<const Graph>> graphs;
    std::map<const void*, std::pair<std::shared_ptr<const Graph>, OpRef>> executables;  // with the last launch
    std::vector<std::shared_ptr<Capture>> captures;
    std::map<std::byte*, Allocation> memory;
    std::map<std::byte*, std::size_t> reserved;  // addresses for virtual memory: bytes by the first one
    std::map<CUmemGenericAllocationHandle, Physical> physical;
    std::map<ino_t, Mapping> seen;  // memory that is bound to multicast; kept until the process ends
    Traffic traffic = {};
    unsigned long long last_id = 0, last_capture = 0, last_physical = 0;
    int flushes = 0;
    std::map<std::thread::id, std::string> waits;  // what threads of the host wait for
    std::thread::id copying;                       // waits in a copy of pageable memory: nobody else can call
    std::deque<OpRef> host_functions;
    bool in_host_function = false;
};

/// What a thread of the host has.
struct Thread {
    const Machine* of = nullptr;
    std::vector<Device*> contexts;  // a stack
    int device = 0;                 // where contexts is empty
    cudaError_t last_error = cudaSuccess;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::map<const Device*, Stream*> streams;  // cudaStreamPerThread
    bool in_host_function = false;
};

using Lock = std::unique_lock<std::mutex>;

// devices.cpp

Machine& machine();  // under the lock, as all below
Thread& thread();
Lock locked();
/// Waits under the lock until done() holds; ends the process where that takes too long. What: for the message.
void wait(Lock& lock, const char* what, const std::function<bool()>& done);
/// After a change of what wait() may be waiting for.
void notify();

enum Needs : unsigned {
    nothing = 0,
    driver = 1,       // a GPU
    context = 2,      // a context: made on device 0 if the thread has none
    not_captured = 4  // may be unsafe while something is captured
};
/// Runs an API function's body under the lock, and keeps what it refuses as the thread's last error.
cudaError_t call(unsigned needs, const std::function<void(Lock&)>& body);
/// Names an attribute that is refused because this runtime does not know it.
void say_unknown(const char* function, int attribute);
/// The device of the thread's context.
Device& current();
/// Counts a context where there is none yet.
void make_context(Device& device);
Device& device_numbered(int number);

// scheduler.cpp

/// Puts a task behind what is in the stream and what else it follows; or into the graph that is captured. Null then.
OpRef submit(Stream& stream, Task task, std::vector<OpRef> after = {});
/// Begins whatever can begin.
void advance();
/// All that is enqueued on the device now.
void wait_for_all(Lock& lock, Device& device, const char* what);
void wait_for(Lock& lock, const OpRef& op, const char* what);
/// Whether it is done; ends the process where it has not been for too long.
bool is_done(const OpRef& op);
/// What is enqueued where.
std::string picture();
Stream& new_stream(Device& device, bool blocking, int priority);

// streams.cpp

/// Of the current device if the handle names none. Refuses an invalid handle.
Stream& stream_of(cudaStream_t handle);

/// Of what is none: refused.
Event& event_of(const void* handle);

// graphs.cpp

/// Refuses calls that may be unsafe beside a capture, and invalidates that.
void forbid_beside_captures();
/// Refuses to use the legacy stream while a blocking one of its device is captured.
void forbid_implicit(const Stream& stream, bool invalidate = true);
/// Refuses what can't be done with a stream that is captured.
void forbid_captured(const Stream& stream);
[[noreturn]] void invalidate(Capture& capture, cudaError_t code);
/// Before its nodes are begun.
std::shared_ptr<GraphEvents> events_at_launch(const Graph& graph, Device& device);
/// Where submit() puts what is captured.
void capture(Stream& stream, Task task);

// kernels.cpp

/// Those of other settings, and what is to become one: they are read again.
void forget_mutants();

// memory.cpp

/// The one that has this byte; null if none has.
const Allocation* allocation_at(const void* pointer);
/// Bytes from there to the end of the allocation, or of the mappings that follow each other there.
std::size_t bytes_behind(const Allocation& allocation, const std::byte* at);
/// What kernels of the device can use.
std::unique_ptr<ptx::Memory> reach_of(const Device& device);
/// Adds it, by its first byte, which it returns.
std::byte* keep(Allocation a);

// driver.cpp

struct Entry {
    const char* name;
    void* function;
    unsigned since;  // which version of CUDA has it
};
/// The types are checked against the driver's.
template <class Function>
Entry entry(const char* name, Function* function, unsigned since = 12000) {
    return {name, reinterpret_cast<void*>(function), since};
}
/// Runs the body of a function of the driver under the lock.
CUresult in_driver(const std::function<CUresult()>& body);

// virtual_memory.cpp

/// The driver's functions for virtual memory.
std::span<const Entry> virtual_memory_functions();
/// What was reserved in one, with this address; empty if nothing was.
std::span<std::byte> reserved_around(const std::byte* at);
CUmemGenericAllocationHandle add_physical(Physical physical);
void free_if_unused(CUmemGenericAllocationHandle handle);

// multicast.cpp

std::span<const Entry> multicast_functions();
std::size_t multicasts_here();
/// Waits, without the lock, until all devices were added to the object; false if the handle is none's.
bool await_multicast(CUmemGenericAllocationHandle handle, const char* what);
bool takes_part(const Physical& object, int device);
Physical imported_multicast(Fd fd);
/// Whether the name of a file says that it is an object of multicast.
bool is_multicast_file(const char* name);
/// Those that this process has made.
void end_bindings(Physical& object);
/// Where an address of this allocation leads; nowhere if it is not one of multicast.
ptx::Memory::Multicast replicas(const Allocation& allocation, const std::byte* at);

}  // namespace tutti::on_hosts
