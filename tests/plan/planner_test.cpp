// What runs for an operation: the same on all ranks, found again, and forgotten in time.
#include "plan/planner.hpp"

#include <vector>

#include "harness/catch.hpp"
#include "transport/arena.hpp"

using namespace tutti;

namespace {

/// One rank's planner, without the others: what it prepares is never connected.
class Planning {
  public:
    explicit Planning(int ranks, Rank rank = 0, bool on_gpu = false)
        : arena_(Arena::make(ranks, false)),
          planner_(std::make_shared<Tuner>(host_platform(ranks, ranks, 32 << 20, 1 << 20, {&shm_transport()}),
                                           Allowed(), false, nullptr),
                   {rank,
                    {},
                    on_gpu,
                    [](Rank) { return false; },
                    [this](BoundProgram bound, bool) {
                        ++prepared;
                        const auto connect = [](BoundProgram::Peer, int, bool) -> Connection { throw 0; };
                        return Executable{std::make_unique<HostExecution>(std::move(bound), arena_->page(),
                                                                          collective_channels, CacheShare(), connect),
                                          nullptr};
                    }}) {}

    Planner& operator*() { return planner_; }
    Planner* operator->() { return &planner_; }
    int prepared = 0;

  private:
    std::shared_ptr<Arena> arena_;
    Planner planner_;
};

Operation operation(Collective collective, std::size_t count, DataType type = DataType::float32, Rank root = 0) {
    Operation o;
    o.collective = collective;
    o.count = count;
    o.type = type;
    o.root = root;
    return o;
}

/// Has run: channels aside, as if it had said so.
void run(Planning& planning, const Operation& o, bool mappable) {
    const Plan& plan = planning->plan(o);
    REQUIRE(plan.told != nullptr);
    planning->learn_from(plan);
    Job job;
    job.channels = 0;
    job.mappable = mappable;
    plan.runs->execution->start(job);
}

/// Counts how often two of them are compared.
struct Counted {
    int number;
    static inline std::size_t comparisons = 0;
    friend bool operator==(const Counted& a, const Counted& b) {
        ++comparisons;
        return a.number == b.number;
    }
};
struct Hash {
    std::size_t operator()(const Counted& c) const { return static_cast<std::size_t>(c.number); }
};

}  // namespace

TEST_CASE("a table finds and forgets by few comparisons among thousands, what was used longest ago first") {
    Recent<Counted, int, Hash> recent(4096);
    std::vector<int> forgotten;
    const auto may_go = [&](int value) {
        forgotten.push_back(value);
        return value != 2;
    };
    for (int i = 0; i < 4096; ++i) recent.add({i}, i, may_go);
    CHECK(forgotten.empty());
    Counted::comparisons = 0;
    for (int i = 0; i < 4096; ++i) REQUIRE(*recent.find({i}) == i);
    CHECK(Counted::comparisons == 4096);
    recent.find({0});
    recent.add({-1}, -1, may_go);
    recent.add({-2}, -2, may_go);
    CHECK(forgotten == std::vector{1, 2, 3});  // 0 was used since; 2 has to stay
    CHECK(recent.size() == 4096);
    CHECK(recent.find({1}) == nullptr);
    CHECK(recent.find({3}) == nullptr);
    CHECK(recent.find({0}) != nullptr);
    CHECK(*recent.find({2}) == 2);
    Counted::comparisons = 0;
    for (int i = 10'000; i < 30'000; ++i) recent.add({i}, i, may_go);
    CHECK(Counted::comparisons == 0);
    CHECK(recent.size() == 4096);
}

TEST_CASE("a table in which nothing may go grows, and shrinks when it may") {
    Recent<Counted, int, Hash> recent(4);
    for (int i = 0; i < 100; ++i) recent.add({i}, i, [](int) { return false; });
    CHECK(recent.size() == 100);
    for (int i = 0; i < 100; ++i) REQUIRE(*recent.find({i}) == i);
    recent.add({100}, 100, [](int) { return true; });
    CHECK(recent.size() == 4);
    CHECK(*recent.find({100}) == 100);
    CHECK(*recent.find({99}) == 99);
    CHECK(recent.find({96}) == nullptr);
}

