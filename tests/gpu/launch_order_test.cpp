// The order of launches: what is kept of captures.
#include "gpu/launch_order.hpp"

#include <malloc.h>

#include <array>

#include "base/result.hpp"
#include "harness/catch.hpp"
#include "harness/emulated_gpus.hpp"

using namespace tutti;

namespace {

/// Of streams that are captured whenever they are used: a capture's number is that of the use, or the last one.
class Captures : public harness::EmulatedGpus {
  public:
    Captures() : EmulatedGpus(1) {}
    std::uint64_t capture(void*) const override { return number; }
    void mark(int, void*& event, void*) override { event = this; }
    void mark_at_launch(int, void*& event, void*, void*&) override { event = this; }
    void follow_at_launch(int, void*& event, void*) override { event = this; }
    void follow(int, void*, void*) override {}
    void drop(int, void*) noexcept override {}

    std::uint64_t number = 0;
};

std::size_t heap() {
    return mallinfo2().uordblks;
}

}  // namespace

TEST_CASE("GPUs: captures that have ended take no memory, however many there were") {
    Captures gpus;
    gpu::LaunchOrder order(gpus, 0);
    std::array<char, 64> streams;  // twice as many as captures are kept apart
    const auto use = [&](char& stream) {
        gpu::LaunchOrder::Turn turn(order);
        turn.before(&stream);
        turn.after(&stream);
    };
    const auto round = [&] {
        for (char& stream : streams) ++gpus.number, use(stream);
    };
    round();
    const std::uint64_t first = gpus.number - streams.size() + 1;
    gpus.number = first;
    CHECK_THROWS_AS(order.check(streams.data()), Error);  // it goes on after too many others
    gpus.number = first + streams.size();
    for (int n = 0; n < 10; ++n) round();
    const std::size_t before = heap();
    for (int n = 0; n < 1000; ++n) round();
    CHECK(heap() < before + 50'000);
    const std::uint64_t last = gpus.number;
    gpus.number = last - 40;
    CHECK_THROWS_AS(order.check(&streams[23]), Error);
    gpus.number = last;
    CHECK_NOTHROW(order.check(&streams.back()));
}
