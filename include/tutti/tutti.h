/* Tutti: collective communication. Copyright the Tutti authors. SPDX-License-Identifier: Apache-2.0
 *
 * Many ranks, one result. A rank is a participant of a communicator: a process, a thread, or one of several ranks that
 * one thread drives inside a group. This header is the whole interface and its manual. Names, argument orders and
 * values are NCCL's wherever NCCL has them.
 *
 * Conventions
 *  (1) Every function returns tuttiResult_t; 0 is success. After a failure tuttiGetLastError() says what was expected,
 *      which rank and peer were concerned and what to do. Outputs are untouched on failure, unless said otherwise.
 *  (2) Handles (tuttiComm_t, streams, reduction ops, windows) are opaque. A destroyed or foreign handle is refused with
 *      tuttiInvalidArgument as long as the handle's memory was not reused, which the library avoids on purpose.
 *  (3) `count` counts elements, never bytes. 0 is allowed everywhere and moves nothing.
 *  (4) Buffers need the alignment of their element type, no more. Source and destination may be equal ("in place", see
 *      each function for which part must coincide); any other overlap is refused.
 *  (5) Arguments are checked before anything is enqueued: a refused call has no effect on any rank, and may be repeated
 *      correctly.
 *  (6) All ranks of a communicator issue the same collectives in the same order with the same count, type, op and root.
 *      Ranks that do not get tuttiInvalidUsage, whose text names both ranks and both calls; they do not hang.
 *  (7) Streams. With stream NULL a call on a CPU communicator runs in the calling thread, and has finished when it
 *      returns. With a tuttiStream_t it is enqueued and runs in that stream's order. Buffers belong to the library
 *      until the operation has finished.
 *  (8) Threads. Different threads may use different communicators at the same time. One thread at a time uses a
 *      communicator, except for tuttiCommAbort, tuttiCommRevoke and tuttiCommGetAsyncError, which any thread may call
 *      at any time.
 *  (9) No call blocks for ever. If a peer is lost, every pending and later operation gives tuttiRemoteError, which
 *      names the rank; a wait longer than the communicator's time-out, in which nothing moves on the way to or from the
 *      peer, gives tuttiTimeout. Once a communicator has failed, every call on it returns that first error; only Abort,
 *      Destroy, Revoke and Shrink are of use then. When a call has returned an error, or Abort has returned, no other
 *      rank reads or writes the call's buffers any more. There is one exception: if a process of this host is stopped
 *      (by a debugger, SIGSTOP) in the middle of such a copy, the call waits until it goes on or dies, for 10 s or the
 *      time-out, whichever is shorter. Then the error's text (after Abort, a warning) says whose process may still use
 *      the buffers.
 * (10) A program must not fork() while it holds a communicator, unless the child execs at once.
 * (11) dlclose() does not unload the library, since its threads go on. A library that libtutti.a is linked into needs
 *      -Wl,-z,nodelete: pkg-config --static and tutti::static add it. exit() may be called from any thread at any time.
 * (12) The environment is read in one place; docs/environment.md lists every variable.
 */
#ifndef TUTTI_TUTTI_H_
#define TUTTI_TUTTI_H_

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#define TUTTI_MAJOR 0
#define TUTTI_MINOR 1
#define TUTTI_PATCH 0
#define TUTTI_VERSION_CODE (TUTTI_MAJOR * 10000 + TUTTI_MINOR * 100 + TUTTI_PATCH)

#if defined(__GNUC__)
#define TUTTI_API __attribute__((visibility("default")))
#else
#define TUTTI_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ------------------------------------------------------------------------------------------- results, version */

typedef enum {
    tuttiSuccess = 0,
    tuttiUnhandledCudaError = 1, /* a CUDA call failed */
    tuttiSystemError = 2,        /* the operating system refused: memory, descriptors, sockets; the text has errno */
    tuttiInternalError = 3,      /* a defect of Tutti: please report it with the text */
    tuttiInvalidArgument = 4,    /* one argument is wrong by itself */
    tuttiInvalidUsage = 5,       /* the call is wrong in this place, or does not fit what other ranks call */
    tuttiRemoteError = 6,        /* a peer died, aborted or failed; the text names it */
    tuttiInProgress = 7,         /* not finished yet (tuttiStreamQuery, tuttiCommGetAsyncError) */
    tuttiTimeout = 8,            /* a wait lasted longer than the communicator allows; the text names whom it was for */
    tuttiNumResults = 9
} tuttiResult_t;

/* The version of the library in use, as TUTTI_VERSION_CODE. */
TUTTI_API tuttiResult_t tuttiGetVersion(int* version);

/* A short constant text for a result code. Never NULL, also for values that are no result. */
TUTTI_API const char* tuttiGetErrorString(tuttiResult_t result);

/* -------------------------------------------------------------------------------------------- types, operations */

typedef enum {
    tuttiInt8 = 0,
    tuttiChar = 0,
    tuttiUint8 = 1,
    tuttiInt32 = 2,
    tuttiInt = 2,
    tuttiUint32 = 3,
    tuttiInt64 = 4,
    tuttiUint64 = 5,
    tuttiFloat16 = 6,
    tuttiHalf = 6,
    tuttiFloat32 = 7,
    tuttiFloat = 7,
    tuttiFloat64 = 8,
    tuttiDouble = 8,
    tuttiBfloat16 = 9,
    tuttiFloat8e4m3 = 10, /* OCP E4M3: no infinities, largest finite 448; results beyond it saturate to NaN as in OCP's
                             non-saturating mode */
    tuttiFloat8e5m2 = 11, /* OCP E5M2: IEEE-like, with infinities */
    tuttiNumTypes = 12
} tuttiDataType_t;