TEST_CASE("equal operations have one plan, whatever their buffers, and others have plans of their own") {
    Planning planning(4);
    Operation o = operation(Collective::all_reduce, 1000);
    const Plan* const plan = &planning->plan(o);
    int buffer = 0;
    o.input = &buffer;
    o.output = &buffer;
    CHECK(&planning->plan(o) == plan);
    CHECK(planning->plans() == 1);
    Operation other = o;
    other.op = ReduceOp::max;
    other.call_op = 2;
    CHECK(planning->plan(other).job.call.signature != plan->job.call.signature);
    other = o;
    other.type = DataType::int32;
    CHECK(planning->plan(other).job.call.signature != plan->job.call.signature);
    other = o;
    ++other.count;
    CHECK(planning->plan(other).job.call.signature != plan->job.call.signature);
    CHECK(planning->plan(other).runs == plan->runs);  // differs in size alone
    CHECK(planning->plans() == 4);
    CHECK(planning->plan(operation(Collective::broadcast, 1000, DataType::float32, 0)).runs !=
          planning->plan(operation(Collective::broadcast, 1000, DataType::float32, 1)).runs);
    CHECK(&planning->plan(o) == plan);
}

TEST_CASE("a call like the last one, or almost like it, has the plan that it has by itself") {
    Operation averaged = operation(Collective::all_reduce, 1000);
    averaged.average = true;
    averaged.call_op = 4;
    const std::vector<Operation> calls = {operation(Collective::all_reduce, 1000),
                                          operation(Collective::all_reduce, 1001),
                                          operation(Collective::all_reduce, 1000, DataType::float64),
                                          operation(Collective::broadcast, 1000),
                                          operation(Collective::broadcast, 1000, DataType::float32, 1),
                                          averaged};
    Planning planning(3), alone(3);
    for (const Operation& before : calls)
        for (const Operation& call : calls) {
            const Plan* const plan = &planning->plan(before);
            CHECK(&planning->plan(before) == plan);
            const Plan &found = planning->plan(call), &its = alone->plan(call);
            CHECK((&found == plan) == (&call == &before));
            CHECK(found.job.call.signature == its.job.call.signature);
            CHECK(found.job.count == call.count);
            CHECK(found.job.divide_by == its.job.divide_by);
        }
    CHECK(planning->plans() == calls.size());
}

