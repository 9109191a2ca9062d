// The interpreter's instructions on addresses of multicast, whose results PTX's manual says.
#include <array>
#include <bit>
#include <cstring>

#include "base/types.hpp"
#include "harness/catch.hpp"
#include "kernels/convert.hpp"
#include "ptx.hpp"
#include "ptx_weak.hpp"

namespace tutti::ptx {
namespace {

constexpr std::size_t gpus = 3, words = 64;

/// One address for the memory of three GPUs. The third one's is that of the GPU that runs the kernels, by an address of
/// its own.
struct Three : Memory {
    alignas(128) std::array<std::array<std::uint32_t, words>, gpus> of{};
    alignas(128) std::array<std::uint32_t, words> nowhere{};  // where the addresses of multicast are
    std::unique_ptr<WeakGpu> lazy;

    const std::byte* address() const { return reinterpret_cast<const std::byte*>(nowhere.data()); }
    Range around(const std::byte* at) const override {
        const auto* const own = reinterpret_cast<const std::byte*>(of[2].data());
        return at >= own && at < own + sizeof of[2] ? Range{own, own + sizeof of[2]} : Range{};
    }
    Multicast multicast_at(const std::byte* at) const override {
        if (at < address() || at >= address() + sizeof nowhere) return {};
        Multicast found{{address(), address() + sizeof nowhere}};
        for (const auto& one : of)
            found.replicas.push_back(reinterpret_cast<std::byte*>(const_cast<std::uint32_t*>(one.data())));
        return found;
    }
    WeakGpu* weak() const override { return lazy.get(); }
};

/// Runs instructions by one thread. %rd0 is the address of multicast, %rd1 that of the GPU's own memory.
void run(const Three& memory, const std::string& body) {
    Module module(
        ".version 8.2\n.target sm_90\n.address_size 64\n"
        ".visible .entry test(.param .u64 many, .param .u64 own)\n{\n.reg .pred %p<9>;\n.reg .b32 %r<9>;\n"
        ".reg .b64 %rd<9>;\n.reg .f32 %f<9>;\n.reg .f64 %fd<9>;\nld.param.u64 %rd0, [many];\n"
        "ld.param.u64 %rd1, [own];\n" +
        body + "\nret;\n}\n");
    const Kernel k = module.kernel("test");
    const void* arguments[2] = {memory.address(), memory.of[2].data()};
    run_block(k, reinterpret_cast<const std::byte*>(arguments), {}, {1, 1, 1}, {0, 0, 0}, 0, &memory);
}
std::string error_of(const Three& memory, const std::string& body) {
    try {
        run(memory, body);
    } catch (const std::runtime_error& e) {
        return e.what();
    }
    return "none";
}
std::uint32_t bits(float x) {
    return std::bit_cast<std::uint32_t>(x);
}
/// Two floats of 16 bits in a word: the first is the lower one.
std::uint32_t pair(DataType type, double low, double high) {
    std::uint16_t codes[2];
    const double both[2] = {low, high};
    for (int k = 0; k < 2; ++k) store_from_double(type, both[k], &codes[k]);
    return codes[0] | static_cast<std::uint32_t>(codes[1]) << 16;
}

TEST_CASE("ld_reduce combines what lies on all GPUs") {
    Three m;
    for (std::uint32_t g = 0; g < gpus; ++g) {
        m.of[g][0] = 0xffffffff - 10 * g;
        for (std::uint32_t k = 4; k < 8; ++k) m.of[g][k] = bits(static_cast<float>(100 * g + k));
        const std::uint64_t wide = (std::uint64_t{1} << 40) * (g + 1);
        std::memcpy(&m.of[g][2], &wide, sizeof wide);
    }
    const auto result = [&](const std::string& body) {
        run(m, body + " st.global.u32 [%rd1+240], %r1;");
        return m.of[2][60];
    };
    CHECK(result("multimem.ld_reduce.relaxed.sys.global.add.u32 %r1, [%rd0];") == 0xffffffff - 32);
    CHECK(result("multimem.ld_reduce.weak.global.min.s32 %r1, [%rd0];") == 0xffffffff - 20);
    CHECK(result("multimem.ld_reduce.min.u32 %r1, [%rd0];") == 0xffffffff - 20);
    CHECK(result("multimem.ld_reduce.max.s32 %r1, [%rd0];") == 0xffffffff);
    CHECK(result("multimem.ld_reduce.add.u64 %rd3, [%rd0+8]; shr.u64 %rd3, %rd3, 40; cvt.u32.u64 %r1, %rd3;") == 6);
    CHECK(result("multimem.ld_reduce.max.s64 %rd3, [%rd0+8]; shr.u64 %rd3, %rd3, 40; cvt.u32.u64 %r1, %rd3;") == 3);
    run(m,
        "multimem.ld_reduce.weak.global.add.v4.f32 {%f1, %f2, %f3, %f4}, [%rd0+16];"
        "st.global.v4.f32 [%rd1+128], {%f1, %f2, %f3, %f4};");
    for (std::uint32_t k = 4; k < 8; ++k) CHECK(m.of[2][28 + k] == bits(static_cast<float>(300 + 3 * k)));
}

TEST_CASE("ld_reduce adds small floats in fp32 where it is told so") {
    for (const DataType type : {DataType::float16, DataType::bfloat16}) {
        const std::string name = type == DataType::float16 ? "f16x2" : "bf16x2";
        const double little = type == DataType::float16 ? 0x1p-11 : 0x1p-8;  // half of the last bit of 1
        Three m;
        m.of[0][0] = pair(type, 1, 5);
        m.of[1][0] = m.of[2][0] = pair(type, little, 7);
        const auto sum = [&](const std::string& how) {
            run(m, "multimem.ld_reduce.add" + how + "." + name + " %r1, [%rd0]; st.global.u32 [%rd1+240], %r1;");
            return m.of[2][60];
        };
        for (int turn = 0; turn < 3; ++turn) CHECK(sum(".acc::f32") == pair(type, 1 + 2 * little, 19));
        bool rounds_each = false;  // 1 + little is 1 again, in some order
        for (int turn = 0; turn < 3; ++turn) rounds_each |= sum("") == pair(type, 1, 19);
        CHECK(rounds_each);
    }
}

TEST_CASE("st and red reach all GPUs") {
    Three m;
    for (std::uint32_t g = 0; g < gpus; ++g) m.of[g][8] = g;
    run(m,
        "mov.u32 %r1, 5; mov.u32 %r2, 6; mov.u32 %r3, 7; mov.u32 %r4, 8;"
        "multimem.st.relaxed.sys.global.v4.f16x2 [%rd0+16], {%r1, %r2, %r3, %r4}; multimem.st.b32 [%rd0], %r4;"
        "mov.u64 %rd3, 0x123456789; multimem.st.weak.b64 [%rd0+8], %rd3;"
        "multimem.red.release.sys.global.add.u32 [%rd0+32], 10;");
    for (std::uint32_t g = 0; g < gpus; ++g) {
        CHECK((m.of[g][0] == 8 && m.of[g][2] == 0x23456789 && m.of[g][3] == 1 && m.of[g][8] == 10 + g));
        for (std::uint32_t k = 0; k < 4; ++k) CHECK(m.of[g][4 + k] == 5 + k);
    }
}

TEST_CASE("addresses of multicast are for multimem alone, and no others are") {
    const Three m;
    CHECK(error_of(m, "ld.global.u32 %r1, [%rd0];").find("are not memory that a kernel of this device") !=
          std::string::npos);
    CHECK(error_of(m, "st.global.u32 [%rd0], 1;").find("are not memory") != std::string::npos);
    CHECK(error_of(m, "multimem.st.b32 [%rd1], 1;").find("are not memory of multicast") != std::string::npos);
    CHECK(error_of(m, "multimem.st.b32 [%rd0+256], 1;").find("are not memory of multicast") != std::string::npos);
    CHECK(error_of(m, "multimem.ld_reduce.add.v4.f32 {%f1, %f2, %f3, %f4}, [%rd0+4];").find("not aligned to 16") !=
          std::string::npos);
    for (const char* const unknown : {"add.s64 %rd2", "min.f32 %f1", "add.v2.u32 {%r1, %r2}", "add.acc::f32.f32 %f1",
                                      "add.v4.f32 %f1", "add.noftz.f32 %f1"})
        CHECK(error_of(m, "multimem.ld_reduce." + std::string(unknown) + ", [%rd0];").find("is not known here") !=
              std::string::npos);
    CHECK(error_of(m, "fence.proxy.async;").find("is not known here") != std::string::npos);
    CHECK(error_of(m, "fence.proxy.alias;") == "none");
}

TEST_CASE("weak memory: what is stored to many GPUs is under way until a release") {
    int late = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed)
        for (const bool released : {false, true}) {
            Three m;
            m.lazy = std::make_unique<WeakGpu>(seed);
            const std::string end = released ? "fence.acq_rel.sys;" : "fence.acq_rel.gpu;";
            run(m, "mov.u32 %r1, 1; multimem.st.relaxed.sys.b32 [%rd0], %r1;" + end +
                       "ld.relaxed.sys.u32 %r2, [%rd1]; st.global.u32 [%rd1+64], %r2;");
            late += !released && m.of[2][16] == 0;
            if (released) REQUIRE(m.of[2][16] == 1);
            for (std::size_t g = 0; g < gpus; ++g) REQUIRE(m.of[g][0] == 1);  // at the kernel's end
        }
    CHECK(late > 0);
}

}  // namespace
}  // namespace tutti::ptx
