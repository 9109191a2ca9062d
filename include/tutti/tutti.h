/* Tutti: collective communication. Copyright the Tutti authors. SPDX-License-Identifier: Apache-2.0
 *
 * Many ranks, one result. A rank is a participant of a communicator: a process, a thread, or one of several ranks that
 * one thread drives inside a group. This header is the whole interface and its manual. Whoever knows NCCL knows it: the
 * names, argument orders and values are NCCL's wherever NCCL has them.
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
 *      Ranks that do not are told so (tuttiInvalidUsage, the text names both ranks and both calls); they do not hang.
 *  (7) Streams. With stream NULL a call on a CPU communicator works here and now, in the calling thread, and has
 *      finished when it returns. With a tuttiStream_t it is enqueued and runs in that stream's order. Buffers belong to
 *      the library until the operation has finished.
 *  (8) Threads. Different communicators may be used concurrently from different threads. One communicator is used
 *      by one thread at a time, except tuttiCommAbort, tuttiCommRevoke and tuttiCommGetAsyncError, which any thread may
 *      call any time.
 *  (9) No call blocks for ever. A lost peer turns every pending and later operation into tuttiRemoteError that names
 *      the rank; waiting longer than the communicator's time-out gives tuttiTimeout. Once a communicator has failed,
 *      every call on it returns that first error; only Abort, Destroy, Revoke and Shrink are of use then. When a call
 *      returns an error, or Abort returns, no other rank reads or writes its buffers any more. The one exception: a
 *      process of this host that is stopped (by a debugger, SIGSTOP) in the middle of such a copy is waited for until
 *      it goes on or dies, for 10 s or the time-out, whichever is shorter; then the error's text (after Abort, a
 *      warning) says whose process may still use them.
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

/* Integers wrap around. 16- and 8-bit floats are added in fp32 and rounded once (to nearest, ties to even) per step of
 * the algorithm. tuttiAvg is the sum divided by the number of ranks (integers: the wrapped sum, division towards zero).
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

/* CPU communicators: a stream of tuttiStreamCreate, or NULL for "here and now". CUDA communicators: a cudaStream_t. */
typedef void* tuttiStream_t;

/* ------------------------------------------------------------------------------------------------ communicators */

#define TUTTI_UNIQUE_ID_BYTES 128

/* Where the ranks meet, and the secret that lets them in. Hand it to every rank over a channel you trust, and treat it
 * like a password. */
typedef struct {
    char internal[TUTTI_UNIQUE_ID_BYTES];
} tuttiUniqueId;

#define TUTTI_UNDEF_INT INT_MIN

/* Threads that the caller lends: runs body(argument, i) once for every i from 0 to n - 1, on threads of its own choice,
 * and returns when all have returned. At once is fast; one after the other is allowed, as OpenMP's `parallel for` does
 * with one thread. It must not throw, nor call the library, nor wait for another rank's call to end: ranks of one
 * process need pools of their own. Called by the thread that runs the operation (a stream's worker, too), once for each
 * call or group that is worth it. */
typedef void (*tuttiParallel_t)(void* context, int n, void (*body)(void* argument, int index), void* argument);

/* Options of one communicator. Start from TUTTI_CONFIG_INITIALIZER, so that fields that your compiler did not know keep
 * their defaults in a newer library. An option that is set here beats the environment variable of the same purpose. */
