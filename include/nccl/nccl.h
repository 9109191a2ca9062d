/* Tutti's nccl.h: programs written for NCCL compile against it and run on libnccl.so.2 of Tutti, on GPUs, or, where
 * none is usable, on CPU ranks with host buffers. Written from the documented interface; names, values and layouts are
 * those that programs compiled against NVIDIA's header expect. docs/nccl.md says of every function what it does here.
 * Copyright the Tutti authors. SPDX-License-Identifier: Apache-2.0 */
#ifndef NCCL_H_
#define NCCL_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__has_include)
#if __has_include(<cuda_runtime.h>)
#include <cuda_runtime.h>
#define TUTTI_NCCL_HAS_CUDA_RUNTIME 1
/* Programs expect the small floats' types from nccl.h. */
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#ifdef __cplusplus
#include <cuda_fp8.h>
#endif
#endif
#endif
#ifndef TUTTI_NCCL_HAS_CUDA_RUNTIME
typedef struct CUstream_st* cudaStream_t;
#endif

/* The interface that this header has is the host side of NCCL 2.30.7, which is what ncclGetVersion says. But programs
 * take a header of 2.28 or later for the promise of nccl_device.h, NCCL's interface for kernels, which is not here. So
 * the version that they see is the last one before, unless TUTTI_NCCL_WHOLE_VERSION is defined. */
#define TUTTI_NCCL_INTERFACE 23007
#define NCCL_MAJOR 2
#ifdef TUTTI_NCCL_WHOLE_VERSION
#define NCCL_MINOR 30
#define NCCL_PATCH 7
#else
#define NCCL_MINOR 27
#define NCCL_PATCH 7
#endif
#define NCCL_SUFFIX ""
#define NCCL_VERSION_CODE (NCCL_MAJOR * 10000 + NCCL_MINOR * 100 + NCCL_PATCH)
#define NCCL_VERSION(X, Y, Z) (((X) <= 2 && (Y) <= 8) ? (X)*1000 + (Y)*100 + (Z) : (X)*10000 + (Y)*100 + (Z))

#define NCCL_UNIQUE_ID_BYTES 128
#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_CONFIG_UNDEF_PTR NULL
#define NCCL_SPLIT_NOCOLOR (-1)
#define NCCL_UNDEF_FLOAT (-1.0f)
#define NCCL_WIN_DEFAULT 0x00
#define NCCL_WIN_COLL_SYMMETRIC 0x01
#define NCCL_WIN_STRICT_ORDERING 0x02
#define NCCL_WIN_REQUIRED_ALIGNMENT 4096
#define NCCL_CTA_POLICY_DEFAULT 0x00
#define NCCL_CTA_POLICY_EFFICIENCY 0x01
#define NCCL_CTA_POLICY_ZERO 0x02
#define NCCL_SHRINK_DEFAULT 0x00
#define NCCL_SHRINK_ABORT 0x01
#define NCCL_REVOKE_DEFAULT 0x00
#define NCCL_SUSPEND_MEM 0x01

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ncclComm* ncclComm_t;
typedef struct ncclWindow_vidmem* ncclWindow_t;
#define NCCL_COMM_NULL NULL

typedef struct {
    char internal[NCCL_UNIQUE_ID_BYTES];
} ncclUniqueId;

typedef enum {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
    ncclTimeout = 8,
    ncclNumResults = 9
} ncclResult_t;

typedef enum {
    ncclInt8 = 0,
    ncclChar = 0,
    ncclUint8 = 1,
    ncclInt32 = 2,
    ncclInt = 2,
    ncclUint32 = 3,
    ncclInt64 = 4,
    ncclUint64 = 5,
    ncclFloat16 = 6,
    ncclHalf = 6,
    ncclFloat32 = 7,
    ncclFloat = 7,
    ncclFloat64 = 8,
    ncclDouble = 8,
    ncclBfloat16 = 9,
    ncclFloat8e4m3 = 10,
    ncclFloat8e5m2 = 11,
    ncclNumTypes = 12
} ncclDataType_t;

typedef enum {
    ncclSum = 0,
    ncclProd = 1,
    ncclMax = 2,
    ncclMin = 3,
    ncclAvg = 4,
    ncclNumOps = 5,
    ncclMaxRedOp = 0x7fffffff
} ncclRedOp_t;

typedef enum { ncclScalarDevice = 0, ncclScalarHostImmediate = 1 } ncclScalarResidence_t;

typedef enum {
    ncclStatGpuMemSuspend = 0,
    ncclStatGpuMemSuspended = 1,
    ncclStatGpuMemPersist = 2,
    ncclStatGpuMemTotal = 3
} ncclCommMemStat_t;

/* Grows with the version; `size` says which one the caller knows. Start from NCCL_CONFIG_INITIALIZER. */
typedef struct ncclConfig_v23000 {
    size_t size;
    unsigned int magic;
    unsigned int version;
    int blocking;
    int cgaClusterSize;
    int minCTAs;
    int maxCTAs;
    const char* netName;
    int splitShare;
    int trafficClass;
    const char* commName;
    int collnetEnable;
    int CTAPolicy;
    int shrinkShare;
    int nvlsCTAs;
    int nChannelsPerNetPeer;
    int nvlinkCentricSched;
    int graphUsageMode;
    int numRmaCtx;
    int maxP2pPeers;
    int graphStreamOrdering;
} ncclConfig_t;

