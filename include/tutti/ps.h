/* Tutti: parameter servers. Copyright the Tutti authors. SPDX-License-Identifier: Apache-2.0
 *
 * Workers push gradients of keys to servers and pull values from them. A server either updates a key's values when a
 * gradient arrives, without waiting for any other worker (Dean et al. 2012, Li et al. 2014), or only sums the gradients
 * of all workers, which then update their own values (Jiang et al. 2020, "BytePS"). This header is the manual;
 * docs/data-parallel.md says when to use which.
 *
 *     tuttiPsCreate(&ps, keys, count, &config, comm);           all ranks
 *
 *     for (;;) {                                                workers
 *         for each key: tuttiPsPull(ps, key, values, &request), later tuttiPsWait(ps, request);
 *         forward and backward pass;
 *         for each key: tuttiPsPush(ps, key, gradient, &request), later tuttiPsWait(ps, request);
 *         tuttiPsClock(ps);
 *     }
 *
 *     tuttiPsServe(ps);                                         servers that do nothing else
 *     tuttiPsDestroy(ps);                                       all ranks
 *
 * Conventions, besides those of tutti.h
 *  (1) Create is collective. All other calls concern the calling rank alone. Any number of threads may use a tuttiPs_t
 *      at the same time, except that Destroy is the last call.
 *  (2) A key is a number from 0 to count - 1. A key larger than config.partBytes is cut into parts of about equal size.
 *      Parts are dealt to the servers, the largest first, each to the server with the fewest bytes.
 *  (3) Values and gradients are in the host's memory or, if the rank is on a GPU, in that of a GPU: in each call as you
 *      like. Servers keep and update everything in the host's memory, on its cores.
 *      - In a GPU's memory: a request reads or writes the buffer after the work that was enqueued on config.stream
 *        before the call. Parts travel through pinned memory of the host, two times the largest part for each server.
 *        When Wait has returned, the copies are complete: no stream has to wait for them. While config.stream is
 *        captured into a CUDA graph, such a request is refused with tuttiInvalidUsage.
 *      - Memory of cudaMallocHost and the like counts as the host's: your kernels there must have ended by then.
 *      - Create and Destroy allocate and free pinned memory. CUDA may wait in that for all kernels of the process, so
 *        none of them may wait for a rank that is in such a call.
 *  (4) Push, Pull and PushPull return at once if `request` is not NULL; the buffers then belong to the library until
 *      tuttiPsWait has returned. With `request` NULL they return when the request has ended. Wait for every request,
 *      once each, in any order. One worker's requests for one key take effect in the order of the calls; a pull sees
 *      the worker's own earlier pushes.
 *  (5) Clocks. A worker counts its iterations with tuttiPsClock. With config.staleness = s a pull waits, on the server,
 *      while its worker is more than s clocks ahead of the slowest worker. So a pull at clock c includes all updates
 *      that each worker pushed before its own clock was c - s (stale synchronous parallel, Ho et al. 2013). Pushes
 *      never wait for other workers. Where servers only sum, a pull waits for the sum, and clocks have no meaning.
 *  (6) Workers that die, or call Destroy, are dropped: no request waits for them any more. Their earlier pushes count.
 *      A rank that is stopped for longer than config.timeoutMs counts as dead. If a server has died or does not answer,
 *      all requests for its keys return tuttiRemoteError with a text that names its rank. Requests for keys of other
 *      servers go on.
 *  (7) A request that waits for a slower worker for longer than config.timeoutMs ends with tuttiTimeout and a text that
 *      names that worker. Its server goes on, so the request can be made again.
 */
#ifndef TUTTI_PS_H_
#define TUTTI_PS_H_

#include "tutti/dp.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tuttiPs* tuttiPs_t;

/* A request that Push, Pull or PushPull has started. 0 is no request. */
typedef uint64_t tuttiPsRequest_t;

/* A key. Must be the same on all ranks, except `initial`. */
typedef struct {
    const char* name;     /* for messages; copied; unique */
    size_t count;         /* elements, at least 1 */
    tuttiDataType_t type; /* of values and gradients: a float of 16, 32 or 64 bits */
    const void* initial;  /* initial values, read on rank 0 of comm during Create; NULL: zeros. Not used where servers
                             only sum */
} tuttiPsKey_t;