typedef struct {
    size_t size;          /* set by the initializer */
    unsigned int magic;   /* set by the initializer */
    unsigned int version; /* set by the initializer: the header's TUTTI_VERSION_CODE */
    int timeoutMs;        /* how long one operation may wait for its peers; default 600000 */
    int initTimeoutMs;    /* how long the communicator waits for all ranks to arrive; default 60000 */
    int check; /* 1: compare collectives' arguments before data moves (docs/environment.md); 0: while it moves (free) */
    const char* algorithm; /* algorithms to choose from: "ring,tree", or "^ring" for all others, or by collective:
                              "all_reduce:direct;*:^flat"; names: `tutti-plan list`. A list of which none is capable of
                              a collective does not hold for it */
    const char* transport; /* name of the only transport to use: "local", "shm", "tcp", ...; on GPUs "p2p", too */
    const char* commName;  /* for messages; copied */
    int device;       /* the rank's CUDA device; TUTTI_DEVICE_CPU (default): it is on the CPU; TUTTI_DEVICE_CURRENT:
                         the calling thread's, or the CPU where no GPU is usable. Ranks of one communicator may be
                         on both: a rank's buffers and streams are of the kind of its own device */
    int reproducible; /* 1: the sums of n ranks have the same bits whatever the algorithm, transport, placement,
                         channels and message sizes, on CPUs and on GPUs: they are added in rank order, with one
                         rounding. 0 (default): the same bits from run to run */
    __extension__ union {
        int channels; /* on how many channels large data goes, 1 to 8, on GPUs at most; default: by the cost model */
        int lanes;    /* deprecated: the same by its old name, until version 0.2 */
    };
    const char* programs; /* files with algorithms of your own, separated by ':', the same on all ranks: proven before
                             anything runs, then candidates like all others (docs/programs.md); copied */
    int blocking;         /* 0: InitRankConfig, InitEnv, Split, Shrink, Grow and Finalize begin their work in the
                             background and return tuttiInProgress; see tuttiCommGetAsyncError. 1 (default): they return
                             when it is done */
    int threads; /* how many threads of the rank share its large collectives, 1 to 8; default 1. The least of all ranks
                    counts. On CPUs; sends, receives, puts and small calls stay on the thread that calls */
    tuttiParallel_t parallel; /* lends these threads; NULL (default): the library starts them, without the one that
                                 calls, and they sleep between calls */
    void* parallelContext;    /* handed to parallel */
} tuttiConfig_t;

#define TUTTI_DEVICE_CPU (-1)
#define TUTTI_DEVICE_CURRENT (-2)

#define TUTTI_CONFIG_MAGIC 0x54555454u
#define TUTTI_CONFIG_INITIALIZER                                                                          \
    {                                                                                                     \
        sizeof(tuttiConfig_t), TUTTI_CONFIG_MAGIC, TUTTI_VERSION_CODE, TUTTI_UNDEF_INT, TUTTI_UNDEF_INT,  \
            TUTTI_UNDEF_INT, NULL, NULL, NULL, TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, {TUTTI_UNDEF_INT}, NULL, \
            TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, NULL, NULL                                                  \
    }

/* Makes an id. The calling process must live until all ranks have joined: it is where they meet. If a rank of this
 * process can't join, for want of memory or descriptors, the others are told at once, and the id is used up. */
TUTTI_API tuttiResult_t tuttiGetUniqueId(tuttiUniqueId* id);

/* Joins a communicator of `nranks` ranks as number `rank` (0 <= rank < nranks). Blocks until all have joined; a rank
 * that does not arrive within initTimeoutMs gives tuttiTimeout that names it. Several ranks of one thread: between
 * tuttiGroupStart and tuttiGroupEnd; *comm is valid after tuttiGroupEnd. */
TUTTI_API tuttiResult_t tuttiCommInitRank(tuttiComm_t* comm, int nranks, tuttiUniqueId id, int rank);
TUTTI_API tuttiResult_t tuttiCommInitRankConfig(tuttiComm_t* comm, int nranks, tuttiUniqueId id, int rank,
                                                const tuttiConfig_t* config);

/* Makes a communicator whose `nranks` ranks all live in this process. comms: array of nranks handles, written on
 * success. devices: NULL for CPU ranks, else nranks numbers of CUDA devices, one for each rank (or TUTTI_DEVICE_CPU);
 * ranks may share a device. */
TUTTI_API tuttiResult_t tuttiCommInitAll(tuttiComm_t* comms, int nranks, const int* devices);

/* Joins the communicator that a launcher describes: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and
 * MASTER_PORT as torchrun and tutti-run set them, or Open MPI's, MPICH's and Slurm's variables. Without any of them:
 * one rank of one. config may be NULL. */
TUTTI_API tuttiResult_t tuttiCommInitEnv(tuttiComm_t* comm, const tuttiConfig_t* config);

/* Number of ranks; this rank's number; its CUDA device, or TUTTI_DEVICE_CPU. */
TUTTI_API tuttiResult_t tuttiCommCount(tuttiComm_t comm, int* count);
TUTTI_API tuttiResult_t tuttiCommUserRank(tuttiComm_t comm, int* rank);
TUTTI_API tuttiResult_t tuttiCommDevice(tuttiComm_t comm, int* device);

