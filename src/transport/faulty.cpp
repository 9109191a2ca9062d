#include "transport/faulty.hpp"

#include <charconv>
#include <random>
#include <thread>
#include <vector>

namespace tutti {
namespace {

using std::chrono::microseconds;

/// One lane's outlet: a FIFO of our own, from which pump() carries messages to the real one.
struct Pipe {
    explicit Pipe(Wire real) : slots(slot_depth * slot_stride), out(real) {
        Wire wire{&fifo, slots.data(), real.bell};
        in = std::make_unique<Receiver>(wire);
    }
    Fifo fifo{};
    std::vector<std::byte> slots;
    std::unique_ptr<Receiver> in;  // what this rank has written
    Sender out;                    // to the peer
    bool by_reference = false;     // the message that was passed on last: its release waits for the peer's
    bool passed_on = false;
};

class FaultyLink : public Link {
  public:
    FaultyLink(std::unique_ptr<Link> link, Bell& own_bell, const FaultPlan& plan, std::uint64_t name)
        : link_(std::move(link)), own_bell_(own_bell), plan_(plan), random_(plan.seed * 1000003 + name) {
        for (int lane = 0; lane < lanes_per_link; ++lane) pipes_.push_back(std::make_unique<Pipe>(link_->outlet(lane)));
        thread_ = std::thread([this] { work(); });
    }
    ~FaultyLink() override {
        closing_.store(true);
        thread_.join();
    }

    Wire outlet(int lane) override {
        Pipe& pipe = *pipes_[static_cast<std::size_t>(lane)];
        return {&pipe.fifo, pipe.slots.data(), link_->outlet(lane).bell};
    }
    Wire inlet(int lane) override { return link_->inlet(lane); }
    bool refer(const void* pointer, std::size_t size, Reference& out) override {
        return link_->refer(pointer, size, out);
    }
    std::byte* see(Reference reference, std::size_t size) override { return link_->see(reference, size); }
    RankPage* page() override { return link_->page(); }
    Signals* signals() override { return link_->signals(); }
    std::string describe() override { return link_->describe(); }

  private:
    bool one_in(int n) { return n > 0 && std::uniform_int_distribution<int>(1, n)(random_) == 1; }

    void work() {
        while (!closing_.load()) {
            bool moved = false;
            for (auto& pipe : pipes_) moved |= pump(*pipe);
            if (!moved) std::this_thread::sleep_for(microseconds(20));
        }
    }

    bool pump(Pipe& pipe) {
        if (dead_) return false;
        if (pipe.passed_on) {  // it may be overwritten once it is copied, or the peer has read it
            if (pipe.by_reference && !pipe.out.settled()) return false;
            pipe.in->release();
            pipe.passed_on = false;
            ring_bell(own_bell_);
            return true;
        }
        if (!pipe.in->ready() || !pipe.out.ready(true)) return false;
        if (one_in(plan_.drop_one_in)) return dead_ = true;
        if (one_in(plan_.delay_one_in))
            std::this_thread::sleep_for(microseconds(std::uniform_int_distribution<int>(10, 1000)(random_)));
        pass_on(pipe, one_in(plan_.tear_one_in));
        return true;
    }

    void pass_on(Pipe& pipe, bool torn) {
        const Cell& from = pipe.in->cell();
        Cell& to = pipe.out.cell();
        const std::byte* source = from.kind == Kind::inlined ? from.payload : pipe.in->slot();
        std::byte* sink = from.kind == Kind::inlined ? to.payload : pipe.out.slot();
        if (from.kind == Kind::reference) to.reference = from.reference;
        if (from.kind != Kind::inlined) to.set_row(from.row());
        if (from.kind == Kind::inlined || from.kind == Kind::slot) {
            const std::size_t half = torn ? from.bytes / 2 : from.bytes;
            std::memcpy(sink, source, half);
            if (torn) std::this_thread::sleep_for(microseconds(200));
            std::memcpy(sink + half, source + half, from.bytes - half);
        }
        pipe.out.begin(pipe.fifo.call.get());
        pipe.out.commit(from.kind, from.bytes, from.signature, from.mappable != 0);
        pipe.by_reference = from.kind == Kind::reference;
        pipe.passed_on = true;
        pipe.out.ring();
    }

    std::unique_ptr<Link> link_;
    Bell& own_bell_;
    const FaultPlan plan_;
    std::mt19937_64 random_;  // the thread's
    std::vector<std::unique_ptr<Pipe>> pipes_;
    bool dead_ = false;  // the thread's
    std::atomic<bool> closing_{false};
    std::thread thread_;
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

std::unique_ptr<Link> faulty(std::unique_ptr<Link> link, Bell& own_bell, const FaultPlan& plan, std::uint64_t name) {
    return std::make_unique<FaultyLink>(std::move(link), own_bell, plan, name);
}

}  // namespace tutti
