// What peers on other hosts put into windows and get from them: only what was lent is used, only as far as it goes, and
// no more once it was taken back. What they answer is written where it was asked for, and no further.
#include "transport/net/puts.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "transport/net/channel.hpp"
#include "transport/net/direct_puts.hpp"
#include "transport/numbering.hpp"

using namespace tutti;
using namespace tutti::net;

namespace {

constexpr std::uint32_t key = 7, gate = 3;

/// A window of 64 bytes in the middle of 192, and the end of a link that messages for it come to.
struct Window {
    std::shared_ptr<Arena> mine = Arena::make(2, false), inbox = Arena::make(1, false);
    Wire in = inbox->wire(0, one_sided_channel, &mine->page().wake_up);
    Sender peer{in};
    Puts puts{*mine, 1};
    std::vector<std::byte> memory = std::vector<std::byte>(192);

    Window() { mine->lent().lend(gate, key, std::span(memory).subspan(64, 64)); }
    Wire out() const { return mine->wire(1, answer_channel, nullptr); }

    void send(const void* message, std::size_t bytes, bool inlined) {
        REQUIRE(peer.ready(!inlined));
        std::memcpy(inlined ? peer.cell().payload : peer.slot(), message, bytes);
        peer.commit(inlined ? Kind::inlined : Kind::slot, static_cast<std::uint32_t>(bytes), 0);
        puts.take(in, out());
    }
    void put(PutHeader header, std::size_t bytes, bool inlined) {
        std::vector<std::byte> message((inlined ? sizeof header : put_header_in_slot) + bytes, std::byte{0x5a});
        std::memcpy(message.data(), &header, sizeof header);
        send(message.data(), message.size(), inlined);
    }
    void ask(PutHeader header, std::uint64_t bytes, bool inlined = true) {
        header.asks = 1;
        std::vector<std::byte> message((inlined ? sizeof header : put_header_in_slot) + sizeof bytes);
        std::memcpy(message.data(), &header, sizeof header);
        std::memcpy(message.data() + message.size() - sizeof bytes, &bytes, sizeof bytes);
        send(message.data(), message.size(), inlined);
    }
    std::uint64_t raised(int signal) const { return mine->signals(1).raised[signal]; }
    std::size_t written() const { return 192 - static_cast<std::size_t>(std::ranges::count(memory, std::byte{})); }
    bool is_untouched_around() const {
        for (std::size_t i = 0; i < 192; ++i)
            if ((i < 64 || i >= 128) && memory[i] != std::byte{}) return false;
        return true;
    }
};

PutHeader header(std::uint64_t offset, int signal = 0, bool raises = true) {
    return {offset, gate, key, static_cast<std::uint8_t>(signal), raises, 0, {}};
}

/// The peer's end of answer_channel.
class Answers {
  public:
    explicit Answers(const Window& window) : in_(window.out()) {}
    std::size_t messages() const { return messages_; }
    /// All that there are.
    std::vector<std::byte> read() {
        std::vector<std::byte> all;
        for (; in_.ready(); in_.release(), ++messages_) {
            const std::byte* const data = in_.cell().kind == Kind::inlined ? in_.cell().payload : in_.slot();
            all.insert(all.end(), data, data + in_.cell().bytes);
        }
        return all;
    }

  private:
    Receiver in_;
    std::size_t messages_ = 0;
};

/// This rank has asked for 32 bytes in the middle of `memory`; the peer answers what it likes.
struct Asker {
    std::shared_ptr<Arena> mine = Arena::make(2, false), inbox = Arena::make(1, false);
    Wire in = inbox->wire(0, answer_channel, &mine->page().wake_up);
    Sender peer{in};
    Puts puts{*mine, 1};
    std::vector<std::byte> memory = std::vector<std::byte>(96);

    void expect(std::size_t bytes = 32) { mine->awaited().expect(1, std::span(memory).subspan(32, bytes)); }
    void answer(std::size_t bytes, bool inlined = true) {
        REQUIRE(peer.ready(!inlined));
        std::memset(inlined ? peer.cell().payload : peer.slot(), 0x5a, bytes);
        peer.commit(inlined ? Kind::inlined : Kind::slot, static_cast<std::uint32_t>(bytes), 0);
        puts.take_answers(in);
    }
    /// Nothing else is.
    bool written(std::size_t bytes) const {
        for (std::size_t i = 0; i < memory.size(); ++i)
            if ((memory[i] != std::byte{}) != (i >= 32 && i < 32 + bytes)) return false;
        return true;
    }
    AwaitedMemory::State state() const { return mine->awaited().state(1); }
};

}  // namespace

