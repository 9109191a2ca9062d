/* Tutti: data parallelism. Copyright the Tutti authors. SPDX-License-Identifier: Apache-2.0
 *
 * A thin layer over a communicator, for any framework or a plain training loop. Every rank computes gradients from its
 * part of the batch. The layer reduces them over ranks while the backward pass still runs, and updates the parameters,
 * too, if that is wanted. It knows pointers, counts and types, but no tensors. This header is the manual;
 * docs/data-parallel.md says when to use which mode.
 *
 *     tuttiDpCreate(&dp, parameters, count, &config, comm);
 *     for (;;) {
 *         tuttiDpBegin(dp);                                    zeroed gradients, current parameters
 *         forward();
 *         for each parameter, from the last layer to the first:
 *             add to the gradient, then tuttiDpGradReady(dp, parameter);
 *         tuttiDpSynchronize(dp);                              gradients are now those of the whole batch
 *         tuttiDpStep(dp);                                     if the layer updates; otherwise update them yourself
 *     }
 *
 * Conventions, besides those of tutti.h
 *  (1) Create, Join, Synchronize, Step, Broadcast, CheckEqual, FindNan, ClipNorm, ClipValue, Unscale, Gather,
 *      ResetErrorFeedback, Save, SaveAsync, SaveWait, Load, Move and Abandon are collective: all ranks call them in the
 *      same order. The others concern one rank alone.
 *  (2) One thread at a time uses a tuttiDp_t, except that several threads may call tuttiDpGradReady at once.
 *  (3) The layer uses communicators of its own, split from yours, and on CPUs a thread of its own. Your communicator
 *      stays free for other calls.
 *  (4) Errors.
 *      - A call that is refused (tuttiInvalidArgument, tuttiInvalidUsage) has no effect.
 *      - If one rank's arguments are wrong, or its call is in the wrong place, all ranks are told at once, with the
 *        same code and a text that names the rank: in Create, Broadcast, CheckEqual, FindNan, Save, Load, Move, and in
 *        modes that shard also in Step, ClipNorm and ClipValue, which wait for all ranks' calls for that.
 *      - A refused Synchronize, Gather or Release concerns its rank alone. The others wait for that rank until it makes
 *        the right call or calls Abandon.
 *      - A Synchronize that misses gradients, and any failure while data moves, ends the layer's communicator, so that
 *        no other rank waits for ever: the others get tuttiRemoteError with a text that names the rank. From then on
 *        every call returns the first error, and only Abandon, Move and Destroy are of use. The parameters are intact
 *        then, unless an update failed in Step in a mode that sends parameters around (servers, ZeRO): in that case
 *        load a checkpoint.
 *  (5) Same bits. With config.reproducible = 1 of the communicator, all synchronous modes give the same bits for n
 *      ranks, and the same bits as one rank that adds the gradients of n parts in rank order. Without it, they give the
 *      same bits from run to run. Compression and staleness change results, as described there.
 *  (6) GPUs. If a rank of comm is on a GPU, its values and gradients are in the memory of that GPU, and so is all
 *      memory that the layer hands out.
 *      - The calling thread enqueues all work on config.stream, and most calls return before it is done. Use that
 *        stream for your kernels, too, or order the two streams by events: config.stream must wait for yours before
 *        GradReady, FindNan, Release and Step, and yours must wait for config.stream after Begin, Gradient, Gather,
 *        Synchronize and Step.
 *      - Calls that read results wait for the GPU: ClipNorm, Unscale, Step with config.clipNorm, lossScale or offload,
 *        CheckEqual, FindNan, Save, Load. So do GradReady and Synchronize with tuttiDpTopK and tuttiDpPowerSgd, which
 *        work on the host.
 *      - Times in statistics are those of enqueuing.
 *      - A later call reports the failure of a kernel. A Step after it may have spoilt the parameters, unless
 *        config.elastic is 1: load a checkpoint.
 *      - Updates of your own (tuttiDpCallback), tuttiDpLamb and tuttiDpMuon need config.offload on GPUs that make
 *        updates.
 *      - Asynchronous modes have a stream and a thread of their own. Begin waits for the GPU where the bound requires
 *        it, and times are those of the GPU's work.
 *  (7) In all modes some ranks of comm may be on CPUs and the others on GPUs. Each rank has its values and gradients
 *      where it is. For a CPU as the server of GPUs use tuttiDpServer with config.server, and perhaps config.dedicated.
 *  (8) Versions. Structs get new fields at their end, and programs need not be rebuilt for that. The config contains
 *      its size, and that of a group. Functions that take or fill another struct are called through macros of the same
 *      name, at the end of this header, which pass sizeof to the function ...Sized. The functions of the plain names
 *      take structs as they were in the first version, for programs that were built with it. If you take a function's
 *      address, or have no preprocessor, use ...Sized. A field that an older library does not know must be 0, or the
 *      library refuses it; a field that it can't fill is 0. tuttiDpOptimizer_t lies within the config and does not
 *      grow: what else an optimizer needs is a field of the config. tuttiDpPiece_t, tuttiDpBucket_t and
 *      tuttiDpReplica_t belong to the layer, which passes one at a time: a program reads the fields that it knows.
 *  (9) config.onArrival = 1. The layer consists of workers and servers of tutti/ps.h, with a key for each parameter. It
 *      is for ranks on CPUs, and gradients of the parameters' types.
 *      - A gradient is divided by microBatches, not by the number of ranks: choose learningRate accordingly.
 *      - config.staleness is a bound on clocks, 0 or more, or TUTTI_DP_UNBOUNDED (default): Begin waits while this rank
 *        is more than that many steps ahead of the slowest living one.
 *      - GradReady sends the gradient. Synchronize waits until all gradients are on their way. Step ends the iteration.
 *        Wait takes the newest values.
 *      - A rank that dies, or destroys its layer, is dropped, and the others go on. If a server dies, calls that need
 *        it return tuttiRemoteError with a text that names it, until tuttiDpMove.
 *      - Dedicated servers call only Create, Move and Destroy, which returns when all workers have left. Other calls do
 *        nothing there.
 *      - Initial values are those of rank 0, also of frozen parameters and buffers. Groups stay as they are in Create.
 *      - With clipNorm or lossScale, Synchronize looks at all gradients of this rank and then sends them. The norm is
 *        that of this rank's gradients, and the scale is this rank's own. Gradients that overflow are not applied, but
 *        the rank's clock goes on. clipValue clips this rank's gradients in place.
 *      - With compression tuttiDpFp16 or tuttiDpBf16, gradients of float32 are sent in 16 bits (float16: clipped to
 *        65504). Values are sent as they are.
 *      - Save, SaveAsync and Load concern one worker alone, which needs memory for all values and states meanwhile. The
 *        checkpoint is like those of other modes. It has what servers have: all of this worker's gradients, and those
 *        of others that have arrived. Parts of 4 MiB are consistent, but some may have one gradient more than others
 *        while other workers push. `steps`, notes, the learning rate and the scale of losses are this worker's. Load
 *        gives the servers the values and states, which the other workers see in Begin. Frozen parameters and buffers,
 *        notes, the learning rate and `steps` are loaded on this worker only. Load on one worker, or on all, before any
 *        of them begins an iteration.
 *      - Available are Begin, NoSync, GradReady, Synchronize, Step, Wait, Abandon, SetLearningRate, GetLossScale,
 *        Gradient, Data, GetMemory, GetStatistics, Save, SaveAsync, SaveWait, Load, SetNote, GetNote, Move and
 *        Destroy. Others are refused.
 */
