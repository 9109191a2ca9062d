/* Tutti: data parallelism. Copyright the Tutti authors. SPDX-License-Identifier: Apache-2.0
 *
 * A thin layer over a communicator, for any framework or a plain training loop. Every rank computes gradients from its
 * part of the batch. The layer reduces them over ranks while the backward pass still runs, and updates the parameters,
 * too, if that is wanted. It knows pointers, counts and types, but no tensors. This header is the manual, with
 * dp_config.h (modes, parameters, settings) and dp_tools.h (grids of ranks, samples), which it includes;
 * docs/data-parallel.md says when to use which mode.
 *
 *     tuttiDpCreate(&dp, parameters, count, &config, comm);
 *     for (;;) {
 *         tuttiDpBegin(dp);                                    zeroed gradients, current parameters
 *         forward();
 *         for each parameter, from the last layer to the first:
 *             add to the gradient, then tuttiDpGradReady(dp, parameter);   (made elsewhere: tuttiDpGradReadyAt)
 *         tuttiDpSynchronize(dp);                              gradients are now those of the whole batch
 *         tuttiDpStep(dp);                                     if the layer updates; otherwise update them yourself
 *     }
 *
 * Conventions, besides those of tutti.h
 *  (1) Create, Join, Synchronize, Step, Broadcast, CheckEqual, FindNan, ClipNorm, ClipValue, Unscale, Gather,
 *      ResetErrorFeedback, Save, SaveAsync, SaveWait, Load, Move and Abandon are collective: all ranks call them in the
 *      same order. The others concern one rank alone, except that in synchronous tuttiDpZero2 and tuttiDpZero3 a rank
 *      that is ahead waits for the others before the layer borrows memory for another bucket's gradients: in Gradient,
 *      or in a GradReady or GradReadyAt that adds or copies a gradient into the bucket, until at most two reductions
 *      are under way. So ranks must not wait for each other by other means, such as a barrier, where one of them has
 *      completed more buckets than another. Not with config.separateGathers or nanCheck, with which ranks may make
 *      calls in different orders; nor on GPUs, where nothing waits.
 *  (2) One thread at a time uses a tuttiDp_t, except that several threads may call tuttiDpGradReady and
 *      tuttiDpGradReadyAt at once.
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
 *        every call that trains, checks, saves or loads returns the first error: only Abandon, Move and Destroy are of
 *        use, and what reads or sets numbers of this rank alone, such as Data, GetStatistics and GetNote. The
 *        parameters are intact then, unless an update failed in Step in a mode that sends parameters around (servers,
 *        ZeRO): in that case load a checkpoint.
 *  (5) Same bits. With config.reproducible = 1 of the communicator, all synchronous modes give the same bits for n
 *      ranks, and the same bits as one rank that adds the gradients of n parts in rank order. Without it, they give the
 *      same bits from run to run. Compression and staleness change results, as described there.
 *  (6) GPUs. If a rank of comm is on a GPU, its values and gradients are in the memory of that GPU, and so is all
 *      memory that the layer hands out.
 *      - The calling thread enqueues all work on config.stream, and most calls return before it is done. Use that
 *        stream for your kernels, too, or order the two streams by events: config.stream must wait for yours before
 *        GradReady, FindNan, Release and Step, and yours must wait for config.stream after Begin, Gradient, Gather,
 *        Synchronize and Step.
 *      - While config.stream is captured into a CUDA graph, all calls but Destroy return tuttiInvalidUsage and enqueue
 *        nothing: a launch of the graph would not repeat what the layer counts on the host.
 *      - Calls that read results wait for the GPU: ClipNorm, Unscale, Step with config.clipNorm, lossScale or offload,
 *        CheckEqual, FindNan, Save, Load. So do GradReady and Synchronize with tuttiDpTopK and tuttiDpPowerSgd, which
 *        work on the host.
 *      - Times in statistics are those of enqueuing.
 *      - Norms for clipping have the bits that they have on CPUs: they are exact sums, the same in all modes.
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
 *      name, at the end of the headers, which pass sizeof to the function ...Sized. The functions of the plain names
 *      take structs as they were in the first version, for programs that were built with it. If you take a function's
 *      address, or have no preprocessor, use ...Sized. A field that an older library does not know must be 0, or the
 *      library refuses it; a field that it can't fill is 0. tuttiDpOptimizer_t lies within the config and does not
 *      grow: what else an optimizer needs is a field of the config. tuttiDpPiece_t, tuttiDpBucket_t and
 *      tuttiDpReplica_t belong to the layer, which passes one at a time: a program reads the fields that it knows.
 *  (9) config.onArrival = 1. The layer consists of workers and servers of tutti/ps.h, with a key for each parameter. It
 *      is for gradients of the parameters' types.
 *      - Ranks on GPUs have values and gradients there. GradReady sends what was enqueued on config.stream before, and
 *        does not wait for it; Begin and Wait return when the values are there, and follow what was enqueued before.
 *        Servers, on whatever rank, keep values and states in the host's memory, and update on its cores.
 *      - A gradient is divided by microBatches, not by the number of ranks: choose learningRate accordingly.
 *      - config.staleness is a bound on clocks, 0 or more, or TUTTI_DP_UNBOUNDED (default): Begin waits while this rank
 *        is more than that many steps ahead of the slowest living one.
 *      - GradReady sends the gradient. Synchronize waits until all gradients are on their way. Step ends the iteration.
 *        Wait takes the newest values.
 *      - A rank that dies, or destroys its layer, is dropped, and the others go on. If a server dies, calls that need
 *        it return tuttiRemoteError with a text that names it, until tuttiDpMove. Synchronize has then sent what other
 *        servers get, and sends nothing twice if it is called again.
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
 *      - Available are Begin, NoSync, GradReady, GradReadyAt, Synchronize, Step, Wait, Abandon, SetLearningRate,
 *        GetLossScale, Gradient, Data, GetMemory, GetStatistics, Save, SaveAsync, SaveWait, Load, SetNote, GetNote,
 *        Move and Destroy. Others are refused.
 */
