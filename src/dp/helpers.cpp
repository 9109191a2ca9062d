// Functions that need no Engine: grids of ranks, and samplers.
#include <algorithm>
#include <numeric>
#include <vector>

#include "dp/calls.hpp"
#include "dp/sized.hpp"
#include "tutti/dp.h"

using namespace tutti;
using namespace tutti::dp;

namespace {

/// splitmix64 (S. Vigna, public domain): a well-mixed number from any number.
std::uint64_t scrambled(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/// Fisher-Yates; the same order on all ranks.
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

/// The caller's sampler, checked.
struct Sampler : tuttiDpSampler_t {
    Sampler(const tuttiDpSampler_t* given, std::size_t size, const char* function) : tuttiDpSampler_t{} {
        if (given == nullptr) fail(tuttiInvalidArgument, "%s: sampler is NULL", function);
        static_cast<tuttiDpSampler_t&>(*this) = read_sized(function, given, 1, size)[0];
        if (ranks < 1 || rank < 0 || rank >= ranks)
            fail(tuttiInvalidArgument, "%s: rank %d of %d", function, rank, ranks);
    }
};

std::size_t count_of(const Sampler& s) {
    const auto ranks = static_cast<std::size_t>(s.ranks);
    return s.dropLast ? s.length / ranks : s.length / ranks + (s.length % ranks != 0);
}

/// All samples in the order of this epoch, the same on all ranks.
std::vector<std::size_t> order_of(const tuttiDpSampler_t& sampler) {
    if (sampler.shuffle) return shuffled(sampler.length, scrambled(sampler.seed) + sampler.epoch);
    std::vector<std::size_t> order(sampler.length);
    std::iota(order.begin(), order.end(), std::size_t{0});
    return order;
}

/// Deals samples to the ranks in turn, starting over at the end; writes this rank's `count` samples.
void deal(const tuttiDpSampler_t& sampler, const std::vector<std::size_t>& order, std::size_t count,
          std::size_t* indices) {
    const auto ranks = static_cast<std::size_t>(sampler.ranks), rank = static_cast<std::size_t>(sampler.rank);
    for (std::size_t i = 0; i < count; ++i) indices[i] = order[(i * ranks + rank) % order.size()];
}

/// Sorts windows of the order from long to short, and brings the one with the longest sample to the front.
void group(std::vector<std::size_t>& order, const std::size_t* lengths, std::size_t window) {
    using Iterator = std::vector<std::size_t>::iterator;
    const auto longer = [&](std::size_t a, std::size_t b) { return lengths[a] > lengths[b]; };
    Iterator first = order.begin();  // start of the full window with the longest sample
    for (Iterator begin = order.begin(); begin != order.end();) {
        const auto size = std::min<std::size_t>(window, static_cast<std::size_t>(order.end() - begin));
        const Iterator end = begin + static_cast<std::ptrdiff_t>(size);
        std::stable_sort(begin, end, longer);  // stable: the same order with every standard library
        if (size == window && longer(*begin, *first)) first = begin;
        begin = end;
    }
    // A shorter last window stays where it is. If it has the longest sample, that sample is swapped with the first.
    const Iterator longest = std::min_element(order.begin(), order.end(), longer);
    if (longer(*longest, *first)) {
        std::iter_swap(longest, order.begin());
    } else if (first != order.begin()) {
        std::swap_ranges(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(window), first);
    }
}

}  // namespace

tuttiResult_t tuttiDpSampleCountSized(size_t samplerSize, const tuttiDpSampler_t* sampler, size_t* count) {
    return guarded([&] {
        const Sampler s(sampler, samplerSize, "tuttiDpSampleCount");
        if (count == nullptr) fail(tuttiInvalidArgument, "tuttiDpSampleCount: count is NULL");
        *count = count_of(s);
    });
}

tuttiResult_t tuttiDpSampleSized(size_t samplerSize, const tuttiDpSampler_t* sampler, size_t* indices) {
    return guarded([&] {
        const Sampler s(sampler, samplerSize, "tuttiDpSample");
        const std::size_t count = count_of(s);
        if (indices == nullptr && count > 0) fail(tuttiInvalidArgument, "tuttiDpSample: indices is NULL");
        deal(s, order_of(s), count, indices);
    });
}

tuttiResult_t tuttiDpSampleByLengthSized(size_t samplerSize, const tuttiDpSampler_t* sampler, const size_t* lengths,
                                         size_t window, size_t* indices) {
    return guarded([&] {
        const Sampler s(sampler, samplerSize, "tuttiDpSampleByLength");
        const std::size_t count = count_of(s);
        if (window == 0) fail(tuttiInvalidArgument, "tuttiDpSampleByLength: a window of 0 samples");
        if (count == 0) return;
        if (lengths == nullptr || indices == nullptr)
            fail(tuttiInvalidArgument, "tuttiDpSampleByLength: %s is NULL", lengths == nullptr ? "lengths" : "indices");
        std::vector<std::size_t> order = order_of(s);
        group(order, lengths, window);
        deal(s, order, count, indices);
    });
}

tuttiResult_t tuttiDpSampleStreamSized(size_t samplerSize, const tuttiDpSampler_t* sampler, size_t batch,
                                       size_t blockLength, size_t firstLength, size_t* count, size_t* indices) {
    return guarded([&] {
        const Sampler s(sampler, samplerSize, "tuttiDpSampleStream");
        if (count == nullptr) fail(tuttiInvalidArgument, "tuttiDpSampleStream: count is NULL");
        if (batch > 0 && indices == nullptr) fail(tuttiInvalidArgument, "tuttiDpSampleStream: indices is NULL");
        const std::size_t block = batch * static_cast<std::size_t>(s.ranks);
        if (blockLength > block)
            fail(tuttiInvalidArgument, "tuttiDpSampleStream: a block of %zu samples; %d ranks take %zu each",
                 blockLength, s.ranks, batch);
        if (firstLength < blockLength || firstLength > block)
            fail(tuttiInvalidArgument, "tuttiDpSampleStream: the first block had %zu samples, and this one %zu of %zu",
                 firstLength, blockLength, block);
        *count = blockLength == 0 || (blockLength < block && s.dropLast) ? 0 : batch;
        const std::size_t mine = batch * static_cast<std::size_t>(s.rank);
        for (std::size_t i = 0; i < *count; ++i)
            indices[i] = mine + i < blockLength ? mine + i : blockLength + (mine + i - blockLength) % firstLength;
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
        std::vector<tuttiComm_t> made(static_cast<std::size_t>(count));
        int stride = ranks;
        for (int i = 0; i < count; ++i) try {
                const int before = stride;  // product of the dimensions from i on
                stride /= dims[i];
                const int coordinate = rank / stride % dims[i];
                const int color = rank / before * stride + rank % stride;  // all coordinates but this one
                made[static_cast<std::size_t>(i)] = split(comm, color, coordinate);
            } catch (...) {
                while (i-- > 0) tuttiCommDestroy(made[static_cast<std::size_t>(i)]);
                throw;
            }
        std::ranges::copy(made, comms);
    });
}