#ifndef TUTTI_DP_H_
#define TUTTI_DP_H_

#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tuttiDp* tuttiDp_t;

/* -------------------------------------------------------------------------------------------------------- modes */

typedef enum {
    tuttiDpNaive = 0,    /* an all-reduce per gradient, in Synchronize: the reference */
    tuttiDpBucketed = 1, /* gradients share buckets; a bucket is reduced as soon as it is complete, during the backward
                            pass ("DDP") */
    tuttiDpServer = 2,   /* a parameter server: one rank sums, updates and sends the parameters back */
    tuttiDpShardedServer = 3, /* a sharded parameter server: config.servers ranks serve a part of every bucket each */
    tuttiDpSharded = 3,       /* deprecated: the same by its old name, until version 0.2 */
    tuttiDpZero1 = 4,         /* all ranks serve; the optimizer's states are sharded */
    tuttiDpZero2 = 5,         /* gradients, too: a bucket's memory is released when it has been reduced */
    tuttiDpZero3 = 6, /* parameters, too: those of a unit are present from tuttiDpGather to tuttiDpRelease ("FSDP") */
    tuttiDpNumModes = 7
} tuttiDpMode_t;

/* ---------------------------------------------------------------------------------------------------- optimizers */

typedef enum {
    tuttiDpNoOptimizer = 0, /* you update the parameters yourself; modes up to tuttiDpBucketed */
    tuttiDpSgd = 1,         /* w -= lr * (g + weightDecay * w) */
    tuttiDpMomentum = 2,    /* m = momentum * m + g + weightDecay * w;  w -= lr * m */
    tuttiDpAdam = 3,        /* Kingma and Ba 2015; weightDecay is added to the gradient. As in PyTorch, the bias
                               correction uses the number of updates that the parameter has had, which is less than the
                               number of steps if it was unused (config.findUnusedParameters) in some of them */
    tuttiDpAdamW = 4,       /* Loshchilov and Hutter 2019: w -= lr * weightDecay * w, apart from the gradient */
    tuttiDpCallback = 5,    /* config.optimizer.update; not for parameters of float64 */
    tuttiDpNesterov = 6,    /* g' = g + weightDecay * w;  m = momentum * m + g';  w -= lr * (g' + momentum * m) */
    tuttiDpLamb = 7,        /* You et al. 2020, for large batches: u = Adam's step without the rate + weightDecay * w;
                               w -= lr * |w| / |u| * u, with the norms of the whole parameter (1 for |w| / |u| where one
                               is 0). Synchronous modes; not for parameters of float64 */
    tuttiDpMuon = 8,        /* Jordan et al. 2024, for parameters of two dimensions and more, as matrices of shape[0]
                               rows: w -= lr * weightDecay * w;  m = momentum * m + g;  u = g + momentum * m, made
                               orthogonal by five steps of Newton and Schulz;  w -= lr * sqrt(max(1, rows / columns)) *
                               u. Other parameters, and those of groups with adamW, are updated as tuttiDpAdamW does;
                               they need another learning rate (groups). Each parameter has one owner
                               (config.wholeUpdates). Computed on a CPU in plain loops: about 30 n * n * k operations
                               for n x k elements, n <= k. Not for parameters of float64, nor with onArrival */
    tuttiDpNumOptimizers = 9
} tuttiDpOptimizerKind_t;

/* A piece of a parameter that this rank updates. */
typedef struct {
    size_t parameter;       /* number of the parameter */
    size_t first;           /* the parameter's element that weights[0] is */
    size_t count;           /* elements */
    float* weights;         /* in and out; fp32, whatever the parameter's type */
    const float* gradients; /* fp32 */
    float* state0;          /* state0 and state1: two fp32 numbers per element, zero at first, kept from step to step,
                               saved in checkpoints */
    float* state1;
    double learningRate; /* of the parameter's group */
    double weightDecay;  /* of the parameter's group */
    long long step;      /* number of updates of the parameter, with this one: 1 at the first */
} tuttiDpPiece_t;

/* Updates piece->weights and the states. Runs on a thread of the layer. Any result but tuttiSuccess ends the step with
 * that result. */
typedef tuttiResult_t (*tuttiDpUpdate_t)(void* user, const tuttiDpPiece_t* piece);

/* Updates are computed in fp32 (parameters of float64: in fp64). Parameters of 16-bit types have an fp32 master copy
 * where they are updated, and are rounded from it once per step. */
typedef struct {
    tuttiDpOptimizerKind_t kind;
    double learningRate; /* default 0.001 */
    double momentum;     /* default 0.9 */
    double beta1;        /* default 0.9 */
    double beta2;        /* default 0.999 */
    double epsilon;      /* default 1e-8 */
    double weightDecay;  /* default 0 */
    tuttiDpUpdate_t update;
    void* user;
} tuttiDpOptimizer_t;

/* Settings for the parameters of a group. */
typedef struct {
    double learningRateFactor; /* multiplies the learning rate */
    double weightDecay;        /* instead of the optimizer's */
    int adamW;                 /* tuttiDpMuon. 1: update matrices, too, as tuttiDpAdamW does (embeddings, the last
                                  layer) */
    int reserved; /* 0 */
} tuttiDpGroup_t;

/* --------------------------------------------------------------------------------------------------------- hooks */

/* A bucket that is being reduced. */
typedef struct {
    size_t index; /* number of the bucket */
    void* data;   /* in: this rank's gradients; out: the reduced ones, the same on every rank */
    size_t count; /* elements */
    tuttiDataType_t type;
    int divisor; /* divide the sum by this; 1: nothing to divide */
    int ranks, rank;
    tuttiStream_t stream; /* ranks on GPUs: enqueue the work here; data is memory of this GPU */
} tuttiDpBucket_t;

/* Replaces the all-reduce of a bucket. Called in the same order on all ranks, on the layer's thread; on GPUs on a
 * thread that calls GradReady or Synchronize. `comm` is the layer's own communicator. Any result but tuttiSuccess ends
 * the layer's communicator with that result. */
typedef tuttiResult_t (*tuttiDpHook_t)(void* user, const tuttiDpBucket_t* bucket, tuttiComm_t comm);