#define NCCL_CONFIG_INITIALIZER                                                                            \
    {                                                                                                      \
        sizeof(ncclConfig_t), 0xcafebeef, NCCL_VERSION_CODE, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT,    \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_PTR, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,    \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT,    \
            NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT, NCCL_CONFIG_UNDEF_INT     \
    }

typedef struct ncclSimInfo_v22200 {
    size_t size;
    unsigned int magic;
    unsigned int version;
    float estimatedTime;
} ncclSimInfo_t;

#define NCCL_SIM_INFO_INITIALIZER \
    { sizeof(ncclSimInfo_t), 0x74685283, NCCL_VERSION_CODE, NCCL_UNDEF_FLOAT }

typedef struct {
    int opCnt;
    int peer;
    int sigIdx;
    int ctx;
} ncclWaitSignalDesc_t;

/* Each function exists under a second name with a p in front, for profilers that wrap the first. */
#define NCCL_FUNCTION(result, name, parameters) \
    result name parameters;                     \
    result p##name parameters

/* version, errors */
NCCL_FUNCTION(ncclResult_t, ncclGetVersion, (int* version));
NCCL_FUNCTION(const char*, ncclGetErrorString, (ncclResult_t result));
NCCL_FUNCTION(const char*, ncclGetLastError, (ncclComm_t comm));
NCCL_FUNCTION(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t comm, ncclResult_t* asyncError));
NCCL_FUNCTION(void, ncclResetDebugInit, (void));

/* communicators */
NCCL_FUNCTION(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * uniqueId));
NCCL_FUNCTION(ncclResult_t, ncclCommInitRank, (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank));
NCCL_FUNCTION(ncclResult_t, ncclCommInitRankConfig,
              (ncclComm_t * comm, int nranks, ncclUniqueId commId, int rank, ncclConfig_t* config));
NCCL_FUNCTION(ncclResult_t, ncclCommInitRankScalable,
              (ncclComm_t * newcomm, int nranks, int myrank, int nId, ncclUniqueId* commIds, ncclConfig_t* config));
NCCL_FUNCTION(ncclResult_t, ncclCommInitAll, (ncclComm_t * comm, int ndev, const int* devlist));
NCCL_FUNCTION(ncclResult_t, ncclCommFinalize, (ncclComm_t comm));
NCCL_FUNCTION(ncclResult_t, ncclCommDestroy, (ncclComm_t comm));
NCCL_FUNCTION(ncclResult_t, ncclCommAbort, (ncclComm_t comm));
NCCL_FUNCTION(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int revokeFlags));
NCCL_FUNCTION(ncclResult_t, ncclCommSplit,
              (ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config));
NCCL_FUNCTION(ncclResult_t, ncclCommShrink,
              (ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm, ncclConfig_t* config,
               int shrinkFlags));
NCCL_FUNCTION(ncclResult_t, ncclCommGetUniqueId, (ncclComm_t comm, ncclUniqueId* uniqueId));
NCCL_FUNCTION(ncclResult_t, ncclCommGrow,
              (ncclComm_t comm, int nRanks, const ncclUniqueId* uniqueId, int rank, ncclComm_t* newcomm,
               ncclConfig_t* config));
NCCL_FUNCTION(ncclResult_t, ncclCommCount, (const ncclComm_t comm, int* count));
NCCL_FUNCTION(ncclResult_t, ncclCommCuDevice, (const ncclComm_t comm, int* device));
NCCL_FUNCTION(ncclResult_t, ncclCommUserRank, (const ncclComm_t comm, int* rank));
NCCL_FUNCTION(ncclResult_t, ncclCommSuspend, (ncclComm_t comm, int flags));
NCCL_FUNCTION(ncclResult_t, ncclCommResume, (ncclComm_t comm));
NCCL_FUNCTION(ncclResult_t, ncclCommMemStats, (ncclComm_t comm, ncclCommMemStat_t stat, uint64_t* value));

/* memory */
NCCL_FUNCTION(ncclResult_t, ncclMemAlloc, (void** ptr, size_t size));
NCCL_FUNCTION(ncclResult_t, ncclMemFree, (void* ptr));
NCCL_FUNCTION(ncclResult_t, ncclCommRegister, (const ncclComm_t comm, void* buff, size_t size, void** handle));
NCCL_FUNCTION(ncclResult_t, ncclCommDeregister, (const ncclComm_t comm, void* handle));
NCCL_FUNCTION(ncclResult_t, ncclCommWindowRegister,
              (ncclComm_t comm, void* buff, size_t size, ncclWindow_t* win, int winFlags));
NCCL_FUNCTION(ncclResult_t, ncclCommWindowDeregister, (ncclComm_t comm, ncclWindow_t win));
NCCL_FUNCTION(ncclResult_t, ncclWinGetUserPtr, (ncclComm_t comm, ncclWindow_t win, void** outUserPtr));

