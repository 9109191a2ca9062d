// What peers on other hosts put into windows: only what was lent is written, only as far as it goes, and no more once
// it was taken back.
#include "transport/net/puts.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "harness/catch.hpp"
#include "harness/harness.hpp"

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

    void send(const void* message, std::size_t bytes, bool inlined) {
        REQUIRE(peer.ready(!inlined));
        std::memcpy(inlined ? peer.cell().payload : peer.slot(), message, bytes);
        peer.commit(inlined ? Kind::inlined : Kind::slot, static_cast<std::uint32_t>(bytes), 0);
        puts.take(in);
    }
    void put(PutHeader header, std::size_t bytes, bool inlined) {
        std::vector<std::byte> message((inlined ? sizeof header : put_header_in_slot) + bytes, std::byte{0x5a});
        std::memcpy(message.data(), &header, sizeof header);
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
    return {offset, gate, key, static_cast<std::uint8_t>(signal), raises, {}};
}

}  // namespace

TEST_CASE("a put is written where it says, and its last message raises the signal") {
    Window window;
    window.put(header(0, 2, false), 40, false);
    CHECK(window.written() == 40);
    CHECK(window.raised(2) == 0);
    window.put(header(40, 2), 24, true);
    CHECK(window.written() == 64);
    CHECK(window.raised(2) == 1);
    window.put({0, 0, 0, 5, 1, {}}, 0, true);  // a signal alone
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
    window.put({0, 0, 0, 0, 1, {}}, 0, true);
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
    CHECK(breaks({0, gate, key, 0, 2, {}}, 8, true));
    CHECK(breaks({0, gate, 0, 0, 1, {}}, 8, true));  // data for no window
    Window window;
    window.send("short", 6, true);
    CHECK(window.puts.broken());
    Window other;
    other.send(std::vector<std::byte>(63).data(), 63, false);
    CHECK(other.puts.broken());
}

TEST_CASE("whatever a peer puts, nothing around the window is written") {
    std::mt19937 random(harness::seed());
    const auto any = [&](unsigned below) { return std::uniform_int_distribution<unsigned>(0, below - 1)(random); };
    auto window = std::make_unique<Window>();
    int right = 0;
    for (int i = 0; i < 5000; ++i) {
        PutHeader put = header(any(80), static_cast<int>(any(8)), any(2) == 1);
        if (any(4) == 0) reinterpret_cast<unsigned char*>(&put)[any(18)] = static_cast<unsigned char>(any(256));
        const bool inlined = any(2) == 1;
        window->put(put, any(inlined ? 25 : 100), inlined);
        REQUIRE(window->is_untouched_around());
        const bool went_well = !window->puts.broken() && !window->puts.due();
        right += went_well;
        if (!went_well) window = std::make_unique<Window>();
    }
    CHECK(right > 500);
}