/* Built-in hooks, in synchronous modes, for buckets of float32 (others are reduced uncompressed). Where ranks own
 * parts, the first three send a rank no more than its part; the others give every rank the whole sum. */
typedef enum {
    tuttiDpNoCompression = 0,
    tuttiDpFp16 = 1,      /* divided first, then sent as float16 */
    tuttiDpBf16 = 2,      /* the same as bfloat16 */
    tuttiDpFp8 = 3,       /* as float8e4m3, scaled by the largest value of all ranks, so that no sum overflows */
    tuttiDpTopK = 4,      /* sends the config.topK part of the elements, those of the largest magnitude; the rest is
                             added the next time. NaNs and infinities are in this sum, but never kept for the next */
    tuttiDpPowerSgd = 5,  /* sends an approximation of rank config.powerRank; the rest is added the next time (Vogels et
                             al. 2019). A NaN or an infinity on any rank makes this bucket's whole sum NaN, once */
    tuttiDpAllGather = 6, /* no compression: one all-gather per bucket, and every rank adds in the order of ranks, with
                             the bits of a reproducible communicator. If bucketBytes holds all gradients, one call does
                             everything. (n - 1) times the bytes: for small models and few ranks. Also for float64 */
    tuttiDpNumCompressions = 7
} tuttiDpCompression_t;

/* ------------------------------------------------------------------------------------------------------ creation */

#define TUTTI_DP_DIMS 8

/* What the layer does with a parameter. Parameters that are not trained may be of any type. They have no gradient (grad
 * is NULL, and tuttiDpGradReady is not called for them) and no state. Every rank has all of their values at any time,
 * in every mode. At least one parameter must be trained. */
typedef enum {
    tuttiDpTrained = 0,
    tuttiDpFrozen = 1, /* values do not change: Create and tuttiDpBroadcast send them, checkpoints contain them */
    tuttiDpBuffer = 2, /* the same, for values that each rank changes itself (running statistics, counters): ranks may
                          differ until tuttiDpBroadcast, tuttiDpCheckEqual leaves them out, and rank 0's are saved */
    tuttiDpNumKinds = 3
} tuttiDpKind_t;

/* A parameter. Register them in the order of the forward pass, the same on all ranks. Memory that several layers share
 * (tied weights) is one parameter, ready after its last use; parameters whose values or gradients overlap are refused.
 */
typedef struct {
    const char* name; /* for messages and checkpoints; copied; unique */
    void* data;   /* its values; NULL: the layer allocates them (tuttiDpData), zero at first. tuttiDpZero3: read in
                     Create, not used afterwards */
    void* grad;   /* where you write its gradient; NULL: the layer allocates it (tuttiDpGradient), in the bucket itself,
                     so that nothing is copied */
    size_t count; /* elements, at least 1 */
    tuttiDataType_t type;     /* of the values: a float of 16, 32 or 64 bits; see tuttiDpKind_t */
    tuttiDataType_t gradType; /* of the gradient that you write; tuttiDpSameType: as `type` */
    int group;                /* config.groups[group]; 0 without groups */
    int unit; /* tuttiDpZero3, config.overlapParamGather: parameters of one unit are gathered and released together;
                 numbers must not decrease from one parameter to the next */
    int dims; /* 1 to TUTTI_DP_DIMS: the parameter is a tensor of shape[0] x ... x shape[dims - 1] elements, the last
                 one fastest; the product is count. 0: one dimension, of count. For checkpoints */
    size_t shape[TUTTI_DP_DIMS];
    tuttiDpKind_t kind; /* default tuttiDpTrained */
} tuttiDpParameter_t;

#define tuttiDpSameType ((tuttiDataType_t)(-1))

#define TUTTI_DP_UNBOUNDED (-1)  /* config.staleness, with onArrival */
#define TUTTI_DP_SHARD_HOST (-1) /* config.shardRanks: the ranks of a host */
#define TUTTI_DP_JOIN_ALL 1      /* config.join: the mean is over all ranks, always */
#define TUTTI_DP_JOIN_ACTIVE 2   /* config.join: the mean is over the ranks that have a batch in this iteration */

/* Start from TUTTI_DP_CONFIG_INITIALIZER. 0, NULL or TUTTI_UNDEF_INT selects the default. Must be the same on all
 * ranks. */