/* Integers wrap around. 16- and 8-bit floats are added in fp32 and rounded once per step of the algorithm (to nearest,
 * ties to even). tuttiAvg is the sum divided by the number of ranks (integers: the wrapped sum, division towards zero).
 * min and max of floats return a NaN if any argument is one. */
typedef enum {
    tuttiSum = 0,
    tuttiProd = 1,
    tuttiMax = 2,
    tuttiMin = 3,
    tuttiAvg = 4,
    tuttiNumOps = 5, /* values from here on come from tuttiRedOpCreatePreMulSum */
    tuttiMaxRedOp = 0x7fffffff
} tuttiRedOp_t;

typedef enum {
    tuttiScalarDevice = 0,       /* the scalar is read when the operation runs, from memory that the device can read
                                    (CPU communicators: any host memory) */
    tuttiScalarHostImmediate = 1 /* the scalar is read before the call returns */
} tuttiScalarResidence_t;

typedef struct tuttiComm* tuttiComm_t;

/* CPU communicators: a stream of tuttiStreamCreate, or NULL to run in the calling thread at once. CUDA communicators: a
 * cudaStream_t. */
typedef void* tuttiStream_t;

/* ------------------------------------------------------------------------------------------------ communicators */

#define TUTTI_UNIQUE_ID_BYTES 128

/* The place where the ranks meet, and the secret that lets them in. Hand it to every rank over a channel you trust, and
 * treat it like a password. */
typedef struct {
    char internal[TUTTI_UNIQUE_ID_BYTES];
} tuttiUniqueId;

#define TUTTI_UNDEF_INT INT_MIN

/* A function by which the caller lends threads. It runs body(argument, i) once for every i from 0 to n - 1, on threads
 * of its own choice, and returns when all have returned. Running them at the same time is fast; one after the other is
 * allowed, as OpenMP's `parallel for` does with one thread. It must not throw, call the library, or wait for another
 * rank's call to end: ranks of one process need pools of their own. The thread that runs the operation (also a stream's
 * worker) calls it, once for each call or group that is worth it. */
typedef void (*tuttiParallel_t)(void* context, int n, void (*body)(void* argument, int index), void* argument);

/* Options of one communicator. Start from TUTTI_CONFIG_INITIALIZER, so that fields that your compiler did not know keep
 * their defaults in a newer library. An option that is set here overrides the environment variable of the same
 * purpose. algorithm, transport, channels, reproducible, check and programs must be the same on all ranks; init fails
 * with tuttiInvalidUsage, and names the one that is not. */
typedef struct {
    size_t size;          /* set by the initializer */
    unsigned int magic;   /* set by the initializer */
    unsigned int version; /* set by the initializer: the header's TUTTI_VERSION_CODE */
    int timeoutMs;        /* how long one operation may wait for its peers, in ms; default 600000 */
    int initTimeoutMs;    /* how long init waits for all ranks to arrive, in ms; default 60000 */
    int check; /* 1: compare collectives' arguments before data moves (docs/environment.md); 0: while it moves (free) */
    const char* algorithm; /* algorithms to choose from: "ring,tree", or "^ring" for all others, or by collective:
                              "all_reduce:direct;*:^flat"; names: `tutti-plan list`. If none of them can do a
                              collective, the list is ignored for it */
    const char* transport; /* name of the only transport to use: "local", "shm", "tcp", ...; on GPUs "p2p", too */
    const char* commName;  /* the communicator's name in log messages; copied */
    int device;       /* the rank's CUDA device. TUTTI_DEVICE_CPU (default): it is on the CPU. TUTTI_DEVICE_CURRENT:
                         the calling thread's device, or the CPU if no GPU is usable. Ranks of one communicator may
                         be on both; a rank's buffers and streams are of the kind of its own device */
    int reproducible; /* 1: sums of n ranks have the same bits whatever the algorithm, transport, placement, channels
                         and message sizes, on CPUs and on GPUs: they are added in rank order, with one rounding.
                         0 (default): the same bits from run to run */
    __extension__ union {
        int channels; /* channels of large calls, 1 to 8 (on GPUs the most); default: as the cost model says */
        int lanes;    /* deprecated: the old name of channels, until version 0.2 */
    };
    const char* programs; /* files with algorithms of your own, separated by ':', the same on all ranks. They are
                             proven before anything runs, then candidates like all others (docs/programs.md); copied */
    int blocking;         /* 0: InitRankConfig, InitEnv, Split, Shrink, Grow and Finalize begin their work in the
                             background and return tuttiInProgress; see tuttiCommGetAsyncError. 1 (default): they return
                             when it is done */
    int threads; /* how many threads of a rank on the CPU share its large collectives, 1 to 8; default 1. The smallest
                    number of any rank counts. Sends, receives, puts and small calls stay on the calling thread */
    tuttiParallel_t parallel; /* lends these threads. NULL (default): the library starts all but the calling
                                 one, and they sleep between calls */
    void* parallelContext;    /* passed to parallel */
    int ctaPolicy; /* TUTTI_CTA_POLICY_ZERO: copy engines run what they can, see below; kernels do with any other */
} tuttiConfig_t;

/* Copy engines. If all ranks ask for TUTTI_CTA_POLICY_ZERO, all are on GPUs that p2p joins, and the buffers of an
 * all-gather or an all-to-all lie in windows of TUTTI_WIN_COLL_SYMMETRIC, the GPUs' copy engines move the data,
 * whatever config.algorithm says. Kernels of one warp wait for the other ranks, before the copies and after them;
 * multiprocessors are free for other work meanwhile. An all-gather is in place on all ranks, or on none. All else runs
 * as without it, and values but these three are refused.
 *
 * Copies can't be taken back. If the communicator fails before its streams have come to a call that was enqueued, its
 * copies read the other ranks' windows all the same (they write only to the own one). So where ranks are threads of one
 * process, synchronize the streams of all of them before memory of windows is freed after a failure. */
