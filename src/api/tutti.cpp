// Collectives, sends and receives, and what they need: memory, streams, operators, groups. call() is the shortest way
// from a call to its execution.
#include "tutti/tutti.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "api/checks.hpp"
#include "api/making.hpp"
#include "api/numbered.hpp"
#include "gpu/gpus.hpp"
#include "gpu/memory.hpp"
#include "transport/regions.hpp"

using namespace tutti;
using Form = tutti::RowArguments::Form;

namespace {

/// Memory that a communicator on a GPU may lend to other processes, until that communicator ends or is suspended.
struct Registration {
    std::weak_ptr<Communicator> comm;
    gpu::Pointee memory;  // without a base if it can't be lent
};

Numbered<void*, std::shared_ptr<Registration>>& registrations() {
    static auto* const instance = new Numbered<void*, std::shared_ptr<Registration>>;
    return *instance;
}

/// Throws if the communicator takes no operations, or was destroyed: comm is nullptr.
void refuse_ended(const Arguments& arguments, const tuttiComm& h, const Communicator* comm) {
    refuse_closed(arguments.function, h);
    if (comm == nullptr)
        fail(tuttiInvalidArgument, "%s: the communicator was destroyed or aborted before", arguments.function);
}

Operation prepare(const Arguments& arguments, const tuttiComm& h, const Communicator* comm) {
    refuse_ended(arguments, h, comm);
    const Operation operation = check(arguments, *comm, h.ops);
    comm->faults().check();
    return operation;
}

/// The number of the next reduction operation. Any thread.
int next_op() {
    static std::atomic<std::uint32_t> made{0};
    return static_cast<int>(tuttiNumOps + made++ % (tuttiMaxRedOp - tuttiNumOps));
}

/// The entry of h.ops with this number, if there is one.
auto op_of(tuttiComm& h, int number) {
    return std::ranges::find(h.ops, number, &PremultipliedSum::number);
}

void refuse_itself(const Arguments& arguments, const Operation& operation, Rank rank) {
    if (operation.is_pair() && operation.root == rank)
        fail(tuttiInvalidUsage, "%s: rank %d can reach itself only inside a group", arguments.function, rank);
}

[[gnu::hot]] tuttiResult_t call(const Arguments& arguments, tuttiComm_t handle, tuttiStream_t stream) {
    return grouped([&] {
        tuttiComm& h = checked(handle);
        if (stream == nullptr && !Group::is_open() && !h.checks && !h.on_gpu) {  // the fast path: runs here at once
            InTurn turn(*h.ticket_lock);
            Communicator* const comm = h.comm.get();
            refuse_ended(arguments, h, comm);
            if (const Operation* const last = comm->last(); last != nullptr && is_like(arguments, *last)) {
                if (arguments.input != last->input || arguments.output != last->output)
                    check_buffers(arguments, comm->rank(), comm->ranks());
                return run_again(*comm, arguments.input, arguments.output);
            }
            const Operation operation = prepare(arguments, h, comm);
            refuse_itself(arguments, operation, comm->rank());
            if (operation.moves()) run_one(*comm, operation);
            return;
        }
        CommunicatorPtr comm = communicator(handle);
        const Operation operation = prepare(arguments, h, comm.get());
        StreamPtr queue = h.on_gpu ? nullptr : stream_of(stream);
        const bool compared = comm->options().check && !operation.is_pair();  // then the other ranks wait for this one
        if (!operation.moves() && !compared) return;
        const Rank rank = comm->rank();
        Issued issued{std::move(comm), std::move(queue), operation, h.on_gpu ? stream : nullptr};
        if (arguments.uneven != nullptr) issued.kept = arguments.uneven->rows;
        if (Group::is_open()) return Group::mine().add(std::move(issued));
        refuse_itself(arguments, operation, rank);
        issue({std::move(issued)});
    });
}

}  // namespace