TEST_CASE("a put is written where it says, and its last message raises the signal") {
    Window window;
    window.put(header(0, 2, false), 40, false);
    CHECK(window.written() == 40);
    CHECK(window.raised(2) == 0);
    window.put(header(40, 2), 24, true);
    CHECK(window.written() == 64);
    CHECK(window.raised(2) == 1);
    window.put({0, 0, 0, 5, 1, 0, {}}, 0, true);  // a signal alone
    CHECK(window.raised(5) == 1);
    CHECK(window.is_untouched_around());
    CHECK((!window.puts.broken() && !window.puts.due()));
}

TEST_CASE("a put for a window that was taken back is refused, with all that follow it") {
    const bool all = GENERATE(false, true);
    Window window;
    if (all)
        window.mine->lent().take_all_back();
    else
        window.mine->lent().take_back(gate);
    window.put(header(0), 8, true);
    CHECK((window.puts.due() && !window.puts.broken()));
    CHECK((window.puts.tell().gate == gate && !window.puts.due()));
    window.mine->lent().lend(gate, key, window.memory);
    window.put(header(0), 8, true);
    window.put({0, 0, 0, 0, 1, 0, {}}, 0, true);
    CHECK(window.written() == 0);
    CHECK(window.raised(0) == 0);
}

TEST_CASE("a put that can't be right breaks the link, and writes nothing") {
    const auto breaks = [](PutHeader put, std::size_t bytes, bool inlined) {
        Window window;
        window.put(put, bytes, inlined);
        return window.puts.broken() && window.written() == 0 && window.raised(0) == 0;
    };
    CHECK(breaks(header(41), 24, true));
    CHECK(breaks(header(65), 1, true));
    CHECK(breaks(header(~std::uint64_t{0}), 2, true));
    CHECK(breaks(header(0), 65, false));
    CHECK(breaks(header(0, signals_per_peer), 8, true));
    CHECK(breaks({0, gate, key, 0, 2, 0, {}}, 8, true));
    CHECK(breaks({0, gate, key, 0, 1, 2, {}}, 8, true));
    CHECK(breaks({0, gate, 0, 0, 1, 0, {}}, 8, true));  // data for no window
    Window window;
    window.send("short", 6, true);
    CHECK(window.puts.broken());
    Window other;
    other.send(std::vector<std::byte>(63).data(), 63, false);
    CHECK(other.puts.broken());
}

TEST_CASE("a get is answered as far as there is room, and what comes behind it waits") {
    constexpr std::size_t bytes = 6 * slot_bytes + 100;
    Window window;
    Answers answers(window);
    std::vector<std::byte> memory(bytes + 2);
    for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<std::byte>(i % 251 + 1);
    const std::vector<std::byte> wanted(memory.begin() + 1, memory.end() - 1);
    window.mine->lent().lend(gate, key, memory);
    window.ask({1, gate, key, 0, 0, 0, {}}, bytes, GENERATE(false, true));
    window.put(header(1), 8, true);  // after it
    CHECK((window.puts.is_answering() && !window.puts.go_on()));
    std::vector<std::byte> got;
    for (std::size_t messages = slot_depth; window.puts.is_answering(); messages += slot_depth) {
        CHECK(window.raised(0) == 0);
        const std::vector<std::byte> more = answers.read();
        got.insert(got.end(), more.begin(), more.end());
        CHECK(answers.messages() == messages);
        CHECK(window.puts.go_on());
    }
    const std::vector<std::byte> rest = answers.read();
    got.insert(got.end(), rest.begin(), rest.end());
    CHECK(answers.messages() == 7);
    CHECK(got == wanted);
    CHECK(window.raised(0) == 1);
    CHECK(memory[1] == std::byte{0x5a});
    window.ask({1, gate, key, 0, 0, 0, {}}, 8);  // after the put
    CHECK(answers.read() == std::vector<std::byte>(8, std::byte{0x5a}));
    window.ask({memory.size(), gate, key, 0, 0, 0, {}}, 0);  // of nothing: it only says that the peer has come to it
    CHECK(answers.read().empty());
    CHECK(answers.messages() == 9);
    CHECK((!window.puts.broken() && !window.puts.due()));
}