#define TUTTI_CTA_POLICY_DEFAULT 0
#define TUTTI_CTA_POLICY_EFFICIENCY 1
#define TUTTI_CTA_POLICY_ZERO 2

#define TUTTI_DEVICE_CPU (-1)
#define TUTTI_DEVICE_CURRENT (-2)

#define TUTTI_CONFIG_MAGIC 0x54555454u
#define TUTTI_CONFIG_INITIALIZER                                                                          \
    {                                                                                                     \
        sizeof(tuttiConfig_t), TUTTI_CONFIG_MAGIC, TUTTI_VERSION_CODE, TUTTI_UNDEF_INT, TUTTI_UNDEF_INT,  \
            TUTTI_UNDEF_INT, NULL, NULL, NULL, TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, {TUTTI_UNDEF_INT}, NULL, \
            TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, NULL, NULL, TUTTI_UNDEF_INT                                 \
    }

/* Makes an id for tuttiCommInitRank. The ranks meet in the calling process, which must live until all have joined. If a
 * rank of this process can't join for lack of memory or descriptors, the others are told at once, and the id is used
 * up. */
TUTTI_API tuttiResult_t tuttiGetUniqueId(tuttiUniqueId* id);

/* Joins a communicator of `nranks` ranks as number `rank` (0 <= rank < nranks). Blocks until all have joined; a rank
 * that does not arrive within initTimeoutMs gives tuttiTimeout, which names it. One thread that drives several ranks
 * calls it between tuttiGroupStart and tuttiGroupEnd; *comm is then valid after tuttiGroupEnd. config may be NULL. */
TUTTI_API tuttiResult_t tuttiCommInitRank(tuttiComm_t* comm, int nranks, tuttiUniqueId id, int rank);
TUTTI_API tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t* comm, int nranks, tuttiUniqueId id, int rank,
                                                const tuttiConfig_t* config);

/* Makes a communicator whose `nranks` ranks are all in this process. comms: array of nranks handles, written on
 * success. devices: NULL for ranks on the CPU, else nranks numbers of CUDA devices, one for each rank (or
 * TUTTI_DEVICE_CPU). Ranks may share a device. */
TUTTI_API tuttiResult_t tuttiCommInitAll(tuttiComm_t* comms, int nranks, const int* devices);

/* Joins the communicator that a launcher describes: by RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
 * MASTER_PORT as torchrun and tutti-run set them, or by Open MPI's, MPICH's or Slurm's variables. Without any of them
 * it makes a communicator of one rank. config may be NULL. */
TUTTI_API tuttiResult_t tuttiCommInitEnv(tuttiComm_t* comm, const tuttiConfig_t* config);

/* The number of ranks; this rank's number; this rank's CUDA device, or TUTTI_DEVICE_CPU. */
TUTTI_API tuttiResult_t tuttiCommCount(tuttiComm_t comm, int* count);
TUTTI_API tuttiResult_t tuttiCommUserRank(tuttiComm_t comm, int* rank);
TUTTI_API tuttiResult_t tuttiCommDevice(tuttiComm_t comm, int* device);

/* An upper bound of the memory that comm's connections use by now, in bytes, on the GPU and on the host. 0 if comm is
 * suspended. */
TUTTI_API tuttiResult_t tuttiCommMemory(tuttiComm_t comm, uint64_t* bytes);

/* The number of CUDA devices that ranks can be on; 0 if there is none, or no driver. */
TUTTI_API tuttiResult_t tuttiGetDeviceCount(int* count);

/* Communicators made from a communicator `comm`. config NULL: comm's options. comm itself stays in use, and is
 * destroyed as always. All ranks that call these functions call them in the same order. One thread that drives several
 * ranks calls them in a group; *newcomm is then valid after tuttiGroupEnd. */

/* Called by all ranks of comm. The ranks of one color (0 or more) make a communicator, ordered by key, then by rank in
 * comm. A rank with TUTTI_SPLIT_NOCOLOR takes part, and gets NULL. */
#define TUTTI_SPLIT_NOCOLOR (-1)
TUTTI_API tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t* newcomm,
                                       const tuttiConfig_t* config);

/* The rank with which comm's failure began: it died, was the first to fail or abort, is the one that a call waited for
 * in vain or that called something else, or its host is silent. Ranks that ended only because of that do not count.
 * Never the calling rank, and not -1 once an operation has failed because of another rank. -1: comm has not failed, as
 * far as this rank knows, or it failed by this rank's own doing. Any thread may call it, also while comm is
 * suspended. */
TUTTI_API tuttiResult_t tuttiCommGetFailedRank(tuttiComm_t comm, int* rank);

/* That rank first, then all other ranks that have died or are on a silent host, in the order in which this rank heard
 * of them: the news arrives within some milliseconds, and not in the same order on all ranks. ranks: room for maxRanks
 * numbers, of which the first *count are written; NULL if maxRanks is 0. *count: how many there are by now, even if
 * more than maxRanks; it never falls. A rank may be missing if it died at the same moment as the rank that would have
 * told of it; tuttiCommShrink leaves it out all the same. */
TUTTI_API tuttiResult_t tuttiCommGetFailedRanks(tuttiComm_t comm, int* ranks, int maxRanks, int* count);

