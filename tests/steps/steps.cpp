#include "steps.hpp"

#include <algorithm>

namespace tutti::steps {
namespace {

/// Between tuttiGroupStart and tuttiGroupEnd, whatever is thrown.
class Group {
  public:
    Group() { must(tuttiGroupStart(), "tuttiGroupStart"); }
    ~Group() {
        if (open_) tuttiGroupEnd();
    }
    Group(const Group&) = delete;
    void end() {
        open_ = false;
        must(tuttiGroupEnd(), "tuttiGroupEnd");
    }

  private:
    bool open_ = true;
};

/// The parameters of a unit, gathered; dp nullptr: they are there anyway.
class Unit {
  public:
    Unit(tuttiDp_t dp, std::size_t number) : dp_(dp), number_(static_cast<int>(number)) {
        if (dp_ != nullptr) must(tuttiDpGather(dp_, number_), "tuttiDpGather");
    }
    void release() const {
        if (dp_ != nullptr) must(tuttiDpRelease(dp_, number_), "tuttiDpRelease");
    }

  private:
    tuttiDp_t dp_;
    int number_;
};

}  // namespace

struct Steps::Kind {
    const char* name;
    void (Steps::*run)();
    bool among_all;  // in a storm of all kinds
};

const std::vector<Steps::Kind>& Steps::table() {
    static const std::vector<Kind> kinds = {{"collectives", &Steps::collectives, true},
                                            {"rounds", &Steps::rounds, false},
                                            {"pairs", &Steps::pairs, true},
                                            {"chain", &Steps::chain, true},
                                            {"puts", &Steps::puts, true},
                                            {"groups", &Steps::groups, true},
                                            {"streams", &Steps::streams, true},
                                            {"split", &Steps::split, true},
                                            {"parts", &Steps::parts, true},
                                            {"dp", &Steps::dp, true},
                                            {"servers", &Steps::servers, false},
                                            {"arrivals", &Steps::arrivals, false},
                                            {"suspend", &Steps::suspend, false}};
    return kinds;
}

std::vector<std::string> Steps::kinds() {
    std::vector<std::string> names;
    for (const Kind& kind : table()) names.emplace_back(kind.name);
    return names;
}

Steps::Steps(World world, std::uint64_t seed, std::size_t most_bytes)
    : world_(world),
      seed_(seed),
      most_bytes_(most_bytes),
      memory_(32 * most_bytes),
      own_{seed, static_cast<std::uint64_t>(world.rank), 99} {}

Steps::~Steps() {
    tuttiMemFree(shown_);
}

void Steps::run(std::uint64_t number, const std::string& focus) {
    Dice dice{seed_, number, 0};
    const bool other = dice.chance(25);
    std::vector<const Kind*> choice;
    for (const Kind& kind : table())
        if (focus == kind.name ? !other : kind.among_all && (focus == "all" || other)) choice.push_back(&kind);
    if (choice.empty()) throw std::runtime_error("no steps of the kind " + focus);
    run(number, *choice.at(dice.below(choice.size())));
}

void Steps::run_only(std::uint64_t number, const std::string& name) {
    const auto kind = std::ranges::find(table(), name, &Kind::name);
    if (kind == table().end()) throw std::runtime_error("no steps of the kind " + name);
    run(number, *kind);
}

void Steps::run(std::uint64_t number, const Kind& kind) {
    number_ = number;
    memory_.reset();
    doing_ = kind.name;
    (this->*kind.run)();
    memory_.mark();
}

int Steps::named_there() const {
    if (dp_ != nullptr || servers_ != nullptr) return -2;
    int rank = -1;
    if (tuttiCommGetFailedRank(in_part() ? part_.comm : world_.comm, &rank) != tuttiSuccess) return -1;
    return in_part() && rank >= 0 ? members_.at(static_cast<std::size_t>(rank)) : rank;
}

void Steps::clean_up() {
    if (part_.comm != nullptr) tuttiCommAbort(part_.comm);
    part_ = {};
    beside_part_ = false;
    if (dp_ != nullptr) tuttiDpDestroy(dp_);
    dp_ = nullptr;
    servers_.reset();
    for (tuttiStream_t& stream : streams_) {
        if (stream != nullptr) tuttiStreamDestroy(stream);
        stream = nullptr;
    }
    if (window_ != nullptr) tuttiCommWindowDeregister(world_.comm, window_);
    window_ = nullptr;
}

void Steps::do_collective(const World& world, std::uint64_t salt) {
    const Call call = some_collective(world, key(salt), all(salt), own_, memory_, most_bytes_);
    doing_ += " " + call.what;
    must(call.issue(nullptr), call.what.c_str());
    call.check();
}

void Steps::collectives() {
    for (std::uint64_t i = 1; i <= 4; ++i) do_collective(world_, i);
}

/// Messages of one length, over and over, from and to other memory each time.
void Steps::rounds() {
    for (std::uint64_t i = 1; i <= 12; ++i) {
        const Call call = large_collective(world_, key(i), all(1), own_, memory_);
        must(call.issue(nullptr), call.what.c_str());
        call.check();
    }
}

/// Of every rank to those that are some shifts away, several for each pair. To be issued in a group.
std::vector<Call> Steps::sends_and_receives(std::uint64_t salt) {
    std::vector<Call> calls;
    const int n = world_.ranks, me = world_.rank;
    Dice dice = all(salt);
    for (int shift = 0; shift < n; ++shift) {
        const std::size_t messages = dice.below(3);
        const int to = (me + shift) % n, from = (me - shift + n) % n;
        for (std::size_t m = 0; m < messages; ++m) {
            const std::uint64_t k = key(salt) + m * 1000 + static_cast<std::uint64_t>(shift);
            const auto type = static_cast<tuttiDataType_t>(Dice{k, 2}.below(tuttiNumTypes));
            const Numbers numbers(k, type);
            const std::size_t count = Dice{k, 1}.size(most_bytes_ * 2 / 5 / numbers.element());
            const std::size_t bytes = count * numbers.element();
            void *const out = memory_.take(bytes, own_), *const in = memory_.take(bytes, own_);
            numbers.put(me, 0, count, out);
            calls.push_back({"send",
                             [=, this](tuttiStream_t s) { return tuttiSend(out, count, type, to, world_.comm, s); },
                             [] {}});
            calls.push_back({"recv",
                             [=, this](tuttiStream_t s) { return tuttiRecv(in, count, type, from, world_.comm, s); },
                             [=] {
                                 expect(
                                     in, count, numbers, [&](void* t) { numbers.put(from, 0, count, t); },
                                     "recv from rank " + std::to_string(from));
                             }});
        }
    }
    return calls;
}

void Steps::pairs() {
    const std::vector<Call> calls = sends_and_receives(1);
    Group group;
    for (const Call& call : calls) must(call.issue(nullptr), call.what.c_str());
    group.end();
    for (const Call& call : calls) call.check();
}

/// A message that goes round, outside of groups.
void Steps::chain() {
    const int n = world_.ranks, me = world_.rank, next = (me + 1) % n, before = (me + n - 1) % n;
    if (n == 1) return;  // outside of groups it can't send to itself
    const int first = static_cast<int>(all(1).below(static_cast<std::size_t>(n)));
    const std::size_t count = all(2).size(most_bytes_);
    const Numbers numbers(key(0), tuttiUint8);
    void* const data = memory_.take(count, own_);
    const auto send = [&] { must(tuttiSend(data, count, tuttiUint8, next, world_.comm, nullptr), "tuttiSend"); };
    const auto recv = [&] {
        must(tuttiRecv(data, count, tuttiUint8, before, world_.comm, nullptr), "tuttiRecv");
        expect(
            data, count, numbers, [&](void* t) { numbers.put(first, 0, count, t); }, "chain");
    };
    if (me == first) numbers.put(first, 0, count, data);
    if (me == first) send();
    recv();
    if (me != first) send();
}

void Steps::open_window() {
    const std::size_t window_bytes = most_bytes_ / 4;
    if (shown_ == nullptr) must(tuttiMemAlloc(reinterpret_cast<void**>(&shown_), window_bytes), "tuttiMemAlloc");
    if (window_ == nullptr)
        must(tuttiCommWindowRegister(world_.comm, shown_, window_bytes, &window_, TUTTI_WIN_DEFAULT),
             "tuttiCommWindowRegister");
}

void Steps::puts() {
    open_window();
    const int n = world_.ranks, me = world_.rank;
    Dice dice = all(1);
    const int shift = static_cast<int>(dice.below(static_cast<std::size_t>(n)));
    const int to = (me + shift) % n, from = (me - shift + n) % n, sig = static_cast<int>(dice.below(TUTTI_SIGNALS));
    const std::size_t count = dice.size(most_bytes_ / 8), offset = dice.below(most_bytes_ / 8);
    const Numbers numbers(key(0), tuttiUint8);
    void* const data = memory_.take(count, own_);
    numbers.put(me, 0, count, data);
    const tuttiWaitSignalDesc_t descriptor{1, from, sig, 0};
    Group group;
    must(tuttiPutSignal(data, count, tuttiUint8, to, window_, offset, sig, 0, 0, world_.comm, nullptr),
         "tuttiPutSignal");
    must(tuttiWaitSignal(1, &descriptor, world_.comm, nullptr), "tuttiWaitSignal");
    group.end();
    expect(
        shown_ + offset, count, numbers, [&](void* t) { numbers.put(from, 0, count, t); }, "put");
    if (dice.chance(50)) {  // of a part of what was put there
        const std::size_t first = dice.below(count + 1), some = dice.below(count - first + 1);
        void* const got = memory_.take(some, own_);
        must(tuttiGet(got, some, tuttiUint8, to, window_, offset + first, 0, 0, world_.comm, nullptr), "tuttiGet");
        expect(
            got, some, numbers, [&](void* t) { numbers.put(me, first, some, t); }, "get");
    }
    must(tuttiBarrier(world_.comm, nullptr), "tuttiBarrier");
    if (!dice.chance(30)) return;
    must(tuttiCommWindowDeregister(world_.comm, std::exchange(window_, nullptr)), "tuttiCommWindowDeregister");
}

void Steps::groups() {
    std::vector<Call> calls = sends_and_receives(1);
    for (std::uint64_t i = 2; i < 5; ++i)
        calls.push_back(some_collective(world_, key(i), all(i), own_, memory_, most_bytes_));
    Group group;
    for (const Call& call : calls) must(call.issue(nullptr), call.what.c_str());
    group.end();
    for (const Call& call : calls) call.check();
}

void Steps::streams() {
    for (tuttiStream_t& stream : streams_)
        if (stream == nullptr) must(tuttiStreamCreate(&stream), "tuttiStreamCreate");
    std::vector<Call> calls;
    for (std::uint64_t i = 1; i < 6; ++i) {
        calls.push_back(some_collective(world_, key(i), all(i), own_, memory_, most_bytes_));
        must(calls.back().issue(streams_[all(i).below(2)]), calls.back().what.c_str());
    }
    for (const tuttiStream_t stream : streams_) must(tuttiStreamSynchronize(stream), "tuttiStreamSynchronize");
    for (const Call& call : calls) call.check();
    if (!all(7).chance(30)) return;
    for (tuttiStream_t& stream : streams_)
        must(tuttiStreamDestroy(std::exchange(stream, nullptr)), "tuttiStreamDestroy");
}

void Steps::make_part() {
    const auto color_of = [&](int rank) {
        return static_cast<int>(all(100 + static_cast<std::uint64_t>(rank)).below(4)) - 1;
    };
    const auto key_of = [&](int rank) {
        return static_cast<int>(all(200 + static_cast<std::uint64_t>(rank)).below(9));
    };
    const int mine = color_of(world_.rank);
    members_.clear();
    for (int r = 0; r < world_.ranks; ++r)
        if (color_of(r) == mine) members_.push_back(r);
    std::ranges::stable_sort(members_, {}, key_of);
    World part;
    must(tuttiCommSplit(world_.comm, mine, key_of(world_.rank), &part.comm, nullptr), "tuttiCommSplit");
    if (mine < 0 && part.comm != nullptr) throw Wrong("split: a communicator without a color");
    if (mine < 0) return;
    part_.comm = part.comm;
    must(tuttiCommCount(part.comm, &part.ranks), "tuttiCommCount");
    must(tuttiCommUserRank(part.comm, &part.rank), "tuttiCommUserRank");
    if (part.ranks != static_cast<int>(members_.size()) || members_[static_cast<std::size_t>(part.rank)] != world_.rank)
        throw Wrong("split: rank " + std::to_string(part.rank) + " of " + std::to_string(part.ranks));
    part_ = part;
}

void Steps::leave_part() {
    if (part_.comm != nullptr) must(tuttiCommDestroy(std::exchange(part_.comm, nullptr)), "tuttiCommDestroy");
}

/// What a part does differs from what others do.
void Steps::split() {
    make_part();
    for (std::uint64_t i = 0; i < 2 && part_.comm != nullptr; ++i)
        do_collective(part_, 300 + i + static_cast<std::uint64_t>(members_.front()) * 10);
    leave_part();
}

/// A part and its parent by turns.
void Steps::parts() {
    make_part();
    for (std::uint64_t i = 0; i < 3; ++i) {
        if (part_.comm != nullptr) do_collective(part_, 300 + i + static_cast<std::uint64_t>(members_.front()) * 10);
        beside_part_ = true;
        do_collective(world_, 400 + i);
        beside_part_ = false;
    }
    leave_part();
}

void Steps::suspend() {
    if (window_ != nullptr)
        must(tuttiCommWindowDeregister(world_.comm, std::exchange(window_, nullptr)), "tuttiCommWindowDeregister");
    must(tuttiCommSuspend(world_.comm), "tuttiCommSuspend");
    must(tuttiCommResume(world_.comm), "tuttiCommResume");
    do_collective(world_, 1);
}

void Steps::servers() {
    if (world_.ranks > 8) return dp();
    doing_ += " create";
    servers_ = servers_of_keys(world_, all(1), own_, memory_, most_bytes_);
    doing_ = "servers";
    servers_->run();
    servers_.reset();
}

void Steps::arrivals() {
    if (world_.ranks > 8) return dp();
    doing_ += " create";
    servers_ = servers_on_arrival(world_, all(1), own_, memory_, most_bytes_);
    doing_ = "arrivals";
    servers_->run();
    servers_.reset();
}

void Steps::dp() {
    Dice dice = all(1);
    train(static_cast<tuttiDpMode_t>(dice.below(tuttiDpNumModes)), 1 + dice.below(4));
}

/// A pass that gives every parameter's gradient, or adds to it.
void Steps::backward(const std::vector<std::size_t>& sizes, std::uint64_t salt, bool add, bool gathered) {
    std::vector<float> more;
    for (std::size_t p = sizes.size(); p-- > 0;) {
        const Unit unit(gathered ? dp_ : nullptr, p);
        void* gradient = nullptr;
        must(tuttiDpGradient(dp_, p, &gradient), "tuttiDpGradient");
        if (add) {
            more.resize(sizes[p]);
            fill(more.data(), sizes[p], key(p) + salt, world_.rank);
            for (std::size_t i = 0; i < sizes[p]; ++i) static_cast<float*>(gradient)[i] += more[i];
        } else {
            fill(gradient, sizes[p], key(p) + salt, world_.rank);
        }
        must(tuttiDpGradReady(dp_, p), "tuttiDpGradReady");
        unit.release();
    }
}

/// Gradients are whole numbers, and the sum is subtracted from the weights, so that all weights are known exactly.
void Steps::train(tuttiDpMode_t mode, std::size_t rounds) {
    Dice dice = all(2);
    const std::size_t count = 1 + dice.below(4);
    std::vector<std::size_t> sizes(count);
    std::vector<std::string> names(count);
    weights_.assign(count, {});
    std::vector<tuttiDpParameter_t> parameters;
    for (std::size_t p = 0; p < count; ++p) {
        sizes[p] = 1 + dice.size(most_bytes_ / 32);
        names[p] = "p" + std::to_string(p);
        weights_[p].assign(sizes[p], 0);
        parameters.push_back({names[p].c_str(), weights_[p].data(), nullptr, sizes[p], tuttiFloat32, tuttiDpSameType, 0,
                              static_cast<int>(p)});
    }
    tuttiDpConfig_t config = TUTTI_DP_CONFIG_INITIALIZER;
    config.mode = mode;
    config.sum = 1;
    config.bucketBytes = 64 << 10;
    config.optimizer.kind = tuttiDpSgd;
    config.optimizer.learningRate = 1;
    config.separateGathers = static_cast<int>(sizes[0] % 2);
    doing_ += " create";
    tuttiDp_t layer = nullptr;
    must(tuttiDpCreate(&layer, parameters.data(), count, &config, world_.comm), "tuttiDpCreate");
    dp_ = layer;
    const bool gathered = mode == tuttiDpZero3;
    const std::size_t passes = 1 + dice.below(2);
    doing_ = "dp step in mode " + std::to_string(mode);
    for (std::size_t round = 0; round < rounds; ++round) {
        must(tuttiDpBegin(dp_), "tuttiDpBegin");
        for (std::size_t pass = 0; pass < passes; ++pass) {
            must(tuttiDpNoSync(dp_, pass + 1 < passes ? 1 : 0), "tuttiDpNoSync");
            backward(sizes, round * passes + pass, pass > 0, gathered);
        }
        must(tuttiDpSynchronize(dp_), "tuttiDpSynchronize");
        must(tuttiDpStep(dp_), "tuttiDpStep");
        for (std::size_t p = 0; p < count; ++p) {
            const Unit unit(gathered ? dp_ : nullptr, p);
            void* values = nullptr;
            must(tuttiDpData(dp_, p, &values), "tuttiDpData");
            const auto expected = [&](std::size_t i) {
                int sum = 0;
                for (std::size_t before = 0; before < (round + 1) * passes; ++before)
                    for (int r = 0; r < world_.ranks; ++r) sum += value(key(p) + before, r, i);
                return -sum;
            };
            expect_values(values, sizes[p], expected, doing_);
            unit.release();
        }
    }
    doing_ = "dp destroy";
    must(tuttiDpDestroy(std::exchange(dp_, nullptr)), "tuttiDpDestroy");
}

}  // namespace tutti::steps
