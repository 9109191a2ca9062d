// Windows, and the operations on peers' windows.
#include <atomic>

#include "api/checks.hpp"
#include "api/making.hpp"
#include "api/numbered.hpp"
#include "base/caught.hpp"
#include "base/config.hpp"
#include "transport/regions.hpp"
#include "tutti/tutti.h"

using namespace tutti;

namespace {

/// What a tuttiWindow_t stands for.
struct OpenWindow {
    tuttiComm_t handle;
    std::weak_ptr<Communicator> comm;                // expires when the communicator ends or is suspended
    void* registration = nullptr;                    // the memory's registration; nullptr if it needs none
    std::shared_ptr<const Window> window = nullptr;  // nullptr if puts and gets do not reach it
    std::string obstacle = {};                       // why they do not
    std::atomic<bool> ends = false;                  // a thread deregisters it
};
using OpenWindowPtr = std::shared_ptr<OpenWindow>;

Numbered<tuttiWindow_t, OpenWindowPtr>& windows() {
    static auto* const instance = new Numbered<tuttiWindow_t, OpenWindowPtr>;
    return *instance;
}

OpenWindowPtr window_of(const char* function, tuttiWindow_t handle, tuttiComm_t comm) {
    OpenWindowPtr window = windows().find(handle);
    if (!window)
        fail(tuttiInvalidArgument, "%s: %p is no window, or was deregistered", function, static_cast<void*>(handle));
    if (window->handle != comm) fail(tuttiInvalidArgument, "%s: the window is one of another communicator", function);
    return window;
}

/// Whether some peer sees exactly `much` of this rank's memory. False on GPUs.
bool is_seen(const Connections& connections, Sees much) {
    for (Rank r = 0; r < connections.ranks() && !connections.on_gpus(); ++r)
        if (r != connections.rank() && connections.transport_to(r).sees() == much) return true;
    return false;
}

/// Whether peers can put into memory only after it was registered.
bool needs_registration(const Connections& connections) {
    return is_seen(connections, Sees::regions);
}

/// The part of a registration that all ranks do together.
void open_window(OpenWindow& window, Communicator& comm, void* buffer, std::size_t size, bool symmetric) {
    std::optional<Error> trouble;
    const bool needed = needs_registration(comm.connections());
    if (size > 0 && (needed || is_seen(comm.connections(), Sees::nothing))) try {  // a network adapter may use it
            window.registration = register_memory(buffer, size);
        } catch (...) {
            const Error error = caught();
            if (needed) trouble = Error(error.code(), text("rank %d: %s", comm.rank(), error.what()));
        }
    InTurn turn(*comm.ticket_lock());
    window.window = comm.windows().open(buffer, size, symmetric, std::move(trouble));
}

void register_window(tuttiComm_t handle, const CommunicatorPtr& comm, void* buffer, std::size_t size, int flags,
                     tuttiWindow_t* to) {
    const auto window = std::make_shared<OpenWindow>();
    window->handle = handle;
    window->comm = comm;
    window->obstacle = comm->windows().obstacle();
    const tuttiWindow_t number = windows().add(window);  // first, since nothing may fail once the window is open
    try {
        try {
            if (window->obstacle.empty())
                open_window(*window, *comm, buffer, size, (flags & TUTTI_WIN_COLL_SYMMETRIC) != 0);
            else if (!comm->connections().on_gpus())
                window->registration = register_memory(buffer, size);
        } catch (...) {
            const Error error = caught();
            const bool others_too = error.code() == tuttiInvalidArgument && window->obstacle.empty();
            if ((flags & TUTTI_WIN_BEST_EFFORT) == 0 || !others_too ||
                (window->registration == nullptr && size > 0 && needs_registration(comm->connections())))
                throw;
            window->obstacle = error.what();
        }
    } catch (...) {
        windows().remove(number);
        if (window->registration != nullptr) deregister_memory(window->registration);
        throw;
    }
    *to = number;
}

void check_peer(const char* function, int peer, int ctx, const Communicator& comm) {
    if (peer < 0 || peer >= comm.ranks())
        fail(tuttiInvalidArgument, "%s: peer is %d; the communicator has ranks 0 to %d", function, peer,
             comm.ranks() - 1);
    if (ctx != 0) fail(tuttiInvalidArgument, "%s: ctx is %d; 0 was expected", function, ctx);
}

void check_signal(const char* function, int peer, int number, int ctx, const Communicator& comm) {
    check_peer(function, peer, ctx, comm);
    if (number < 0 || number >= signals_per_peer)
        fail(tuttiInvalidArgument, "%s: sigIdx is %d; 0 to %d was expected", function, number, signals_per_peer - 1);
}

/// Completes a put into this window or a get from it. Throws if its arguments are invalid.
OneSided checked_copy(OneSided copy, const Arguments& a, const OpenWindow& window, const CommunicatorPtr& comm) {
    if (!window.window)
        fail(tuttiInvalidUsage, "%s: puts and gets do not reach the window: %s", a.function, window.obstacle.c_str());
    if (window.comm.lock() != comm)
        fail(tuttiInvalidUsage, "%s: the window was registered before the communicator was suspended; register anew",
             a.function);
    const std::size_t size = size_of(check_type(a.function, a.type));
    const WindowPart& part = window.window->parts[static_cast<std::size_t>(copy.peer)];
    if (copy.offset > part.bytes || a.count > (part.bytes - copy.offset) / size)
        fail(tuttiInvalidArgument, "%s: %zu elements of %zu bytes from byte %zu on go beyond rank %d's %llu bytes",
             a.function, a.count, size, copy.offset, copy.peer, static_cast<unsigned long long>(part.bytes));
    const bool gets = copy.kind == OneSided::Kind::get;
    const void* const local = gets ? a.output : a.input;
    if (a.count > 0) check_pointer(a, "localbuff", local, size);
    const auto here = reinterpret_cast<std::uintptr_t>(local), there = part.where.offset + copy.offset;
    const bool apart = here + a.count * size <= there || there + a.count * size <= here;
    if (copy.peer == comm->rank() && a.count > 0 && !apart)
        fail(tuttiInvalidArgument, "%s: localbuff %p overlaps what is %s, %zu bytes from byte %zu on", a.function,
             local, gets ? "read" : "written", a.count * size, copy.offset);
    copy.from = static_cast<const std::byte*>(a.input);
    copy.to = static_cast<std::byte*>(a.output);
    copy.bytes = a.count * size;
    copy.window = window.window;
    return copy;
}

/// Issues the operation that make(comm) returns. make() checks the arguments and throws if they are invalid.
template <class Make>
tuttiResult_t issue_one_sided(const char* function, tuttiComm_t handle, tuttiStream_t stream, Make&& make) {
    return grouped([&] {
        tuttiComm& h = checked(handle);
        CommunicatorPtr comm = communicator(handle);
        refuse_closed(function, h);
        if (const std::string& obstacle = comm->windows().obstacle(); !obstacle.empty())
            fail(tuttiInvalidUsage, "%s: %s", function, obstacle.c_str());
        const auto operation = std::make_shared<const OneSided>(make(comm));
        comm->faults().check();
        Issued issued{
            std::move(comm), h.on_gpu ? nullptr : stream_of(stream), {}, h.on_gpu ? stream : nullptr, operation};
        issued.operation.one_sided = operation.get();
        if (Group::is_open())
            Group::mine().add(std::move(issued));
        else
            issue({std::move(issued)});
    });
}

std::vector<OneSided::Wanted> checked_wait(const char* function, int count, const tuttiWaitSignalDesc_t* descs,
                                           const Communicator& comm) {
    if (count < 0 || (count > 0 && descs == nullptr))
        fail(tuttiInvalidArgument, "%s: %d descriptors at %p", function, count, static_cast<const void*>(descs));
    std::map<std::pair<Rank, int>, std::uint64_t> counts;
    for (int i = 0; i < count; ++i) {
        const tuttiWaitSignalDesc_t& d = descs[i];
        check_signal(function, d.peer, d.sigIdx, d.ctx, comm);
        if (d.opCnt < 0)
            fail(tuttiInvalidArgument, "%s: opCnt of descriptor %d is %d; 0 or more was expected", function, i,
                 d.opCnt);
        counts[{d.peer, d.sigIdx}] += static_cast<std::uint64_t>(d.opCnt);
    }
    std::vector<OneSided::Wanted> wanted;
    for (const auto& [whose, many] : counts) wanted.push_back({whose.first, whose.second, many});
    return wanted;
}

void refuse_flags(const char* function, unsigned flags) {
    if (flags != 0) fail(tuttiInvalidArgument, "%s: flags are %u; 0 was expected", function, flags);
}

}  // namespace