extern "C" {

tuttiResult_t tuttiGetVersion(int* version) {
    return guarded([&] {
        if (version == nullptr) fail(tuttiInvalidArgument, "tuttiGetVersion: version is NULL");
        *version = TUTTI_VERSION_CODE;
    });
}

const char* tuttiGetErrorString(tuttiResult_t result) {
    switch (result) {
        case tuttiSuccess:
            return "no error";
        case tuttiUnhandledCudaError:
            return "unhandled cuda error";
        case tuttiSystemError:
            return "system error: tuttiGetLastError() has the details";
        case tuttiInternalError:
            return "internal error: a defect of Tutti";
        case tuttiInvalidArgument:
            return "invalid argument: tuttiGetLastError() says which";
        case tuttiInvalidUsage:
            return "invalid usage: tuttiGetLastError() says how";
        case tuttiRemoteError:
            return "a peer died, aborted or failed: tuttiGetLastError() names it";
        case tuttiInProgress:
            return "operation in progress";
        case tuttiTimeout:
            return "timeout: tuttiGetLastError() says for whom";
        default:
            return "unknown result code";
    }
}

tuttiResult_t tuttiGetDeviceCount(int* count) {
    return guarded([&] {
        if (count == nullptr) fail(tuttiInvalidArgument, "tuttiGetDeviceCount: count is NULL");
        const gpu::Gpus* gpus = gpu::gpus();
        *count = gpus == nullptr ? 0 : gpus->count();
    });
}

tuttiResult_t tuttiMemAlloc(void** ptr, size_t size) {
    return guarded([&] {
        if (ptr == nullptr) fail(tuttiInvalidArgument, "tuttiMemAlloc: ptr is NULL");
        *ptr = allocate_region(size);
    });
}

tuttiResult_t tuttiMemAllocDevice(void** ptr, size_t size, int device) {
    return guarded([&] {
        if (ptr == nullptr) fail(tuttiInvalidArgument, "tuttiMemAllocDevice: ptr is NULL");
        if (device < TUTTI_DEVICE_CURRENT)
            fail(tuttiInvalidArgument,
                 "tuttiMemAllocDevice: device is %d; a device's number, TUTTI_DEVICE_CPU or "
                 "TUTTI_DEVICE_CURRENT was expected",
                 device);
        const int on = device == TUTTI_DEVICE_CURRENT ? gpu::current_device() : device;
        *ptr = on == TUTTI_DEVICE_CPU ? allocate_region(size) : gpu::allocate_for_user(on, size);
    });
}

tuttiResult_t tuttiMemWrite(void* to, const void* from, size_t size) {
    return guarded([&] {
        if (size == 0) return;
        if (to == nullptr || from == nullptr)
            fail(tuttiInvalidArgument, "tuttiMemWrite: %zu bytes from %p to %p", size, from, to);
        gpu::Gpus* const gpus = gpu::gpus();
        const gpu::Pointee there = gpus != nullptr ? gpus->pointee(to) : gpu::Pointee{};
        if (there.kind == gpu::Pointee::Kind::device)
            gpus->upload(there.device, static_cast<std::byte*>(to), from, size);
        else
            std::memcpy(to, from, size);
    });
}

tuttiResult_t tuttiMemFree(void* ptr) {
    return guarded([&] {
        if (ptr != nullptr && !gpu::free_for_user(ptr)) free_region(ptr);
    });
}

tuttiResult_t tuttiCommRegister(tuttiComm_t comm, void* buff, size_t size, void** handle) {
    return guarded([&] {
        if (handle == nullptr) fail(tuttiInvalidArgument, "tuttiCommRegister: handle is NULL");
        if (buff == nullptr && size > 0) fail(tuttiInvalidArgument, "tuttiCommRegister: buff is NULL");
        if (size > SIZE_MAX - reinterpret_cast<std::uintptr_t>(buff))
            fail(tuttiInvalidArgument, "tuttiCommRegister: %zu bytes at %p go beyond the address space", size, buff);
        const CommunicatorPtr c = communicator(comm);
        if (c->gpu() == nullptr)
            *handle = register_memory(buff, size);
        else
            *handle = registrations().add(
                std::make_shared<Registration>(Registration{c, c->gpu()->neighbours().permit(buff, size)}));
    });
}

tuttiResult_t tuttiCommDeregister(tuttiComm_t, void* handle) {  // the communicator may be gone
    return guarded([&] {
        const std::shared_ptr<Registration> its = registrations().find(handle);
        if (!its || !registrations().remove(handle)) return deregister_memory(handle);
        const CommunicatorPtr c = its->comm.lock();
        if (!c || its->memory.base == nullptr) return;
        InTurn turn(*c->ticket_lock());
        c->gpu()->finish();
        const bool failed = c->faults().failed();
        c->gpu()->neighbours().forbid(its->memory, failed ? std::chrono::seconds(10) : c->options().timeout);
    });
}

tuttiResult_t tuttiStreamCreate(tuttiStream_t* stream) {
    return guarded([&] {
        if (stream == nullptr) fail(tuttiInvalidArgument, "tuttiStreamCreate: stream is NULL");
        *stream = new_stream();
    });
}

tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream) {
    return guarded([&] {
        StreamPtr s = stream_of(stream);
        if (!s) return;  // calls on the null stream have ended when they return
        if (const std::optional<Error> error = s->synchronize()) throw *error;
    });
}