/* Upper bound of the memory that comm's connections use by now, in bytes: the GPU's, or the host's. 0: comm is
 * suspended. */
TUTTI_API tuttiResult_t tuttiCommMemory(tuttiComm_t comm, uint64_t* bytes);

/* Number of CUDA devices that ranks can be on; 0 where there is none, or no driver. */
TUTTI_API tuttiResult_t tuttiGetDeviceCount(int* count);

/* Communicators from communicators. config NULL: comm's; comm itself goes on, and is destroyed as always. Inside a
 * group *newcomm is valid after tuttiGroupEnd; one thread that drives several ranks calls these functions in a group.
 * All ranks that call them do so in the same order. */

/* Called by all ranks of comm: those of one color (0 or more) make a communicator, in which they are ordered by key,
 * then by their rank in comm. TUTTI_SPLIT_NOCOLOR takes part, and gets NULL. */
#define TUTTI_SPLIT_NOCOLOR (-1)
TUTTI_API tuttiResult_t tuttiCommSplit(tuttiComm_t comm, int color, int key, tuttiComm_t* newcomm,
                                       const tuttiConfig_t* config);

/* The rank with which comm's failure began: it died, or was the first to fail or abort, or is the one that a call
 * waited for in vain or that called something else; or its host is silent. Ranks that end because of it are not meant.
 * Never the calling rank, and not -1 once an operation has failed because of another rank. -1: comm has not failed, as
 * far as this rank knows, or by this rank's own doing. Any thread may ask, also while comm is suspended. */
TUTTI_API tuttiResult_t tuttiCommGetFailedRank(tuttiComm_t comm, int* rank);

/* The same, and behind it all other ranks that have died, or are on a host that is silent, in the order in which this
 * rank has heard of it: some milliseconds after one another, and not in the same order everywhere. ranks: room for
 * maxRanks, of which the first *count are written; NULL if maxRanks is 0. *count: how many there are by now, also if
 * that is more than maxRanks; it never falls. One that dies at the moment in which the rank dies that would have told
 * of it may be missing; tuttiCommShrink leaves it out all the same. */
TUTTI_API tuttiResult_t tuttiCommGetFailedRanks(tuttiComm_t comm, int* ranks, int maxRanks, int* count);

/* Called by all ranks of comm but the excluded ones; who remains keeps the order. Nothing is asked of the excluded
 * ranks: they may be dead. Ranks that have died, or have destroyed or aborted comm, are left out whether they are named
 * or not, also those that die meanwhile: the ranks that remain agree on who they are (as in MPI's ULFM), and are all
 * given the same communicator, or all an error. So after a failure excludeCount may be 0, and lists may differ in who
 * is dead. Living ranks are left out only if they are named, and all name them alike. TUTTI_SHRINK_DEFAULT: nothing is
 * under way on comm, and it has not failed. TUTTI_SHRINK_ABORT: what is under way ends with tuttiRemoteError, comm may
 * have failed, and has failed afterwards. A living rank that does not come within initTimeoutMs is named by
 * tuttiTimeout; then comm can be shrunk again, without it. Ranks are on any hosts: those that remain call each other by
 * the addresses that they told when comm was made, so each host must reach each other one (docs/cluster.md). A host
 * that does not answer for TUTTI_SILENCE_MS counts as dead with all its ranks, also while ranks wait for it in this
 * function. If it only was cut off, its ranks do the same of the others: each side makes a communicator of its own.
 * Whoever comes back to a side that has given it up is told so (tuttiInvalidUsage). */
#define TUTTI_SHRINK_DEFAULT 0
#define TUTTI_SHRINK_ABORT 1
TUTTI_API tuttiResult_t tuttiCommShrink(tuttiComm_t comm, const int* excludeRanks, int excludeCount,
                                        tuttiComm_t* newcomm, const tuttiConfig_t* config, int flags);

/* New ranks join. First one rank of comm, in the order of its calls, gets an id for the newcomers (*id is secret, like
 * that of tuttiGetUniqueId, and good for one tuttiCommGrow; the members do not send it to each other). Then members and
 * newcomers call tuttiCommGrow with the new number of ranks: members with comm and rank -1 (they keep their numbers; id
 * is not looked at), newcomers with comm NULL, the id, and a number from the old size of comm on. */