TEST_CASE("a get from a window that was taken back is refused, also between its answers") {
    const bool begun = GENERATE(false, true);
    Window window;
    Answers answers(window);
    std::vector<std::byte> memory(6 * slot_bytes);
    window.mine->lent().lend(gate, key, memory);
    if (!begun) window.mine->lent().take_back(gate);
    window.ask({0, gate, key, 0, 0, 0, {}}, memory.size());
    CHECK(window.puts.is_answering() == begun);
    CHECK(answers.read().size() == (begun ? slot_depth * slot_bytes : 0));
    window.mine->lent().take_back(gate);
    window.puts.go_on();
    CHECK((window.puts.due() && !window.puts.is_answering() && !window.puts.broken()));
    const Refusal refusal = window.puts.tell();
    CHECK((refusal.gate == gate && refusal.key == key && refusal.asked == 1));
    window.mine->lent().lend(gate, key, memory);
    window.ask({0, gate, key, 0, 0, 0, {}}, 8);
    CHECK(answers.read().empty());
}

TEST_CASE("a rank that has given up, or leaves, answers no more") {
    const bool closed = GENERATE(false, true);
    Window window;
    Answers answers(window);
    std::vector<std::byte> memory(6 * slot_bytes);
    window.mine->lent().lend(gate, key, memory);
    window.ask({0, gate, key, 0, 0, 0, {}}, memory.size());
    REQUIRE(window.puts.is_answering());
    (closed ? window.mine->page().closed : window.mine->page().leaving) = 1;
    CHECK(answers.read().size() == slot_depth * slot_bytes);
    window.puts.go_on();
    window.ask({0, gate, key, 0, 0, 0, {}}, 8);
    CHECK(answers.read().empty());
    CHECK((!window.puts.is_answering() && !window.puts.broken() && !window.puts.due()));
}

TEST_CASE("a get that can't be right breaks the link, and is not answered") {
    const auto breaks = [](PutHeader request, std::uint64_t bytes) {
        Window window;
        Answers answers(window);
        window.ask(request, bytes);
        return window.puts.broken() && answers.read().empty() && answers.messages() == 0;
    };
    CHECK(breaks({0, gate, key, 0, 0, 0, {}}, 65));
    CHECK(breaks({41, gate, key, 0, 0, 0, {}}, 24));
    CHECK(breaks({65, gate, key, 0, 0, 0, {}}, 0));
    CHECK(breaks({~std::uint64_t{0}, gate, key, 0, 0, 0, {}}, 2));
    CHECK(breaks({2, gate, key, 0, 0, 0, {}}, ~std::uint64_t{0}));
    CHECK(breaks({0, gate, key, 1, 0, 0, {}}, 8));  // with a signal
    CHECK(breaks({0, gate, key, 0, 1, 0, {}}, 8));
    CHECK(breaks({0, gate, 0, 0, 0, 0, {}}, 8));  // of no window
    for (const std::size_t bytes : {0, 7, 9}) {   // not as long as a number is
        Window window;
        window.put({0, gate, key, 0, 0, 1, {}}, bytes, true);
        CHECK(window.puts.broken());
    }
}

TEST_CASE("answers fill what was asked for, in their order") {
    Asker asker;
    asker.expect();
    asker.answer(20);
    CHECK((asker.written(20) && asker.state().missing == 12 && !asker.state().answered));
    asker.answer(12, false);
    CHECK((asker.written(32) && asker.state().missing == 0 && asker.state().answered));
    asker.mine->awaited().forget(1);
    CHECK(!asker.state().asked);
    asker.expect(0);
    CHECK(!asker.state().answered);
    asker.answer(0);
    CHECK(asker.state().answered);
    CHECK(!asker.puts.broken());
}

TEST_CASE("several gets are answered in the order in which they were asked, each in its own memory") {
    Asker asker;
    asker.expect(20);
    asker.mine->awaited().expect(1, std::span(asker.memory).subspan(52, 4));
    asker.mine->awaited().expect(1, {});
    CHECK((asker.state().asked == 3 && asker.state().missing == 20));
    asker.answer(20);
    CHECK((asker.written(20) && asker.state().answered));
    asker.answer(4);  // before the first was looked at
    CHECK((asker.written(24) && asker.state().asked == 3));
    asker.mine->awaited().forget(1);
    CHECK((asker.state().asked == 2 && asker.state().answered));
    asker.mine->awaited().forget(1);
    CHECK((asker.state().asked == 1 && !asker.state().answered));
    CHECK(!asker.puts.broken());
    asker.answer(1);  // the last one wants none
    CHECK((asker.puts.broken() && asker.written(24)));
}