typedef struct {
    size_t size;             /* set by the initializer */
    unsigned int magic;      /* set by the initializer */
    unsigned int version;    /* set by the initializer */
    tuttiDpMode_t mode;      /* default tuttiDpBucketed */
    size_t bucketBytes;      /* default: a sixteenth of all gradients, at least 1 MiB, at most 25 MiB */
    size_t firstBucketBytes; /* of the first bucket, so that its reduction begins sooner; default 1 MiB */
    int rebuild; /* 1: in the first Synchronize, buckets are rebuilt in the order in which gradients became ready on
                    rank 0. Gradients in the layer's memory then move: ask for them again. Default: 1 if all gradients
                    are in your memory, else 0. tuttiDpBucketed only */
    int sum;     /* 1: the sum over ranks, 0 (default): the mean. Types of 16 bits are divided before they are added, so
                    that the sum can't overflow; all others after */
    int microBatches;  /* the mean is also over this many micro-batches (tuttiDpNoSync); default 1 */
    int fp32Gradients; /* 1: gradients of 16-bit types are accumulated (micro-batches) and reduced in fp32. GradReady
                          adds your gradient to a main gradient; you may then overwrite yours. The result is rounded
                          once, when it is handed back. Gradients in the layer's memory are fp32 then. Default 0 */
    __extension__ union {
        int findUnusedParameters; /* what Synchronize does with parameters that were not ready. 0 (default): an error
                                     that names them. 1: their gradients count as zero, and a parameter that no rank has
                                     used is not updated (asynchronous modes: updated with zero) */
        int unused;               /* deprecated: the same by its old name, until version 0.2 */
    };
    int broadcast; /* 1 (default): Create sends the values of rank 0 to all ranks */
    __extension__ union {
        int zeroGrad; /* 1 (default): Begin zeroes gradients; 0: you overwrite them yourself */
        int zero;     /* deprecated: the same by its old name, until version 0.2 */
    };
    tuttiDpOptimizer_t optimizer;
    const tuttiDpGroup_t* groups; /* copied */
    int groupCount;
    double clipNorm; /* Step scales gradients so that their norm, over all parameters, is at most this; 0: no limit */
    int server;      /* tuttiDpServer: the rank that serves; default 0 */
    int servers;     /* tuttiDpShardedServer: ranks 0 to servers - 1 serve; default: all */
    int dedicated; /* 1: servers (tuttiDpServer; tuttiDpShardedServer with servers < ranks) are not workers: they have
                      no batch and call only Begin, Synchronize and Step; the mean is over the others. Default 0 */
    int staleness; /* s >= 0: asynchronous (tuttiDpServer, tuttiDpShardedServer). Step returns at once. Begin waits only
                      while this rank is more than s steps ahead of the last step for which all gradients have arrived,
                      and takes the newest parameters that have arrived. 0 gives the bits of the synchronous mode.
                      Default: synchronous */
    int exactDelay; /* 1: Begin takes parameters that are exactly s steps old, not the newest. s = 1 is the pipelined
                       "delay-1". The same bits from run to run */
    tuttiDpCompression_t compression; /* synchronous modes; onArrival: tuttiDpFp16 and tuttiDpBf16 */
    double topK;                      /* default 0.01 */
    int powerRank;                    /* default 2 */
    tuttiDpHook_t hook;               /* instead of a built-in compression */
    void* hookUser;
    int trace;            /* 1: keep a time line for tuttiDpWriteTrace */
    tuttiStream_t stream; /* ranks on GPUs: the cudaStream_t for all work of the layer; see (6) */
    int offload;  /* ranks on GPUs, with an optimizer. 1: the optimizer's states, with the masters, and in tuttiDpZero3
                     the owned values are in pinned memory of the host, which makes the updates: Step copies the owned
                     gradients to the host, and new values back. The same bits. No effect for ranks on CPUs, where they
                     are on the host anyway. Default 0 */
    int elastic;  /* ranks on GPUs. 1: Step waits until gradients have been reduced, so that no update follows a
                     reduction that failed; this makes Move possible. No effect for ranks on CPUs, where it is so
                     anyway. Default 0 */
    int nanCheck; /* 1: GradReady reads the gradient and remembers whether it has a NaN or an infinity, so that
                     tuttiDpFindNan can say at any time which rank made it. Ranks on GPUs: it waits for that. Default
                     0 */
    double lossScale; /* the initial factor of your loss, so that gradients in float16 do not vanish: a power of two,
                         for instance 65536; tuttiDpGetLossScale returns the current one. Step undoes it, in the
                         precision of the update. If a gradient of any rank is infinite or NaN, no rank makes the step
                         (Micikevicius et al. 2018). 0 (default): losses are not scaled. Synchronous modes, and
                         onArrival */
    int lossScaleWindow; /* the scale is doubled after this many steps in a row that were made, and halved, to no less
                            than 1, after one that was not. 0: it never changes. Default 2000 */
    size_t groupSize;    /* of an element of groups; set by the initializer */
    int onArrival; /* 1: servers (tuttiDpServer, tuttiDpShardedServer) apply each rank's gradient when it arrives,
                      without waiting for any other rank, and Begin takes the current values: see (9). Default 0 */
    int shardRanks; /* tuttiDpZero1 to 3: the number of ranks that share one copy of what is sharded; 0 (default): all.
                       Fewer must be a divisor of the number of ranks: groups of this many consecutive ranks have a copy
                       each ("HSDP", "HYBRID_SHARD"), and values are gathered within a group only. TUTTI_DP_SHARD_HOST:
                       the ranks of each host are a group; all hosts must have the same number of ranks */
    int hierarchical; /* with shardRanks. 0 (default): the gradients of all ranks are added in one sum, in the order of
                         ranks where (5) says so, with the bits of all other modes. 1: they are added within each group
                         first, and then over groups, which is another order. With k groups and S bytes of gradients, a
                         rank sends only 2 (k - 1) / k S / shardRanks bytes to other groups */
    int reserved; /* 0. Programs that were built before have padding here, with any bytes in it */
    int join;     /* TUTTI_DP_JOIN_ALL or TUTTI_DP_JOIN_ACTIVE: ranks may have different numbers of batches, see
                     tuttiDpJoin; in Begin all ranks tell each other whether they have one. 0 (default): all have the
                     same number. Synchronous modes */
    int wholeUpdates; /* tuttiDpCallback. 1: update gets whole parameters (first is 0, count is that of the parameter),
                         on the rank that owns them, in every mode, so that it can look at all elements. Each parameter
                         then has one owner (in each group: config.shardRanks). Owners have about equally many bytes, as
                         far as sizes allow; a parameter that is much larger than the rest makes its owner's share of
                         memory and time as large. Default 0: update gets pieces */
    int prefetch; /* tuttiDpZero3: how many units Gather fetches ahead, in the order of the last iteration; as many are
                     in memory besides those that you have gathered. Default 1 */
    int overlapParamGather; /* tuttiDpServer to tuttiDpZero2, synchronous. 1: Step returns when this rank's part is
                               updated. The others' new values arrive during your next forward pass, the lowest unit
                               first: call Gather before you read or write those of a unit. Default 0 */
    double clipValue; /* Step limits each element of the gradients to this magnitude, and then applies clipNorm; 0
                         (default): no limit */
} tuttiDpConfig_t;

#define TUTTI_DP_CONFIG_MAGIC 0x54754450u
#define TUTTI_DP_CONFIG_INITIALIZER                                                                                   \
    {                                                                                                                 \
        sizeof(tuttiDpConfig_t), TUTTI_DP_CONFIG_MAGIC, TUTTI_VERSION_CODE, tuttiDpBucketed, 0, 0, TUTTI_UNDEF_INT,   \
            TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, {TUTTI_UNDEF_INT}, TUTTI_UNDEF_INT, {TUTTI_UNDEF_INT}, \
            {tuttiDpNoOptimizer, 0.001, 0.9, 0.9, 0.999, 1e-8, 0, NULL, NULL}, NULL, 0, 0, TUTTI_UNDEF_INT,           \
            TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, tuttiDpNoCompression, 0, 0, NULL,     \
            NULL, TUTTI_UNDEF_INT, NULL, TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, 0, TUTTI_UNDEF_INT,       \
            sizeof(tuttiDpGroup_t), TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, 0, TUTTI_UNDEF_INT,            \
            TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, 0                                                      \
    }

/* Registers `count` parameters on every rank of comm, and returns the layer in *dp. config may be NULL. comm must
 * outlive *dp. If ranks register different things, all return tuttiInvalidUsage with the first difference, and the two
 * ranks. */
TUTTI_API tuttiResult_t tuttiDpCreate(tuttiDp_t* dp, const tuttiDpParameter_t* parameters, size_t count,
                                      const tuttiDpConfig_t* config, tuttiComm_t comm);

/* Waits for all work under way, and frees all memory. The handle is invalid afterwards, whatever is returned. */
TUTTI_API tuttiResult_t tuttiDpDestroy(tuttiDp_t dp);

/* *grad: where to write the gradient of a parameter, in your memory or the layer's. The layer's memory does not move,
 * with two exceptions: with config.rebuild it may move once, in the first Synchronize; and in tuttiDpZero2,
 * tuttiDpZero3 and asynchronous modes it differs in every iteration: there, ask between Begin and GradReady. */
TUTTI_API tuttiResult_t tuttiDpGradient(tuttiDp_t dp, size_t parameter, void** grad);