TUTTI_API tuttiResult_t tuttiCommGetUniqueId(tuttiComm_t comm, tuttiUniqueId* id);
TUTTI_API tuttiResult_t tuttiCommGrow(tuttiComm_t comm, int nranks, const tuttiUniqueId* id, int rank,
                                      tuttiComm_t* newcomm, const tuttiConfig_t* config);

/* Called by all ranks of comm: when all that was issued on it has ended, the memory of its connections and programs is
 * given back, on the host and on the GPU. Until tuttiCommResume, which all ranks call as well, comm can only be asked
 * for its memory and its error, resumed, destroyed and aborted; all else is tuttiInvalidUsage. Then it goes on as it
 * was: its ranks, options, reduction operations and registered memory are the same (windows, and CUDA graphs captured
 * before, are void). The ranks, of any hosts, meet again at rank 0's process, which has to live. Both functions return
 * when it is done, also on non-blocking communicators; one thread that drives several ranks calls them in a group. A
 * comm that has failed is not suspended; one whose ranks do not come back in initTimeoutMs stays suspended
 * (tuttiTimeout). */
TUTTI_API tuttiResult_t tuttiCommSuspend(tuttiComm_t comm);
TUTTI_API tuttiResult_t tuttiCommResume(tuttiComm_t comm);

/* Stops all operations of comm on this rank, tells the others (their operations end with tuttiRemoteError), and returns
 * when they have ended; may be called from any thread. Then comm refuses operations with tuttiInvalidUsage, its error
 * is forgotten, and it can be split (by ranks that have all revoked it), shrunk, destroyed and aborted, not finalized.
 * flags: TUTTI_REVOKE_DEFAULT. */
#define TUTTI_REVOKE_DEFAULT 0
TUTTI_API tuttiResult_t tuttiCommRevoke(tuttiComm_t comm, int flags);

/* Waits until all operations issued on comm have finished, and refuses new ones. If it returns comm's error, comm has
 * failed and is not finalized: it can be shrunk. */
TUTTI_API tuttiResult_t tuttiCommFinalize(tuttiComm_t comm);

/* Finalizes if that was not done, and frees. The handle is invalid afterwards, whatever is returned, unless it is still
 * being made (tuttiInvalidUsage; tuttiCommAbort ends that). Other ranks that still wait for this one get
 * tuttiRemoteError. */
TUTTI_API tuttiResult_t tuttiCommDestroy(tuttiComm_t comm);

/* Stops all operations of comm on this rank, tells the others (their operations end with tuttiRemoteError), and frees.
 * Always returns; waits for other communicators' operations only where, on a GPU's stream, comm's are behind theirs.
 * Any thread may call it, also while one waits inside an operation of comm, which ends with tuttiRemoteError. */
TUTTI_API tuttiResult_t tuttiCommAbort(tuttiComm_t comm);

/* *asyncError: tuttiSuccess, or the error that has befallen comm. tuttiInProgress: something that a non-blocking
 * communicator (config.blocking 0) has begun goes on in the background; until it has ended, comm is only to be asked
 * this, or aborted. A communicator that could not be made tells why here and in tuttiGetLastError, and is destroyed or
 * aborted like others. A group in which such work began ends with tuttiInProgress. Never blocks. */
TUTTI_API tuttiResult_t tuttiCommGetAsyncError(tuttiComm_t comm, tuttiResult_t* asyncError);

/* Text of the last error of the calling thread or, if comm is not NULL and has failed, of comm. Never NULL; valid until
 * the calling thread's next call into the library. */
TUTTI_API const char* tuttiGetLastError(tuttiComm_t comm);

/* -------------------------------------------------------------------------------------------------------- memory */

/* Page-aligned memory that the other ranks of a host can map, so that large messages from and to it are not copied.
 * Zeroed. Not tied to a communicator. size 0 gives a pointer that can be freed. tuttiMemFree(NULL) does nothing. */
TUTTI_API tuttiResult_t tuttiMemAlloc(void** ptr, size_t size);
TUTTI_API tuttiResult_t tuttiMemFree(void* ptr);