TEST_CASE("answers that were not asked for break the link, and write nothing") {
    Asker never, twice, longer, empty, other;
    never.answer(8);
    CHECK((never.puts.broken() && never.written(0)));
    twice.expect();
    twice.answer(32);
    CHECK(!twice.puts.broken());
    twice.answer(0);
    CHECK((twice.puts.broken() && twice.written(32)));
    longer.expect();
    longer.answer(33);
    CHECK((longer.puts.broken() && longer.written(0)));
    empty.expect();
    empty.answer(0);
    CHECK((empty.puts.broken() && !empty.state().answered));
    other.mine->awaited().expect(0, other.memory);  // of another rank
    other.answer(8);
    CHECK((other.puts.broken() && other.written(0)));
}

TEST_CASE("once a rank has given up, answers that come late are passed over") {
    Asker asker;
    asker.expect();
    asker.mine->page().closed = 1;
    asker.mine->awaited().forget_all();
    asker.answer(32);
    CHECK((!asker.puts.broken() && asker.written(0)));
}

TEST_CASE("whatever a peer puts or asks for, nothing around the window is written or told") {
    std::mt19937 random(harness::seed());
    const auto any = [&](unsigned below) { return std::uniform_int_distribution<unsigned>(0, below - 1)(random); };
    std::unique_ptr<Window> window;
    std::unique_ptr<Answers> answers;
    int right = 0, told = 0;
    for (int i = 0; i < 5000; ++i) {
        if (!window) {
            window = std::make_unique<Window>();
            answers = std::make_unique<Answers>(*window);
            std::ranges::fill(std::span(window->memory).first(64), std::byte{0xee});
            std::ranges::fill(std::span(window->memory).last(64), std::byte{0xee});
        }
        const bool asks = any(3) == 0;
        PutHeader put = header(any(80), asks ? 0 : static_cast<int>(any(8)), !asks && any(2) == 1);
        if (any(4) == 0) reinterpret_cast<unsigned char*>(&put)[any(19)] = static_cast<unsigned char>(any(256));
        const bool inlined = any(2) == 1;
        if (asks)
            window->ask(put, any(8) == 0 ? ~std::uint64_t{any(80)} : any(80), inlined);
        else
            window->put(put, any(inlined ? 25 : 100), inlined);
        const std::vector<std::byte> said = answers->read();
        told += !said.empty();
        REQUIRE(std::ranges::count(said, std::byte{0xee}) == 0);
        for (const auto& around : {std::span(window->memory).first(64), std::span(window->memory).last(64)})
            REQUIRE(std::ranges::count(around, std::byte{0xee}) == 64);
        const bool went_well = !window->puts.broken() && !window->puts.due();
        right += went_well;
        if (!went_well) window.reset();
    }
    CHECK(right > 500);
    CHECK(told > 50);
}

TEST_CASE("data that an adapter has written raise the signal only while the window is lent, and as far as it goes") {
    const auto written = [](std::uint64_t offset, std::uint64_t bytes, std::size_t length = sizeof bytes) {
        PutHeader put = header(offset, 4);
        put.written = 1;
        std::vector<std::byte> message(sizeof put + length);
        std::memcpy(message.data(), &put, sizeof put);
        std::memcpy(message.data() + sizeof put, &bytes, std::min(length, sizeof bytes));
        return message;
    };
    const auto send = [](Window& window, const std::vector<std::byte>& message) {
        window.send(message.data(), message.size(), true);
    };
    Window window;
    send(window, written(8, 56));
    CHECK((window.raised(4) == 1 && !window.puts.broken() && window.written() == 0));
    window.mine->lent().take_back(gate);
    send(window, written(8, 56));
    CHECK((window.raised(4) == 1 && !window.puts.broken() && window.puts.due()));
    for (const auto& wrong : {written(8, 57), written(65, 0), written(1, ~std::uint64_t{0}), written(0, 8, 7)}) {
        Window other;
        send(other, wrong);
        CHECK((other.puts.broken() && other.raised(4) == 0));
    }
    Window both;
    PutHeader put = header(0, 0, false);
    put.written = put.asks = 1;
    both.put(put, 8, true);
    CHECK(both.puts.broken());
}