/* *data: the values of a parameter, in your memory or the layer's. The layer's memory does not move; in tuttiDpZero3 it
 * is valid from Gather to Release. */
TUTTI_API tuttiResult_t tuttiDpData(tuttiDp_t dp, size_t parameter, void** data);

/* ---------------------------------------------------------------------------------------------------- an iteration */

/* Begins an iteration. */
TUTTI_API tuttiResult_t tuttiDpBegin(tuttiDp_t dp);

/* config.join: this rank has no batches left. Call it in place of Begin; it returns when all ranks have called it.
 * Collective.
 * - Until then this rank takes part in the others' iterations with gradients of zero, and repeats the calls that they
 *   make (Synchronize, ClipNorm, Step, SetLearningRate, Gather, Save and the rest). So in every mode its part of the
 *   sums and updates is done, and all ranks have the same parameters and states at the end. Notes are then those of the
 *   first rank that went on.
 * - If you update the parameters (tuttiDpNoOptimizer), Join ends with a Broadcast from a rank that has had the most
 *   batches; the states of your optimizer are not sent.
 * - With TUTTI_DP_JOIN_ALL a batch counts as much as it did before; with TUTTI_DP_JOIN_ACTIVE as much as the other
 *   batches of its iteration: as torch's Join, with and without divide_by_initial_world_size.
 * - Then another epoch may begin, with Begin, or with Join on a rank that has no batch in it. Servers that have no
 *   batches (config.dedicated) call Join in place of all iterations.
 * - An error that ends an iteration (a rank dies, or calls Abandon) is returned here, too: call Abandon or Move as the
 *   others do, and then Join again. */
TUTTI_API tuttiResult_t tuttiDpJoin(tuttiDp_t dp);

/* on = 1: the following backward passes only add to the gradients (accumulation); 0: the next one ends in Synchronize.
 * Call it between Begin and the first GradReady of a pass. */
TUTTI_API tuttiResult_t tuttiDpNoSync(tuttiDp_t dp, int on);

/* Says that this pass will not touch the gradient of `parameter` any more. While NoSync is on it may be called any
 * number of times. Takes less than 200 ns if it completes no bucket. Parameters may become ready in any order, but
 * buckets are reduced in their order, which is the same on all ranks. */
TUTTI_API tuttiResult_t tuttiDpGradReady(tuttiDp_t dp, size_t parameter);

/* Ends the backward pass: waits until all gradients are reduced. In modes up to tuttiDpBucketed the gradients are then
 * those of all ranks; in other modes they belong to the layer. */
TUTTI_API tuttiResult_t tuttiDpSynchronize(tuttiDp_t dp);

/* Scales all gradients by maxNorm / norm if that is less than 1. *norm: their 2-norm before; norm may be NULL. Call it
 * between Synchronize and Step, in synchronous modes. With config.lossScale the norm is that of the unscaled gradients;
 * if it is not finite, nothing is scaled. */
TUTTI_API tuttiResult_t tuttiDpClipNorm(tuttiDp_t dp, double maxNorm, double* norm);

/* Clamps each element of the gradients to [-maxValue, maxValue]; NaNs stay. As torch's clip_grad_value_, applied to the
 * mean over ranks and micro-batches. Call it between Synchronize and Step, in synchronous modes. With config.lossScale
 * it limits the unscaled gradients; if one of them is not finite, nothing is clipped. */
TUTTI_API tuttiResult_t tuttiDpClipValue(tuttiDp_t dp, double maxValue);

/* For config.lossScale if you update the parameters. If all gradients of all ranks are finite, divides them by the
 * scale and sets *finite to 1. Otherwise sets it to 0: leave out this update, on all ranks. Call it between Synchronize
 * and Step, in tuttiDpNaive and tuttiDpBucketed. A Step after it does not divide again. In float16, small gradients may
 * vanish here: use fp32 gradients, or let the layer update. */
TUTTI_API tuttiResult_t tuttiDpUnscale(tuttiDp_t dp, int* finite);

/* *scale: the factor for this iteration's loss; ask after Begin. It is the same on all ranks (with config.onArrival it
 * is this rank's own), and 1 without config.lossScale. *skipped: the number of steps that this layer has left out. Both
 * may be NULL. */
TUTTI_API tuttiResult_t tuttiDpGetLossScale(tuttiDp_t dp, double* scale, long long* skipped);

/* Drops what tuttiDpTopK and tuttiDpPowerSgd have kept for the next time. Use it after a change of the data, or of
 * weights that were loaded. Collective, between Synchronize and Begin. */
TUTTI_API tuttiResult_t tuttiDpResetErrorFeedback(tuttiDp_t dp);

/* Gives up the iteration, wherever this rank is in it: after an exception in the backward pass, or after a call failed.
 * Its gradients are lost, parameters and states are those of the last step, and in tuttiDpZero3 all units are released.
 * Then Begin begins another iteration.
 * - Collective: it ends the layer's communicators, so the other ranks get tuttiRemoteError from the call that they are
 *   in, or make next, and must call Abandon, too. It waits for them as long as the communicator of Create allows, and
 *   makes new communicators over that one; do not use that one meanwhile.
 * - A step that some ranks have made before is completed on all ranks, and learning rates are those of a rank that has
 *   made it: go on after tuttiDpGetStatistics' `steps`.
 * - If an update failed in Step, in a mode that shards states, it is refused (tuttiInvalidUsage): load a checkpoint.
 * - With ranks on GPUs it needs config.elastic = 1.
 * - Asynchronous modes: it concerns this rank alone, and makes a step without the gradients that were not sent yet. */
TUTTI_API tuttiResult_t tuttiDpAbandon(tuttiDp_t dp);

/* Updates the parameters. Call it once per Synchronize; in tuttiDpZero3 after all units have been released. Values that
 * you have written since the last step (loaded, clipped or averaged weights) count, also for parameters with an fp32
 * master: where a value is not the master's rounding any more, the master takes the value. Write the same on all ranks,
 * or on one, and call tuttiDpBroadcast. In three cases written values are overwritten, unless a Broadcast follows: in
 * asynchronous modes; on GPUs with config.offload; and in tuttiDpZero3, where gathered values are a copy, and
 * tuttiDpLoad sets them. */
TUTTI_API tuttiResult_t tuttiDpStep(tuttiDp_t dp);

/* Asynchronous modes: waits for all steps, and takes their parameters. config.overlapParamGather: waits for all
 * values. */
TUTTI_API tuttiResult_t tuttiDpWait(tuttiDp_t dp);

/* Sets the learning rate from the next Step on. */
TUTTI_API tuttiResult_t tuttiDpSetLearningRate(tuttiDp_t dp, double learningRate);

/* Sets a group of config.groups from the next Step on. Without config.groups there is a group 0, with a factor of 1.
 * Waits for steps under way. */
