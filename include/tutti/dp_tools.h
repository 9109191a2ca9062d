/* Tutti: one process with many devices, grids of ranks, samples. Include tutti/dp.h, which is the manual.
 * Copyright the Tutti authors. SPDX-License-Identifier: Apache-2.0 */
#ifndef TUTTI_DP_TOOLS_H_
#define TUTTI_DP_TOOLS_H_

#include "tutti/dp_config.h"

#ifdef __cplusplus
extern "C" {
#endif

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
 *   devices if comms have config.reproducible = 1; NULL if it is not wanted.
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

/* The functions above, with the sizes that the caller's structs have: see (8) of dp.h. */
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

#define tuttiDpDataParallel(...) \
    tuttiDpDataParallelSized(sizeof(tuttiDpParameter_t), sizeof(tuttiDpBatch_t), __VA_ARGS__)
#define tuttiDpSampleCount(...) tuttiDpSampleCountSized(sizeof(tuttiDpSampler_t), __VA_ARGS__)
#define tuttiDpSample(...) tuttiDpSampleSized(sizeof(tuttiDpSampler_t), __VA_ARGS__)
#define tuttiDpSampleByLength(...) tuttiDpSampleByLengthSized(sizeof(tuttiDpSampler_t), __VA_ARGS__)
#define tuttiDpSampleStream(...) tuttiDpSampleStreamSized(sizeof(tuttiDpSampler_t), __VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif /* TUTTI_DP_TOOLS_H_ */
