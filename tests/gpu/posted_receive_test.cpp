// Sums that a kernel stores straight to the place that the receiver has posted: only those that have its length.
#include <algorithm>
#include <memory>
#include <vector>

#include "harness/catch.hpp"
#include "kernels/cuda/machine.hpp"

using namespace tutti;
using namespace tutti::gpu;

namespace {

constexpr std::size_t most = 4000;  // elements

/// One block of one thread: rank 0 sends the sum of its two chunks, rank 1 takes it as its result.
struct Side {
    Side(Fifo& fifo, std::byte* slots, bool sends, std::size_t count) : memory(2 * most, 1.0F) {
        end.fifo = &fifo;
        end.slots = slots;
        end.slot_stride = most * sizeof(float);
        end.in_process = 1;
        end.peer = sends ? 1 : 0;
        step.sources = sends ? 2 : 1;
        step.sinks = 1;
        const Operand peer{Place::peer, false, false, 0};  // the first connection
        operands[0] = sends ? input(0) : peer;
        operands[1] = sends ? input(1) : output(0);
        operands[2] = peer;
        postable = {0, 0, operands[1], 0};
        Plan& plan = job.plan;
        plan.steps = &step;
        plan.step_count = 1;
        plan.operands = operands;
        plan.operand_count = step.sources + step.sinks;
        plan.postables = &postable;
        plan.postable_count = sends ? 0 : 1;
        (sends ? plan.to : plan.from) = &connection;
        (sends ? plan.to_count : plan.from_count) = 1;
        plan.control = &control;
        plan.columns = 2;
        plan.push_safe = 1;
        job.input.at = job.output.at = reinterpret_cast<std::byte*>(memory.data());
        job.input.shareable = job.output.shareable = 1;
        job.count = 2 * count;
        job.block = job.tile = count;
        job.tiles = job.channels = 1;
        job.op = static_cast<std::uint8_t>(ReduceOp::sum);
        job.by_reference = 1;
        job.timeout_ns = 1'000'000;
    }
    bool run() {
        Block own(1);
        block = &own;
        const auto shared = std::make_unique<Shared>();
        const bool good = Machine<Native<float>>(job, 0, *shared).run();
        block = nullptr;
        return good;
    }
    std::vector<float> memory;
    Control control{};
    End end{};
    End* const connection = &end;
    Step step{};
    Operand operands[3]{};
    Postable postable{};
    gpu::Job job;
};

}  // namespace

TEST_CASE("GPUs: a sum lands where it is wanted if it has the length that is, and nowhere beyond") {
    for (const std::size_t wanted : {most, most / 2, std::size_t{100}}) {
        CAPTURE(wanted);
        const auto fifo = std::make_unique<Fifo>();
        std::vector<std::byte> slots(slot_depth * most * sizeof(float));
        Side from(*fifo, slots.data(), true, most), to(*fifo, slots.data(), false, wanted);
        CHECK(!to.run());  // offers its place, and waits for the message in vain,
        CHECK(to.control.verdict.cause == Verdict::timed_out);
        CHECK(from.run());  // which takes it or not
        CHECK((fifo->cells[0].kind == Kind::landed) == (wanted == most));
        const std::vector<float>& got = to.memory;
        CHECK(std::count(got.begin(), got.end(), 2.0F) == (wanted == most ? static_cast<std::ptrdiff_t>(most) : 0));
        if (wanted != most) continue;
        to.control = {};
        CHECK(to.run());
        CHECK(fifo->posted_receives[0].turn != 1);  // else a message 2^32 later would land here
    }
}

TEST_CASE("GPUs: what a peer's cell says is not believed where a message of that length has no room") {
    const auto verdict_on = [](auto&& change) {
        const auto fifo = std::make_unique<Fifo>();
        std::vector<std::byte> slots(slot_depth * most * sizeof(float));
        Side from(*fifo, slots.data(), true, most), to(*fifo, slots.data(), false, most);
        CHECK(from.run());
        REQUIRE(fifo->cells[0].kind == Kind::slot);
        change(fifo->cells[0], to.end);
        to.run();
        return to.control.verdict.cause;
    };
    const std::byte* regions[max_regions] = {};
    const auto refers_to = [&](std::uint64_t region, const std::byte* const* known) {
        return verdict_on([&](Cell& cell, End& end) {
            cell.kind = Kind::reference;
            cell.reference = {region, 4096};
            end.in_process = 0;
            end.regions = known;
        });
    };
    CHECK(verdict_on([](Cell&, End&) {}) == Verdict::Cause{});
    CHECK(verdict_on([](Cell& cell, End&) { cell.kind = Kind::inlined; }) == Verdict::wrong_kind);
    CHECK(verdict_on([](Cell&, End& end) { end.slot_stride = 64; }) == Verdict::wrong_kind);
    CHECK(refers_to(0, regions) == Verdict::wrong_kind);
    CHECK(refers_to(5, nullptr) == Verdict::wrong_kind);
    CHECK(refers_to(5, regions) == Verdict::wrong_kind);
    CHECK(refers_to(max_regions + 5, regions) == Verdict::wrong_kind);
}