TEST_CASE("all ranks plan alike: algorithm, tiling and signature") {
    for (const int n : {2, 3, 8})
        for (int c = 0; c < collectives; ++c)
            for (const std::size_t count : {0, 1, 1000, 70'000, 3'000'000}) {
                const auto collective = static_cast<Collective>(c);
                Operation o = operation(collective, collective == Collective::barrier ? 0 : count);
                if (o.is_pair() || !o.moves()) continue;
                Planning first(n);
                const Plan& expected = first->plan(o);
                for (Rank r = 1; r < n; ++r) {
                    Planning other(n, r);
                    const Plan& plan = other->plan(o);
                    INFO(name_of(collective) << " of " << count << " among " << n << ", rank " << r);
                    CHECK(plan.algorithm == expected.algorithm);
                    CHECK(plan.job == expected.job);
                    CHECK(plan.job.call.signature == expected.job.call.signature);
                    CHECK((plan.told == nullptr) == (expected.told == nullptr));
                }
            }
}

TEST_CASE("a send and its receive have one signature and one tiling, others have another one") {
    Planning sender(3, 0), receiver(3, 2);
    for (const std::size_t count : {1, 1000, 3'000'000}) {
        const Plan& send = sender->plan(operation(Collective::send, count, DataType::float32, 2));
        const Plan& receive = receiver->plan(operation(Collective::recv, count, DataType::float32, 0));
        const std::uint32_t signature = send.job.call.signature;
        CHECK(receive.job.call.signature == signature);
        CHECK(send.job == receive.job);
        const auto other = [&](std::size_t length, DataType type) {
            return receiver->plan(operation(Collective::recv, length, type, 0)).job.call.signature;
        };
        CHECK(other(count + 1, DataType::float32) != signature);
        CHECK(other(count, DataType::int32) != signature);
    }
}

TEST_CASE(
    "plans are kept in bounded number, of sends and receives, too, and programs go with the last plan of theirs") {
    Planning planning(2);
    const Operation first = operation(Collective::all_reduce, 1);
    planning->plan(first);
    CHECK(planning.prepared == 1);
    for (std::size_t count = 1; count <= 10'000; ++count) {
        planning->plan(operation(Collective::send, count, DataType::float32, 1));
        planning->plan(operation(Collective::recv, count, DataType::float32, 1));
        REQUIRE(planning->plans() <= planning->most_plans());
    }
    CHECK(planning.prepared == 3);
    planning->plan(first);
    CHECK(planning.prepared == 4);
}

TEST_CASE("on a GPU, programs stay when plans go: captured graphs may name them") {
    Planning planning(2, 0, true);
    for (int round = 0; round < 2; ++round)
        for (std::size_t count = 1; count <= 10'000; ++count) planning->plan(operation(Collective::broadcast, count));
    const int prepared = planning.prepared;
    for (std::size_t count = 1; count <= 1'000; ++count) planning->plan(operation(Collective::send, count, {}, 1));
    for (std::size_t count = 1; count <= 10'000; ++count) planning->plan(operation(Collective::broadcast, count));
    CHECK(planning.prepared == prepared + 1);
    CHECK(planning->plans() <= planning->most_plans());
}

TEST_CASE("what a call has told of all buffers changes the plan of the next one of its size, and changes it back") {
    Planning planning(4);
    const Operation o = operation(Collective::all_reduce, 4 << 20);
    const Plan* const unknown = &planning->plan(o);
    const double time = planning->expected_time(o);
    run(planning, o, true);
    const Plan* const mappable = &planning->plan(o);
    CHECK(mappable != unknown);
    CHECK(planning->expected_time(o) < time);
    CHECK(&planning->plan(operation(Collective::all_reduce, 8 << 20)) != mappable);
    CHECK(planning->expected_time(operation(Collective::all_reduce, 8 << 20)) > time);  // another size
    run(planning, o, false);
    CHECK(&planning->plan(o) == unknown);
    CHECK(planning->expected_time(o) == time);
    run(planning, o, true);
    CHECK(&planning->plan(o) == mappable);
    CHECK(planning->plan(operation(Collective::broadcast, 4 << 20)).told == nullptr);
    CHECK(planning->plan(operation(Collective::all_reduce, 1)).told == nullptr);
}

TEST_CASE("what a call tells is learned although sends have taken the place of its plan") {
    Planning planning(4);
    const Operation o = operation(Collective::all_reduce, 4 << 20);
    const double time = planning->expected_time(o);
    run(planning, o, true);
    for (std::size_t count = 1; count <= 1'000; ++count) planning->plan(operation(Collective::send, count, {}, 1));
    CHECK(planning->expected_time(o) < time);
}

TEST_CASE("uneven calls of a kind take one plan, whatever their lengths, and only those alike in them agree") {
    Planning planning(2), other(2, 1);
    const Operation even = operation(Collective::all_gather, 1);
    planning->plan(even);
    for (std::size_t count = 1; count <= 1'000; ++count) {
        const Rows rows{{{0, count}}, {{0, count}, {count, 1}}, count, count + 1, count};
        const Rows theirs{{{0, 1}}, {{0, count}, {count, 1}}, count, count + 1, count};
        Operation o = operation(Collective::all_gather, count);
        o.rows = &rows;
        const std::uint32_t signature = planning->plan(o).job.call.signature;
        o.rows = &theirs;
        REQUIRE(other->plan(o).job.call.signature == signature);
        const Rows wrong{{{0, count}}, {{0, count}, {count, 1}}, count, count + 1, count + 1};
        o.rows = &wrong;
        REQUIRE(planning->plan(o).job.call.signature != signature);
    }
    CHECK(planning->plans() == 2);
}
