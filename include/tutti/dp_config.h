/* Tutti: the modes, parameters and settings of data parallelism. Include tutti/dp.h, which is the manual.
 * Copyright the Tutti authors. SPDX-License-Identifier: Apache-2.0 */
#ifndef TUTTI_DP_CONFIG_H_
#define TUTTI_DP_CONFIG_H_

#include "tutti/tutti.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* Start from TUTTI_DP_CONFIG_INITIALIZER, which selects all defaults: TUTTI_UNDEF_INT of an int, and 0 or NULL of other
 * fields, unless the field says what 0 is. Must be the same on all ranks. */
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
    int staleness; /* s, 0 to 64: asynchronous (tuttiDpServer, tuttiDpShardedServer). Step returns at once. Begin waits
                      only while this rank is more than s steps ahead of the last step for which all gradients have
                      arrived, and takes the newest parameters that have arrived. 0 gives the bits of the synchronous
                      mode. Default: synchronous */
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
    int separateGathers; /* tuttiDpZero3, and where config.overlapParamGather has an effect. 1: values are gathered over
                            communicators of their own, and on CPUs by a thread of its own, so that gathers and
                            reductions do not wait for each other. The same bits. Ranks on GPUs enqueue both on
                            config.stream, in order, so that it gains nothing there. Default 0 */
    int updateThreads;   /* how many threads of this rank make updates on a CPU at the same time (ranks on CPUs, and
                            config.offload). The same bits. Not for tuttiDpLamb and updates of whole parameters; an
                            update of yours (tuttiDpCallback) is called by one thread. onArrival: the threads of a
                            server. May differ from rank to rank, for instance for a server on a CPU. Default 1;
                            onArrival: the number of cores of the process, at most 8 */
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
            TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, TUTTI_UNDEF_INT, 0, TUTTI_UNDEF_INT, TUTTI_UNDEF_INT                    \
    }

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_DP_CONFIG_H_ */