static_assert(TUTTI_SIGNALS == signals_per_peer);

tuttiResult_t tuttiCommWindowRegister(tuttiComm_t comm, void* buff, size_t size, tuttiWindow_t* win, int winFlags) {
    const char* function = "tuttiCommWindowRegister";
    return grouped([&] {
        if (win == nullptr) fail(tuttiInvalidArgument, "%s: win is NULL", function);
        if (buff == nullptr && size > 0) fail(tuttiInvalidArgument, "%s: buff is NULL", function);
        if (size > SIZE_MAX - reinterpret_cast<std::uintptr_t>(buff))
            fail(tuttiInvalidArgument, "%s: %zu bytes at %p go beyond the address space", function, size, buff);
        if ((winFlags & ~(TUTTI_WIN_BEST_EFFORT | TUTTI_WIN_COLL_SYMMETRIC)) != 0)
            fail(tuttiInvalidArgument,
                 "%s: winFlags are %d; TUTTI_WIN_DEFAULT, _BEST_EFFORT or _COLL_SYMMETRIC was expected", function,
                 winFlags);
        CommunicatorPtr c = communicator(comm);
        refuse_closed(function, *comm);
        c->faults().check();
        const bool demanded = (winFlags & TUTTI_WIN_BEST_EFFORT) == 0;
        if (const std::string& obstacle = c->windows().obstacle(); demanded && !obstacle.empty())
            fail(tuttiInvalidUsage, "%s: %s", function, obstacle.c_str());
        now_or_then(comm, [=] { register_window(comm, c, buff, size, winFlags, win); });
    });
}

