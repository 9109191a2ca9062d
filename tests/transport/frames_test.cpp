// Frames from an Outbox to an Inbox, in pieces of all sizes: what the sockets of data connections do in between.
#include <algorithm>
#include <cstring>
#include <vector>

#include "harness/catch.hpp"
#include "messages.hpp"
#include "transport/tcp/inbox.hpp"
#include "transport/tcp/outbox.hpp"

using namespace tutti;
using namespace tutti::tcp;
using harness::message;
using net::Header, net::What;

namespace {

using bootstrap::Secret;

/// Keeps all messages: their headers, and their bodies one behind the other.
class Keeper : public net::Recipient {
  public:
    std::byte* begin(const Header& header, const char*&) override {
        all.resize(all.size() + header.bytes + 1);  // never empty: nullptr refuses
        return all.data() + all.size() - header.bytes - 1;
    }
    void finish(const Header& header) override {
        all.pop_back();
        headers.push_back(header);
    }
    std::vector<Header> headers;
    std::vector<std::byte> all;
};

std::unique_ptr<Cipher> cipher(bool encrypted, const Secret& key) {
    return encrypted ? std::make_unique<Cipher>(Cipher::xchacha, key) : nullptr;
}

/// Hands over at most `most` bytes of what is to be sent, as a socket would.
std::size_t carry(Outbox& from, Inbox& to, std::size_t most) {
    const Outbox::Pieces pieces = from.pieces();
    std::vector<std::byte> bytes;
    for (const iovec& piece : pieces.list) {
        const auto* const begin = static_cast<const std::byte*>(piece.iov_base);
        bytes.insert(bytes.end(), begin, begin + piece.iov_len);
    }
    REQUIRE(bytes.size() == pieces.bytes);
    bytes.resize(std::min(bytes.size(), most));
    std::size_t moved = 0;
    for (const iovec& room : to.room()) {
        const std::size_t part = std::min(room.iov_len, bytes.size() - moved);
        if (part > 0) std::memcpy(room.iov_base, bytes.data() + moved, part);
        moved += part;
    }
    from.sent(moved);
    to.add(moved);
    return moved;
}

}  // namespace

TEST_CASE("frames arrive whole and in order, however their bytes come") {
    const std::size_t lengths[] = {0, 8, inline_bytes, inline_bytes + 1, 20'000, slot_bytes};
    std::vector<std::byte> body(slot_bytes);
    for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<std::byte>(i * 7 + i / 256);
    for (const bool encrypted : {false, true}) {
        for (const std::size_t at_once : {std::size_t{1}, std::size_t{47}, std::size_t{4096}, std::size_t{1} << 20}) {
            CAPTURE(encrypted, at_once);
            const Secret key = Secret::random();
            Outbox outbox(cipher(encrypted, key));
            Inbox inbox(cipher(encrypted, key), {});
            Keeper keeper;
            std::vector<std::byte> expected;
            std::uint32_t sent = 0;
            for (const std::size_t bytes : lengths) {
                if (at_once == 1 && bytes > 100) continue;
                while (!outbox.has_room()) {
                    carry(outbox, inbox, at_once);
                    REQUIRE(inbox.digest(keeper) == nullptr);
                }
                std::vector<std::byte> copied(body.begin(), body.begin() + static_cast<std::ptrdiff_t>(bytes));
                outbox.queue(message(bytes, sent++), copied.data(), true);
                expected.insert(expected.end(), copied.begin(), copied.end());
            }
            while (!outbox.is_empty()) {
                REQUIRE(carry(outbox, inbox, at_once) > 0);
                REQUIRE(inbox.digest(keeper) == nullptr);
            }
            REQUIRE(keeper.headers.size() == sent);
            for (std::uint32_t i = 0; i < sent; ++i) REQUIRE(keeper.headers[i].signature == i);
            REQUIRE(keeper.all == expected);
        }
    }
}

TEST_CASE("a body that is not copied is sent from where it lies when its turn comes") {
    Outbox outbox(nullptr);
    Inbox inbox(nullptr, {});
    Keeper keeper;
    std::vector<std::byte> body(100, std::byte{1});
    outbox.queue(message(body.size(), 1), body.data(), false);
    std::ranges::fill(body, std::byte{2});
    carry(outbox, inbox, 1 << 20);
    REQUIRE(inbox.digest(keeper) == nullptr);
    REQUIRE(keeper.all == body);
}

TEST_CASE("what came with the handshake goes ahead, also a part of a frame") {
    Outbox outbox(nullptr);
    const std::byte body[8] = {std::byte{5}};
    outbox.queue(message(8, 77), body, false);
    std::vector<std::byte> bytes;
    for (const iovec& piece : outbox.pieces().list) {
        const auto* const begin = static_cast<const std::byte*>(piece.iov_base);
        bytes.insert(bytes.end(), begin, begin + piece.iov_len);
    }
    Inbox inbox(nullptr, std::span(bytes).first(50));
    outbox.sent(50);
    Keeper keeper;
    REQUIRE(inbox.digest(keeper) == nullptr);
    REQUIRE(keeper.headers.empty());
    carry(outbox, inbox, 100);
    REQUIRE(inbox.digest(keeper) == nullptr);
    REQUIRE(keeper.headers.size() == 1);
    REQUIRE(std::ranges::equal(keeper.all, body));
}

TEST_CASE("bytes that were changed on their way, and frames of no version, are refused by name") {
    const Secret key = Secret::random();
    Outbox outbox(cipher(true, key));
    outbox.queue(message(0, 1), nullptr, false);
    *static_cast<std::byte*>(outbox.pieces().list[0].iov_base) ^= std::byte{1};
    Inbox inbox(cipher(true, key), {});
    Keeper keeper;
    carry(outbox, inbox, 1 << 20);
    REQUIRE(inbox.digest(keeper) == std::string("what came over the connection was changed on its way"));

    Outbox plain(nullptr);
    Header bad = message(0, 1);
    bad.what = static_cast<What>(200);
    plain.queue(bad, nullptr, false);
    Inbox other(nullptr, {});
    carry(plain, other, 1 << 20);
    REQUIRE(other.digest(keeper) == std::string("it has sent a frame that no version of the protocol has"));
    REQUIRE(keeper.headers.empty());
}
