/* Tutti: parameter servers. Copyright the Tutti authors. SPDX-License-Identifier: Apache-2.0
 *
 * Workers push gradients of keys to servers and pull values from them. A server either updates a key's values when a
 * gradient arrives, without waiting for any other worker (Dean et al. 2012, Li et al. 2014), or only sums the gradients
 * of all workers, which then update themselves (Jiang et al. 2020, "BytePS"). This header is its manual;
 * docs/data-parallel.md says when to take what.
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
 *  (1) Create is collective. All other calls concern the calling rank alone. Any threads may use a tuttiPs_t at the
 *      same time, except Destroy, which comes last.
 *  (2) A key is a number from 0 to count - 1. A key larger than config.partBytes is cut into parts of about equal size.
 *      Parts are dealt to the servers, the largest first, each to the server with the fewest bytes.
 *  (3) Values and gradients are in the host's memory. Ranks of comm may be on GPUs; what they push and pull is not.
 *  (4) Push, Pull and PushPull return at once if `request` is not NULL; then the buffers belong to the library until
 *      tuttiPsWait has returned. With `request` NULL they wait themselves. All requests are to be waited for, once
 *      each, in any order. Requests of one worker for one key take effect in the order of the calls; a pull sees the
 *      worker's own earlier pushes.
 *  (5) Clocks. A worker counts its iterations by tuttiPsClock. With config.staleness = s a pull waits, on the server,
 *      while its worker is more than s clocks ahead of the slowest worker: then it has all updates up to the clock
 *      before the last s (stale synchronous parallel, Ho et al. 2013). Pushes never wait for other workers. Where
 *      servers only sum, a pull waits for the sum, and clocks have no meaning.
 *  (6) Workers that die, or call Destroy, are dropped: nobody waits for them any more. What they had pushed counts. A
 *      rank that is stopped for longer than config.timeoutMs has died. A server that has died is an error
 *      (tuttiRemoteError) of all requests for its keys, and the text names its rank. Keys of other servers go on.
 *  (7) A request that waits for a slower worker for longer than config.timeoutMs ends with tuttiTimeout, which names
 *      that worker; its server goes on.
 */
#ifndef TUTTI_PS_H_
#define TUTTI_PS_H_

#include "tutti/dp.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tuttiPs* tuttiPs_t;

/* What Push, Pull and PushPull have begun. 0 is none. */
typedef uint64_t tuttiPsRequest_t;

/* A key; the same on all ranks but for `initial`. */
typedef struct {
    const char* name;     /* for messages; copied; unique */
    size_t count;         /* elements, at least 1 */
    tuttiDataType_t type; /* of values and gradients: a float of 16, 32 or 64 bits */
    const void* initial;  /* values to begin with, read on rank 0 of comm during Create; NULL: zeros. Not used where
                             servers only sum */
} tuttiPsKey_t;

#define TUTTI_PS_UNBOUNDED (-1)

/* Start from TUTTI_PS_CONFIG_INITIALIZER. 0, NULL or TUTTI_UNDEF_INT: the default. The same on all ranks. */
typedef struct {
    size_t size;                  /* set by the initializer */
    unsigned int magic;           /* set by the initializer */
    unsigned int version;         /* set by the initializer */
    size_t keySize;               /* set by the initializer: sizeof(tuttiPsKey_t) */
    int servers;                  /* how many ranks serve; default: all */
    const int* serverRanks;       /* which ones, `servers` different numbers, copied; default: 0 to servers - 1 */
    int dedicated;                /* 1: ranks that serve do not work. Default 0 */
    tuttiDpOptimizer_t optimizer; /* how servers update, as in dp.h. tuttiDpNoOptimizer (default): servers only sum.
                                     update (tuttiDpCallback) runs on threads of the server, for several parts at the
                                     same time; tuttiDpPiece_t's parameter is the key */
    int average;      /* servers only sum. 1: the sum is divided by the number of workers that are in it. Default 0 */
    int staleness;    /* s, 0 or more: see (5). Default TUTTI_PS_UNBOUNDED: pulls never wait for other workers */
    size_t partBytes; /* keys are cut into parts of at most so many bytes; default 4 MiB */
    int threads;      /* of a server, for updates and sums; default: as many as the cores of its process, at most 8 */
    int timeoutMs;    /* see (6) and (7); default 600000 */
    int pushesAhead;  /* servers only sum: how many times a worker may push a key beyond the round of the last sum of it
                         that it has got; servers keep at most so many of its gradients of a key. Default 16 */
    int reserved;     /* 0 */
} tuttiPsConfig_t;

#define TUTTI_PS_CONFIG_MAGIC 0x54755053u
#define TUTTI_PS_CONFIG_INITIALIZER                                                                              \
    {                                                                                                            \
        sizeof(tuttiPsConfig_t), TUTTI_PS_CONFIG_MAGIC, TUTTI_VERSION_CODE, sizeof(tuttiPsKey_t), 0, NULL,       \
            TUTTI_UNDEF_INT, {tuttiDpNoOptimizer, 0.001, 0.9, 0.9, 0.999, 1e-8, 0, NULL, NULL}, TUTTI_UNDEF_INT, \
            TUTTI_UNDEF_INT, 0, 0, 0, 0, 0                                                                       \
    }