/* Called by all ranks of comm but the excluded ones. Makes a communicator of those that remain, in the same order.
 * Nothing is asked of the excluded ranks, so they may be dead.
 *
 * Ranks that have died, or have destroyed or aborted comm, are left out whether they are named or not, also if they die
 * meanwhile. The ranks that remain agree on who they are (as in MPI's ULFM): either all are given the same
 * communicator, or all an error. So after a failure excludeCount may be 0, and lists may differ in which dead ranks
 * they name. Living ranks are left out only if they are named, and all lists must name them alike.
 * - flags TUTTI_SHRINK_DEFAULT: nothing may be under way on comm, and it must not have failed.
 * - flags TUTTI_SHRINK_ABORT: operations under way end with tuttiRemoteError. comm may have failed, and has failed
 *   afterwards.
 *
 * A living rank that does not come within initTimeoutMs gives tuttiTimeout, which names it; comm can then be shrunk
 * again without it. Ranks may be on any hosts. Those that remain call each other at the addresses that they told when
 * comm was made, so every host must reach every other one (docs/cluster.md). A host that does not answer for
 * TUTTI_SILENCE_MS counts as dead with all its ranks, also while ranks wait for it in this function. If it was only cut
 * off, its ranks give up the others in the same way, and each side makes a communicator of its own. A rank that comes
 * back to a side that has given it up gets tuttiInvalidUsage. */
#define TUTTI_SHRINK_DEFAULT 0
#define TUTTI_SHRINK_ABORT 1
TUTTI_API tuttiResult_t tuttiCommShrink(tuttiComm_t comm, const int* excludeRanks, int excludeCount,
                                        tuttiComm_t* newcomm, const tuttiConfig_t* config, int flags);

/* New ranks join. First one rank of comm, in the order of its calls, gets an id for the newcomers. *id is secret, like
 * that of tuttiGetUniqueId, and good for one tuttiCommGrow; the members do not need to exchange it. Then members and
 * newcomers call tuttiCommGrow with the new number of ranks. Members pass comm and rank -1: they keep their numbers,
 * and id is ignored. Newcomers pass comm NULL, the id, and a number from the old size of comm on. */
TUTTI_API tuttiResult_t tuttiCommGetUniqueId(tuttiComm_t comm, tuttiUniqueId* id);
TUTTI_API tuttiResult_t tuttiCommGrow(tuttiComm_t comm, int nranks, const tuttiUniqueId* id, int rank,
                                      tuttiComm_t* newcomm, const tuttiConfig_t* config);

/* Called by all ranks of comm. Suspend waits until all that was issued on comm has ended, and gives back the memory of
 * its connections and programs, on the host and on the GPU. Until tuttiCommResume, comm can only be asked for its
 * memory, its error and its failed ranks, resumed, destroyed and aborted, and what was made for it (windows, registered
 * memory, reduction operations) can be given back. Every other call gives tuttiInvalidUsage.
 *
 * Resume, also called by all ranks, brings it back with the same ranks, options, reduction operations and registered
 * memory. Windows, CUDA graphs captured before, and an id of tuttiCommGetUniqueId are void; newcomers that wait with
 * the id are told at once. The ranks, on any hosts, meet in rank 0's process, which must still live.
 *
 * Both functions return when it is done, also on non-blocking communicators. One thread that drives several ranks calls
 * them in a group. A failed comm is not suspended. If ranks do not come back within initTimeoutMs (tuttiTimeout), comm
 * stays suspended for good, since the place where they were to meet is closed: destroy or abort it. */
TUTTI_API tuttiResult_t tuttiCommSuspend(tuttiComm_t comm);
TUTTI_API tuttiResult_t tuttiCommResume(tuttiComm_t comm);

/* Stops all operations of comm on this rank, tells the other ranks, whose operations end with tuttiRemoteError, and
 * returns when this rank's have ended. Any thread may call it. Afterwards comm refuses operations with
 * tuttiInvalidUsage and its error is forgotten. It can be split (by ranks that have all revoked it), shrunk, destroyed
 * and aborted, but not finalized. flags: TUTTI_REVOKE_DEFAULT. */
#define TUTTI_REVOKE_DEFAULT 0
TUTTI_API tuttiResult_t tuttiCommRevoke(tuttiComm_t comm, int flags);

/* Waits until all operations issued on comm have finished, and refuses new ones. If it returns comm's error, comm has
 * failed and is not finalized: it can be shrunk. */
TUTTI_API tuttiResult_t tuttiCommFinalize(tuttiComm_t comm);

/* Finalizes comm if that was not done, and frees it. The handle is invalid afterwards, whatever is returned, unless
 * comm is still being made (tuttiInvalidUsage; tuttiCommAbort ends that). Other ranks that still wait for this one get
 * tuttiRemoteError. */
TUTTI_API tuttiResult_t tuttiCommDestroy(tuttiComm_t comm);

/* Stops all operations of comm on this rank, tells the other ranks, whose operations end with tuttiRemoteError, and
 * frees comm. Always returns. It waits for operations of other communicators only if comm's stand behind them on a
 * GPU's stream. Any thread may call it, also while another one waits inside an operation of comm, which then ends with
 * tuttiRemoteError. */
TUTTI_API tuttiResult_t tuttiCommAbort(tuttiComm_t comm);

/* *asyncError: tuttiSuccess; or the error that comm has failed with; or tuttiInProgress while work that a non-blocking
 * communicator (config.blocking 0) has begun goes on in the background. Until that has ended, comm may only be asked
 * this, or aborted. A communicator that could not be made gives its error here and in tuttiGetLastError, and is
 * destroyed or aborted like others. A group in which such work began ends with tuttiInProgress. Waits for no
 * operation; after a kernel has given up it may wait a fraction of a second for a peer that is inside a put. Any thread
 * may call it. */
TUTTI_API tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t* asyncError);

/* The text of the calling thread's last error or, if comm is not NULL and has failed, of comm's error. Never NULL.
 * Valid until the calling thread's next call into the library. */
TUTTI_API const char* tuttiGetLastError(tuttiComm_t comm);

/* -------------------------------------------------------------------------------------------------------- memory */

/* Allocates page-aligned, zeroed memory that the other ranks of a host can map, so that large messages from and to it
 * are not copied. It is not tied to a communicator. size 0 gives a pointer that can be freed. tuttiMemFree(NULL) does
 * nothing. */
