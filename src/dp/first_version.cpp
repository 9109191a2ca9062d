// For programs that were built with the first version of dp.h: structs are as that version had them. Newer programs
// reach these functions only by taking a function's address.
#include "dp/sized.hpp"

#undef tuttiDpCreate
#undef tuttiDpSetGroup
#undef tuttiDpGetMemory
#undef tuttiDpGetStatistics
#undef tuttiDpGetBucketStatistics
#undef tuttiDpDataParallel
#undef tuttiDpSampleCount
#undef tuttiDpSample
#undef tuttiDpSampleByLength
#undef tuttiDpSampleStream

using tutti::dp::first_size;

extern "C" {

tuttiResult_t tuttiDpCreate(tuttiDp_t* dp, const tuttiDpParameter_t* parameters, size_t count,
                            const tuttiDpConfig_t* config, tuttiComm_t comm) {
    return tuttiDpCreateSized(first_size<tuttiDpParameter_t>, dp, parameters, count, config, comm);
}

tuttiResult_t tuttiDpSetGroup(tuttiDp_t dp, int group, const tuttiDpGroup_t* its) {
    return tuttiDpSetGroupSized(first_size<tuttiDpGroup_t>, dp, group, its);
}

tuttiResult_t tuttiDpGetMemory(tuttiDp_t dp, tuttiDpMemory_t* memory) {
    return tuttiDpGetMemorySized(first_size<tuttiDpMemory_t>, dp, memory);
}

tuttiResult_t tuttiDpGetStatistics(tuttiDp_t dp, tuttiDpStatistics_t* statistics) {
    return tuttiDpGetStatisticsSized(first_size<tuttiDpStatistics_t>, dp, statistics);
}

tuttiResult_t tuttiDpGetBucketStatistics(tuttiDp_t dp, size_t bucket, tuttiDpBucketStatistics_t* statistics) {
    return tuttiDpGetBucketStatisticsSized(first_size<tuttiDpBucketStatistics_t>, dp, bucket, statistics);
}

tuttiResult_t tuttiDpDataParallel(const tuttiComm_t* comms, int devices, const tuttiStream_t* streams,
                                  const tuttiDpParameter_t* parameters, size_t count, const tuttiDpBatch_t* batch,
                                  tuttiDpWork_t work, void* user) {
    return tuttiDpDataParallelSized(first_size<tuttiDpParameter_t>, first_size<tuttiDpBatch_t>, comms, devices, streams,
                                    parameters, count, batch, work, user);
}

tuttiResult_t tuttiDpSampleCount(const tuttiDpSampler_t* sampler, size_t* count) {
    return tuttiDpSampleCountSized(first_size<tuttiDpSampler_t>, sampler, count);
}

tuttiResult_t tuttiDpSample(const tuttiDpSampler_t* sampler, size_t* indices) {
    return tuttiDpSampleSized(first_size<tuttiDpSampler_t>, sampler, indices);
}

tuttiResult_t tuttiDpSampleByLength(const tuttiDpSampler_t* sampler, const size_t* lengths, size_t window,
                                    size_t* indices) {
    return tuttiDpSampleByLengthSized(first_size<tuttiDpSampler_t>, sampler, lengths, window, indices);
}

tuttiResult_t tuttiDpSampleStream(const tuttiDpSampler_t* sampler, size_t batch, size_t blockLength, size_t firstLength,
                                  size_t* count, size_t* indices) {
    return tuttiDpSampleStreamSized(first_size<tuttiDpSampler_t>, sampler, batch, blockLength, firstLength, count,
                                    indices);
}

}  // extern "C"
