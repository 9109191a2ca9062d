#include "harness/data.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "kernels/convert.hpp"
#include "kernels/reduce.hpp"

namespace tutti::harness {
namespace {

/// Splitmix64: https://prng.di.unimi.it/splitmix64.c
std::uint64_t mixed(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

struct Exponents {
    int least, most;
};

/// The exponents of the units in which ranks count: sums of 16 of them are finite.
Exponents exponents_of(DataType type) {
    switch (type) {
        case DataType::float8e4m3:
            return {-6, 4};
        case DataType::float8e5m2:
        case DataType::float16:
            return {-14, 11};
        case DataType::float64:
            return {-1000, 1000};
        default:  // float32 and bfloat16
            return {-120, 120};
    }
}

double number(DataType type, tuttiRedOp_t op, std::uint64_t own, std::size_t index) {
    const double sign = own & 1 ? -1 : 1;
    if (op == tuttiProd) return own % 32 < 28 ? sign : own % 32 < 30 ? 2 * sign : sign / 2;
    const Exponents e = exponents_of(type);
    const auto span = static_cast<std::uint64_t>(e.most - e.least + 1);
    const double count = static_cast<double>((own >> 1) % 3);
    return count == 0 ? 0 : sign * std::ldexp(count, e.least + static_cast<int>(mixed(index) % span));
}

using Bytes = std::vector<unsigned char>;

/// Data repeats itself after so many elements (a prime), turned a little further each time.
constexpr std::size_t period = 4099, turn = 577;

/// Any bits; one element in 16 is the least, the largest, a zero or the smallest step from one.
void put_any(DataType type, std::uint64_t own, unsigned char* at) {
    const std::size_t size = size_of(type);
    const std::uint64_t top = std::uint64_t{1} << (size * 8 - 1);
    const std::uint64_t bits[] = {0, top, top - 1, top + 1, 1, ~std::uint64_t{0}};
    const std::uint64_t element = own % 16 == 0 ? bits[(own >> 4) % std::size(bits)] : own;
    std::memcpy(at, &element, size);
}

/// As put_any, but for NaNs.
void put_ordered(DataType type, std::uint64_t own, unsigned char* at) {
    put_any(type, own, at);
    if (is_integer(type) || !std::isnan(load_as_double(type, at))) return;
    store_from_double(type, own & 32 ? HUGE_VAL : -HUGE_VAL, at);
    if (std::isnan(load_as_double(type, at))) std::memset(at, 0, size_of(type));  // float8e4m3 has no infinity
}

/// A period of what a rank gives.
Bytes input_of(const Data& data, int rank) {
    const auto type = static_cast<DataType>(data.type);
    Bytes all(period * size_of(type));
    for (std::size_t i = 0; i < period; ++i) {
        unsigned char* const at = &all[i * size_of(type)];
        const std::uint64_t own = mixed(mixed(i) + static_cast<std::uint64_t>(rank));
        if (!data.op || is_integer(type))
            put_any(type, own, at);
        else if (*data.op == tuttiMax || *data.op == tuttiMin)
            put_ordered(type, own, at);
        else
            store_from_double(type, number(type, *data.op, own, i), at);
    }
    return all;
}

/// A period of the reduction over so many ranks.
Bytes result_of(const Data& data, int ranks) {
    std::vector<Bytes> inputs;
    std::vector<const void*> sources;
    for (int rank = 0; rank < ranks; ++rank) inputs.push_back(input_of(data, rank));
    for (const Bytes& input : inputs) sources.push_back(input.data());
    Bytes all(inputs[0].size());
    void* const sink = all.data();
    Reduction r{static_cast<DataType>(data.type), ReduceOp::sum, period, sources.data(), ranks, &sink, 1};
    if (*data.op == tuttiAvg)
        r.divide_by = ranks;
    else
        r.op = static_cast<ReduceOp>(*data.op);
    reduce_reference(r);
    return all;
}

/// Made once, for all ranks that are threads here. rank < 0: the result over -rank of them.
const Bytes& period_of(const Data& data, int rank) {
    static std::mutex mutex;
    static std::map<std::tuple<int, int, int>, Bytes> made;
    const std::lock_guard lock(mutex);
    Bytes& bytes = made[{data.type, data.op ? static_cast<int>(*data.op) : -1, rank}];
    if (bytes.empty()) bytes = rank < 0 ? result_of(data, -rank) : input_of(data, rank);
    return bytes;
}

void copy(const Bytes& from, std::size_t size, std::size_t first, std::size_t count, void* to) {
    auto* at = static_cast<unsigned char*>(to);
    for (std::size_t done = 0; done < count;) {
        const std::size_t i = first + done, begin = (i % period + i / period * turn) % period;
        const std::size_t length = std::min({count - done, period - begin, period - i % period});
        std::memcpy(at + done * size, &from[begin * size], length * size);
        done += length;
    }
}

}  // namespace

void Data::put_input(int rank, std::size_t first, std::size_t count, void* to) const {
    copy(period_of(*this, rank), size_of(static_cast<DataType>(type)), first, count, to);
}

void Data::put_result(int ranks, std::size_t first, std::size_t count, void* to) const {
    copy(period_of(*this, -ranks), size_of(static_cast<DataType>(type)), first, count, to);
}

}  // namespace tutti::harness