TUTTI_API tuttiResult_t tuttiMemAlloc(void** ptr, size_t size);
TUTTI_API tuttiResult_t tuttiMemFree(void* ptr);

/* The same on a CUDA device, for ranks there. device: the device's number; TUTTI_DEVICE_CPU for tuttiMemAlloc;
 * TUTTI_DEVICE_CURRENT as in tuttiConfig_t. Returns when the memory is zeroed. In large calls, ranks of other processes
 * on GPUs that p2p joins read and write it in place. tuttiMemFree frees it, and waits for what still runs on the
 * device. If other processes have it open, it returns to the device once they have closed it, which their ranks do on
 * their own. */
TUTTI_API tuttiResult_t tuttiMemAllocDevice(void** ptr, size_t size, int device);

/* Writes to memory of a GPU or of the CPU from memory of the CPU. Complete when it returns; it waits for no kernel. */
TUTTI_API tuttiResult_t tuttiMemWrite(void* to, const void* from, size_t size);

/* Registers memory of the caller's own.
 *
 * CPU communicators: makes it mappable like that of tuttiMemAlloc, from its first whole page to its last. Pages that
 * can be shared replace the private ones and keep their content. So nobody (no thread, no operation under way) may use
 * the range during the call, and a process forked later shares it. Works for malloc'd buffers, large arrays and private
 * anonymous maps, not for stacks, files and shared memory. Worth it for large buffers that are used often. Registering
 * parts of a registered range again is counted. *handle is for tuttiCommDeregister: call it before the memory is freed,
 * under the same contract; private pages return. If it returns tuttiSystemError, all is as it was before.
 *
 * GPU communicators: for memory of cudaMalloc on the rank's own GPU, and virtual memory there (cuMemMap), as allocators
 * of frameworks make it; other memory is accepted without effect. Where p2p joins the GPUs, ranks of other processes
 * then read and write it in place, in large calls that are not captured. (Ranks of one process do so with any memory.)
 * Each rank calls it for itself; nothing is moved.
 *
 * Of virtual memory, all of the range must be mapped, by any number of allocations. They must have been created with
 * CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR in their requestedHandleTypes, and the GPU's kernels must be allowed to read
 * and write them; if not, it has no effect, and the log says why (TUTTI_DEBUG=INFO). Ranges may overlap; a buffer may
 * lie in several that follow each other. Each allocation takes one of the process's descriptors (`ulimit -n`) until all
 * other ranks have opened it.
 *
 * Deregister on a GPU: CUDA leaves undefined what happens when memory is freed that another process has open. So it
 * waits for what this rank has issued on comm before, then until all other ranks have closed the memory. They do so on
 * their own, but CUDA may have them wait for their kernels, none of which may wait for what this rank calls next. So
 * deregister at a point where all ranks have made the same calls, after synchronizing the stream, and call nothing that
 * waits for other ranks on a GPU until they have deregistered, too (let the processes meet on the host). tuttiTimeout
 * names a rank that has not closed it; the memory must not be freed as long as that process lives. The memory is also
 * deregistered when comm is destroyed, aborted or suspended; the handle must be given back all the same, before or
 * after that. */
TUTTI_API tuttiResult_t tuttiCommRegister(tuttiComm_t comm, void* buff, size_t size, void** handle);
TUTTI_API tuttiResult_t tuttiCommDeregister(tuttiComm_t comm, void* handle);

/* ------------------------------------------------------------------------------------------------------- streams */

/* A stream is an in-order queue with a worker thread, for CPU communicators. Destroy waits for what was enqueued.
 * Synchronize waits until the stream is idle, and returns the first error of the operations since the last Synchronize.
 * Query: tuttiSuccess if the stream is idle, tuttiInProgress if not. */
TUTTI_API tuttiResult_t tuttiStreamCreate(tuttiStream_t* stream);
TUTTI_API tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiStreamQuery(tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream);

/* --------------------------------------------------------------------------------------------------- collectives */

/* *op becomes "multiply each rank's input by *scalar, rounded to `type`, then sum". scalar points to one element of
 * `type`; it may differ from rank to rank. Destroy the op with the same comm; operations already issued keep their
 * scalar. */
TUTTI_API tuttiResult_t tuttiRedOpCreatePreMulSum(tuttiRedOp_t* op, void* scalar, tuttiDataType_t type,
                                                  tuttiScalarResidence_t residence, tuttiComm_t comm);
TUTTI_API tuttiResult_t tuttiRedOpDestroy(tuttiRedOp_t op, tuttiComm_t comm);

/* recvbuff[i] on every rank = op over all ranks of sendbuff[i], 0 <= i < count. In place: sendbuff == recvbuff. */
TUTTI_API tuttiResult_t tuttiAllReduce(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t type,
                                       tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream);

/* sendbuff: nranks * recvcount elements. recvbuff[i] on rank r = op over all ranks of sendbuff[r * recvcount + i].
 * In place: recvbuff == sendbuff + rank * recvcount. */
TUTTI_API tuttiResult_t tuttiReduceScatter(const void* sendbuff, void* recvbuff, size_t recvcount, tuttiDataType_t type,
                                           tuttiRedOp_t op, tuttiComm_t comm, tuttiStream_t stream);

/* recvbuff: nranks * sendcount elements. recvbuff[q * sendcount + i] = sendbuff[i] of rank q.
 * In place: sendbuff == recvbuff + rank * sendcount. */
TUTTI_API tuttiResult_t tuttiAllGather(const void* sendbuff, void* recvbuff, size_t sendcount, tuttiDataType_t type,
                                       tuttiComm_t comm, tuttiStream_t stream);

/* recvbuff[i] on every rank = sendbuff[i] of rank root. sendbuff is read on root only (may be NULL elsewhere).
 * In place: sendbuff == recvbuff. */