tuttiResult_t tuttiStreamQuery(tuttiStream_t stream) {
    bool idle = true;
    const tuttiResult_t result = guarded([&] {
        if (const StreamPtr s = stream_of(stream)) idle = s->idle();
    });
    return result == tuttiSuccess && !idle ? tuttiInProgress : result;
}

tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream) {
    return guarded([&] { destroy_stream(stream); });
}

tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t* op, void* scalar, tuttiDataType_t type,
                                        tuttiScalarResidence_t residence, tuttiComm_t comm) {
    return guarded([&] {
        const char* function = "tuttiRedOpCreatePreMulSum";
        if (op == nullptr || scalar == nullptr)
            fail(tuttiInvalidArgument, "%s: %s is NULL", function, op == nullptr ? "op" : "scalar");
        PremultipliedSum sum{0, check_type(function, type), nullptr, 0};
        if (residence == tuttiScalarHostImmediate)
            std::memcpy(&sum.immediate, scalar, size_of(sum.type));
        else if (residence == tuttiScalarDevice)
            sum.scalar = scalar;
        else
            fail(tuttiInvalidArgument, "%s: residence %d is unknown", function, static_cast<int>(residence));
        tuttiComm& h = checked(comm);
        std::lock_guard lock(h.mutex);
        if (h.suspended) refuse_suspended();
        for (sum.number = next_op(); op_of(h, sum.number) != h.ops.end();) sum.number = next_op();
        h.ops.push_back(sum);
        *op = static_cast<tuttiRedOp_t>(sum.number);
    });
}

tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm) {
    return guarded([&] {
        tuttiComm& h = checked(comm);
        std::lock_guard lock(h.mutex);
        const auto found = op_of(h, static_cast<int>(op));
        if (found == h.ops.end())
            fail(tuttiInvalidArgument,
                 "tuttiRedOpDestroy: op %d is not one that tuttiRedOpCreatePreMulSum has made of this communicator, or "
                 "was destroyed",
                 static_cast<int>(op));
        h.ops.erase(found);
    });
}

tuttiResult_t tuttiAllReduce(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t type, tuttiRedOp_t op,
                             tuttiComm_t comm, tuttiStream_t stream) {
    return call({"tuttiAllReduce", Collective::all_reduce, sendbuff, recvbuff, count, type, op, 0}, comm, stream);
}

tuttiResult_t tuttiReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, tuttiDataType_t type,
                                 tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream) {
    return call({"tuttiReduceScatter", Collective::reduce_scatter, sendbuff, recvbuff, recvcount, type, op, 0}, comm,
                stream);
}

tuttiResult_t tuttiAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, tuttiDataType_t type,
                             tuttiComm_t comm, tuttiStream_t stream) {
    return call({"tuttiAllGather", Collective::all_gather, sendbuff, recvbuff, sendcount, type, tuttiSum, 0}, comm,
                stream);
}

tuttiResult_t tuttiBroadcast(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t type, int root,
                             tuttiComm_t comm, tuttiStream_t stream) {
    return call({"tuttiBroadcast", Collective::broadcast, sendbuff, recvbuff, count, type, tuttiSum, root}, comm,
                stream);
}

tuttiResult_t tuttiReduce(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t type, tuttiRedOp_t op,
                          int root, tuttiComm_t comm, tuttiStream_t stream) {
    return call({"tuttiReduce", Collective::reduce, sendbuff, recvbuff, count, type, op, root}, comm, stream);
}

tuttiResult_t tuttiAlltoAll(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t type, tuttiComm_t comm,
                            tuttiStream_t stream) {
    return call({"tuttiAlltoAll", Collective::all_to_all, sendbuff, recvbuff, count, type, tuttiSum, 0}, comm, stream);
}

tuttiResult_t tuttiGather(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t type, int root,
                          tuttiComm_t comm, tuttiStream_t stream) {
    return call({"tuttiGather", Collective::gather, sendbuff, recvbuff, count, type, tuttiSum, root}, comm, stream);
}

tuttiResult_t tuttiScatter(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t type, int root,
                           tuttiComm_t comm, tuttiStream_t stream) {
    return call({"tuttiScatter", Collective::scatter, sendbuff, recvbuff, count, type, tuttiSum, root}, comm, stream);
}

