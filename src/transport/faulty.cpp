#include "transport/faulty.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <random>
#include <thread>
#include <vector>

#include "base/thread.hpp"
#include "transport/numbering.hpp"

namespace tutti {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

/// One channel's outlet: a FIFO from which pump() carries messages to the real one. Its writer sees the real reader's
/// credits, so there is always room for a message in the real FIFO.
struct Pipe {
    explicit Pipe(Wire real)
        : slots(slot_depth * real.stride),
          stride(real.stride),
          exchange(real.exchange),
          credits(&real.credits()),
          out(real, first_message) {}
    bool carries() const {
        const std::uint32_t next = passed.load(std::memory_order_acquire);
        return fifo.cells[next % fifo_depth].turn.load(std::memory_order_acquire) == next + 1;
    }

    Fifo fifo{};
    std::vector<std::byte> slots;
    const std::size_t stride;
    std::byte* const exchange;                         // for what the peer sends
    std::atomic<std::uint32_t>* credits;               // the peer's
    std::atomic<std::uint32_t> passed{first_message};  // messages that were passed on to the peer
    Sender out;                                        // to the peer
};

class FaultyLink : public Link {
  public:
    FaultyLink(std::unique_ptr<Link> link, const FaultPlan& plan, std::uint64_t name, std::function<void()> passed_on)
        : link_(std::move(link)), plan_(plan), passed_on_(std::move(passed_on)), random_(plan.seed * 1000003 + name) {
        for (int channel = 0; channel < channels_per_link; ++channel)
            pipes_.push_back(std::make_unique<Pipe>(link_->outlet(channel)));
        thread_ = start_thread("tutti-faults", [this] { work(); });
    }
    ~FaultyLink() override {
        closing_.store(true);
        thread_.join();
    }

    Wire outlet(int channel) override {
        Pipe& pipe = *pipes_[static_cast<std::size_t>(channel)];
        Wire wire{pipe.fifo.cells, &pipe.fifo, pipe.slots.data(), &wake_up_};
        wire.released = pipe.credits;
        wire.stride = pipe.stride;
        wire.exchange = pipe.exchange;
        return wire;
    }
    Wire inlet(int channel) override { return link_->inlet(channel); }
    bool refer(const void* pointer, std::size_t size, Reference& out) override {
        return link_->refer(pointer, size, out);
    }
    bool reads_references() const override { return link_->reads_references(); }
    std::byte* see(Reference reference, std::size_t size) override { return link_->see(reference, size); }
    void share() override { link_->share(); }
    RankPage* page() override { return link_->page(); }
    Signals* signals() override { return link_->signals(); }
    bool pending() override {
        if (dead_.load()) return false;
        const auto carries = [](const auto& pipe) { return pipe->carries(); };
        return std::ranges::any_of(pipes_, carries) || link_->pending();
    }
    bool arriving() override { return link_->arriving(); }
    std::uint64_t motion() override { return link_->motion(); }
    std::string describe() override { return link_->describe(); }

  private:
    bool one_in(int n) { return n > 0 && std::uniform_int_distribution<int>(1, n)(random_) == 1; }

    void work() {
        const auto look = [this] {
            bool moved = false;
            for (auto& pipe : pipes_) moved |= pump(*pipe);
            return moved;
        };
        while (!closing_.load()) {
            if (look()) continue;
            const std::uint32_t word = wake_up_.word.load(std::memory_order_acquire);
            wake_up_.sleeping.store(1, std::memory_order_seq_cst);
            if (!look()) futex_wait(wake_up_.word, word, milliseconds(2));  // there is no fence: it may miss a wake-up
            wake_up_.sleeping.store(0, std::memory_order_relaxed);
        }
    }

    bool pump(Pipe& pipe) {
        if (dead_.load() || !pipe.carries()) return false;
        if (one_in(plan_.drop_one_in)) {
            dead_.store(true);
            return true;
        }
        if (one_in(plan_.delay_one_in))
            std::this_thread::sleep_for(microseconds(std::uniform_int_distribution<int>(10, 1000)(random_)));
        pass_on(pipe, one_in(plan_.tear_one_in));
        return true;
    }

    void pass_on(Pipe& pipe, bool torn) {
        const std::uint32_t message = pipe.passed.load();
        const Cell& from = pipe.fifo.cells[message % fifo_depth];
        Cell& to = pipe.out.cell();
        const bool inlined = from.kind == Kind::inlined;
        const std::byte* source = inlined ? from.payload : pipe.slots.data() + message % slot_depth * pipe.stride;
        std::byte* sink = inlined ? to.payload : pipe.out.slot();
        if (from.kind == Kind::reference) to.reference = from.reference;
        if (!inlined) to.set_row(from.row());
        if (inlined || from.kind == Kind::slot) {
            const std::size_t half = torn ? from.bytes / 2 : from.bytes;
            std::memcpy(sink, source, half);
            if (torn) std::this_thread::sleep_for(microseconds(200));
            std::memcpy(sink + half, source + half, from.bytes - half);
        }
        pipe.out.begin(pipe.fifo.call.get());
        pipe.out.commit(from.kind, from.bytes, from.signature, from.mappable != 0);
        pipe.passed.store(message + 1);
        pipe.out.ring();
        if (passed_on_) passed_on_();
    }

    std::unique_ptr<Link> link_;
    const FaultPlan plan_;
    const std::function<void()> passed_on_;
    std::mt19937_64 random_;  // only thread_ uses it
    std::vector<std::unique_ptr<Pipe>> pipes_;
    std::atomic<bool> dead_{false}, closing_{false};
    WakeUp wake_up_{};  // of thread_; the rank that writes wakes it
    Thread thread_;
};

}  // namespace

FaultPlan FaultPlan::parse(std::string_view text) {
    const auto wrong = [&](const char* why) {
        fail(tuttiInvalidUsage, "TUTTI_FAULT is '%.*s': %s; seed:delay=N,tear=N,drop=N was expected",
             static_cast<int>(text.size()), text.data(), why);
    };
    FaultPlan plan;
    const char *at = text.data(), *const end = at + text.size();
    auto number = std::from_chars(at, end, plan.seed);
    if (number.ec != std::errc() || number.ptr == end || *number.ptr != ':')
        wrong("it does not begin with a number and ':'");
    for (at = number.ptr + 1; at < end;) {
        const std::string_view rest(at, static_cast<std::size_t>(end - at));
        const std::size_t equals = rest.find('=');
        if (equals == std::string_view::npos) wrong("an '=' is missing");
        const std::string_view kind = rest.substr(0, equals);
        int* one_in = kind == "delay"  ? &plan.delay_one_in
                      : kind == "tear" ? &plan.tear_one_in
                      : kind == "drop" ? &plan.drop_one_in
                                       : nullptr;
        if (one_in == nullptr) wrong("there is an unknown kind of fault");
        const auto value = std::from_chars(at + equals + 1, end, *one_in);
        if (value.ec != std::errc() || *one_in < 0) wrong("a number is expected after '='");
        if (value.ptr != end && *value.ptr != ',') wrong("a ',' is expected between kinds");
        at = value.ptr == end ? end : value.ptr + 1;
    }
    return plan;
}

std::unique_ptr<Link> faulty(std::unique_ptr<Link> link, const FaultPlan& plan, std::uint64_t name,
                             std::function<void()> passed_on) {
    return std::make_unique<FaultyLink>(std::move(link), plan, name, std::move(passed_on));
}

}  // namespace tutti