TUTTI_API tuttiResult_t tuttiBroadcast(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t type,
                                       int root, tuttiComm_t comm, tuttiStream_t stream);

/* recvbuff[i] on root = op over all ranks of sendbuff[i]. recvbuff is written on root only (may be NULL elsewhere).
 * In place: sendbuff == recvbuff. */
TUTTI_API tuttiResult_t tuttiReduce(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t type,
                                    tuttiRedOp_t op, int root, tuttiComm_t comm, tuttiStream_t stream);

/* sendbuff, recvbuff: nranks * count elements each. recvbuff[q * count + i] on rank r = sendbuff[r * count + i] of rank
 * q. There is no in place: the buffers must not overlap. */
TUTTI_API tuttiResult_t tuttiAlltoAll(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t type,
                                      tuttiComm_t comm, tuttiStream_t stream);

/* recvbuff[q * count + i] on root = sendbuff[i] of rank q. recvbuff has nranks * count elements and is written on root
 * only (may be NULL elsewhere). In place on root: sendbuff == recvbuff + root * count. */
TUTTI_API tuttiResult_t tuttiGather(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t type, int root,
                                    tuttiComm_t comm, tuttiStream_t stream);

/* recvbuff[i] on rank q = sendbuff[q * count + i] of rank root. sendbuff has nranks * count elements and is read on
 * root only (may be NULL elsewhere). In place on root: recvbuff == sendbuff + root * count. */
TUTTI_API tuttiResult_t tuttiScatter(const void* sendbuff, void* recvbuff, size_t count, tuttiDataType_t type, int root,
                                     tuttiComm_t comm, tuttiStream_t stream);

/* ------------------------------------------------------------------------------------------- uneven collectives */

/* MPI's collectives whose names end in v: rows of different lengths. sendcounts, recvcounts and the displacements are
 * arrays of nranks numbers of elements, read before the call returns. Row q of a buffer is counts[q] elements, from
 * displacement displs[q] on. Memory between rows is not touched. Any count may be 0, and a buffer without elements
 * NULL. Rows that are written must not overlap.
 *
 * If both ranks of a pair give a count, it must be the same; if all ranks give the same array, its numbers must be the
 * same. Ranks that break this get tuttiInvalidUsage with both ranks and both counts; "#1a2b" in a text stands for an
 * array of counts. What a rank has for itself is checked before anything is issued.
 *
 * In place: a rank's own row of the larger buffer is the smaller one. A config.algorithm that can't do these
 * collectives is passed over; if ranks do not know all counts, that holds for algorithms whose messages pack rows of
 * others. */

/* recvbuff[rdispls[q] + i] on rank r = sendbuff[sdispls[r] + i] of rank q, 0 <= i < sendcounts[r] of rank q, which is
 * recvcounts[q] of rank r. There is no in place. */
TUTTI_API tuttiResult_t tuttiAlltoAllv(const void* sendbuff, const size_t* sendcounts, const size_t* sdispls,
                                       void* recvbuff, const size_t* recvcounts, const size_t* rdispls,
                                       tuttiDataType_t type, tuttiComm_t comm, tuttiStream_t stream);

/* recvbuff[displs[q] + i] on root = sendbuff[i] of rank q, 0 <= i < recvcounts[q], the sendcount of rank q. recvbuff,
 * recvcounts and displs are used on root only (may be NULL elsewhere). In place on root: sendbuff == recvbuff +
 * displs[root]. */
TUTTI_API tuttiResult_t tuttiGatherv(const void* sendbuff, size_t sendcount, void* recvbuff, const size_t* recvcounts,
                                     const size_t* displs, tuttiDataType_t type, int root, tuttiComm_t comm,
                                     tuttiStream_t stream);

/* recvbuff[i] on rank q = sendbuff[displs[q] + i] of rank root, 0 <= i < sendcounts[q], the recvcount of rank q.
 * sendbuff, sendcounts and displs are used on root only (may be NULL elsewhere). In place on root: recvbuff ==
 * sendbuff + displs[root]. */
TUTTI_API tuttiResult_t tuttiScatterv(const void* sendbuff, const size_t* sendcounts, const size_t* displs,
                                      void* recvbuff, size_t recvcount, tuttiDataType_t type, int root,
                                      tuttiComm_t comm, tuttiStream_t stream);

/* recvbuff[displs[q] + i] on every rank = sendbuff[i] of rank q, 0 <= i < recvcounts[q]. All ranks give the same
 * recvcounts; displs may differ. sendcount is recvcounts[rank]. In place: sendbuff == recvbuff + displs[rank]. */
TUTTI_API tuttiResult_t tuttiAllGatherv(const void* sendbuff, size_t sendcount, void* recvbuff,
                                        const size_t* recvcounts, const size_t* displs, tuttiDataType_t type,
                                        tuttiComm_t comm, tuttiStream_t stream);

/* recvbuff[i] on rank r = op over all ranks of sendbuff[recvcounts[0] + ... + recvcounts[r - 1] + i], 0 <= i <
 * recvcounts[r]. All ranks give the same recvcounts. In place: recvbuff == sendbuff + recvcounts[0] + ... +
 * recvcounts[rank - 1]. */
TUTTI_API tuttiResult_t tuttiReduceScatterv(const void* sendbuff, void* recvbuff, const size_t* recvcounts,
                                            tuttiDataType_t type, tuttiRedOp_t op, tuttiComm_t comm,
                                            tuttiStream_t stream);

/* ------------------------------------------------------------------------------------------------ pairs, barrier */

/* Ends on no rank before all ranks have called it or, on a stream, before all ranks' streams have reached it. */
TUTTI_API tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t stream);

