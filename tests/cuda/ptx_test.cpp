// The interpreter of PTX, by programs of a few lines whose results its manual says.
#include <cmath>
#include <cstring>

#include "base/types.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "kernels/convert.hpp"
#include "ptx.hpp"
#include "ptx_weak.hpp"

namespace tutti::ptx {
namespace {

const std::string head = ".version 8.0\n.target sm_90\n.address_size 64\n";

/// A kernel of one parameter, a pointer in %rd0 that every thread has; %r0 is the thread's number. The body may use
/// %r, %rd, %f, %fd, %rs, %p 0 to 19.
std::string kernel(const std::string& body, const std::string& before = "") {
    return head + before + ".visible .entry test(.param .u64 out)\n{\n" +
           ".reg .pred %p<20>;\n.reg .b16 %rs<20>;\n.reg .b32 %r<20>;\n.reg .b64 %rd<20>;\n.reg .f32 %f<20>;\n"
           ".reg .f64 %fd<20>;\nld.param.u64 %rd0, [out];\nmov.u32 %r0, %tid.x;\n" +
           body + "\nret;\n}\n";
}

template <class T>
void run(const std::string& text, std::vector<T>& out, unsigned threads = 1, const Memory* memory = nullptr) {
    Module module(text);
    const Kernel k = module.kernel("test");
    const T* const at = out.data();
    std::vector<std::byte> parameters(k.parameter_bytes());
    std::memcpy(parameters.data(), &at, sizeof at);
    run_block(k, parameters.data(), {}, {threads, 1, 1}, {0, 0, 0}, 0, memory);
}

/// What instructions leave in `result`, a register, from %r1 = a and %r2 = b (or %rd1, %rd2).
std::uint64_t value_of(const std::string& body, const std::string& result, std::uint64_t a = 0, std::uint64_t b = 0) {
    std::vector<std::uint64_t> out{a, b, 0};
    const bool wide = result.starts_with("%rd");
    run(kernel("ld.global.u64 %rd1, [%rd0];\nld.global.u64 %rd2, [%rd0+8];\n"
               "cvt.u32.u64 %r1, %rd1;\ncvt.u32.u64 %r2, %rd2;\n" +
               body + (wide ? "\nst.global.u64 [%rd0+16], " : "\nst.global.u32 [%rd0+16], ") + result + ";"),
        out);
    return out[2];
}

/// One array, and nothing else.
struct Only : Memory {
    const std::byte *begin, *end;
    template <class T>
    explicit Only(const std::vector<T>& v)
        : begin(reinterpret_cast<const std::byte*>(v.data())), end(begin + v.size() * sizeof(T)) {}
    Range around(const std::byte* at) const override { return at >= begin && at < end ? Range{begin, end} : Range{}; }
};

TEST_CASE("integers") {
    CHECK(value_of("add.s32 %r3, %r1, %r2;", "%r3", 0xffffffff, 2) == 1);
    CHECK(value_of("sub.s32 %r3, %r1, %r2;", "%r3", 1, 2) == 0xffffffff);
    CHECK(value_of("mul.lo.s32 %r3, %r1, %r2;", "%r3", 0x10001, 0x10001) == 0x20001);
    CHECK(value_of("mul.hi.u32 %r3, %r1, %r2;", "%r3", 0x80000000, 6) == 3);
    CHECK(value_of("mul.wide.u32 %rd3, %r1, %r2;", "%rd3", 0xffffffff, 2) == 0x1fffffffe);
    CHECK(value_of("mul.wide.s32 %rd3, %r1, %r2;", "%rd3", 0xffffffff, 2) == static_cast<std::uint64_t>(-2));
    CHECK(value_of("mad.lo.s32 %r3, %r1, 10, %r2;", "%r3", 4, 2) == 42);
    CHECK(value_of("mad.wide.u32 %rd3, %r1, %r1, %rd2;", "%rd3", 0x10000, 5) == 0x100000005);
    CHECK(value_of("div.s64 %rd3, %rd1, %rd2;", "%rd3", static_cast<std::uint64_t>(-7), 2) ==
          static_cast<std::uint64_t>(-3));
    CHECK(value_of("div.u64 %rd3, %rd1, %rd2;", "%rd3", static_cast<std::uint64_t>(-7), 2) == 0x7ffffffffffffffc);
    CHECK(value_of("rem.s32 %r3, %r1, %r2;", "%r3", 0xfffffff9, 4) == 0xfffffffd);
    CHECK(value_of("min.s32 %r3, %r1, %r2;", "%r3", 0xffffffff, 1) == 0xffffffff);
    CHECK(value_of("min.u32 %r3, %r1, %r2;", "%r3", 0xffffffff, 1) == 1);
    CHECK(value_of("neg.s32 %r3, %r1;", "%r3", 5) == 0xfffffffb);
    CHECK(value_of("abs.s32 %r3, %r1;", "%r3", 0xfffffffb) == 5);
    CHECK(value_of("cvt.s64.s32 %rd3, %r1;", "%rd3", 0x80000000) == 0xffffffff80000000);
    CHECK(value_of("cvt.u64.u32 %rd3, %r1;", "%rd3", 0x80000000) == 0x80000000);
    CHECK(value_of("cvt.u16.u64 %rs1, %rd1; cvt.s64.s8 %rd3, %rs1;", "%rd3", 0x1280) == 0xffffffffffffff80);
}

TEST_CASE("bits") {
    CHECK(value_of("shl.b32 %r3, %r1, %r2;", "%r3", 1, 31) == 0x80000000);
    CHECK(value_of("shl.b32 %r3, %r1, %r2;", "%r3", 1, 32) == 0);
    CHECK(value_of("shr.s32 %r3, %r1, %r2;", "%r3", 0x80000000, 40) == 0xffffffff);
    CHECK(value_of("shr.u32 %r3, %r1, %r2;", "%r3", 0x80000000, 31) == 1);
    CHECK(value_of("bfi.b64 %rd3, %rd1, %rd2, 8, 16;", "%rd3", 0xabcd, 0xffffffffffffffff) == 0xffffffffffabcdff);
    CHECK(value_of("bfe.s32 %r3, %r1, 4, 4;", "%r3", 0x80) == 0xfffffff8);
    CHECK(value_of("bfe.u32 %r3, %r1, 4, 4;", "%r3", 0x80) == 8);
    CHECK(value_of("prmt.b32 %r3, %r1, %r2, 0x7410;", "%r3", 0x33221100, 0x77665544) == 0x77441100);
    CHECK(value_of("prmt.b32 %r3, %r1, %r2, 0xba98;", "%r3", 0x80ff7f00, 0) == 0xffff0000);
    CHECK(value_of("lop3.b32 %r3, %r1, %r2, %r2, 0x3c;", "%r3", 0xff00ff00, 0x0ff00ff0) == 0xf0f0f0f0);
    CHECK(value_of("shf.l.wrap.b32 %r3, %r1, %r2, 40;", "%r3", 0x12345678, 0x9abcdef0) == 0xbcdef012);
    CHECK(value_of("shf.r.clamp.b32 %r3, %r1, %r2, 40;", "%r3", 0x12345678, 0x9abcdef0) == 0x9abcdef0);
    CHECK(value_of("not.b64 %rd3, %rd1;", "%rd3", 1) == 0xfffffffffffffffe);
    CHECK(value_of("popc.b32 %r3, %r1;", "%r3", 0xf0f0) == 8);
    CHECK(value_of("clz.b32 %r3, %r1;", "%r3", 1) == 31);
    CHECK(value_of("brev.b32 %r3, %r1;", "%r3", 0x8000'0006) == 0x6000'0001);
    CHECK(value_of("brev.b64 %rd3, %rd1;", "%rd3", 6) == 0x6000'0000'0000'0000);
    CHECK(value_of("{ .reg .b16 %low, %high; mov.b32 {%low, %high}, %r1; mov.b32 %r3, {%high, %low}; }", "%r3",
                   0x12345678) == 0x56781234);
    CHECK(value_of("mov.b64 %rd3, {%r1, %r2};", "%rd3", 1, 2) == 0x200000001);
}

TEST_CASE("floats") {
    const auto f = [](float x) { return std::uint64_t{std::bit_cast<std::uint32_t>(x)}; };
    const float nan = std::nanf("");
    const auto computed = [&](const std::string& what, float a, float b) {
        return value_of("mov.b32 %f1, %r1; mov.b32 %f2, %r2; " + what + " mov.b32 %r3, %f3;", "%r3", f(a), f(b));
    };
    CHECK(computed("add.f32 %f3, %f1, %f2;", 1, 0x1p-24F) == f(1));
    CHECK(computed("fma.rn.f32 %f3, %f1, %f1, %f2;", 1 + 0x1p-12F, -1) == f(0x1p-11F + 0x1p-24F));
    CHECK(computed("fma.rm.f32 %f3, %f1, %f2, %f1;", 1, 0x1p-30F) == f(1));
    CHECK(computed("fma.rm.f32 %f3, %f1, %f2, %f1;", 1, -0x1p-30F) == f(1 - 0x1p-24F));
    CHECK(computed("ex2.approx.ftz.f32 %f3, %f1;", -3, 0) == f(0.125));
    CHECK(computed("ex2.approx.ftz.f32 %f3, %f1;", -140, 0) == f(0));
    CHECK(computed("rcp.approx.ftz.f32 %f3, %f1;", 4, 0) == f(0.25));
    CHECK(computed("copysign.f32 %f3, %f1, %f2;", -1, 3) == f(-3));
    CHECK(computed("cvt.sat.f32.f32 %f3, %f1;", 1.5, 0) == f(1));
    CHECK(computed("cvt.sat.f32.f32 %f3, %f1;", nan, 0) == f(0));
    CHECK(computed("div.rn.f32 %f3, %f1, %f2;", 1, 3) == f(1.0F / 3));
    CHECK(computed("max.f32 %f3, %f1, %f2;", nan, 3) == f(3));
    CHECK(computed("mul.rn.f32 %f3, %f1, 0f40000000;", 3, 0) == f(6));
    const std::string halves = "cvt.u16.u32 %rs1, %r1; cvt.u16.u32 %rs2, %r2; ", out = "cvt.u32.u16 %r3, %rs3;";
    CHECK(value_of(halves + "max.f16 %rs3, %rs1, %rs2;" + out, "%r3", 0xbc00, 0x3c00) == 0x3c00);   // -1, 1
    CHECK(value_of(halves + "min.bf16 %rs3, %rs1, %rs2;" + out, "%r3", 0xbf80, 0x7fc0) == 0xbf80);  // -1, NaN
    CHECK(value_of(halves + "add.f16 %rs3, %rs1, %rs2;" + out, "%r3", 0x3c00, 0x1000) == 0x3c00);  // 1 + 2^-11: to even
    CHECK(value_of("cvt.rn.f16.u64 %rs3, %rd1;" + out, "%r3", 2049) == 0x6800);
    const auto compared = [&](const std::string& what, float a, float b) {
        return value_of(
            "mov.b32 %f1, %r1; mov.b32 %f2, %r2; setp." + what + ".f32 %p1, %f1, %f2; selp.u32 %r3, 1, 0, %p1;", "%r3",
            f(a), f(b));
    };
    CHECK(compared("lt", 1, 2) == 1);
    CHECK(compared("ne", nan, 2) == 0);
    CHECK(compared("neu", nan, 2) == 1);
    CHECK(compared("nan", 1, nan) == 1);
    CHECK(compared("num", 1, nan) == 0);
    CHECK(value_of("mov.b64 %fd1, %rd1; cvt.rzi.s32.f64 %r3, %fd1;", "%r3", std::bit_cast<std::uint64_t>(-1.9)) ==
          0xffffffff);
    CHECK(value_of("mov.b64 %fd1, %rd1; cvt.rzi.s32.f64 %r3, %fd1;", "%r3", std::bit_cast<std::uint64_t>(1e30)) ==
          0x7fffffff);
}

TEST_CASE("conversions of small floats, all codes, against the scalar ones of the library") {
    struct Case {
        DataType type;
        const char *decode, *encode;
    };
    const Case cases[] = {{DataType::float16, "cvt.f32.f16 %f1, %rs1;", "cvt.rn.f16.f32 %rs2, %f1;"},
                          {DataType::bfloat16, "cvt.f32.bf16 %f1, %rs1;", "cvt.rn.bf16.f32 %rs2, %f1;"}};
    for (const Case& c : cases) {
        std::vector<std::uint32_t> out(65536);
        for (unsigned code = 0; code < 65536; ++code) out[code] = code;
        run(kernel("LOOP: mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd0, %rd1; ld.global.u16 %rs1, [%rd1];" +
                   std::string(c.decode) + "st.global.f32 [%rd1], %f1;" +
                   "add.s32 %r0, %r0, 64; setp.lt.u32 %p1, %r0, 65536; @%p1 bra LOOP;"),
            out, 64);
        for (std::uint32_t code = 0; code < 65536; ++code) {
            const double expected = load_as_double(c.type, &code);
            const float found = std::bit_cast<float>(out[code]);
            if (std::isnan(expected) ? !std::isnan(found) : found != static_cast<float>(expected))
                FAIL(name_of(c.type) << " code " << code << ": " << found);
        }
        // And back: each value, and the ones in the middle between it and the next.
        std::vector<float> values;
        for (std::uint32_t code = 0; code < 65536; ++code) {
            const std::uint32_t next = code + 1;
            const auto v = static_cast<float>(load_as_double(c.type, &code));
            values.push_back(v);
            values.push_back((v + static_cast<float>(load_as_double(c.type, &next))) / 2);
        }
        std::vector<float> in = values;
        const std::string last = std::to_string(values.size());
        run(kernel("LOOP: mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd0, %rd1; ld.global.f32 %f1, [%rd1];" +
                   std::string(c.encode) + "cvt.u32.u16 %r1, %rs2; st.global.u32 [%rd1], %r1;" +
                   "add.s32 %r0, %r0, 64; setp.lt.u32 %p1, %r0, " + last + "; @%p1 bra LOOP;"),
            in, 64);
        for (std::size_t n = 0; n < values.size(); ++n) {
            std::uint32_t expected = 0;
            store_from_double(c.type, values[n], &expected);
            const auto found = std::bit_cast<std::uint32_t>(in[n]);
            const bool both_nan = std::isnan(values[n]) && std::isnan(load_as_double(c.type, &found));
            if (!both_nan && found != expected) FAIL(name_of(c.type) << " of " << values[n] << ": " << found);
        }
    }
}

TEST_CASE("pairs of fp8: the first source is the upper one, and they saturate") {
    const auto converted = [](const std::string& format, float high, float low) {
        return value_of("mov.b32 %f1, %r1; mov.b32 %f2, %r2; cvt.rn.satfinite." + format +
                            "x2.f32 %rs1, %f1, %f2; cvt.u32.u16 %r3, %rs1;",
                        "%r3", std::bit_cast<std::uint32_t>(high), std::bit_cast<std::uint32_t>(low));
    };
    CHECK(converted("e4m3", 1, -2) == 0x38c0);
    CHECK(converted("e4m3", 1e9F, 449) == 0x7e7e);
    CHECK(converted("e4m3", std::nanf(""), 0) == 0x7f00);
    CHECK(converted("e5m2", 1, -2) == 0x3cc0);
    CHECK(converted("e5m2", 1e9F, -INFINITY) == 0x7bfb);
    for (const DataType type : {DataType::float8e4m3, DataType::float8e5m2})
        for (std::uint32_t code = 0; code < 256; ++code) {
            const double value = load_as_double(type, &code);
            if (!std::isfinite(value)) continue;
            const char* const name = type == DataType::float8e4m3 ? "e4m3" : "e5m2";
            if (code % 16 < 2) {  // the rest are the same, and each is a program of its own
                CHECK(converted(name, static_cast<float>(value), 0) == code << 8);
                const std::uint64_t halves =
                    value_of("cvt.u16.u32 %rs1, %r1; cvt.rn.f16x2." + std::string(name) + "x2 %r3, %rs1;", "%r3", code);
                const auto low = static_cast<std::uint32_t>(halves & 0xffff);
                CHECK(load_as_double(DataType::float16, &low) == value);
            }
        }
}

TEST_CASE("threads meet at barriers, and wait for one another's flags") {
    std::vector<std::uint32_t> out(65, 0);
    // Each adds its number to the one before; the last has the sum when it is its turn.
    run(kernel("mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd0, %rd1;\n"
               "setp.eq.u32 %p1, %r0, 0; @%p1 bra GO;\n"
               "WAIT: ld.acquire.sys.u32 %r1, [%rd1]; setp.eq.u32 %p2, %r1, 0; @%p2 bra WAIT;\n"
               "GO: add.s32 %r2, %r0, 1; st.release.sys.u32 [%rd1+4], %r2;\n"
               "bar.sync 0; ld.global.u32 %r3, [%rd0+256]; bar.sync 0; st.global.u32 [%rd1], %r3;"),
        out, 64);
    for (unsigned t = 0; t < 64; ++t) CHECK(out[t] == 64);
}

TEST_CASE("votes, with threads that have gone") {
    const std::string vote =
        "setp.gt.u32 %p1, %r0, 6; @%p1 ret;\n"
        "setp.eq.u32 %p2, %r0, 3;\nbar.red.or.pred %p3, 0, %p2;\nbar.red.and.pred %p4, 0, %p2;\n"
        "selp.u32 %r1, 1, 0, %p3; selp.u32 %r2, 2, 0, %p4; add.s32 %r1, %r1, %r2;\n"
        "mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd0, %rd1; st.global.u32 [%rd1], %r1;";
    std::vector<std::uint32_t> out(8, 9);
    run(kernel(vote), out, 8);
    CHECK(out == std::vector<std::uint32_t>{1, 1, 1, 1, 1, 1, 1, 9});
}

/// What instructions leave in %r1 of each thread.
std::vector<std::uint32_t> by_thread(const std::string& body, unsigned threads) {
    std::vector<std::uint32_t> out(threads, 0xdead);
    run(kernel(body + "mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd0, %rd1; st.global.u32 [%rd1], %r1;"), out, threads);
    return out;
}

TEST_CASE("threads of a warp vote, also if some have gone, are elsewhere, or do so in two groups") {
    std::vector<std::uint32_t> ballots(40, 0xffffff8), expected(8, 2);
    ballots[0] = ballots[1] = ballots[2] = 0xdead;
    for (unsigned t = 32; t < 40; ++t) ballots[t] = 0xff;
    CHECK(by_thread("setp.lt.u32 %p1, %r0, 3; @%p1 ret; mov.u32 %r2, %laneid; setp.lt.u32 %p2, %r2, 28;"
                    "vote.sync.ballot.b32 %r1, %p2, -1;",
                    40) == ballots);
    const std::string asked = "setp.lt.u32 %p1, %r0, 4; @%p1 bra LOW; setp.eq.u32 %p2, %r0, 5;\n",
                      answered =
                          "LOW: setp.lt.u32 %p2, %r0, 9; vote.sync.all.pred %p3, %p2, 15;\n"
                          "END: selp.u32 %r1, 2, 3, %p3;";
    CHECK(by_thread(asked + "vote.sync.any.pred %p3, %p2, 240; bra END;" + answered, 8) == expected);
    for (unsigned t = 4; t < 8; ++t) expected[t] = 3;
    CHECK(by_thread(asked + "vote.sync.uni.pred %p3, %p2, 240; bra END;" + answered, 8) == expected);
    CHECK(by_thread("activemask.b32 %r2; setp.eq.u32 %p1, 1, 1; vote.sync.ballot.b32 %r3, %p1, %r2;"
                    "sub.u32 %r1, %r2, %r3;",
                    3) == std::vector<std::uint32_t>(3, 0));
    CHECK_THROWS_WITH(by_thread("setp.eq.u32 %p1, 1, 1; vote.sync.any.pred %p2, %p1, 1;", 2),
                      Catch::Matchers::Contains("a mask of threads, 0x1, without the one that uses it"));
}

TEST_CASE("threads of a warp give one another their values") {
    const auto shuffled = [](const std::string& how) {
        return by_thread("mad.lo.s32 %r2, %r0, 10, 5; shfl.sync." + how +
                             ", -1; selp.u32 %r2, 1000, 0, %p1;"
                             "add.s32 %r1, %r1, %r2;",
                         8);
    };
    using Values = std::vector<std::uint32_t>;
    CHECK(shuffled("idx.b32 %r1|%p1, %r2, 6, 31") == Values(8, 1065));
    CHECK(shuffled("idx.b32 %r1|%p1, %r2, 1, 0x1c1f") == Values{1015, 1015, 1015, 1015, 1055, 1055, 1055, 1055});
    CHECK(shuffled("up.b32 %r1|%p1, %r2, 2, 0") == Values{5, 15, 1005, 1015, 1025, 1035, 1045, 1055});
    CHECK(shuffled("down.b32 %r1|%p1, %r2, 3, 0x1c1f") == Values{1035, 15, 25, 35, 1075, 55, 65, 75});
    CHECK(shuffled("bfly.b32 %r1|%p1, %r2, 1, 31") == Values{1015, 1005, 1035, 1025, 1055, 1045, 1075, 1065});
    CHECK(by_thread("shfl.sync.bfly.b32 %r1, %r0, 2, 31, 15;", 4) == Values{2, 3, 0, 1});
    CHECK(by_thread("mov.u32 %r1, %lanemask_lt;", 33)[31] == 0x7fffffff);
}

TEST_CASE("clocks go on, and a thread that sleeps lets the others go on") {
    const std::string clocks =
        "mov.u32 %r1, %clock; mov.u64 %rd1, %clock64; nanosleep.u32 5000; mov.u32 %r2, %clock;"
        "mov.u64 %rd2, %clock64; ";
    CHECK(value_of(clocks + "sub.u32 %r3, %r2, %r1;", "%r3") < 0x8000'0000);
    CHECK(value_of(clocks + "sub.u64 %rd3, %rd2, %rd1;", "%rd3") < 0x8000'0000'0000'0000);
    std::vector<std::uint32_t> out(1, 0);
    run(kernel("setp.eq.u32 %p1, %r0, 1; @%p1 bra STORE; LOOK: ld.relaxed.gpu.u32 %r1, [%rd0]; nanosleep.u32 20;"
               "setp.eq.u32 %p2, %r1, 0; @%p2 bra LOOK; ret; STORE: st.relaxed.gpu.u32 [%rd0], 1;"),
        out, 2);
    CHECK(out.front() == 1);
}

TEST_CASE("a barrier of a warp waits for no other one") {
    std::vector<std::uint32_t> out(64, 0);
    // The second warp goes on when the first one has met, and the first lane sees what the last has stored.
    run(kernel("mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd0, %rd1; setp.ge.u32 %p1, %r0, 32; @%p1 bra WAIT;\n"
               "st.global.u32 [%rd1], %r0; bar.warp.sync -1; ld.global.u32 %r1, [%rd0+124];\n"
               "bar.warp.sync -1; add.s32 %r1, %r1, 1; st.release.gpu.u32 [%rd1], %r1; ret;\n"
               "WAIT: ld.acquire.gpu.u32 %r1, [%rd1+-128]; setp.ne.u32 %p2, %r1, 32; @%p2 bra WAIT;\n"
               "st.global.u32 [%rd1], %r1;"),
        out, 64);
    CHECK(out == std::vector<std::uint32_t>(64, 32));
}

TEST_CASE("threads of a warp find those with the same value") {
    using Values = std::vector<std::uint32_t>;
    CHECK(by_thread("shr.u32 %r2, %r0, 1; match.any.sync.b32 %r1, %r2, -1;", 5) == Values{3, 3, 12, 12, 16});
    CHECK(by_thread("mul.wide.u32 %rd2, %r0, 0; match.any.sync.b64 %r1, %rd2, 7;", 3) == Values(3, 7));
    const std::string told = "selp.u32 %r3, 100, 0, %p1; add.s32 %r1, %r1, %r3;";
    CHECK(by_thread("mov.u32 %r2, 9; match.all.sync.b32 %r1|%p1, %r2, -1;" + told, 4) == Values(4, 115));
    CHECK(by_thread("match.all.sync.b32 %r1|%p1, %r0, -1;" + told, 4) == Values(4, 0));
    CHECK(by_thread("match.all.sync.b64 %r1, %rd0, -1;", 2) == Values(2, 3));
}

/// Where kernels run on weak memory, which looks for races.
struct Weak : Only {
    mutable WeakGpu gpu{harness::seed()};
    using Only::Only;
    WeakGpu* weak() const override { return &gpu; }
};

/// A thread of the first warp stores; what follows is between that and its load by a thread of the second.
std::uint32_t passed_on(const std::string& between) {
    std::vector<std::uint32_t> out(2, 0);
    const Weak memory(out);
    run(kernel(".shared .align 4 .b8 word[4];\nsetp.ge.u32 %p1, %r0, 32; @%p1 bra SECOND;\n"
               "setp.ne.u32 %p2, %r0, 5; @%p2 bra STORED; st.shared.u32 [word], 4711;\n"
               "STORED: " +
               between + " bra.uni END;\nSECOND: " + between +
               "setp.ne.u32 %p3, %r0, 40; @%p3 bra END; ld.shared.u32 %r1, [word]; st.global.u32 [%rd0], %r1; END:"),
        out, 64, &memory);
    return out.front();
}

TEST_CASE("what a barrier of each warp alone separates is a race of two warps") {
    using Catch::Matchers::Contains;
    for (const char* const barrier :
         {"bar.sync 0;", "bar.sync 3, 64;", "barrier.sync 3;", "barrier.cta.sync.aligned 1, 64;"})
        CHECK(passed_on(barrier) == 4711);
    CHECK_THROWS_WITH(passed_on("bar.warp.sync -1;"), Contains("a race"));
    CHECK_THROWS_WITH(passed_on("mov.u32 %r7, %tid.x; shr.u32 %r7, %r7, 5; bar.sync %r7, 32;"), Contains("a race"));
}

TEST_CASE("barriers for some warps of a block open without the others") {
    std::vector<std::uint32_t> out(96, 0);
    // The first warp passes its barrier with the second while the third one waits for what comes after it.
    run(kernel("mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd0, %rd1; setp.ge.u32 %p1, %r0, 64; @%p1 bra WAIT;\n"
               "bar.sync 1, 64; add.s32 %r1, %r0, 1; st.release.gpu.u32 [%rd1], %r1; ret;\n"
               "WAIT: ld.acquire.gpu.u32 %r1, [%rd0+252]; setp.eq.u32 %p2, %r1, 0; @%p2 bra WAIT;\n"
               "st.global.u32 [%rd1], %r1;"),
        out, 96);
    CHECK(out[63] == 64);
    CHECK(out[64] == 64);
    // One warp that does not wait, and one that does; they vote, too.
    CHECK(by_thread("setp.lt.u32 %p1, %r0, 32; mov.u32 %r1, 7; @%p1 bra FIRST; bar.sync 2, 64; bra.uni END;\n"
                    "FIRST: bar.arrive 2, 64; END:",
                    64) == std::vector<std::uint32_t>(64, 7));
    CHECK(by_thread("setp.lt.u32 %p1, %r0, 33; bar.red.popc.u32 %r1, 0, %p1;", 64) ==
          std::vector<std::uint32_t>(64, 33));
    CHECK(by_thread("setp.lt.u32 %p1, %r0, 33; bar.red.and.pred %p2, 4, 64, %p1; selp.u32 %r1, 1, 2, %p2;", 64) ==
          std::vector<std::uint32_t>(64, 2));
}

TEST_CASE("barriers that nobody could pass are refused") {
    using Catch::Matchers::Contains;
    CHECK_THROWS_WITH(by_thread("bar.sync 16;", 32), Contains("barrier 16, of 16"));
    CHECK_THROWS_WITH(by_thread("bar.sync 1, 40;", 64), Contains("a barrier for 40 threads"));
    CHECK_THROWS_WITH(by_thread("bar.sync 1, 64;", 32), Contains("wait at barriers, and none is complete"));
    CHECK_THROWS_WITH(by_thread("bar.sync %r0;", 2), Contains("none is complete"));
    CHECK_THROWS_WITH(by_thread("bar.arrive 1, 64; bar.sync 1, 64;", 32), Contains("twice before it opens"));
    CHECK_THROWS_WITH(
        by_thread("setp.lt.u32 %p1, %r0, 32; @%p1 bra LOW; bar.sync 1, 64; bra.uni END; LOW: bar.sync 1; END:", 64),
        Contains("at which others wait for"));
    CHECK_THROWS_WITH(by_thread("barrier.cluster.arrive;", 1), Contains("barrier.cluster.arrive is not known here"));
}

TEST_CASE("functions have registers of their own") {
    const std::string twice =
        ".func (.param .b32 result) twice(.param .b32 number)\n{\n.reg .b32 %r<3>;\n"
        "ld.param.u32 %r1, [number];\nadd.s32 %r2, %r1, %r1;\nst.param.b32 [result], %r2;\nret;\n}\n";
    std::vector<std::uint32_t> out(4, 0);
    run(kernel("add.s32 %r1, %r0, 100;\n"
               "{ .reg .b32 temp; .param .b32 param0; st.param.b32 [param0+0], %r1; .param .b32 retval0;\n"
               "call.uni (retval0), twice, (param0); ld.param.b32 %r2, [retval0+0]; }\n"
               "add.s32 %r2, %r2, %r1; mul.wide.u32 %rd1, %r0, 4; add.s64 %rd1, %rd0, %rd1;\n"
               "st.global.u32 [%rd1], %r2;",
               twice),
        out, 4);
    CHECK(out == std::vector<std::uint32_t>{300, 303, 306, 309});
}

TEST_CASE("shared and local memory, also by addresses of all memory") {
    std::vector<std::uint32_t> out(4, 0);
    run(kernel(".shared .align 8 .b8 ours[16];\n.local .align 8 .b8 mine[8];\n"
               "mov.u32 %r1, ours; shl.b32 %r2, %r0, 2; add.s32 %r1, %r1, %r2; st.shared.u32 [%r1], %r0;\n"
               "mov.u64 %rd1, mine; cvta.local.u64 %rd2, %rd1; st.u32 [%rd2+4], %r0; ld.local.u32 %r3, [mine+4];\n"
               "bar.sync 0; mov.u64 %rd3, ours; cvta.shared.u64 %rd3, %rd3; ld.u32 %r4, [%rd3+8];\n"
               "mad.lo.s32 %r5, %r3, 10, %r4; mul.wide.u32 %rd4, %r0, 4; add.s64 %rd4, %rd0, %rd4;\n"
               "st.global.u32 [%rd4], %r5;"),
        out, 4);
    CHECK(out == std::vector<std::uint32_t>{2, 12, 22, 32});
}

TEST_CASE("variables of a module") {
    std::vector<std::uint32_t> out(2, 0);
    const Only memory(out);
    const std::string before = ".global .align 4 .b8 bytes[8] = {1, 2, 3, 4};\n.const .u32 one = 77;\n";
    run(kernel("mov.u64 %rd1, bytes; cvta.global.u64 %rd2, %rd1; ld.u32 %r1, [%rd2]; ld.const.u32 %r2, [one];\n"
               "st.global.u32 [bytes+4], %r2; ld.global.u32 %r3, [%rd1+4];\n"
               "st.global.u32 [%rd0], %r1; st.global.u32 [%rd0+4], %r3;",
               before),
        out, 1, &memory);
    CHECK(out == std::vector<std::uint32_t>{0x04030201, 77});
}

TEST_CASE("atomics tell what was there") {
    std::vector<std::uint32_t> out(6, 0);
    run(kernel("atom.acq_rel.sys.add.u32 %r1, [%rd0], 1; atom.global.sys.cas.b32 %r2, [%rd0+4], 0, 7;\n"
               "red.global.add.u32 [%rd0+16], 5;\n"
               "setp.eq.u32 %p1, %r2, 0; @%p1 st.global.u32 [%rd0+8], %r0;\n"
               "@!%p1 st.global.u32 [%rd0+12], %r1;"),
        out, 4);
    CHECK(out[0] == 4);
    CHECK(out[1] == 7);
    CHECK(out[4] == 20);
    CHECK(out[2] == 0);  // threads begin in their order
    CHECK(out[3] == 3);
}

TEST_CASE("faults") {
    std::vector<std::uint64_t> out(3, 0);
    const Only memory(out);
    const auto error_of = [&](const std::string& body) {
        try {
            run(kernel(body, ".extern .func absent(.param .b32 one);\n"), out, 1, &memory);
        } catch (const std::runtime_error& e) {
            return std::string(e.what());
        }
        return std::string("none");
    };
    CHECK(error_of("st.global.u64 [%rd0+16], 1;") == "none");
    CHECK(error_of("st.global.u64 [%rd0+24], 1;").find("are not memory that a kernel of this device") !=
          std::string::npos);
    CHECK(error_of("st.global.v2.u64 [%rd0+16], {%rd0, %rd0};").find("are not memory") != std::string::npos);
    CHECK(error_of("ld.global.u32 %r1, [%rd0+2];").find("not aligned to 4") != std::string::npos);
    CHECK(error_of("ld.global.v2.u64 {%rd1, %rd2}, [%rd0+8];").find("not aligned to 16") != std::string::npos);
    CHECK(error_of(".shared .b32 ours[2]; mov.u32 %r1, ours; st.shared.u32 [%r1+8], %r0;").find("shared memory") !=
          std::string::npos);
    CHECK(error_of(".local .b32 mine[2]; ld.local.u32 %r1, [mine+8];").find("local memory") != std::string::npos);
    CHECK(error_of("ld.param.u64 %rd1, [out+16];").find("parameters") != std::string::npos);
    CHECK(
        error_of("{ .param .b32 param0; st.param.b32 [param0], %r0; call.uni absent, (param0); }").find("in absent") !=
        std::string::npos);
    CHECK(error_of("trap;").find("a trap (thread 0 of block 0,0 in test, line") != std::string::npos);
}

TEST_CASE("what is not known is refused, with its line") {
    const auto error_of = [](const std::string& text) {
        try {
            Module(text).kernel("test");
        } catch (const std::runtime_error& e) {
            return std::string(e.what());
        }
        return std::string("none");
    };
    CHECK(error_of(kernel("\nfrobnicate.u32 %r1, %r2;")) ==
          "PTX, line 15: the instruction frobnicate.u32 is not known here");
    CHECK(error_of(kernel("add.ftz.f32 %f1, %f2, %f3;")).find("add.ftz.f32") != std::string::npos);
    CHECK(error_of(kernel("bra NOWHERE;")).find("no label NOWHERE") != std::string::npos);
    CHECK(error_of(kernel("add.s32 %r1, %r2, %nothing;")).find("nothing is called %nothing") != std::string::npos);
    CHECK(error_of(kernel("add.s32 7, %r2, %r3;")).find("a destination that is no register") != std::string::npos);
    CHECK(error_of("not PTX").find("'.version' was expected") != std::string::npos);
    CHECK(error_of(head + ".entry other() { ret; }") == "the module has no kernel test");
    CHECK(error_of(kernel("add.s32 %r1, %r2, 1")).find("line") != std::string::npos);
}

}  // namespace
}  // namespace tutti::ptx