/* The same on a CUDA device, for ranks there; TUTTI_DEVICE_CPU: tuttiMemAlloc; TUTTI_DEVICE_CURRENT: as in
 * tuttiConfig_t. Waits until it is zeroed. Ranks of other processes on GPUs that p2p joins read and write it where it
 * is, in large calls. tuttiMemFree frees it, and waits for what still runs on the device; where other processes have it
 * open, it goes to the device once they have closed it, which their ranks do without being called. */
TUTTI_API tuttiResult_t tuttiMemAllocDevice(void** ptr, size_t size, int device);

/* Makes memory of the caller's own mappable in the same way, from its first whole page to its last: pages that can be
 * shared take the place of the private ones, with their content, so nobody (no thread, no operation under way) may use
 * the range during the call, and a process forked later shares it. malloc'd buffers, large arrays, private anonymous
 * maps; not stacks, files, shared memory. Deregister, under the same contract, before the memory is freed: private
 * pages return. Registering parts of a registered range again is counted. Worth it for large buffers that are used
 * often. *handle is for tuttiCommDeregister, which leaves all as it was if it returns tuttiSystemError.
 *
 * Communicators on GPUs: memory of cudaMalloc on the rank's own GPU (other memory: without effect), which ranks of
 * other processes, where p2p joins the GPUs, then read and write where it is, in large calls that are not captured;
 * those of one process do so with any. It is a call of each rank for itself, and moves nothing. CUDA leaves undefined
 * what happens when memory is freed that another process has open, so Deregister waits for what this rank has issued on
 * comm before, then until all others have closed the memory. They do so without being called, but CUDA may have them
 * wait for their kernels: none of these may wait for what this rank is to call next. So deregister where all ranks have
 * called the same, a synchronized stream before it. tuttiTimeout: a rank that is named has not closed it; the memory
 * must not be freed as long as that process lives. When comm is destroyed, aborted or suspended it is deregistered; the
 * handle is to be given back all the same. */
TUTTI_API tuttiResult_t tuttiCommRegister(tuttiComm_t comm, void* buff, size_t size, void** handle);
TUTTI_API tuttiResult_t tuttiCommDeregister(tuttiComm_t comm, void* handle);

/* ------------------------------------------------------------------------------------------------------- streams */

/* An in-order queue with a worker thread, for CPU communicators. Destroy waits for what was enqueued. Synchronize
 * returns the first error of the operations since the last Synchronize. Query: tuttiSuccess when idle, tuttiInProgress
 * when not. */