tuttiResult_t tuttiCommWindowDeregister(tuttiComm_t comm, tuttiWindow_t win) {
    return guarded([&] {
        const OpenWindowPtr window = window_of("tuttiCommWindowDeregister", win, comm);
        if (window->ends.exchange(true))
            fail(tuttiInvalidArgument, "tuttiCommWindowDeregister: the window is deregistered by another thread");
        std::optional<Error> trouble;
        keep_first(trouble, [&] {
            const CommunicatorPtr c = window->comm.lock();
            if (!c || !window->window) return;
            InTurn turn(*c->ticket_lock());
            c->windows().close(*window->window);
        });
        if (window->registration != nullptr && !trouble) try {
                deregister_memory(window->registration);
            } catch (...) {
                trouble = caught();
                if (trouble->code() == tuttiSystemError) {  // the registration stands, and so does the handle
                    window->ends = false;
                    throw;
                }
            }
        windows().remove(win);
        if (trouble) throw Error(*trouble);
    });
}

tuttiResult_t tuttiCommHasAddresses(tuttiComm_t comm, int* has) {
    return guarded([&] {
        if (has == nullptr) fail(tuttiInvalidArgument, "tuttiCommHasAddresses: has is NULL");
        const CommunicatorPtr c = communicator(comm);
        *has = config().gpu_virtual && c->gpu() != nullptr && c->windows().obstacle().empty() ? 1 : 0;
    });
}

tuttiResult_t tuttiCommWindowAddresses(tuttiComm_t comm, tuttiWindow_t win, void** first, size_t* stride) {
    const char* function = "tuttiCommWindowAddresses";
    return guarded([&] {
        if (first == nullptr || stride == nullptr)
            fail(tuttiInvalidArgument, "%s: first is %p, stride is %p; both were expected", function,
                 static_cast<void*>(first), static_cast<void*>(stride));
        const OpenWindowPtr window = window_of(function, win, comm);
        const Window* const open = window->window.get();
        if (open == nullptr || !open->strip)
            fail(tuttiInvalidUsage, "%s: the window has no addresses for users' kernels: %s", function,
                 open == nullptr          ? window->obstacle.c_str()
                 : open->no_strip.empty() ? "the communicator's ranks are on CPUs"
                                          : open->no_strip.c_str());
        *first = open->strip->part(0);
        *stride = open->strip->stride();
    });
}