TEST_CASE("a peer is told once of each window that it has put into by a slot, if its adapter may write there") {
    Window window;
    const int adapter = 0, another = 0;
    int registered = 0;
    const auto lend = [&](std::uint32_t number, std::uint32_t its_key) {
        const std::span<std::byte> memory = std::span(window.memory).subspan(64, 64);
        const std::shared_ptr<void> owner(&++registered, [](void* count) { --*static_cast<int*>(count); });
        window.mine->lent().lend(number, its_key, memory, memory.subspan(16, 32), {{&adapter, 99, owner}});
    };
    lend(gate, key);
    window.put(header(0), 8, true);
    CHECK_FALSE(window.puts.has_window());  // small ones are copied all the same
    window.put(header(0), 40, false);
    window.put(header(0), 40, false);
    const void* const its[] = {&adapter};
    const void* const others[] = {&another};
    const std::optional<WindowKey> told = window.puts.next_window(its);
    REQUIRE(told);
    CHECK((told->address == reinterpret_cast<std::uintptr_t>(window.memory.data() + 80) && told->offset == 16));
    CHECK((told->bytes == 32 && told->gate == gate && told->key == key && told->remote_key == 99));
    CHECK_FALSE(window.puts.has_window());
    CHECK_FALSE(window.puts.next_window(its));
    window.puts.forget_windows();
    window.put(header(0), 40, false);
    CHECK_FALSE(window.puts.next_window(others));
    CHECK(registered == 1);
    window.mine->lent().take_back(gate);
    CHECK(registered == 0);  // before take_back() returns
    lend(gate, key + 1);
    window.put({0, gate, key + 1, 0, 1, 0, 0, {}}, 40, false);
    const void* const two[] = {&another, &adapter, &adapter};
    CHECK(window.puts.next_window(two)->way == 1);
    CHECK(window.puts.has_window());
    const std::optional<WindowKey> again = window.puts.next_window(two);
    CHECK((again->way == 2 && again->key == key + 1 && again->remote_key == 99));
    CHECK_FALSE(window.puts.has_window());
    window.mine->lent().take_all_back();
    CHECK(registered == 0);
}

namespace {

/// Rank 0's puts into gate 3, of which bytes 1000 to 2999 lie at address 50'000.
struct Origin {
    AwaitedMemory awaited;
    DirectPuts puts{awaited, 1};
    std::vector<std::byte> data = std::vector<std::byte>(5000);
    std::uint32_t next = first_message;