/* Sends to / receives from peer. The k-th Send of a pair matches its k-th Recv, which must have the same count and
 * type. A Send may return before the peer has received; do not rely on it: two ranks that send to each other do so in a
 * group. A rank may send to itself inside a group; if the two are on two streams, the streams wait for each other. */
TUTTI_API tuttiResult_t tuttiSend(const void* sendbuff, size_t count, tuttiDataType_t type, int peer, tuttiComm_t comm,
                                  tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiRecv(void* recvbuff, size_t count, tuttiDataType_t type, int peer, tuttiComm_t comm,
                                  tuttiStream_t stream);

/* ----------------------------------------------------------------------------------------- one-sided operations */

/* A rank writes to another rank's memory or reads it, while that rank does nothing for it, and notifies it by a signal,
 * for which it may wait. For communicators whose ranks are all on CPUs, on any hosts, or all on GPUs that p2p joins. If
 * ranks are on a CPU and a GPU, or on GPUs that a network or host memory joins (also because config.transport says so),
 * all of this is refused with tuttiInvalidUsage, and a text that names two such ranks.
 *
 * A window: all ranks of comm call Register in the same order, each with memory of its own, to which others may then
 * put and from which they may get: `size` bytes at `buff`, any length; 0 for no part. *win is this rank's handle of the
 * window; in a group it is valid after tuttiGroupEnd. One thread that drives several ranks calls Register in a group.
 * When Register returns, all ranks may reach all parts. A rank has at most 512 windows of a communicator.
 * - On CPUs, if peers are in other processes of the host: memory of tuttiMemAlloc, or whole pages of memory that
 *   tuttiCommRegister would take; they are registered as by that function, under its contract. If one rank's memory is
 *   neither, all ranks get tuttiInvalidArgument, which names the rank.
 * - On CPUs, if only threads of one process or ranks on other hosts reach it: any memory.
 * - On GPUs: memory of the rank's GPU, in one allocation. If ranks are in several processes, one that can be shared: of
 *   cudaMalloc or tuttiMemAllocDevice, or virtual memory of any number of allocations as tuttiCommRegister takes it,
 *   not of a pool. If ranks of one process are on several GPUs, of cudaMalloc or tuttiMemAllocDevice.
 *
 * winFlags is TUTTI_WIN_DEFAULT, or one or both of:
 * - TUTTI_WIN_BEST_EFFORT: memory that can't be reached is registered for collectives alone, as by tuttiCommRegister;
 *   only tuttiPutSignal and tuttiGet are refused for it, with the reason.
 * - TUTTI_WIN_COLL_SYMMETRIC: a promise of all ranks. If the buffers of an all-reduce, reduce-scatter, all-gather or
 *   all-to-all lie in such windows on one rank, they do on all ranks, and begin at the same byte of their window (in
 *   place, the larger buffer does). On GPUs peers then read and write the buffers in place, in long pieces, also from
 *   other processes and in captured graphs, which must not run once the window is deregistered. If it matters, ranks
 *   that break the promise get tuttiInvalidUsage or tuttiTimeout. On CPUs it changes nothing.
 *
 * Deregister is a call of each rank for itself. It waits for what this rank has issued on comm before; when it returns,
 * nobody writes to this rank's part any more, nor reads it. A put or a get that comes too late fails, and its
 * communicator with it. Windows also end when comm is destroyed, aborted or suspended (windows and signals do not come
 * back with tuttiCommResume), or has failed; the handle must be deregistered all the same, before the memory is freed.
 * If that returns tuttiSystemError, the memory is still registered, and the handle good for another try.
 * On GPUs Deregister waits until other processes have closed the memory, as tuttiCommDeregister does, and under its
 * conditions. A graph in which this rank puts to the window, or gets from it, must have ended before, and not run
 * afterwards. */
typedef struct tuttiWindow* tuttiWindow_t;
#define TUTTI_WIN_DEFAULT 0
#define TUTTI_WIN_BEST_EFFORT 1
#define TUTTI_WIN_COLL_SYMMETRIC 2
TUTTI_API tuttiResult_t tuttiCommWindowRegister(tuttiComm_t comm, void* buff, size_t size, tuttiWindow_t* win,
                                                int winFlags);
TUTTI_API tuttiResult_t tuttiCommWindowDeregister(tuttiComm_t comm, tuttiWindow_t win);

/* Where the caller's own kernels, on this rank's GPU, find all parts of a window: rank 0's at *first, rank r's r *
 * *stride bytes further. *stride is a multiple of 4 GiB. The addresses are this rank's alone, and lead to the same
 * memory on all ranks; they end when this rank deregisters the window. Who writes and reads there when is between the
 * kernels, which order their accesses with fences of the system's scope; Tutti's operations see what comes before them
 * on their stream.
 *
 * tuttiInvalidUsage if the window has none; the error says why. It takes: all ranks on GPUs that p2p joins, and
 * TUTTI_GPU_VIRTUAL=1 (if so, tuttiCommHasAddresses sets *has to 1, else to 0); and parts in memory of
 * tuttiMemAllocDevice that all begin at the same byte of their allocations. */
TUTTI_API tuttiResult_t tuttiCommHasAddresses(tuttiComm_t comm, int* has);
TUTTI_API tuttiResult_t tuttiCommWindowAddresses(tuttiComm_t comm, tuttiWindow_t win, void** first, size_t* stride);

/* Where the caller's own kernels, on this rank's GPU, find all parts of a window at once: *address leads to the first
 * byte of each part, up to the end of the shortest. Only the instructions multimem.* of PTX may use it (NVLink SHARP).
 * What is said of the addresses above holds for it, too; between accesses by it and by other addresses of the same
 * memory, a kernel needs fence.proxy.alias.
 *
 * tuttiInvalidUsage if the window has none; the error says why. It takes what the addresses take, and: a GPU for each
 * rank, all of which have multicast, as their driver says, and TUTTI_GPU_MULTICAST not 0 (if so, tuttiCommHasMulticast
 * sets *has to 1, else to 0); and that no part is empty. */
TUTTI_API tuttiResult_t tuttiCommHasMulticast(tuttiComm_t comm, int* has);
TUTTI_API tuttiResult_t tuttiCommWindowMulticast(tuttiComm_t comm, tuttiWindow_t win, void** address);

/* Copies `count` elements from localbuff to peer's part of the window, from byte peerWinOffset of it on, then raises
 * peer's signal sigIdx; count 0 only raises it. The put has ended when both are done or, to another host, on their way:
 * then localbuff may be used again. If the peer's host refuses it later because the part was deregistered, a later call
 * on comm says so. On GPUs all of it takes place on the stream, in captured graphs at each launch. peerWin: this rank's
 * handle. peer may be this rank; localbuff must not overlap what is written. sigIdx: 0 to TUTTI_SIGNALS - 1, each one a
 * counter of its own for every pair of ranks. ctx, flags: 0.
 *
 * When a wait for a signal has ended, all that the signalling rank put to the waiting rank before that signal is
 * visible. Puts, gets and signals to one peer take place in the order of their calls, also in a group. Everything else
 * in a group goes on side by side: waits (in the order of their calls), puts and gets of other peers, collectives. */
#define TUTTI_SIGNALS 8
TUTTI_API tuttiResult_t tuttiPutSignal(const void* localbuff, size_t count, tuttiDataType_t type, int peer,
                                       tuttiWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                                       unsigned int flags, tuttiComm_t comm, tuttiStream_t stream);

/* Copies `count` elements from peer's part of the window, from byte peerWinOffset of it on, to localbuff. The get has
 * ended when they are there; on the null stream, when the call returns. peer does nothing for it, and may compute
 * meanwhile. On GPUs all of it takes place on the stream, in captured graphs at each launch. peerWin: this rank's
 * handle. peer may be this rank; localbuff must not overlap what is read. ctx, flags: 0.
 *
 * A get sees all that this rank has put to peer before, and nothing that it puts there after. So when a get has ended,
 * whatever part it has read, this rank's earlier puts to peer are there; count 0 waits for that alone. A get also sees
 * what peer itself saw in its part when it raised a signal that this rank then waited for, or when it called a
 * collective that both have ended. Of writes at the same time it may see some bytes and not others. In a group it does
 * not wait for the group's waits: to read what a signal tells of, get after that group.
 *
 * If peer's part is deregistered before it was read, or peer destroys comm, is killed or, on another host, does not
 * answer within config.timeoutMs, the get and comm fail, and localbuff may hold a part of the data. */
TUTTI_API tuttiResult_t tuttiGet(void* localbuff, size_t count, tuttiDataType_t type, int peer, tuttiWindow_t peerWin,
                                 size_t peerWinOffset, int ctx, unsigned int flags, tuttiComm_t comm,
                                 tuttiStream_t stream);

/* Raises peer's signal sigIdx. Needs no window. */
TUTTI_API tuttiResult_t tuttiSignal(int peer, int sigIdx, int ctx, unsigned int flags, tuttiComm_t comm,
                                    tuttiStream_t stream);

/* For each of the nDesc descriptors, waits until opCnt signals sigIdx of rank peer have come, and consumes them: the
 * next wait counts those that come after. Descriptors of the same signal add up. The descriptors are read before the
 * call returns. A rank that first waits and then signals, like its peer, does both in a group: operations of one
 * communicator run in the order of their calls, even on different streams. */
typedef struct {
    int opCnt;
    int peer;
    int sigIdx;
    int ctx; /* 0 */
} tuttiWaitSignalDesc_t;
TUTTI_API tuttiResult_t tuttiWaitSignal(int nDesc, const tuttiWaitSignalDesc_t* signalDescs, tuttiComm_t comm,
                                        tuttiStream_t stream);

/* -------------------------------------------------------------------------------------------------------- groups */

/* The calls of a thread between Start and End are issued together at the outermost End: operations of several ranks
 * that one thread drives, sends and receives that wait for each other, and CommInitRank of several ranks. Groups nest.
 * If a call in the group is refused, End issues nothing and returns that error. */
TUTTI_API tuttiResult_t tuttiGroupStart(void);
TUTTI_API tuttiResult_t tuttiGroupEnd(void);

/* Call it instead of tuttiGroupEnd: drops the group's calls, and sets info->estimatedTime to the time that they would
 * take by the cost model, in microseconds (for the communicator that takes longest). A group that makes communicators
 * is refused with tuttiInvalidUsage. info may be NULL, else it starts from TUTTI_SIM_INFO_INITIALIZER. */
typedef struct {
    size_t size;
    unsigned int magic;
    unsigned int version;
    float estimatedTime;
} tuttiSimInfo_t;
#define TUTTI_SIM_INFO_INITIALIZER \
    { sizeof(tuttiSimInfo_t), TUTTI_CONFIG_MAGIC, TUTTI_VERSION_CODE, -1.0f }
TUTTI_API tuttiResult_t tuttiGroupSimulateEnd(tuttiSimInfo_t* info);

/* ------------------------------------------------------------------------------------------------------- settings */

/* The value in effect of an environment variable that docs/environment.md lists: the one that is set, or its default.
 * Secrets are never told. Unknown keys give tuttiInvalidArgument. *value is valid until the thread's next call; *keys,
 * with *count entries, stays valid. */
TUTTI_API tuttiResult_t tuttiParamGet(const char* key, const char** value);
TUTTI_API tuttiResult_t tuttiParamGetAllKeys(const char* const** keys, int* count);

/* Writes all settings to the log, at level INFO. */
TUTTI_API tuttiResult_t tuttiParamDumpAll(void);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_TUTTI_H_ */