/* Collective over comm, which is not used any more when it returns. config may be NULL. If one rank's arguments are
 * wrong, all ranks are told, with the same code and a text that names the rank; nothing has happened then. Ranks that
 * give different keys or options are told the first difference (tuttiInvalidUsage). Servers serve from now on. */
TUTTI_API tuttiResult_t tuttiPsCreate(tuttiPs_t* ps, const tuttiPsKey_t* keys, size_t count,
                                      const tuttiPsConfig_t* config, tuttiComm_t comm);

/* Sends a gradient of all elements of the key, which its servers apply, or add, exactly once. The request ends when
 * `gradient` may be used again. The gradient may still be on its way then: when a later pull of the key by this worker
 * has ended, it has been applied. Where servers only sum, they keep what a worker pushes ahead of the others: the
 * push that would be one more than config.pushesAhead is refused (tuttiInvalidUsage), and nothing is sent. Pull, and
 * wait for the sum, then push again. */
TUTTI_API tuttiResult_t tuttiPsPush(tuttiPs_t ps, size_t key, const void* gradient, tuttiPsRequest_t* request);

/* Fetches the values that there are, with all of this worker's pushes. Where servers only sum: the sum of the round
 * that this worker's last push of the key belongs to; without a push before it is refused (tuttiInvalidUsage). The
 * k-th pushes of all workers are round k. */
TUTTI_API tuttiResult_t tuttiPsPull(tuttiPs_t ps, size_t key, void* values, tuttiPsRequest_t* request);

/* Push and Pull in one. In place: values == gradient. Sums are added in the order of ranks with one rounding, so they
 * have the bits of tuttiAllReduce with config.reproducible. */
TUTTI_API tuttiResult_t tuttiPsPushPull(tuttiPs_t ps, size_t key, const void* gradient, void* values,
                                        tuttiPsRequest_t* request);

/* Waits until the request has ended, and returns what became of it. On failure some of `values` may have been written.
 * The request is of no use afterwards. */
TUTTI_API tuttiResult_t tuttiPsWait(tuttiPs_t ps, tuttiPsRequest_t request);

/* This worker's next iteration: its clock is 1 higher for servers that have all of its earlier pushes. */
TUTTI_API tuttiResult_t tuttiPsClock(tuttiPs_t ps);

/* For this worker's pushes from now on; config.optimizer.learningRate before. */
TUTTI_API tuttiResult_t tuttiPsSetLearningRate(tuttiPs_t ps, double learningRate);

/* Returns when all workers have left or died, and their last gradients are in the values. A rank that works, too, is
 * refused (tuttiInvalidUsage): its Destroy does that. */
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
    long long pulls;                        /* parts that have come */
    int largestPullStaleness;               /* by how many clocks this worker was ahead of the slowest at a pull; with a
                                               bound never more than config.staleness */
    long long pullStaleness[TUTTI_PS_BINS]; /* how many pulls had this one; the last: or more */
    /* This rank as a server. */
    long long updates;                  /* made on arrival, of parts */
    int largestStaleness;               /* of an update: its worker's clock, less that of the slowest worker at the
                                           worker's last pull of the part before. Never more than config.staleness if
                                           workers pull once in every clock before they push */
    long long staleness[TUTTI_PS_BINS]; /* how many updates had this one; the last: or more */
    long long missed;                   /* updates by other workers that a gradient did not know of when it was made,
                                           summed over all updates: over `updates` this is the mean delay */
    long long largestMissed;
    int workers;  /* that have not left */
    int lost;     /* that have died */
    size_t parts; /* that this rank serves */
    size_t bytes; /* of their values */
} tuttiPsStatistics_t;

#define TUTTI_PS_STATISTICS_INITIALIZER                                                                              \
    {                                                                                                                \
        sizeof(tuttiPsStatistics_t), TUTTI_PS_CONFIG_MAGIC, TUTTI_VERSION_CODE, 0, 0, 0, 0, {0}, 0, 0, {0}, 0, 0, 0, \
            0, 0, 0                                                                                                  \
    }
TUTTI_API tuttiResult_t tuttiPsGetStatistics(tuttiPs_t ps, tuttiPsStatistics_t* statistics);

/* Ends everything on this rank: requests and Serve return tuttiRemoteError, other ranks see that it has died. Then only
 * Destroy is of use. Any thread, also while others wait. */
TUTTI_API tuttiResult_t tuttiPsAbort(tuttiPs_t ps);

/* A worker waits for its requests and leaves; a server then waits as in tuttiPsServe. Frees; the handle is invalid
 * afterwards, whatever is returned. */
TUTTI_API tuttiResult_t tuttiPsDestroy(tuttiPs_t ps);

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_PS_H_ */