#ifndef TUTTI_DP_H_
#define TUTTI_DP_H_

#include "tutti/dp_config.h"
#include "tutti/dp_tools.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tuttiDp* tuttiDp_t;

/* ------------------------------------------------------------------------------------------------------ creation */

/* Registers `count` parameters on every rank of comm, and returns the layer in *dp. config may be NULL. comm must
 * outlive *dp. If ranks register different things, all return tuttiInvalidUsage with the first difference, and the two
 * ranks. */
TUTTI_API tuttiResult_t tuttiDpCreate(tuttiDp_t* dp, const tuttiDpParameter_t* parameters, size_t count,
                                      const tuttiDpConfig_t* config, tuttiComm_t comm);

/* Waits for all work under way, and frees all memory. The handle is invalid afterwards, whatever is returned. */
TUTTI_API tuttiResult_t tuttiDpDestroy(tuttiDp_t dp);

/* *grad: where to write the gradient of a parameter, in your memory or the layer's. The layer's memory does not move,
 * with two exceptions: with config.rebuild it may move once, in the first Synchronize; and in tuttiDpZero2,
 * tuttiDpZero3 and asynchronous modes it differs in every iteration: there, ask between Begin and GradReady, and see
 * (1). */
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

/* As GradReady, for a gradient that was made at `grad` and not written where tuttiDpGradient says: as many elements, of
 * the gradient's type, in memory that this rank's device can access. If this iteration has a gradient of the parameter
 * (tuttiDpNoSync), it is added to that, and otherwise takes its place, so that config.zeroGrad is not needed. Leave it
 * unchanged until Synchronize returns; ranks on GPUs: until config.stream has come to there. The result is where
 * tuttiDpGradient says. Each rank may choose for each gradient.
 * In modes up to tuttiDpBucketed a gradient of 1 MiB or more is then not copied, but added from where it is, if all
 * ranks are on CPUs and neither compression, hook nor nanCheck is set. */
TUTTI_API tuttiResult_t tuttiDpGradReadyAt(tuttiDp_t dp, size_t parameter, const void* grad);

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
 * Gathers and reductions have one order, which is the same on all ranks. So between two calls of Gather all ranks must
 * complete the same buckets. If they use different parameters, gather all units before the first GradReady. With
 * config.separateGathers, if all ranks are on CPUs, each rank may have an order of its own.
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
 * on a communicator of one rank. Each rank must be on the same device as before. With GPUs it needs config.elastic,
 * except with config.onArrival.
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
 *   are not in comm, as far as they have arrived. `steps` goes on, and a worker that was ahead of others stays ahead of
 *   them, and waits for them in its next Begin as the bound says. A newcomer gets `steps`, the clock, the learning rate
 *   and the scale of losses of the worker with the most steps; the others keep theirs. Dedicated servers call Move,
 *   too: they must not be in Destroy.
 * - A server that is gone takes its states with it. Its values come from the rank that has received the newest ones
 *   (onArrival: the worker with the most steps, as of its last Begin or Wait; if there is none, the parameter is named,
 *   tuttiInvalidUsage). States begin at zero as in a new layer: those of each parameter of which it had a part
 *   (onArrival: of its parts alone). tuttiDpGetStatistics' `restarted` counts these parameters. If you would rather go
 *   back, load a checkpoint. */
TUTTI_API tuttiResult_t tuttiDpMove(tuttiDp_t dp, tuttiComm_t comm);

/* ------------------------------------------------------------------------------------------------------------ sizes */

/* The functions above, with the sizes that the caller's structs have: see (8). */
TUTTI_API tuttiResult_t tuttiDpCreateSized(size_t parameterSize, tuttiDp_t* dp, const tuttiDpParameter_t* parameters,
                                           size_t count, const tuttiDpConfig_t* config, tuttiComm_t comm);
TUTTI_API tuttiResult_t tuttiDpSetGroupSized(size_t groupSize, tuttiDp_t dp, int group, const tuttiDpGroup_t* its);
TUTTI_API tuttiResult_t tuttiDpGetMemorySized(size_t memorySize, tuttiDp_t dp, tuttiDpMemory_t* memory);
TUTTI_API tuttiResult_t tuttiDpGetStatisticsSized(size_t statisticsSize, tuttiDp_t dp, tuttiDpStatistics_t* statistics);
TUTTI_API tuttiResult_t tuttiDpGetBucketStatisticsSized(size_t statisticsSize, tuttiDp_t dp, size_t bucket,
                                                        tuttiDpBucketStatistics_t* statistics);

#define tuttiDpCreate(...) tuttiDpCreateSized(sizeof(tuttiDpParameter_t), __VA_ARGS__)
#define tuttiDpSetGroup(...) tuttiDpSetGroupSized(sizeof(tuttiDpGroup_t), __VA_ARGS__)
#define tuttiDpGetMemory(...) tuttiDpGetMemorySized(sizeof(tuttiDpMemory_t), __VA_ARGS__)
#define tuttiDpGetStatistics(...) tuttiDpGetStatisticsSized(sizeof(tuttiDpStatistics_t), __VA_ARGS__)
#define tuttiDpGetBucketStatistics(...) tuttiDpGetBucketStatisticsSized(sizeof(tuttiDpBucketStatistics_t), __VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_DP_H_ */
