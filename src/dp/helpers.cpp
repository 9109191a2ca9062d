// What needs no Engine: grids of ranks, and which samples are whose.
#include <numeric>
#include <vector>

#include "dp/calls.hpp"
#include "tutti/dp.h"

using namespace tutti;
using namespace tutti::dp;

namespace {

/// splitmix64 (S. Vigna, public domain): a good number from any number.
std::uint64_t scrambled(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/// Fisher and Yates; the same for all ranks.
std::vector<std::size_t> shuffled(std::size_t length, std::uint64_t seed) {
    std::vector<std::size_t> order(length);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::uint64_t state = scrambled(seed);
    for (std::size_t i = length; i > 1; --i) {
        state = scrambled(state);
        std::swap(order[i - 1], order[static_cast<std::size_t>(state % i)]);
    }
    return order;
}

std::size_t count_of(const tuttiDpSampler_t* sampler, const char* function) {
    if (sampler == nullptr) fail(tuttiInvalidArgument, "%s: sampler is NULL", function);
    if (sampler->ranks < 1 || sampler->rank < 0 || sampler->rank >= sampler->ranks)
        fail(tuttiInvalidArgument, "%s: rank %d of %d", function, sampler->rank, sampler->ranks);
    const auto ranks = static_cast<std::size_t>(sampler->ranks);
    return sampler->dropLast ? sampler->length / ranks : sampler->length / ranks + (sampler->length % ranks != 0);
}

}  // namespace

tuttiResult_t tuttiDpSampleCount(const tuttiDpSampler_t* sampler, size_t* count) {
    return guarded([&] {
        if (count == nullptr) fail(tuttiInvalidArgument, "tuttiDpSampleCount: count is NULL");
        *count = count_of(sampler, "tuttiDpSampleCount");
    });
}

tuttiResult_t tuttiDpSample(const tuttiDpSampler_t* sampler, size_t* indices) {
    return guarded([&] {
        const std::size_t count = count_of(sampler, "tuttiDpSample");
        if (indices == nullptr && count > 0) fail(tuttiInvalidArgument, "tuttiDpSample: indices is NULL");
        std::vector<std::size_t> order(sampler->length);
        if (sampler->shuffle)
            order = shuffled(sampler->length, scrambled(sampler->seed) + sampler->epoch);
        else
            std::iota(order.begin(), order.end(), std::size_t{0});
        const auto ranks = static_cast<std::size_t>(sampler->ranks), rank = static_cast<std::size_t>(sampler->rank);
        for (std::size_t i = 0; i < count; ++i) indices[i] = order[(i * ranks + rank) % sampler->length];
    });
}

tuttiResult_t tuttiDpMesh(tuttiComm_t comm, const int* dims, int count, tuttiComm_t* comms) {
    return guarded([&] {
        if (dims == nullptr || comms == nullptr)
            fail(tuttiInvalidArgument, "tuttiDpMesh: %s is NULL", dims == nullptr ? "dims" : "comms");
        int rank = 0, ranks = 0;
        must(tuttiCommUserRank(comm, &rank));
        must(tuttiCommCount(comm, &ranks));
        long long product = 1;
        for (int i = 0; i < count; ++i) {
            if (dims[i] < 1) fail(tuttiInvalidArgument, "tuttiDpMesh: dims[%d] is %d", i, dims[i]);
            product = product > ranks ? product : product * dims[i];
        }
        if (count < 1 || product != ranks)
            fail(tuttiInvalidArgument, "tuttiDpMesh: the product of dims is not %d, the number of ranks", ranks);
        int stride = ranks;
        for (int i = 0; i < count; ++i) {
            const int before = stride;  // ranks in a slice of the dimensions from i on
            stride /= dims[i];
            const int coordinate = rank / stride % dims[i];
            const int color = rank / before * stride + rank % stride;  // all coordinates but this one
            const tuttiResult_t result = tuttiCommSplit(comm, color, coordinate, &comms[i], nullptr);
            if (result == tuttiSuccess) continue;
            const Error error(result, last_error());
            while (i-- > 0) tuttiCommDestroy(comms[i]);
            throw error;
        }
    });
}