/* reduction operations */
NCCL_FUNCTION(ncclResult_t, ncclRedOpCreatePreMulSum,
              (ncclRedOp_t * op, void* scalar, ncclDataType_t datatype, ncclScalarResidence_t residence,
               ncclComm_t comm));
NCCL_FUNCTION(ncclResult_t, ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t comm));

/* collectives */
NCCL_FUNCTION(ncclResult_t, ncclReduce,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op, int root,
               ncclComm_t comm, cudaStream_t stream));
NCCL_FUNCTION(ncclResult_t, ncclBcast,
              (void* buff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm, cudaStream_t stream));
NCCL_FUNCTION(ncclResult_t, ncclBroadcast,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
               cudaStream_t stream));
NCCL_FUNCTION(ncclResult_t, ncclAllReduce,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclRedOp_t op,
               ncclComm_t comm, cudaStream_t stream));
NCCL_FUNCTION(ncclResult_t, ncclReduceScatter,
              (const void* sendbuff, void* recvbuff, size_t recvcount, ncclDataType_t datatype, ncclRedOp_t op,
               ncclComm_t comm, cudaStream_t stream));
NCCL_FUNCTION(ncclResult_t, ncclAllGather,
              (const void* sendbuff, void* recvbuff, size_t sendcount, ncclDataType_t datatype, ncclComm_t comm,
               cudaStream_t stream));
NCCL_FUNCTION(ncclResult_t, ncclAlltoAll,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, ncclComm_t comm,
               cudaStream_t stream));
NCCL_FUNCTION(ncclResult_t, ncclGather,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
               cudaStream_t stream));
NCCL_FUNCTION(ncclResult_t, ncclScatter,
              (const void* sendbuff, void* recvbuff, size_t count, ncclDataType_t datatype, int root, ncclComm_t comm,
               cudaStream_t stream));
NCCL_FUNCTION(ncclResult_t, ncclSend,
              (const void* sendbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm,
               cudaStream_t stream));
NCCL_FUNCTION(ncclResult_t, ncclRecv,
              (void* recvbuff, size_t count, ncclDataType_t datatype, int peer, ncclComm_t comm, cudaStream_t stream));
NCCL_FUNCTION(ncclResult_t, ncclPutSignal,
              (const void* localbuff, size_t count, ncclDataType_t datatype, int peer, ncclWindow_t peerWin,
               size_t peerWinOffset, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream));
NCCL_FUNCTION(ncclResult_t, ncclSignal,
              (int peer, int sigIdx, int ctx, unsigned int flags, ncclComm_t comm, cudaStream_t stream));
NCCL_FUNCTION(ncclResult_t, ncclWaitSignal,
              (int nDesc, ncclWaitSignalDesc_t* signalDescs, ncclComm_t comm, cudaStream_t stream));

/* groups */
NCCL_FUNCTION(ncclResult_t, ncclGroupStart, (void));
NCCL_FUNCTION(ncclResult_t, ncclGroupEnd, (void));
NCCL_FUNCTION(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * simInfo));

/* settings: the environment variables that docs/environment.md lists, and what holds. Texts and tables belong to the
 * library and are valid until the thread's next call of the same function. */
typedef struct ncclParam* ncclParamHandle_t;
NCCL_FUNCTION(ncclResult_t, ncclParamBind, (ncclParamHandle_t * out, const char* key));
NCCL_FUNCTION(ncclResult_t, ncclParamGetI8, (ncclParamHandle_t h, int8_t* out));
NCCL_FUNCTION(ncclResult_t, ncclParamGetI16, (ncclParamHandle_t h, int16_t* out));
NCCL_FUNCTION(ncclResult_t, ncclParamGetI32, (ncclParamHandle_t h, int32_t* out));
NCCL_FUNCTION(ncclResult_t, ncclParamGetI64, (ncclParamHandle_t h, int64_t* out));
NCCL_FUNCTION(ncclResult_t, ncclParamGetU8, (ncclParamHandle_t h, uint8_t* out));
NCCL_FUNCTION(ncclResult_t, ncclParamGetU16, (ncclParamHandle_t h, uint16_t* out));
NCCL_FUNCTION(ncclResult_t, ncclParamGetU32, (ncclParamHandle_t h, uint32_t* out));
NCCL_FUNCTION(ncclResult_t, ncclParamGetU64, (ncclParamHandle_t h, uint64_t* out));
NCCL_FUNCTION(ncclResult_t, ncclParamGetStr, (ncclParamHandle_t h, const char** out));
NCCL_FUNCTION(ncclResult_t, ncclParamGet, (ncclParamHandle_t h, void* out, int maxLen, int* len));
NCCL_FUNCTION(ncclResult_t, ncclParamGetParameter, (const char* key, const char** value, int* valueLen));
NCCL_FUNCTION(ncclResult_t, ncclParamGetAllParameterKeys, (const char*** table, int* tableLen));
NCCL_FUNCTION(void, ncclParamDumpAll, (void));

#ifdef __cplusplus
}
#endif

#endif /* NCCL_H_ */
