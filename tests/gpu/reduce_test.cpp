// The arithmetic of the kernels against the definition in reduce_reference(), bit by bit, on emulated blocks.
#include <sys/mman.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "harness/catch.hpp"
#include "harness/emulated_gpus.hpp"
#include "harness/guarded.hpp"
#include "harness/harness.hpp"
#include "kernels/convert.hpp"
#include "kernels/cuda/reduce.hpp"
#include "kernels/reduce.hpp"

using namespace tutti;
using namespace tutti::gpu;
using harness::Guarded;

namespace {

constexpr unsigned block_size = 2;

template <class F>
void run(ReduceOp op, const Terms& terms, std::size_t bytes) {
    Block own(block_size);
    const std::uint32_t never = 0;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < block_size; ++t)
        threads.emplace_back([&, t] {
            block = &own;
            thread_number = t;
            gpu::reduce<F>(op, terms, bytes, Limits{&never, 1'000'000'000});
        });
    for (std::thread& t : threads) t.join();
}

void run(DataType type, ReduceOp op, const Terms& terms, std::size_t bytes) {
    with_lanes_of(type, [&](auto lanes) { run<decltype(lanes)>(op, terms, bytes); });
}

bool same(DataType type, const std::byte* a, const std::byte* b) {
    if (std::memcmp(a, b, size_of(type)) == 0) return true;
    return std::isnan(load_as_double(type, a)) && std::isnan(load_as_double(type, b));
}

/// Sources and sinks `shift` elements after an aligned address (the last sink one more), or before a page without
/// access in turns, random bits in them.
void compare(DataType type, ReduceOp op, int source_count, std::size_t count, std::size_t shift, int scaled,
             int divide_by) {
    const std::size_t size = size_of(type), bytes = count * size;
    std::mt19937 random(harness::seed() + static_cast<unsigned>(count * 31 + shift));
    std::deque<Guarded> memory;
    std::vector<const void*> plain;
    std::vector<Term> sources, sinks;
    const auto take = [&](std::size_t extra) {
        const bool aligned = (memory.size() + count) % 2 == 0;
        memory.emplace_back((shift + extra) * size + bytes, aligned ? Guarded::At::front : Guarded::At::back);
        auto* const elements = reinterpret_cast<std::byte*>(memory.back().data()) + (shift + extra) * size;
        for (std::size_t i = 0; i < bytes; ++i) elements[i] = static_cast<std::byte>(random());
        return elements;
    };
    for (int k = 0; k < source_count; ++k) {
        std::byte* const at = take(0);
        plain.push_back(at);
        sources.push_back({at, 0});
    }
    for (std::size_t m = 0; m < 2; ++m) sinks.push_back({take(m * (shift % 2)), 0});
    Guarded expected(bytes, Guarded::At::back);
    void* const expected_at = expected.data();
    alignas(8) std::byte scalar[8];
    for (std::byte& b : scalar) b = static_cast<std::byte>(random());

    Reduction reference{type, op, count, plain.data(), source_count, &expected_at, 1, scaled, scalar, divide_by};
    reduce_reference(reference);
    Terms terms{sources.data(), sinks.data(), source_count, 2, scaled, divide_by, 0, has_sign(type)};
    for (std::size_t i = 0; i < 8; i += size)
        std::memcpy(reinterpret_cast<std::byte*>(&terms.scalar) + i, scalar, size);
    run(type, op, terms, bytes);
    for (std::size_t i = 0; i < memory.size(); ++i) {
        const std::size_t before = memory[i].size() - bytes;
        if (!memory[i].untouched(before, bytes)) FAIL("wrote beside buffer " << i);
    }
    const auto* const wanted = reinterpret_cast<const std::byte*>(expected.data());
    for (const Term& sink : sinks)
        for (std::size_t i = 0; i < count; ++i) {
            if (same(type, sink.at + i * size, wanted + i * size)) continue;
            INFO(name_of(type) << " " << name_of(op) << " sources " << source_count << " element " << i << " of "
                               << count << " shift " << shift << " scaled " << scaled << " divided " << divide_by);
            FAIL(load_as_double(type, sink.at + i * size) << " expected " << load_as_double(type, wanted + i * size));
        }
}

/// Whole pages with a protection: a forbidden access ends the program.
struct Page {
    explicit Page(int protection)
        : at(static_cast<std::byte*>(
              mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
        for (std::size_t i = 0; i < bytes; ++i) at[i] = static_cast<std::byte>(i * 7);
        mprotect(at, bytes, protection);
    }
    ~Page() { munmap(at, bytes); }
    Page(const Page&) = delete;
    static constexpr std::size_t bytes = 8192;
    std::byte* const at;
};

}  // namespace

TEST_CASE("GPUs: what nobody wants is not read, and a copy is not stored where its source is") {
    const Page absent(PROT_NONE), there(PROT_READ);
    std::vector<std::byte> elsewhere(Page::bytes + 16);
    const std::size_t bytes = GENERATE(std::size_t{8}, std::size_t{40}, Page::bytes - 20);
    const std::size_t shift = GENERATE(std::size_t{0}, std::size_t{4});  // not aligned alike: no packs
    const auto copy = [&](std::byte* from, const std::vector<Term>& sinks) {
        const Term source{from, 0};
        const Terms terms{&source, sinks.data(), 1, static_cast<int>(sinks.size()), -1, 0, 0, true};
        run(DataType::float32, ReduceOp::sum, terms, bytes);
    };
    copy(absent.at, {{nullptr, 0}, {nullptr, 0}});  // sends by reference
    copy(absent.at, {{absent.at, 0}});              // what has landed, and nobody else wants
    copy(there.at, {{there.at, 0}, {elsewhere.data() + shift, 0}, {nullptr, 0}});
    CHECK(std::memcmp(elsewhere.data() + shift, there.at, bytes) == 0);
}

TEST_CASE("GPUs: lines are awaited and read though nobody wants what they bring") {
    std::vector<gpu::Line> lines(3);
    const Term source{reinterpret_cast<std::byte*>(lines.data()), 5}, sink{nullptr, 0};
    const Terms terms{&source, &sink, 1, 1, -1, 0, 0, true};
    const std::uint32_t never = 0;
    Block own(1);
    block = &own;
    thread_number = 0;
    const auto outcome = [&] {
        return gpu::reduce<Native<float>>(ReduceOp::sum, terms, 24, Limits{&never, 1'000'000});
    };
    for (std::size_t n = 0; n < 2; ++n) store_line(&lines[n], n, 5);
    CHECK(outcome() == Outcome::timed_out);
    store_line(&lines[2], 2, 5);
    CHECK(outcome() == Outcome::met);
}

TEST_CASE("GPUs: reductions give the bits of the reference for every type, op, number of sources and alignment") {
    for (int type = 0; type < data_types; ++type)
        for (int op = 0; op < reduce_ops && harness::EmulatedGpus::emulates(static_cast<tuttiDataType_t>(type)); ++op) {
            const auto t = static_cast<DataType>(type);
            const auto o = static_cast<ReduceOp>(op);
            for (int sources : {1, 2, 3, 5})
                for (std::size_t count : {1, 3, 8, 37, 300}) compare(t, o, sources, count, count % 3, -1, 0);
            compare(t, o, 2, 100, 0, 1, 0);
            compare(t, o, 3, 100, 1, 0, 3);
        }
}

TEST_CASE("GPUs: every small float is decoded and encoded as the reference does it") {
    const auto both = [](DataType type, std::uint32_t code, float decoded, std::uint32_t again) {
        const double expected = load_as_double(type, &code);
        CHECK((std::isnan(expected) ? std::isnan(decoded) : expected == static_cast<double>(decoded)));
        if (!std::isnan(expected)) CHECK(again == code);
    };
    for (std::uint32_t code = 0; code < 65536; code += 7) {
        using Half = SmallFloat<5, 10, true>;
        both(DataType::float16, code, Half::decode(code), Half::encode(Half::decode(code)));
    }
    for (std::uint32_t code = 0; code < 256; ++code) {
        using E4m3 = SmallFloat<4, 3, false>;
        using E5m2 = SmallFloat<5, 2, true>;
        both(DataType::float8e4m3, code, E4m3::decode(code), E4m3::encode(E4m3::decode(code)));
        both(DataType::float8e5m2, code, E5m2::decode(code), E5m2::encode(E5m2::decode(code)));
    }
    std::mt19937 random(harness::seed());
    for (int i = 0; i < 200'000; ++i) {
        const auto value = gpu::bits<float>(static_cast<std::uint32_t>(random()));
        const auto check = [&](DataType type, std::uint32_t ours) {
            std::uint32_t expected = 0;
            store_from_double(type, static_cast<double>(value), &expected);
            if (ours != expected && !std::isnan(value)) FAIL(value << ": " << ours << ", expected " << expected);
        };
        check(DataType::float16, SmallFloat<5, 10, true>::encode(value));
        check(DataType::bfloat16, SmallFloat<8, 7, true>::encode(value));
        check(DataType::float8e4m3, SmallFloat<4, 3, false>::encode(value));
        check(DataType::float8e5m2, SmallFloat<5, 2, true>::encode(value));
    }
}