tuttiResult_t tuttiCommHasMulticast(tuttiComm_t comm, int* has) {
    return guarded([&] {
        if (has == nullptr) fail(tuttiInvalidArgument, "tuttiCommHasMulticast: has is NULL");
        const CommunicatorPtr c = communicator(comm);
        *has = c->connections().places().multicast_obstacle().empty() ? 1 : 0;
    });
}

tuttiResult_t tuttiCommWindowMulticast(tuttiComm_t comm, tuttiWindow_t win, void** address) {
    const char* function = "tuttiCommWindowMulticast";
    return guarded([&] {
        if (address == nullptr) fail(tuttiInvalidArgument, "%s: address is NULL", function);
        const OpenWindowPtr window = window_of(function, win, comm);
        const Window* const open = window->window.get();
        if (open == nullptr || !open->multicast)
            fail(tuttiInvalidUsage, "%s: the window has no address of multicast: %s", function,
                 open == nullptr              ? window->obstacle.c_str()
                 : open->no_multicast.empty() ? "the communicator's ranks are on CPUs"
                                              : open->no_multicast.c_str());
        *address = open->multicast_at;
    });
}

tuttiResult_t tuttiPutSignal(const void* localbuff, size_t count, tuttiDataType_t type, int peer, tuttiWindow_t peerWin,
                             size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, tuttiComm_t comm,
                             tuttiStream_t stream) {
    const char* function = "tuttiPutSignal";
    return issue_one_sided(function, comm, stream, [&](const CommunicatorPtr& c) {
        check_signal(function, peer, sigIdx, ctx, *c);
        refuse_flags(function, flags);
        const OpenWindowPtr window = window_of(function, peerWin, comm);
        const OneSided put{.kind = OneSided::Kind::put, .peer = peer, .signal = sigIdx, .offset = peerWinOffset};
        const Arguments a{function, {}, localbuff, nullptr, count, type, tuttiSum, peer};
        return checked_copy(put, a, *window, c);
    });
}

tuttiResult_t tuttiGet(void* localbuff, size_t count, tuttiDataType_t type, int peer, tuttiWindow_t peerWin,
                       size_t peerWinOffset, int ctx, unsigned int flags, tuttiComm_t comm, tuttiStream_t stream) {
    const char* function = "tuttiGet";
    return issue_one_sided(function, comm, stream, [&](const CommunicatorPtr& c) {
        check_peer(function, peer, ctx, *c);
        refuse_flags(function, flags);
        const OpenWindowPtr window = window_of(function, peerWin, comm);
        const OneSided get{.kind = OneSided::Kind::get, .peer = peer, .offset = peerWinOffset};
        const Arguments a{function, {}, nullptr, localbuff, count, type, tuttiSum, peer};
        return checked_copy(get, a, *window, c);
    });
}

tuttiResult_t tuttiSignal(int peer, int sigIdx, int ctx, unsigned int flags, tuttiComm_t comm, tuttiStream_t stream) {
    const char* function = "tuttiSignal";
    return issue_one_sided(function, comm, stream, [&](const CommunicatorPtr& c) {
        check_signal(function, peer, sigIdx, ctx, *c);
        refuse_flags(function, flags);
        return OneSided{.kind = OneSided::Kind::signal, .peer = peer, .signal = sigIdx};
    });
}

tuttiResult_t tuttiWaitSignal(int nDesc, const tuttiWaitSignalDesc_t* signalDescs, tuttiComm_t comm,
                              tuttiStream_t stream) {
    const char* function = "tuttiWaitSignal";
    return issue_one_sided(function, comm, stream, [&](const CommunicatorPtr& c) {
        return OneSided{.kind = OneSided::Kind::wait, .wanted = checked_wait(function, nDesc, signalDescs, *c)};
    });
}
