// The collectives, pairs and reduction operations of libnccl.so.2: Tutti's, under NCCL's names.
#include "nccl/shared.hpp"

using namespace tutti::nccl;

namespace {

/// The rows as sends and receives. In place a receive may overwrite a row before it is sent.
tuttiResult_t exchange_rows(const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm,
                            cudaStream_t stream) {
    int ranks = 0;
    tuttiResult_t result = tuttiCommCount(inner(comm), &ranks);
    if (result != tuttiSuccess) return result;
    static constexpr size_t sizes[ncclNumTypes] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};  // bytes, by ncclDataType_t
    const size_t row = count * sizes[type];
    result = tuttiGroupStart();
    for (int peer = 0; peer < ranks && result == tuttiSuccess; ++peer) {
        const size_t at = static_cast<size_t>(peer) * row;
        result = tuttiSend(static_cast<const char*>(send) + at, count, converted(type), peer, inner(comm), stream);
        if (result == tuttiSuccess)
            result = tuttiRecv(static_cast<char*>(receive) + at, count, converted(type), peer, inner(comm), stream);
    }
    const tuttiResult_t ended = tuttiGroupEnd();
    return result != tuttiSuccess ? result : ended;
}

}  // namespace

static_assert(ncclFloat8e5m2 == static_cast<int>(tuttiFloat8e5m2) && ncclAvg == static_cast<int>(tuttiAvg) &&
              ncclScalarHostImmediate == static_cast<int>(tuttiScalarHostImmediate));

NCCL_API(ncclResult_t, ncclRedOpCreatePreMulSum,
         (ncclRedOp_t * op, void* scalar, ncclDataType_t type, ncclScalarResidence_t residence, ncclComm_t comm)) {
    return converted(tuttiRedOpCreatePreMulSum(reinterpret_cast<tuttiRedOp_t*>(op), scalar, converted(type),
                                               static_cast<tuttiScalarResidence_t>(residence), inner(comm)));
}

NCCL_API(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm)) {
    return converted(tuttiRedOpDestroy(converted(op), inner(comm)));
}

NCCL_API(ncclResult_t, ncclReduce,
         (const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, int root, ncclComm_t comm,
          cudaStream_t stream)) {
    return converted(tuttiReduce(send, receive, count, converted(type), converted(op), root, inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclBroadcast,
         (const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
          cudaStream_t stream)) {
    return converted(tuttiBroadcast(send, receive, count, converted(type), root, inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclBcast,
         (void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm, cudaStream_t stream)) {
    return pncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

NCCL_API(ncclResult_t, ncclAllReduce,
         (const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
          cudaStream_t stream)) {
    return converted(tuttiAllReduce(send, receive, count, converted(type), converted(op), inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclReduceScatter,
         (const void* send, void* receive, size_t count, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
          cudaStream_t stream)) {
    return converted(tuttiReduceScatter(send, receive, count, converted(type), converted(op), inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclAllGather,
         (const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)) {
    return converted(tuttiAllGather(send, receive, count, converted(type), inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclAlltoAll,
         (const void* send, void* receive, size_t count, ncclDataType_t type, ncclComm_t comm, cudaStream_t stream)) {
    // Programs do so although nobody defines the result: nccl-tests, for one, times it.
    if (send == receive && send != nullptr && type >= 0 && type < ncclNumTypes)
        return converted(exchange_rows(send, receive, count, type, comm, stream));
    return converted(tuttiAlltoAll(send, receive, count, converted(type), inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclGather,
         (const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
          cudaStream_t stream)) {
    return converted(tuttiGather(send, receive, count, converted(type), root, inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclScatter,
         (const void* send, void* receive, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
          cudaStream_t stream)) {
    return converted(tuttiScatter(send, receive, count, converted(type), root, inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclSend,
         (const void* send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)) {
    return converted(tuttiSend(send, count, converted(type), peer, inner(comm), stream));
}

NCCL_API(ncclResult_t, ncclRecv,
         (void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)) {
    return converted(tuttiRecv(receive, count, converted(type), peer, inner(comm), stream));
}