    Origin() { REQUIRE(learn({50'000, 1000, 2000, gate, key, 99, 0})); }
    bool learn(const WindowKey& window) {
        std::memcpy(puts.place(), &window, sizeof window);
        return puts.arrived();
    }
    PutMessage message(std::uint64_t offset, std::size_t bytes) const {
        return {header(offset), std::span(data).first(bytes)};
    }
    DirectPuts::Way way(const PutMessage& put, std::uint32_t credits, RemoteMemory* place = nullptr) const {
        const DirectPuts::Route route = puts.route_of(put, next, credits, 1);
        if (place != nullptr) *place = route.to;
        return route.way;
    }
    /// -1: later; else the rail.
    int rail(std::uint64_t offset, std::size_t bytes, std::uint32_t credits, unsigned ways) {
        const PutMessage put = message(offset, bytes);
        const DirectPuts::Route route = puts.route_of(put, next, credits, ways);
        if (route.way == DirectPuts::Way::later) return -1;
        CHECK(route.way == DirectPuts::Way::by_adapter);
        puts.sent(put, next++, route);
        return static_cast<int>(route.rail);
    }
    DirectPuts::Way send(std::uint64_t offset, std::size_t bytes, std::uint32_t credits) {
        const PutMessage put = message(offset, bytes);
        const DirectPuts::Route its = puts.route_of(put, next, credits, 1);
        if (its.way != DirectPuts::Way::later) puts.sent(put, next++, its);
        return its.way;
    }
};

}  // namespace

namespace {

/// An adapter of this rank that reads to one memory beside slots.
class Reader : public NetEndpoint {
  public:
    const std::byte* memory = nullptr;
    bool reads_to(int, const std::byte* to, std::size_t) override { return to == memory; }
    std::vector<std::byte> offer() override { return {}; }
    void meet(std::span<const std::byte>) override {}
    bool has_room() const override { return true; }
    void queue(const Header&, const std::byte*, bool) override {}
    bool is_empty() const override { return true; }
    bool send() override { return false; }
    bool receive(Recipient&) override { return false; }
    std::string describe() const override { return ""; }
};

}  // namespace

TEST_CASE("adapters write puts that lie in what the peer has named, and are no small ones") {
    using Way = DirectPuts::Way;
    Origin origin;
    const auto way = [&](std::uint64_t offset, std::size_t bytes) {
        return origin.way(origin.message(offset, bytes), first_message);
    };
    RemoteMemory to{};
    CHECK(origin.way(origin.message(1100, 300), first_message, &to) == Way::by_adapter);
    CHECK((to.address == 50'100 && to.bytes == 300 && to.key == 99));
    CHECK((way(1000, 2000) == Way::by_adapter && way(2975, 25) == Way::by_adapter));
    CHECK((way(1000, 24) == Way::by_engine && way(999, 100) == Way::by_engine && way(2901, 100) == Way::by_engine));
    CHECK((way(1000, 2001) == Way::by_engine && way(~std::uint64_t{0} - 10, 100) == Way::by_engine));
    PutMessage other = origin.message(1000, 100);
    other.header.key = key + 1;
    CHECK(origin.way(other, first_message) == Way::by_engine);
    other.header.key = key, other.header.asks = 1;
    CHECK(origin.way(other, first_message) == Way::by_engine);
    CHECK(origin.learn({1000, 0, 100, gate, key + 1, 7, 0}));  // in the place of the first one
    CHECK((way(1000, 100) == Way::by_engine && way(0, 100) == Way::by_engine));
    other.header = header(0), other.header.key = key + 1;
    CHECK(origin.way(other, first_message) == Way::by_adapter);
    origin.puts.forget();
    CHECK(origin.way(other, first_message) == Way::by_engine);
    CHECK_FALSE(origin.learn({1000, 0, 100, most_windows, key, 7, 0}));
    CHECK_FALSE(origin.learn({1000, 0, 100, gate, 0, 7, 0}));
    CHECK_FALSE(origin.learn({1000, 1, ~std::uint64_t{0}, gate, key, 7, 0}));
}

TEST_CASE("a put waits for the credit of an earlier one that the engine copies to some of the same bytes") {
    using Way = DirectPuts::Way;
    Origin origin;
    const std::uint32_t first = first_message;
    REQUIRE(origin.send(1100, 10, first) == Way::by_engine);
    CHECK(origin.send(1000, 100, first) == Way::by_adapter);  // beside it
    CHECK(origin.send(1110, 100, first) == Way::by_adapter);
    CHECK(origin.send(1050, 100, first) == Way::later);
    CHECK(origin.send(1050, 20, first) == Way::by_engine);  // those keep their order
    CHECK(origin.send(1000, 100, first) == Way::later);
    CHECK(origin.send(1000, 100, first + 1) == Way::later);
    CHECK(origin.send(1000, 100, first + 3) == Way::later);
    CHECK(origin.send(1000, 100, first + 4) == Way::by_adapter);
    for (int i = 0; i < 40; ++i)  // adapters keep their order
        CHECK(origin.send(1000, 100, std::max(first + 4, origin.next - 3)) == Way::by_adapter);
    REQUIRE(origin.send(1000, 10, origin.next) == Way::by_engine);
    // Again, after an endpoint failed.
    origin.puts.sent(origin.message(1000, 10), origin.next - 1, {Way::by_adapter, 0, {50'000, 10, 99}});
    CHECK(origin.send(1000, 100, origin.next - 1) == Way::by_adapter);
}

TEST_CASE("adapters read for a get that is alone or long, once all that the engine copies is there") {
    Origin origin;
    std::vector<std::byte> to(3000);
    const auto reads = [&](std::uint64_t offset, std::uint64_t bytes, std::uint32_t credits, RemoteMemory* place,
                           std::size_t unsent = 1) {
        PutMessage request{header(offset), std::as_bytes(std::span(&bytes, 1))};
        request.header.asks = 1;
        RemoteMemory from{};
        const bool its = origin.puts.reads(request, origin.next, credits, unsent, from);
        if (place != nullptr) *place = from;
        return its;
    };
    const std::uint32_t first = first_message;
    CHECK_FALSE(reads(1100, 300, first, nullptr));  // nobody awaits it
    origin.awaited.expect(1, std::span(to).first(300));
    RemoteMemory from{};
    CHECK(reads(1100, 300, first, &from));
    CHECK((from.address == 50'100 && from.bytes == 300 && from.key == 99));
    CHECK_FALSE(reads(1100, 0, first, nullptr));  // it waits for the puts before it
    CHECK_FALSE(reads(2900, 101, first, nullptr));
    CHECK(origin.learn({50'000, 1000, 2 * slot_bytes, gate, key, 99, 0}));
    CHECK((reads(1000, slot_bytes + 1, first, &from) && from.bytes == slot_bytes + 1));
    REQUIRE(origin.send(5000, 10, first) == DirectPuts::Way::by_engine);
    CHECK_FALSE(reads(1100, 300, first, nullptr));  // also of other bytes
    CHECK(reads(1100, 300, first + 1, nullptr));
    REQUIRE(origin.send(1100, 300, first + 1) == DirectPuts::Way::by_adapter);
    CHECK(reads(1100, 300, first + 1, nullptr));  // the adapter keeps the order
    for (int i = 0; i < 3; ++i) REQUIRE(origin.send(1100, 300, first + 1) == DirectPuts::Way::by_adapter);
    CHECK_FALSE(reads(1100, 300, first + 1, nullptr));  // an earlier message may use its slot
    CHECK(reads(1100, 300, first + 2, nullptr));
    origin.awaited.expect(1, to);
    CHECK_FALSE(reads(1100, 300, first + 5, nullptr));
    CHECK_FALSE(reads(1000, slot_bytes, first + 5, nullptr));  // the other one was sent, and its answers come first
    CHECK_FALSE(reads(1100, 300, first + 5, nullptr, 2));      // the other one comes after it, and shares its trip
    CHECK(reads(1000, slot_bytes, first + 5, nullptr, 2));
    Cell request{};
    PutHeader asked = header(1100);
    std::uint64_t bytes = 500;
    std::memcpy(request.payload, &asked, sizeof asked);
    std::memcpy(request.payload + sizeof asked, &bytes, sizeof bytes);
    Reader adapter;
    std::vector<std::byte> slot(slot_bytes, std::byte{8});
    from.bytes = 300;
    CHECK(origin.puts.begin_to_read(adapter, one_sided_channel, slot.data(), from).data() == slot.data());
    CHECK((origin.puts.is_reading() && !origin.puts.reads_in_place()));
    CHECK(origin.puts.has_read(request));
    std::memcpy(&asked, request.payload, sizeof asked);
    std::memcpy(&bytes, request.payload + sizeof asked, sizeof bytes);
    CHECK((asked.offset == 1400 && bytes == 200));
    CHECK((!origin.puts.is_reading() && to[0] == std::byte{8} && to[299] == std::byte{8}));
    CHECK(origin.awaited.state(1).answered);
    origin.awaited.forget_all();
    from.bytes = 200;
    origin.puts.begin_to_read(adapter, one_sided_channel, slot.data(), from);
    CHECK_FALSE(origin.puts.has_read(request));  // this rank has given up
    CHECK(to[300] == std::byte{0});
}

TEST_CASE("adapters read to where a get wants its data if they know that memory, in long pieces") {
    Origin origin;
    const std::uint64_t all = (std::uint64_t{16} << 20) + 100;
    std::vector<std::byte> to(all + 1), slot(slot_bytes);
    origin.awaited.expect(1, std::span(to).first(all));
    REQUIRE(origin.learn({50'000, 0, all, gate, key, 99, 0}));
    Reader adapter;
    Cell request{};
    PutHeader asked = header(0);
    asked.asks = 1;
    std::memcpy(request.payload, &asked, sizeof asked);
    std::memcpy(request.payload + sizeof asked, &all, sizeof all);
    const auto next = [&](const std::byte* known) {
        adapter.memory = known;
        PutMessage message{{}, {request.payload + sizeof asked, sizeof all}};
        std::memcpy(&message.header, request.payload, sizeof asked);
        RemoteMemory from{};
        REQUIRE(origin.puts.reads(message, origin.next, first_message, 1, from));
        const std::span<std::byte> place = origin.puts.begin_to_read(adapter, one_sided_channel, slot.data(), from);
        CHECK(place.size() == from.bytes);
        return std::pair(place.data(), from);
    };
    const auto first = next(to.data());
    CHECK((first.first == to.data() && first.second.bytes == std::uint32_t{16} << 20));
    CHECK(first.second.address == 50'000);
    CHECK(origin.puts.reads_in_place());
    CHECK(origin.puts.has_read(request));
    CHECK(origin.awaited.state(1).missing == 100);
    const auto other = next(nullptr);  // after a detour to an adapter that does not know it
    CHECK((other.first == slot.data() && other.second.bytes == 100));
    origin.puts.forget();
    CHECK_FALSE(origin.puts.reads_in_place());
    REQUIRE(origin.learn({50'000, 0, all, gate, key, 99, 0}));
    const auto rest = next(to.data() + (std::size_t{16} << 20));
    CHECK((rest.first == to.data() + (std::size_t{16} << 20) && rest.second.address == 50'000 + (16U << 20)));
    CHECK_FALSE(origin.puts.has_read(request));
    CHECK(origin.awaited.state(1).answered);
}

TEST_CASE("long puts go by one rail after the other, and those that overlap by the same") {
    Origin origin;
    constexpr std::size_t length = DirectPuts::least_spread;
    origin.data.resize(4 * length);
    REQUIRE(origin.learn({1'000'000, 0, 8 * length, gate, key, 99, 0}));
    const std::uint32_t first = first_message;
    const auto put = [&](std::size_t at, std::size_t bytes, std::uint32_t credits) {
        return origin.rail(at * length, bytes, credits, 2);
    };
    origin.next += first % 2;
    const std::uint32_t begin = origin.next;
    CHECK((put(0, length, begin) == 0 && put(1, length, begin) == 0));  // no key is known by the other rail
    REQUIRE(origin.learn({1'000'000, 0, 8 * length, gate, key, 98, 1}));
    CHECK((put(2, length, begin) == 0 && put(3, length, begin) == 1 && put(4, length, begin) == 0));
    CHECK(put(5, length - 1, begin) == 0);                           // a short one
    CHECK((put(3, 100, begin) == 1 && put(4, length, begin) == 0));  // after those that it overlaps
    CHECK((put(0, 100, begin) == 0 && put(3, 2 * length, begin) == -1));
    CHECK(put(3, 2 * length, begin + 7) >= 0);  // all but a short one have their credits
    const std::uint64_t bytes = 100;
    PutMessage request{header(0), std::as_bytes(std::span(&bytes, 1))};
    request.header.asks = 1;
    std::vector<std::byte> to(100);
    origin.awaited.expect(1, to);
    RemoteMemory from{};
    origin.next += origin.next % 2 == 0;
    const std::uint32_t before = origin.next;
    REQUIRE(put(6, length, before) == 1);
    CHECK_FALSE(origin.puts.reads(request, origin.next, before, 1, from));
    CHECK(origin.puts.reads(request, origin.next, before + 1, 1, from));
    CHECK_FALSE(origin.learn({1'000'000, 0, length, gate, key, 98, 1000}));
}

TEST_CASE("messages that overtake others are taken in their turn, once, and as far as there is room") {
    std::shared_ptr<Arena> mine = Arena::make(2, false), inbox = Arena::make(1, false);
    Early early;
    Channel channel;
    channel.early = &early;
    channel.open(one_sided_channel, mine->wire(1, one_sided_channel, nullptr),
                 inbox->wire(0, one_sided_channel, &mine->page().wake_up));
    Receiver reader(channel.in, first_message);
    const auto begin = [&](std::uint32_t number, bool slot) {
        Header h{};
        h.what = What::message;
        h.channel = one_sided_channel;
        h.signature = first_message + number;
        h.in_slot = slot;
        h.bytes = 8;
        const char* why = nullptr;
        std::byte* const place = channel.begin(h, why);
        CHECK((place != nullptr || why != nullptr));
        if (place != nullptr) std::memcpy(place, &number, sizeof number);
        return std::pair(place != nullptr, h);
    };
    const auto read = [&](bool slot) {
        REQUIRE(reader.ready());
        CHECK((reader.cell().kind == Kind::slot) == slot);
        std::uint32_t number = 0;
        std::memcpy(&number, slot ? reader.slot() : reader.cell().payload, sizeof number);
        reader.release();
        return number;
    };
    const auto second = begin(1, true), third = begin(2, false), first = begin(0, true);
    REQUIRE((first.first && second.first && third.first));
    CHECK_FALSE(begin(1, true).first);  // it is under way
    channel.finish(third.second);
    channel.finish(second.second);
    CHECK_FALSE(begin(2, false).first);  // it has come
    CHECK_FALSE(reader.ready());
    CHECK(channel.received == first_message);
    CHECK((!begin(slot_depth, true).first && !begin(fifo_depth, false).first && begin(slot_depth, false).first));
    channel.finish(first.second);
    CHECK(channel.received == first_message + 3);
    CHECK((read(true) == 0 && read(true) == 1 && read(false) == 2));
    CHECK_FALSE(begin(1, true).first);  // it was taken
    CHECK_FALSE(begin(slot_depth, false).first);
    early.forget();  // the connections broke
    const auto next = begin(3, true), again = begin(slot_depth, true);
    REQUIRE((next.first && again.first));
    channel.finish(again.second);
    channel.finish(next.second);
    CHECK((read(true) == 3 && read(true) == slot_depth));
}