TUTTI_API tuttiResult_t tuttiDpSetGroup(tuttiDp_t dp, int group, const tuttiDpGroup_t* its);

/* tuttiDpZero3: Gather waits until the parameters of a unit are present; they stay until Release. It also begins to
 * fetch the config.prefetch units that followed in the last iteration. To gather or release a unit twice is an error.
 * Other modes: with config.overlapParamGather, Gather waits until the unit's values of the last Step have arrived;
 * otherwise they are present already. Nothing has to be released. */
TUTTI_API tuttiResult_t tuttiDpGather(tuttiDp_t dp, int unit);
TUTTI_API tuttiResult_t tuttiDpRelease(tuttiDp_t dp, int unit);

/* -------------------------------------------------------------------------------------------------------- on demand */

/* Sends the values of rank root to all ranks. In tuttiDpZero3 after the first Step no rank has all trained values; then
 * it sends those of frozen parameters and buffers only. */
TUTTI_API tuttiResult_t tuttiDpBroadcast(tuttiDp_t dp, int root);

/* Compares hashes of all parameters except buffers over ranks. If one differs, returns tuttiInvalidUsage with a text
 * that names the first such parameter, and the rank. */
TUTTI_API tuttiResult_t tuttiDpCheckEqual(tuttiDp_t dp);

/* Looks for a NaN or an infinity in gradients, on all ranks. *rank: the first rank that has made one, -1 if none has;
 * *parameter: the first parameter with one there. Synchronous modes.
 * - With config.nanCheck = 1 it works from Begin to the next Begin, whichever parameters are ready on which rank.
 * - Without it, it can tell which rank made a NaN only until gradients are added up: between Begin and the GradReady
 *   that completes the first bucket (tuttiDpNaive: Synchronize). From then to Synchronize it is refused
 *   (tuttiInvalidUsage). Afterwards *rank is the first rank whose memory has one: rank 0 for a sum that all ranks have,
 *   the owner for a sharded one.
 * - With tuttiDpTopK or tuttiDpPowerSgd on GPUs, all ranks must have called GradReady for the same parameters. */
TUTTI_API tuttiResult_t tuttiDpFindNan(tuttiDp_t dp, int* rank, size_t* parameter);

/* Bytes on this rank. */
typedef struct {
    size_t parameters; /* values, including yours where they are used */
    size_t gradients;
    size_t states;    /* of the optimizer, with fp32 masters */
    size_t transient; /* the most bytes held at once for temporary memory: buckets under way, gathered units. On the
                         host it never holds more than was in use at once, whatever the sizes of buckets and units; on a
                         GPU the excess is freed in steps 1, 2, 4, 8 and so on */
    size_t host; /* config.offload: bytes in the host's memory. The states and tuttiDpZero3's values are also counted
                    above, what is copied to and fro is not. Otherwise 0 */
    size_t staging; /* of SaveAsync, in the host's memory, and not counted above */
} tuttiDpMemory_t;
TUTTI_API tuttiResult_t tuttiDpGetMemory(tuttiDp_t dp, tuttiDpMemory_t* memory);

#define TUTTI_DP_STALENESS_BINS 16

typedef struct {
    size_t buckets;
    long long iterations;                         /* Synchronize calls that ended */
    long long steps;                              /* updates made to this rank's parameters */
    double communicationUs;                       /* last iteration: total time of reductions */
    double exposedUs;                             /* last iteration: time that Synchronize waited for them */
    double stepUs;                                /* time of the last Step */
    double norm;                                  /* of the last clipped gradient */
    int largestStaleness;                         /* observed at Begin; never more than config.staleness */
    long long staleness[TUTTI_DP_STALENESS_BINS]; /* number of iterations by staleness; the last bin: this or more */
    long long
        applied;      /* config.onArrival: gradients of parameters, or of parts of large ones, that this rank applied */
    long long missed; /* the gradients of other ranks that were applied between a gradient's pull and its own update,
                         summed over `applied` */
    long long restarted; /* asynchronous modes: parameters that have begun anew in tuttiDpMove, because a server died */
} tuttiDpStatistics_t;
TUTTI_API tuttiResult_t tuttiDpGetStatistics(tuttiDp_t dp, tuttiDpStatistics_t* statistics);

/* One bucket, in the last iteration. Times are in microseconds; ready, start and end are counted from Begin. */
typedef struct {
    size_t bytes;
    size_t parameters;     /* how many it has */
    size_t firstParameter; /* the number of the first one */
    double readyUs;        /* when it was complete */
    double startUs, endUs; /* of its reduction */
    double exposedUs;      /* how much of the reduction Synchronize waited for */
} tuttiDpBucketStatistics_t;
TUTTI_API tuttiResult_t tuttiDpGetBucketStatistics(tuttiDp_t dp, size_t bucket, tuttiDpBucketStatistics_t* statistics);

/* Writes the time line so far, for Perfetto (ui.perfetto.dev) or chrome://tracing. config.trace must be 1. */
TUTTI_API tuttiResult_t tuttiDpWriteTrace(tuttiDp_t dp, const char* path);

/* ------------------------------------------------------------------------------------------------------ checkpoints */

/* Saves everything: parameters, the optimizer's states, fp32 masters, steps, learning rates, the scale of losses and
 * notes. Call it between Step and Begin.
 * - `path` is a folder that all ranks see; it is made if there is none. It gets safetensors files and an index, which
 *   the usual tools read: model.safetensors.index.json; model-<save>-<i>-of-<n>.safetensors with whole parameters under
 *   their names; optimizer-... with "exp_avg.<name>" and "exp_avg_sq.<name>", "momentum_buffer.<name>", or
 *   "state0.<name>" and "state1.<name>", and "master.<name>".
 * - What compression has kept for the next time is "residual.<rank>.<name>" in optimizer-..., and tuttiDpPowerSgd's
 *   factors are "factor.<bucket>.<its elements>": a load continues with them if buckets are the same, and otherwise
 *   begins anew.
 * - Each rank writes what it owns, at its place in the files. The index replaces the old one when everything is on the
 *   disk, and then the old files are removed. So a folder has one checkpoint, and always a complete one.
 * - If something can't be written (a full disk, a name that is not UTF-8), Save is refused on all ranks
 *   (tuttiInvalidUsage, tuttiInvalidArgument), and the old checkpoint stays. */
TUTTI_API tuttiResult_t tuttiDpSave(tuttiDp_t dp, const char* path);

/* SaveAsync is the same, but returns when this rank's part has been copied to host memory. That takes as much memory as
 * the rank owns, which is kept for the next SaveAsync until Destroy. A thread writes the copy to the disk meanwhile.
 * SaveWait waits for that, and then the checkpoint replaces the old one. It may be called at any time, also within an
 * iteration, and does nothing if no save is under way. The next Save, SaveAsync or Load does the same first. All three
 * are collective. Destroy, Move and Abandon give up a save that is under way. tuttiDpGetMemory's `staging` counts the
 * copy. config.onArrival: all three concern one worker alone; SaveAsync returns when values and states have been
 * fetched from the servers, and needs memory for all of them until SaveWait; only Destroy gives the save up. */