#define TUTTI_PS_UNBOUNDED (-1)

/* Start from TUTTI_PS_CONFIG_INITIALIZER. 0, NULL or TUTTI_UNDEF_INT selects the default. Must be the same on all
 * ranks. */
typedef struct {
    size_t size;                  /* set by the initializer */
    unsigned int magic;           /* set by the initializer */
    unsigned int version;         /* set by the initializer */
    size_t keySize;               /* set by the initializer: sizeof(tuttiPsKey_t) */
    int servers;                  /* number of ranks that serve; default: all */
    const int* serverRanks;       /* these ranks, `servers` different numbers, copied; default: 0 to servers - 1 */
    int dedicated;                /* 1: ranks that serve do not work. Default 0 */
    tuttiDpOptimizer_t optimizer; /* how servers update, as in dp.h. tuttiDpNoOptimizer (default): servers only sum.
                                     update (tuttiDpCallback) runs on threads of the server, for several parts at the
                                     same time; tuttiDpPiece_t's parameter is the key */
    int average;      /* if servers only sum. 1: divide the sum by the number of workers that are in it. Default 0 */
    int staleness;    /* s, 0 or more: see (5). Default TUTTI_PS_UNBOUNDED: pulls never wait for other workers */
    size_t partBytes; /* parts of a key have at most this many bytes, rounded up to 64; default 4 MiB */
    int threads;      /* of a server, for updates and sums; default: the number of cores of its process, at most 8 */
    int timeoutMs;    /* see (6) and (7); default 600000 */
    int pushesAhead;  /* if servers only sum: how many times a worker may push a key after the round of the last sum
                         that it has received; a server keeps at most this many of its gradients per key. Default 16 */
    int reserved;     /* 0 */
    tuttiStream_t stream; /* if this rank is on a GPU: see (3). Of that GPU; may differ between ranks. Default NULL: the
                             default stream */
} tuttiPsConfig_t;

#define TUTTI_PS_CONFIG_MAGIC 0x54755053u
#define TUTTI_PS_CONFIG_INITIALIZER                                                                              \
    {                                                                                                            \
        sizeof(tuttiPsConfig_t), TUTTI_PS_CONFIG_MAGIC, TUTTI_VERSION_CODE, sizeof(tuttiPsKey_t), 0, NULL,       \
            TUTTI_UNDEF_INT, {tuttiDpNoOptimizer, 0.001, 0.9, 0.9, 0.999, 1e-8, 0, NULL, NULL}, TUTTI_UNDEF_INT, \
            TUTTI_UNDEF_INT, 0, 0, 0, 0, 0, NULL                                                                 \
    }

/* Makes the servers and workers; servers serve from now on. Collective over comm, which is not used after the call.
 * config may be NULL. If one rank's arguments are wrong, the call fails on all ranks, with the same code and a text
 * that names the rank, and has no effect. If ranks give different keys or options, all return tuttiInvalidUsage with
 * the first difference. */
TUTTI_API tuttiResult_t tuttiPsCreate(tuttiPs_t* ps, const tuttiPsKey_t* keys, size_t count,
                                      const tuttiPsConfig_t* config, tuttiComm_t comm);

/* Sends a gradient of all elements of the key, which its servers apply, or add, exactly once. The request ends when
 * `gradient` may be used again. The gradient may still be on its way then; it has been applied when a later pull of the
 * key by this worker has ended. Where servers only sum, they keep the gradients that a worker pushes ahead of the
 * others. A push beyond config.pushesAhead is refused (tuttiInvalidUsage), and nothing is sent. Pull the key, wait for
 * the sum, then push again. */
TUTTI_API tuttiResult_t tuttiPsPush(tuttiPs_t ps, size_t key, const void* gradient, tuttiPsRequest_t* request);

/* Fetches the current values, which include all of this worker's earlier pushes. Where servers only sum, fetches the
 * sum of the round of this worker's last push of the key; refused (tuttiInvalidUsage) if it has not pushed the key
 * before. The k-th pushes of all workers are round k. */
