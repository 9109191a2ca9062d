// A network plugin of our own, over sockets of the loopback, for tests: strict about what its caller has promised, and
// with faults on demand, of every version of the interface. Each of the modules that meson.build makes of it shows one
// version (7: one that is too old; 0: none at all).
//
// TEST_NET_PLUGIN_FAULTS, read by init(): call:kind:number, separated by commas. The calls are the interface's.
//   fail:k    the k-th such call fails
//   later:n   the first n such calls have no room, or are not there yet
//   slow:n    every such call takes n us
//   hang:k    the k-th such call does not return before test_net_plugin_let_go() is called
//   none:0    devices: there is none; regMr, ...: nothing else
// And arrival:fail:k    the k-th message that arrives has 0 bytes, says test()
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "transport/plugin/abi.hpp"

using namespace tutti::plugin::abi;

// What is open and should not be in the end, and what the caller has done wrong: see test_net_plugin_debts().
static std::atomic<int> opened{0}, registered{0}, hasty{0};
// Bodies that were sent and received, from and to memory of the host and of GPUs.
static std::atomic<int> bodies[2][2], flushes{0};
static std::atomic<bool> hung{false};  // a call is

namespace {

constexpr Result failed = 2, invalid = 4;
constexpr std::size_t largest_frames = 100'000;  // bytes registered for what is not counted

struct Fault {
    std::string call, kind;
    int number = 0, calls = 0;
};
std::mutex faults_mutex;
std::vector<Fault> faults;

Result read_faults() {
    const std::lock_guard lock(faults_mutex);
    faults.clear();
    const char* const text = std::getenv("TEST_NET_PLUGIN_FAULTS");
    std::istringstream all(text == nullptr ? "" : text);
    for (std::string one; std::getline(all, one, ',');) {
        std::istringstream parts(one);
        Fault fault;
        std::getline(parts, fault.call, ':');
        std::getline(parts, fault.kind, ':');
        parts >> fault.number;
        faults.push_back(fault);
    }
    return success;
}

struct Verdict {
    bool fail = false, later = false, none = false;
};

/// The outcome that the test has chosen for this call.
Verdict verdict(const char* call) {
    Verdict verdict;
    int slow = 0;
    bool hangs = false;
    {
        const std::lock_guard lock(faults_mutex);
        for (Fault& fault : faults) {
            if (fault.call != call) continue;
            ++fault.calls;
            verdict.fail |= fault.kind == "fail" && fault.calls == fault.number;
            verdict.later |= fault.kind == "later" && fault.calls <= fault.number;
            verdict.none |= fault.kind == "none";
            if (fault.kind == "slow") slow = fault.number;
            hangs |= fault.kind == "hang" && fault.calls == fault.number;
        }
    }
    if (slow > 0) std::this_thread::sleep_for(std::chrono::microseconds(slow));
    if (hangs) {
        hung = true;
        for (int ms = 0; hung && ms < 120'000; ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return verdict;
}

struct Wish {
    char magic[4];
    std::uint16_t port;
    int socket;  // of the connecting end, + 1
};
static_assert(sizeof(Wish) <= handle_bytes);

struct Connection;

struct Request {
    Connection* of;
    char* data;
    std::uint64_t size, done = 0;  // done: with the length before it
    std::uint64_t length = 0;
    char* place = nullptr;  // on a GPU, where kernels would see it too early: data is elsewhere until a flush
    bool is_flush = false;
};

struct Region {
    Connection* of;
    char* base;
    std::size_t size;
    bool gpu;
};

/// Data that has arrived for GPUs and is not flushed yet.
struct Late {
    Connection* of;
    char *place, *data;
    std::size_t size;
};
std::mutex late_mutex;
std::vector<Late> late;

/// only: of that connection; nullptr: of all.
void flush(const Connection* only, bool writes) {
    const std::lock_guard lock(late_mutex);
    for (const Late& l : late) {
        if (only != nullptr && l.of != only) continue;
        if (writes) std::memcpy(l.place, l.data, l.size);
        delete[] l.data;
    }
    std::erase_if(late, [&](const Late& l) { return only == nullptr || l.of == only; });
}

struct Connection {
    int socket;
    bool sends;
    std::deque<Request*> queue;  // not done yet
    int under_way = 0, regions = 0;
    bool broken = false;
};

Connection* make(int socket, bool sends) {
    fcntl(socket, F_SETFL, O_NONBLOCK);
    ++opened;
    return new Connection{socket, sends, {}, 0, 0, false};
}

/// One piece of a request. True if it was moved.
bool step(Connection& c, Request& r) {
    constexpr std::uint64_t prefix = sizeof r.length;
    const bool in_prefix = r.done < prefix;
    char* const at = in_prefix ? reinterpret_cast<char*>(&r.length) + r.done : r.data + (r.done - prefix);
    const std::uint64_t left = in_prefix ? prefix - r.done : prefix + r.length - r.done;
    const ssize_t count =
        c.sends ? ::send(c.socket, at, left, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(c.socket, at, left, MSG_DONTWAIT);
    if (count > 0) {
        r.done += static_cast<std::uint64_t>(count);
        if (r.done == prefix && r.length > r.size) c.broken = true;  // more than the place takes
        return !c.broken;
    }
    if (count == 0 || (errno != EAGAIN && errno != EINTR)) c.broken = true;
    return false;
}

bool is_done(const Request& r) {
    return r.done >= sizeof r.length && r.done == sizeof r.length + r.length;
}

void progress(Connection& c) {
    while (!c.queue.empty() && !c.broken) {
        if (!is_done(*c.queue.front()) && !step(c, *c.queue.front())) return;
        if (is_done(*c.queue.front())) c.queue.pop_front();
    }
}

Result devices(int* count) {
    const Verdict v = verdict("devices");
    *count = v.none ? 0 : 2;
    return v.fail ? failed : success;
}

template <class Properties>
Result properties(int device, Properties* out) {
    static char names[2][16] = {"loopback0", "loopback1"};
    const Verdict v = verdict("getProperties");
    *out = {};
    out->name = names[device];
    out->pointers = v.none ? gpu_memory : host_memory | gpu_memory | dma_buf;
    out->speed = 10000;
    out->most_connections = 64;
    out->most_receives = 1;
    if constexpr (requires { out->most_bytes; }) out->most_bytes = std::size_t{1} << 30;
    return v.fail ? failed : success;
}

Result listen(int, void* handle, void** out) {
    if (verdict("listen").fail) return failed;
    sockaddr_in address{};
    socklen_t size = sizeof address;
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (bind(socket, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(socket, 8) != 0) return failed;
    getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
    const Wish wish{{'t', 'e', 's', 't'}, address.sin_port, 0};
    std::memcpy(handle, &wish, sizeof wish);
    *out = make(socket, false);
    return success;
}

Result connect(int, void* handle, void** out, void**) {
    const Verdict v = verdict("connect");
    *out = nullptr;
    if (v.fail || v.later) return v.fail ? failed : success;
    Wish& wish = *static_cast<Wish*>(handle);
    if (std::memcmp(wish.magic, "test", 4) != 0) return invalid;
    if (wish.socket == 0) {
        const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        wish.socket = socket + 1;
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        address.sin_port = wish.port;
        if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 && errno != EINPROGRESS)
            return failed;
        return success;  // never at once: the handle has to be kept
    }
    pollfd ready{wish.socket - 1, POLLOUT, 0};
    if (poll(&ready, 1, 0) == 0) return success;
    if ((ready.revents & (POLLERR | POLLHUP)) != 0) return failed;
    *out = make(wish.socket - 1, true);
    return success;
}

Result accept(void* listening, void** out, void**) {
    const Verdict v = verdict("accept");
    *out = nullptr;
    if (v.fail || v.later) return v.fail ? failed : success;
    const int socket = accept4(static_cast<Connection*>(listening)->socket, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket >= 0) *out = make(socket, false);
    return socket >= 0 || errno == EAGAIN ? success : failed;
}

Result register_memory(void* connection, void* data, std::size_t size, int type, void** out) {
    if (verdict("regMr").fail) return failed;
    if (type != host_memory) return invalid;
    auto* const c = static_cast<Connection*>(connection);
    *out = new Region{c, static_cast<char*>(data), size, false};
    ++c->regions;
    ++registered;
    return success;
}

Result register_dmabuf(void* connection, void* data, std::size_t size, int type, std::uint64_t offset, int fd,
                       void** out) {
    if (verdict("regMrDmaBuf").fail) return failed;
    struct stat file;
    if (type != gpu_memory || offset != 0 || fstat(fd, &file) != 0) return invalid;
    auto* const c = static_cast<Connection*>(connection);
    *out = new Region{c, static_cast<char*>(data), size, true};
    ++c->regions;
    ++registered;
    return success;
}

Result forget_memory(void* connection, void* memory) {
    auto* const region = static_cast<Region*>(memory);
    if (region->of != connection) return invalid;
    --region->of->regions;
    --registered;
    delete region;
    return verdict("deregMr").fail ? failed : success;
}

Result post(const char* call, bool sends, void* connection, void* data, std::size_t size, void* memory, void** out) {
    const Verdict v = verdict(call);
    if (*out != nullptr) return invalid;
    if (v.fail || v.later) return v.fail ? failed : success;
    auto* const c = static_cast<Connection*>(connection);
    const auto* const region = static_cast<Region*>(memory);
    auto* const bytes = static_cast<char*>(data);
    if (c->broken) return failed;
    if (c->sends != sends || region == nullptr || region->of != c) return invalid;
    if (bytes < region->base || bytes + size > region->base + region->size) return invalid;
    if (c->under_way == most_requests) return invalid;
    auto* const request = new Request{c, bytes, size};
    if (region->gpu || region->size >= largest_frames) ++bodies[sends ? 0 : 1][region->gpu ? 1 : 0];
    if (sends) request->length = size;
    if (!sends && region->gpu) request->place = std::exchange(request->data, new char[size]);
    ++c->under_way;
    c->queue.push_back(request);
    progress(*c);
    *out = request;
    return success;
}

Result send9(void* c, void* data, std::size_t size, int, void* memory, void** request) {
    return post("isend", true, c, data, size, memory, request);
}
Result receive9(void* c, int count, void** data, std::size_t* sizes, int*, void** memory, void** request) {
    return count == 1 ? post("irecv", false, c, data[0], sizes[0], memory[0], request) : invalid;
}
Result send8(void* c, void* data, int size, int tag, void* memory, void** request) {
    return send9(c, data, static_cast<std::size_t>(size), tag, memory, request);
}
Result receive8(void* c, int count, void** data, int* sizes, int* tags, void** memory, void** request) {
    std::size_t size = static_cast<std::size_t>(sizes[0]);
    return receive9(c, count, data, &size, tags, memory, request);
}
Result send10(void* c, void* data, std::size_t size, int tag, void* memory, void*, void** request) {
    return send9(c, data, size, tag, memory, request);
}
Result receive10(void* c, int count, void** data, std::size_t* sizes, int* tags, void** memory, void** events,
                 void** request) {
    return events == nullptr ? invalid : receive9(c, count, data, sizes, tags, memory, request);
}

Result test(void* request, int* done, int* sizes) {
    const Verdict v = verdict("test");
    *done = 0;
    *sizes = 1;  // of a request that is not done it means nothing
    if (v.fail || v.later) return v.fail ? failed : success;
    auto* const r = static_cast<Request*>(request);
    if (!r->is_flush) progress(*r->of);
    if (!r->is_flush && !is_done(*r)) return r->of->broken ? failed : success;
    *done = 1;
    const bool lies = !r->is_flush && !r->of->sends && verdict("arrival").fail;
    *sizes = lies ? 0 : static_cast<int>(r->length);
    if (r->is_flush) flush(r->of, true);
    if (r->place != nullptr) {
        const std::lock_guard lock(late_mutex);
        late.push_back({r->of, r->place, r->data, r->length});
    }
    --r->of->under_way;
    delete r;
    return success;
}

Result flush_one(void* connection, int count, void** data, int* sizes, void** memory, void** out) {
    const Verdict v = verdict("iflush");
    auto* const c = static_cast<Connection*>(connection);
    const auto* const region = static_cast<Region*>(memory[0]);
    if (count != 1 || c->sends || region->of != c || !region->gpu || *out != nullptr) return invalid;
    const auto* const at = static_cast<char*>(data[0]);
    if (at < region->base || at + sizes[0] > region->base + region->size) return invalid;
    if (v.none || v.fail) return v.fail ? failed : success;  // nothing is to be waited for, it says
    *out = new Request{c, nullptr, 0, 0, 0, nullptr, true};
    ++c->under_way;
    ++flushes;
    return success;
}

Result close_one(const char* call, void* connection) {
    auto* const c = static_cast<Connection*>(connection);
    if (c->under_way > 0 || c->regions > 0) ++hasty;
    flush(c, false);
    for (const Request* r : c->queue) {
        if (r->place != nullptr) delete[] r->data;
        delete r;
    }
    close(c->socket);
    delete c;
    --opened;
    return verdict(call).fail ? failed : success;
}
Result close_send(void* c) {
    return close_one("closeSend", c);
}
Result close_receive(void* c) {
    return close_one("closeRecv", c);
}
Result close_listen(void* c) {
    return close_one("closeListen", c);
}

Result start(Log log) {
    read_faults();
    const bool fail = verdict("init").fail;
    log(fail ? 2 : 3, 1, __FILE__, __LINE__, "%s", fail ? "told to fail" : "ready");
    return fail ? failed : success;
}

// The context of calls in plugin versions that have one. Each call of init() makes one.
struct Context {
    int magic = 77;
};
bool is_ours(void* context) {
    return context != nullptr && static_cast<Context*>(context)->magic == 77;
}

Result start11(void** context, std::uint64_t, Config* config, Log log, Profile profile) {
    if (config == nullptr || profile == nullptr || config->traffic_class != unset) return invalid;
    const Result result = start(log);
    if (result == success) *context = new Context;
    return result;
}
Result listen11(void* context, int device, void* handle, void** out) {
    return is_ours(context) ? listen(device, handle, out) : invalid;
}
Result connect11(void* context, int device, void* handle, void** out, void** for_device) {
    return is_ours(context) ? connect(device, handle, out, for_device) : invalid;
}
Result finalize(void* context) {
    if (!is_ours(context)) return invalid;
    delete static_cast<Context*>(context);
    return verdict("finalize").fail ? failed : success;
}

constexpr Memory memory{register_memory, register_dmabuf, forget_memory};
constexpr Memory without_dma_buf{register_memory, nullptr, forget_memory};
constexpr Closing closing{test, close_send, close_receive, close_listen, nullptr, nullptr};

}  // namespace

#define SHOWN extern "C" __attribute__((visibility("default")))

/// Connections and registrations that are open, and how many were closed with requests or registrations.
SHOWN void test_net_plugin_debts(int* out) {
    out[0] = opened;
    out[1] = registered;
    out[2] = hasty;
}

/// Whether a call hangs.
SHOWN bool test_net_plugin_hangs() {
    return hung;
}
SHOWN void test_net_plugin_let_go() {
    hung = false;
}

/// Bodies of messages: sent from the host's memory, from GPUs', received to the host's, to GPUs'; and flushes.
SHOWN void test_net_plugin_traffic(int* out) {
    for (int i = 0; i < 4; ++i) out[i] = bodies[i / 2][i % 2];
    out[4] = flushes;
}

/// What has arrived for GPUs is there: their driver's flush.
SHOWN void test_net_plugin_land() {
    flush(nullptr, true);
}

// NULL where real plugins have NULL.
SHOWN int ncclNetPlugin_v7;
int ncclNetPlugin_v7 = 0;

SHOWN Net8 ncclNetPlugin_v8;
Net8 ncclNetPlugin_v8{
    "Test8", start,  {devices, properties<Properties8>}, listen, connect, accept, without_dma_buf, send8, receive8,
    nullptr, closing};

SHOWN Net9 ncclNetPlugin_v9;
Net9 ncclNetPlugin_v9{
    "Test9", start,  {devices, properties<Properties9<4> >}, listen, connect, accept, memory, send9, receive9, nullptr,
    closing, nullptr};

namespace {
Result start10(Log log, Profile profile) {
    return profile == nullptr ? invalid : start(log);
}
Result connect10(int device, Config* config, void* handle, void** out, void** for_device) {
    return config == nullptr ? invalid : connect(device, handle, out, for_device);
}
}  // namespace
SHOWN Net10 ncclNetPlugin_v10;
Net10 ncclNetPlugin_v10{"Test10", start10,   {devices, properties<Properties9<4> >},
                        listen,   connect10, accept,
                        memory,   send10,    receive10,
                        nullptr,  closing,   nullptr};

SHOWN NetV11 ncclNetPlugin_v11;
NetV11 ncclNetPlugin_v11{"Test11",  start11,   {devices, properties<Properties11>},
                         listen11,  connect11, accept,
                         memory,    send10,    receive10,
                         flush_one, closing,   nullptr,
                         finalize,  nullptr};

SHOWN NetV12 ncclNetPlugin_v12;
NetV12 ncclNetPlugin_v12{"Test12", start11,   {devices, properties<Properties12>},
                         listen11, connect11, accept,
                         memory,   send10,    receive10,
                         nullptr,  closing,   nullptr,
                         finalize, nullptr};