TUTTI_API tuttiResult_t tuttiDpSaveAsync(tuttiDp_t dp, const char* path);
TUTTI_API tuttiResult_t tuttiDpSaveWait(tuttiDp_t dp);

/* Loads what any number of ranks has saved, in any mode. Each rank reads what it owns (tuttiDpNaive and
 * tuttiDpBucketed: everything), and needs no memory for that.
 * - Files are read twice, so that everything is checked before anything is changed; ranks of one host share the
 *   checking. A torn or changed file, one of other parameters or of another optimizer, or one that Save has not
 *   written, is refused on all ranks (tuttiInvalidUsage).
 * - The learning rate is then the saved one, and so are those of groups if there are as many.
 * - What compression had kept is loaded, too. With another number of ranks, each gets the mean of what all had.
 * - If a file changes between the two readings, or can't be read again, Load returns that on all ranks, and the layer
 *   has parts of both: all later calls except Destroy fail. With config.onArrival nothing has changed then. */
TUTTI_API tuttiResult_t tuttiDpLoad(tuttiDp_t dp, const char* path);

/* Sets a text that is saved in checkpoints, for what the layer does not know: the epoch, the position in the data. Rank
 * 0's notes are saved, and Load gives them to all ranks, in place of what they had. UTF-8, copied. text NULL: removes
 * the note. */
TUTTI_API tuttiResult_t tuttiDpSetNote(tuttiDp_t dp, const char* key, const char* text);

/* Copies a note to text, which has `size` bytes, with a 0 at the end. tuttiInvalidUsage: there is no note with this
 * key; tuttiInvalidArgument: it is longer. */
TUTTI_API tuttiResult_t tuttiDpGetNote(tuttiDp_t dp, const char* key, char* text, size_t size);

/* Moves the layer to another communicator: after a rank has died, to one of the survivors; or to one of more ranks. All
 * ranks of comm call it, each with the layer that it has. A new rank makes its layer with the same config just before,
 * on a communicator of one rank. With GPUs it needs config.elastic, and each rank must be on the same device as before.
 *
 * Afterwards the first error of the layer is forgotten, and the mean is over the new number of ranks. All ranks get the
 * learning rates, those of groups and the scale of losses of a rank that has made the last step, and the notes of the
 * rank with the most steps among those that have any. So it does not matter if those of a new rank are out of date.
 *
 * tuttiDpNaive, tuttiDpBucketed: the rank that has made the most steps gives all its parameters and states to the
 * others. So a step counts even if it had ended on some ranks only: go on after tuttiDpGetStatistics' `steps`.
 *
 * Where ranks own parts, these are dealt anew, and come from ranks that have them; config.shardRanks makes copies. If
 * no rank has some part any more, as it was after the last step or the one before, everything comes from the checkpoint
 * that the ranks with the most steps saved or loaded last. New ranks must be able to read its folder, too, and `steps`
 * goes back to the checkpoint's. Without a checkpoint the part is named (tuttiInvalidUsage). Values that you have
 * written since the last Step are lost. Ask tuttiDpData and tuttiDpGradient again where memory is the layer's. If
 * config.shardRanks does not divide the number of ranks, or hosts have different numbers, all ranks are one group until
 * it does again. config.server and servers count in comm. On one rank alone any config.shardRanks, server, servers and
 * dedicated are accepted. Until it returns, the layer has twice its memory. After an error call it again, with a
 * communicator of the ranks that are left: nothing was lost by it.
 *
 * Asynchronous modes. What the servers have counts, and all workers have these values afterwards. Ranks may have made
 * different numbers of steps.
 * - config.staleness: steps under way are dropped, because other ranks may never make them. To have them applied, make
 *   as many steps on all ranks, and call Wait before. A step that some servers have made and others have not stays so.
 *   All ranks go on at the step of the furthest one, and so the bound holds.
 * - config.onArrival: an iteration under way ends. Gradients that have been sent are applied, also those of ranks that
 *   are not in comm, as far as they have arrived. All clocks begin at 0, and so the bound counts from these values on;
 *   `steps` goes on. A newcomer gets `steps`, the learning rate and the scale of losses of the worker with the most
 *   steps; the others keep theirs. Dedicated servers call Move, too: they must not be in Destroy.
 * - A server that is gone takes its states with it. Its values come from the rank that has received the newest ones
 *   (onArrival: the worker with the most steps, as of its last Begin or Wait; if there is none, the parameter is named,
 *   tuttiInvalidUsage). States begin at zero as in a new layer: those of each parameter of which it had a part
 *   (onArrival: of its parts alone). tuttiDpGetStatistics' `restarted` counts these parameters. If you would rather go
 *   back, load a checkpoint. */
TUTTI_API tuttiResult_t tuttiDpMove(tuttiDp_t dp, tuttiComm_t comm);

/* ------------------------------------------------------------------------------------- one process, many devices */

/* What one device works on: its replica of the parameters, and its share of a batch. */
typedef struct {
    int device;                  /* number of the device in comms */
    size_t firstSample, samples; /* its share of the batch */
    const void* input;           /* of these samples */
    void* output;                /* of these samples, to be written */
    void* const* values;         /* by parameter */
    void* const* gradients;      /* by parameter: zeroed, to be added to; NULL where the parameter's grad is */
    tuttiStream_t stream;        /* on GPUs: enqueue the work here. Inputs are present in the order of this stream, and
                                    results are read after what is enqueued when the function returns */
} tuttiDpReplica_t;

/* Runs once for each device, on threads at the same time. */
typedef tuttiResult_t (*tuttiDpWork_t)(void* user, const tuttiDpReplica_t* replica);

/* Samples in memory of device 0. */
typedef struct {
    size_t samples;
    const void* input;  /* samples * inputBytes */
    size_t inputBytes;  /* per sample */
    void* output;       /* samples * outputBytes */
    size_t outputBytes; /* per sample; 0: no output */
} tuttiDpBatch_t;

/* One process with many devices, as PyTorch's DataParallel, for completeness and comparison. Every call scatters the
 * batch from device 0, replicates the parameters, runs work on every device, gathers outputs, and adds gradients on
 * device 0; each of these waits for the one before on all devices. Returns when all is done.
 * - comms[d] is rank d of `devices` ranks in this process (tuttiCommInitAll). streams[d] is its stream (GPUs); NULL:
 *   the null streams.
 * - Values and gradients of parameters are in memory of device 0. grad gets the sum over the batch, in the order of
 *   devices; NULL if it is not wanted.
 * - If samples can't be divided evenly, the first devices have one sample more.
 * - If work fails, nothing is written except parts of output and gradients, and the text names the first device that
 *   failed. */