TUTTI_API tuttiResult_t tuttiPsPull(tuttiPs_t ps, size_t key, void* values, tuttiPsRequest_t* request);

/* Push and Pull in one request. In place if values == gradient. Sums are added in the order of ranks and rounded once,
 * so they have the bits of tuttiAllReduce with config.reproducible. */
TUTTI_API tuttiResult_t tuttiPsPushPull(tuttiPs_t ps, size_t key, const void* gradient, void* values,
                                        tuttiPsRequest_t* request);

/* Waits until the request has ended, and returns its result. After a failure some of `values` may have been written.
 * The request is invalid afterwards. */
TUTTI_API tuttiResult_t tuttiPsWait(tuttiPs_t ps, tuttiPsRequest_t request);

/* Begins this worker's next iteration. A server advances the worker's clock by 1 once it has all earlier pushes. */
TUTTI_API tuttiResult_t tuttiPsClock(tuttiPs_t ps);

/* Sets the learning rate of this worker's pushes from now on. It is config.optimizer.learningRate at first. */
TUTTI_API tuttiResult_t tuttiPsSetLearningRate(tuttiPs_t ps, double learningRate);

/* Waits until all workers have left or died, and their last gradients are in the values. Refused (tuttiInvalidUsage) on
 * a rank that also works: there Destroy waits for that. */
TUTTI_API tuttiResult_t tuttiPsServe(tuttiPs_t ps);

#define TUTTI_PS_BINS 16

/* Start from TUTTI_PS_STATISTICS_INITIALIZER. */
typedef struct {
    size_t size;          /* set by the initializer */
    unsigned int magic;   /* set by the initializer */
    unsigned int version; /* set by the initializer */
    /* This rank as a worker. */
    long long clock;                        /* calls of tuttiPsClock */
    long long pushes;                       /* parts that were sent */
    long long pulls;                        /* parts that were received */
    int largestPullStaleness;               /* the most clocks by which this worker was ahead of the slowest one at a
                                               pull; with a bound never more than config.staleness */
    long long pullStaleness[TUTTI_PS_BINS]; /* number of pulls by staleness; the last bin: this staleness or more */
    /* This rank as a server. */
    long long updates;                  /* of parts, made on arrival */
    int largestStaleness;               /* the largest staleness of an update: its worker's clock, minus the clock of
                                           the slowest worker at this worker's last pull of the part. Never more than
                                           config.staleness if workers pull once per clock, before they push */
    long long staleness[TUTTI_PS_BINS]; /* number of updates by staleness; the last bin: this staleness or more */
    long long missed;                   /* updates by other workers between a gradient's pull and its own update, summed
                                           over all updates; divided by `updates` it is the mean delay */
    long long largestMissed;            /* the most of a single update */
    int workers;                        /* workers that have neither left nor died */
    int lost;                           /* workers that have died */
    size_t parts;                       /* parts that this rank serves */
    size_t bytes;                       /* bytes of their values */
} tuttiPsStatistics_t;

#define TUTTI_PS_STATISTICS_INITIALIZER                                                                              \
    {                                                                                                                \
        sizeof(tuttiPsStatistics_t), TUTTI_PS_CONFIG_MAGIC, TUTTI_VERSION_CODE, 0, 0, 0, 0, {0}, 0, 0, {0}, 0, 0, 0, \
            0, 0, 0                                                                                                  \
    }
TUTTI_API tuttiResult_t tuttiPsGetStatistics(tuttiPs_t ps, tuttiPsStatistics_t* statistics);

/* Ends everything on this rank: requests and Serve return tuttiRemoteError, and other ranks see this rank as dead.
 * Afterwards only Destroy may be called. Any thread, also while others wait. */
TUTTI_API tuttiResult_t tuttiPsAbort(tuttiPs_t ps);

/* A worker waits for its requests and leaves; a server then waits as in tuttiPsServe. Frees all memory. The handle is
 * invalid afterwards, whatever is returned. */
TUTTI_API tuttiResult_t tuttiPsDestroy(tuttiPs_t ps);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_PS_H_ */