tuttiResult_t tuttiAlltoAllv(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls, void* recvbuff,
                             const size_t* recvcounts, const size_t* rdispls, tuttiDataType_t type, tuttiComm_t comm,
                             tuttiStream_t stream) {
    UnevenArguments rows{{Form::placed, "sendcounts", sendcounts, "sdispls", sdispls},
                         {Form::placed, "recvcounts", recvcounts, "rdispls", rdispls}};
    return call({"tuttiAlltoAllv", Collective::all_to_all, sendbuff, recvbuff, 0, type, tuttiSum, 0, &rows}, comm,
                stream);
}

tuttiResult_t tuttiGatherv(const void* sendbuff, size_t sendcount, void* recvbuff, const size_t* recvcounts,
                           const size_t* displs, tuttiDataType_t type, int root, tuttiComm_t comm,
                           tuttiStream_t stream) {
    UnevenArguments rows{{Form::one, "sendcount", &sendcount},
                         {Form::placed, "recvcounts", recvcounts, "displs", displs}};
    return call({"tuttiGatherv", Collective::gather, sendbuff, recvbuff, 0, type, tuttiSum, root, &rows}, comm, stream);
}

tuttiResult_t tuttiScatterv(const void* sendbuff, const size_t* sendcounts, const size_t* displs, void* recvbuff,
                            size_t recvcount, tuttiDataType_t type, int root, tuttiComm_t comm, tuttiStream_t stream) {
    UnevenArguments rows{{Form::placed, "sendcounts", sendcounts, "displs", displs},
                         {Form::one, "recvcount", &recvcount}};
    return call({"tuttiScatterv", Collective::scatter, sendbuff, recvbuff, 0, type, tuttiSum, root, &rows}, comm,
                stream);
}

tuttiResult_t tuttiAllGatherv(const void* sendbuff, size_t sendcount, void* recvbuff, const size_t* recvcounts,
                              const size_t* displs, tuttiDataType_t type, tuttiComm_t comm, tuttiStream_t stream) {
    UnevenArguments rows{{Form::one, "sendcount", &sendcount},
                         {Form::placed, "recvcounts", recvcounts, "displs", displs}};
    return call({"tuttiAllGatherv", Collective::all_gather, sendbuff, recvbuff, 0, type, tuttiSum, 0, &rows}, comm,
                stream);
}

tuttiResult_t tuttiReduceScatterv(const void* sendbuff, void* recvbuff, const size_t* recvcounts, tuttiDataType_t type,
                                  tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream) {
    UnevenArguments rows{{Form::packed, "recvcounts", recvcounts}, {Form::own, nullptr, nullptr}};
    return call({"tuttiReduceScatterv", Collective::reduce_scatter, sendbuff, recvbuff, 0, type, op, 0, &rows}, comm,
                stream);
}

tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t stream) {
    return call({"tuttiBarrier", Collective::barrier, nullptr, nullptr, 0, tuttiUint8, tuttiSum, 0}, comm, stream);
}

tuttiResult_t tuttiSend(const void* sendbuff, size_t count, tuttiDataType_t type, int peer, tuttiComm_t comm,
                        tuttiStream_t stream) {
    return call({"tuttiSend", Collective::send, sendbuff, nullptr, count, type, tuttiSum, peer}, comm, stream);
}

tuttiResult_t tuttiRecv(void* recvbuff, size_t count, tuttiDataType_t type, int peer, tuttiComm_t comm,
                        tuttiStream_t stream) {
    return call({"tuttiRecv", Collective::recv, nullptr, recvbuff, count, type, tuttiSum, peer}, comm, stream);
}

tuttiResult_t tuttiGroupStart(void) {
    return guarded([] { Group::start(); });
}

tuttiResult_t tuttiGroupEnd(void) {
    bool goes_on = false;
    const tuttiResult_t result = guarded([&] { goes_on = Group::mine().end(); });
    return or_in_progress(result, goes_on);
}

tuttiResult_t tuttiGroupSimulateEnd(tuttiSimInfo_t* info) {
    return guarded([&] {
        if (info != nullptr && (info->magic != TUTTI_CONFIG_MAGIC || info->size < sizeof *info))
            fail(tuttiInvalidArgument,
                 "tuttiGroupSimulateEnd: info was not initialized with TUTTI_SIM_INFO_INITIALIZER");
        const double time = Group::mine().simulate_end();
        if (info != nullptr) info->estimatedTime = static_cast<float>(time);
    });
}

}  // extern "C"