TUTTI_API tuttiResult_t tuttiDpDataParallel(const tuttiComm_t* comms, int devices, const tuttiStream_t* streams,
                                            const tuttiDpParameter_t* parameters, size_t count,
                                            const tuttiDpBatch_t* batch, tuttiDpWork_t work, void* user);

/* ---------------------------------------------------------------------------------------------------------- helpers */

/* Arranges ranks as a grid of dims[0] x ... x dims[count - 1], the last dimension fastest; the product must be the
 * number of ranks. comms[i]: the communicator of the ranks that differ from this one in coordinate i alone, for
 * instance {data, tensor, pipeline}. Destroy them all. */
TUTTI_API tuttiResult_t tuttiDpMesh(tuttiComm_t comm, const int* dims, int count, tuttiComm_t* comms);

/* Which samples of a data set a rank has in an epoch: the indices are shuffled by (seed, epoch), padded from the start
 * to a multiple of ranks (dropLast: cut), and dealt to the ranks in turn. */
typedef struct {
    size_t length;                  /* samples of the data set */
    int ranks, rank;                /* the number of ranks; this rank */
    int shuffle;                    /* 1: shuffle */
    int dropLast;                   /* 1: cut instead of padding */
    unsigned long long seed, epoch; /* the same on all ranks */
} tuttiDpSampler_t;
/* *count: the number of samples that this rank has. */
TUTTI_API tuttiResult_t tuttiDpSampleCount(const tuttiDpSampler_t* sampler, size_t* count);
/* Writes that many indices. */
TUTTI_API tuttiResult_t tuttiDpSample(const tuttiDpSampler_t* sampler, size_t* indices);

/* As tuttiDpSample, for samples of different lengths (lengths[i] is that of sample i), so that samples that ranks work
 * on at the same time have about the same length, and little is padded. The order, shuffled or not, is cut into windows
 * of `window` samples, and each window is sorted from long to short. The window with the longest sample comes first (if
 * it is a shorter last window, this sample alone), so that too little memory shows at once. A good window is some tens
 * of times ranks * batch; 1 sorts nothing. */
TUTTI_API tuttiResult_t tuttiDpSampleByLength(const tuttiDpSampler_t* sampler, const size_t* lengths, size_t window,
                                              size_t* indices);

/* For a stream of unknown length: every rank reads all of it in blocks of ranks * batch samples, and takes `batch` of
 * each block. blockLength: the samples of this block. A shorter block is the last one. With dropLast no rank takes any
 * of it (*count is 0). Otherwise *count is `batch`, and the block is filled up with samples of the first block,
 * repeatedly: keep the first block, and pass how many samples it had as firstLength (for the first block itself:
 * blockLength). indices[i] < blockLength is that sample of the block; otherwise it is sample indices[i] - blockLength
 * of the first block. sampler's length, shuffle, seed and epoch have no meaning here. */
TUTTI_API tuttiResult_t tuttiDpSampleStream(const tuttiDpSampler_t* sampler, size_t batch, size_t blockLength,
                                            size_t firstLength, size_t* count, size_t* indices);

/* ------------------------------------------------------------------------------------------------------------ sizes */

/* The functions above, with the sizes that the caller's structs have: see (8). */
TUTTI_API tuttiResult_t tuttiDpCreateSized(size_t parameterSize, tuttiDp_t* dp, const tuttiDpParameter_t* parameters,
                                           size_t count, const tuttiDpConfig_t* config, tuttiComm_t comm);
TUTTI_API tuttiResult_t tuttiDpSetGroupSized(size_t groupSize, tuttiDp_t dp, int group, const tuttiDpGroup_t* its);
TUTTI_API tuttiResult_t tuttiDpGetMemorySized(size_t memorySize, tuttiDp_t dp, tuttiDpMemory_t* memory);
TUTTI_API tuttiResult_t tuttiDpGetStatisticsSized(size_t statisticsSize, tuttiDp_t dp, tuttiDpStatistics_t* statistics);
TUTTI_API tuttiResult_t tuttiDpGetBucketStatisticsSized(size_t statisticsSize, tuttiDp_t dp, size_t bucket,
                                                        tuttiDpBucketStatistics_t* statistics);
TUTTI_API tuttiResult_t tuttiDpDataParallelSized(size_t parameterSize, size_t batchSize, const tuttiComm_t* comms,
                                                 int devices, const tuttiStream_t* streams,
                                                 const tuttiDpParameter_t* parameters, size_t count,
                                                 const tuttiDpBatch_t* batch, tuttiDpWork_t work, void* user);
TUTTI_API tuttiResult_t tuttiDpSampleCountSized(size_t samplerSize, const tuttiDpSampler_t* sampler, size_t* count);
TUTTI_API tuttiResult_t tuttiDpSampleSized(size_t samplerSize, const tuttiDpSampler_t* sampler, size_t* indices);
TUTTI_API tuttiResult_t tuttiDpSampleByLengthSized(size_t samplerSize, const tuttiDpSampler_t* sampler,
                                                   const size_t* lengths, size_t window, size_t* indices);
TUTTI_API tuttiResult_t tuttiDpSampleStreamSized(size_t samplerSize, const tuttiDpSampler_t* sampler, size_t batch,
                                                 size_t blockLength, size_t firstLength, size_t* count,
                                                 size_t* indices);

#define tuttiDpCreate(...) tuttiDpCreateSized(sizeof(tuttiDpParameter_t), __VA_ARGS__)
#define tuttiDpSetGroup(...) tuttiDpSetGroupSized(sizeof(tuttiDpGroup_t), __VA_ARGS__)
#define tuttiDpGetMemory(...) tuttiDpGetMemorySized(sizeof(tuttiDpMemory_t), __VA_ARGS__)
#define tuttiDpGetStatistics(...) tuttiDpGetStatisticsSized(sizeof(tuttiDpStatistics_t), __VA_ARGS__)
#define tuttiDpGetBucketStatistics(...) tuttiDpGetBucketStatisticsSized(sizeof(tuttiDpBucketStatistics_t), __VA_ARGS__)
#define tuttiDpDataParallel(...) \
    tuttiDpDataParallelSized(sizeof(tuttiDpParameter_t), sizeof(tuttiDpBatch_t), __VA_ARGS__)
#define tuttiDpSampleCount(...) tuttiDpSampleCountSized(sizeof(tuttiDpSampler_t), __VA_ARGS__)
#define tuttiDpSample(...) tuttiDpSampleSized(sizeof(tuttiDpSampler_t), __VA_ARGS__)
#define tuttiDpSampleByLength(...) tuttiDpSampleByLengthSized(sizeof(tuttiDpSampler_t), __VA_ARGS__)
#define tuttiDpSampleStream(...) tuttiDpSampleStreamSized(sizeof(tuttiDpSampler_t), __VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_DP_H_ */