TUTTI_API tuttiResult_t tuttiStreamCreate(tuttiStream_t* stream);
TUTTI_API tuttiResult_t tuttiStreamSynchronize(tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiStreamQuery(tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiStreamDestroy(tuttiStream_t stream);

/* --------------------------------------------------------------------------------------------------- collectives */

/* op becomes "multiply each rank's input by *scalar, rounded to `type`, then sum". scalar points to one element of
 * `type`; every rank may have another one. Destroy it with the same comm; operations that were issued keep their
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

/* The collectives of MPI whose names end in v: rows of different lengths. sendcounts, recvcounts and the displacements
 * are arrays of nranks numbers of elements, read before the call returns: row q of a buffer is counts[q] elements from
 * displacement displs[q] on. What lies between rows is not touched. Any count may be 0, and a buffer without elements
 * NULL. Rows that are written must not overlap.
 *
 * Where both ranks of a pair give a count, they give the same one; where all ranks give the same array, they give the
 * same numbers. Ranks that do not get tuttiInvalidUsage with both ranks and both counts; "#1a2b" in a text stands for
 * an array of counts. What a rank has for itself is checked before anything is issued.
 *
 * In place: a rank's own row of the larger buffer is the smaller one. A config.algorithm that can't do them is passed
 * over: where ranks do not know all counts, one whose messages pack rows of others can't. */

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

/* Ends on no rank before all ranks have called it; on a stream, before all ranks' streams have come to it. */
TUTTI_API tuttiResult_t tuttiBarrier(tuttiComm_t comm, tuttiStream_t stream);

/* Sends to / receives from peer; the k-th Send of a pair meets its k-th Recv, which must have the same count and type.
 * A Send may return before the peer has received; do not rely on it: two ranks that send to each other do so in a
 * group. A rank may send to itself inside a group; if that is on two streams, both wait for each other. */
TUTTI_API tuttiResult_t tuttiSend(const void* sendbuff, size_t count, tuttiDataType_t type, int peer, tuttiComm_t comm,
                                  tuttiStream_t stream);
TUTTI_API tuttiResult_t tuttiRecv(void* recvbuff, size_t count, tuttiDataType_t type, int peer, tuttiComm_t comm,
                                  tuttiStream_t stream);

/* ----------------------------------------------------------------------------------------- one-sided operations */

/* A rank writes to the memory of another one, or reads it, which does nothing for it, and tells it by a signal, which
 * that one may wait for. For ranks that are all on CPUs, on any hosts, or all on GPUs that p2p joins: where some of
 * comm's ranks are on a CPU and a GPU, or on GPUs that a network or host memory joins (also because config.transport
 * says so), all of this is refused with tuttiInvalidUsage, and a text that names two such ranks.
 *
 * A window: all ranks of comm call Register in the same order, each with memory of its own (`size` bytes at `buff`, of
 * any length; 0: no part), which others may then put to and get from. If peers are in other processes, that is memory
 * of tuttiMemAlloc, or whole pages of memory which tuttiCommRegister would take; they are registered as by that
 * function, under its contract. One rank's memory that is not gives all ranks tuttiInvalidArgument, which names the
 * rank. Ranks that are threads of one process take any memory. On GPUs it is memory of the rank's GPU, in one
 * allocation, and where ranks are in several processes or on several GPUs one that can be shared: of cudaMalloc or
 * tuttiMemAllocDevice, not of a pool. *win is this rank's handle of the window; in a group it is valid after
 * tuttiGroupEnd, and one thread that drives several ranks calls Register in a group. When Register returns, all ranks
 * may reach all. A rank has at most 512 windows of a communicator. Memory that only ranks on other hosts reach may be
 * any.
 *
 * winFlags: TUTTI_WIN_DEFAULT, or TUTTI_WIN_BEST_EFFORT: memory that can't be reached is registered for collectives
 * alone, as by tuttiCommRegister, and only tuttiPutSignal and tuttiGet are refused for it, with the reason.
 * TUTTI_WIN_COLL_SYMMETRIC, alone or with it: a promise of all ranks. If the buffers of an all-reduce, reduce-scatter,
 * all-gather or all-to-all lie in such windows on one rank, they do on all ranks, and begin at the same byte of their
 * window (in place, what is the larger one does). On GPUs peers then read and write the buffers where they are, in long
 * pieces, also from other processes, and in captured graphs, which must not run once the window is deregistered. Where
 * it matters, ranks that break it get tuttiInvalidUsage, or tuttiTimeout. On CPUs it changes nothing.
 *
 * Deregister is a call of each rank for itself: it waits for what this rank has issued on comm before, and when it
 * returns, nobody writes to this rank's part any more, nor reads it. A put or a get that comes too late fails, and its
 * communicator with it. So it is when comm is destroyed, aborted or suspended (windows and signals do not come back
 * with tuttiCommResume), or has failed; the handle is to be deregistered all the same, before the memory is freed. On
 * GPUs it waits until other processes have closed the memory, as tuttiCommDeregister does, and as it says. A graph in
 * which this rank puts to the window, or gets from it, must have ended before, and not run afterwards. */
typedef struct tuttiWindow* tuttiWindow_t;
#define TUTTI_WIN_DEFAULT 0
#define TUTTI_WIN_BEST_EFFORT 1
#define TUTTI_WIN_COLL_SYMMETRIC 2
TUTTI_API tuttiResult_t tuttiCommWindowRegister(tuttiComm_t comm, void* buff, size_t size, tuttiWindow_t* win,
                                                int winFlags);
TUTTI_API tuttiResult_t tuttiCommWindowDeregister(tuttiComm_t comm, tuttiWindow_t win);

/* Copies `count` elements from localbuff to peer's part of the window, from byte peerWinOffset of it on, then raises
 * peer's signal sigIdx; count 0 only raises it. Has ended when both are done, or, to another host, on their way:
 * localbuff may be used again. If the peer's host then refuses it, since its part was deregistered, a later call on
 * comm says so. On GPUs all of it takes place on the stream, in captured graphs at each launch. peerWin: this rank's
 * handle. peer may be this rank; localbuff must not overlap what is written. sigIdx: 0 to TUTTI_SIGNALS - 1, each of
 * them a counter of its own for every pair of ranks. ctx, flags: 0.
 *
 * Whoever has waited for a signal sees all that was put to it before by the rank that raised it. Puts, gets and signals
 * to one peer take place in the order of their calls, in a group too, where all else goes on side by side: waits (in
 * the order of their calls), other peers' puts and gets, collectives. */
#define TUTTI_SIGNALS 8
TUTTI_API tuttiResult_t tuttiPutSignal(const void* localbuff, size_t count, tuttiDataType_t type, int peer,
                                       tuttiWindow_t peerWin, size_t peerWinOffset, int sigIdx, int ctx,
                                       unsigned int flags, tuttiComm_t comm, tuttiStream_t stream);

/* Copies `count` elements from peer's part of the window, from byte peerWinOffset of it on, to localbuff, and has ended
 * when they are there; on the null stream, when it returns. peer does nothing for it, and may compute meanwhile. On
 * GPUs all of it takes place on the stream, in captured graphs at each launch. peerWin: this rank's handle. peer may be
 * this rank; localbuff must not overlap what is read. ctx, flags: 0.
 *
 * It sees all that this rank has put to peer before, and nothing that it puts there after. So when a get has ended,
 * whatever part it has read, this rank's earlier puts to peer are there; count 0 waits for that alone. It sees what
 * peer itself saw in its part when it raised a signal that this rank then waited for, or when it called a collective
 * that both have ended. Where ranks write at the same time it may see some of their bytes and not others. In a group it
 * does not wait for the group's waits: to read what a signal tells of, get after that group.
 *
 * If peer's part is deregistered before it was read, or peer destroys comm, is killed or, on another host, does not
 * answer within config.timeoutMs, the get fails, with comm, and localbuff may hold a part of the data. */
TUTTI_API tuttiResult_t tuttiGet(void* localbuff, size_t count, tuttiDataType_t type, int peer, tuttiWindow_t peerWin,
                                 size_t peerWinOffset, int ctx, unsigned int flags, tuttiComm_t comm,
                                 tuttiStream_t stream);

/* Raises peer's signal, and no more. Needs no window. */
TUTTI_API tuttiResult_t tuttiSignal(int peer, int sigIdx, int ctx, unsigned int flags, tuttiComm_t comm,
                                    tuttiStream_t stream);

/* Waits until opCnt signals sigIdx of rank peer have come, for all nDesc descriptors, and takes them: the next wait
 * counts those that come after. Descriptors of the same signal add up. They are read before the call returns. A rank
 * that waits first and signals then, like its peer, does both in a group: also on different streams, operations of one
 * communicator run in the order of their calls. */
typedef struct {
    int opCnt;
    int peer;
    int sigIdx;
    int ctx; /* 0 */
} tuttiWaitSignalDesc_t;
TUTTI_API tuttiResult_t tuttiWaitSignal(int nDesc, const tuttiWaitSignalDesc_t* signalDescs, tuttiComm_t comm,
                                        tuttiStream_t stream);

/* -------------------------------------------------------------------------------------------------------- groups */

/* Calls between Start and End of one thread are issued together at the outermost End: operations of several ranks that
 * one thread drives, sends and receives that wait for each other, and CommInitRank of several ranks. Groups nest. If a
 * call in the group is refused, End issues nothing and returns that error. */
TUTTI_API tuttiResult_t tuttiGroupStart(void);
TUTTI_API tuttiResult_t tuttiGroupEnd(void);

/* Instead of tuttiGroupEnd: forgets the group's calls, and sets info->estimatedTime to the microseconds that they would
 * take by the cost model (of the communicator that takes longest). Groups that make communicators are refused, with
 * tuttiInvalidUsage. info may be NULL, else it starts from TUTTI_SIM_INFO_INITIALIZER. */
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

/* What holds of an environment variable that docs/environment.md lists: its value, or what holds without it; secrets
 * are never told. Unknown keys are tuttiInvalidArgument. *value is valid until the thread's next call; *keys, with
 * *count entries, always. */
TUTTI_API tuttiResult_t tuttiParamGet(const char* key, const char** value);
TUTTI_API tuttiResult_t tuttiParamGetAllKeys(const char* const** keys, int* count);

/* Writes all of them to the log, at level INFO. */
TUTTI_API tuttiResult_t tuttiParamDumpAll(void);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_TUTTI_H_ */
