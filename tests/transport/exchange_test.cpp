// Places that both ends write to in turn.
#include "transport/exchange.hpp"

#include <algorithm>
#include <deque>
#include <random>

#include "harness/catch.hpp"
#include "harness/harness.hpp"
#include "links.hpp"

using namespace tutti;
using namespace tutti::harness;

namespace {

constexpr std::size_t place = exchange_place_for(2);

/// Both ends of a channel, in one thread.
struct Ends {
    explicit Ends(const Transport& transport, int channel = 0) : pair(join(transport)) {
        for (int r = 0; r < 2; ++r) {
            const Wire out = pair.link[r]->outlet(channel), in = pair.link[r]->inlet(channel);
            exchange[r] = std::make_unique<Exchange>(out.exchange, in.exchange, place);
            sender[r] = std::make_unique<Sender>(out);
            receiver[r] = std::make_unique<Receiver>(in);
            sender[r]->exchange_by(exchange[r].get());
            receiver[r]->exchange_by(exchange[r].get());
        }
    }
    void send(int rank, std::size_t bytes, std::byte value) {
        sender[rank]->place(bytes);
        std::fill_n(sender[rank]->slot(), bytes, value);
        sender[rank]->commit(Kind::slot, static_cast<std::uint32_t>(bytes), 1);
    }
    Kind read(int rank) {
        const Kind kind = receiver[rank]->cell().kind;
        receiver[rank]->release();
        return kind;
    }
    LinkedPair pair;
    std::unique_ptr<Exchange> exchange[2];
    std::unique_ptr<Sender> sender[2];
    std::unique_ptr<Receiver> receiver[2];
};

}  // namespace

TEST_CASE("whatever two ranks send each other, nobody overwrites what has not been read") {
    std::mt19937 random(seed());
    for (const Transport* transport : {&local_transport(), &shm_transport()}) {
        for (const int mostly : {0, 1, 2}) {  // the rank that sends more; 2: neither
            Ends ends(*transport, mostly);
            struct Message {
                std::size_t bytes;
                std::byte value;
            };
            std::deque<Message> under_way[2];  // by sender
            int exchanged = 0;
            for (int n = 0; n < 4000; ++n) {
                CAPTURE(transport->name(), mostly, n);
                const int rank = mostly < 2 && random() % 4 > 0 ? mostly : static_cast<int>(random() % 2);
                constexpr std::size_t lengths[] = {49, 1000, 4096, place, place + 1};
                const std::size_t bytes = lengths[random() % std::size(lengths)];
                if (random() % 2 == 0 && ends.sender[rank]->ready_for(bytes)) {
                    const Message message{bytes, static_cast<std::byte>(random())};
                    ends.send(rank, message.bytes, message.value);
                    under_way[rank].push_back(message);
                } else if (Receiver& from = *ends.receiver[rank]; !under_way[1 - rank].empty()) {
                    const Message message = under_way[1 - rank].front();
                    under_way[1 - rank].pop_front();
                    REQUIRE(from.ready());
                    REQUIRE(from.holds(message.bytes));
                    REQUIRE(std::all_of(from.slot(), from.slot() + message.bytes,
                                        [&](std::byte b) { return b == message.value; }));
                    exchanged += ends.read(rank) == Kind::exchanged;
                }
            }
            CHECK(exchanged > 100);
        }
    }
}

TEST_CASE("an answer lies where the message has lain, and what goes one way takes slots") {
    Ends ends(local_transport());
    std::vector<const std::byte*> places[2];
    for (std::uint32_t n = 0; n < 4 * Exchange::depth; ++n) {
        for (const int rank : {0, 1}) {
            REQUIRE(ends.sender[rank]->ready_for(place));
            ends.sender[rank]->place(place);
            places[rank].push_back(ends.sender[rank]->slot());
            ends.sender[rank]->commit(Kind::slot, place, 1);
        }
        for (const int rank : {0, 1}) {
            REQUIRE(ends.receiver[rank]->slot() == places[1 - rank].back());
            REQUIRE(ends.read(rank) == Kind::exchanged);
            if (n >= Exchange::depth) REQUIRE(places[rank][n] == places[1 - rank][n - Exchange::depth]);
        }
    }
    for (std::uint32_t n = 0; n < 3 * Exchange::depth; ++n) {
        ends.send(0, place, std::byte{1});
        REQUIRE((ends.read(1) == Kind::exchanged) == (n < Exchange::depth));
    }
    ends.send(1, place, std::byte{1});
    REQUIRE(ends.read(0) == Kind::exchanged);
    for (const Kind kind : {Kind::exchanged, Kind::placed}) {
        ends.send(0, place, std::byte{1});
        REQUIRE(ends.read(1) == kind);
    }
    ends.send(1, place + 1, std::byte{1});  // too long for a place
    REQUIRE(ends.read(0) != Kind::exchanged);
}

TEST_CASE("a rank that does not answer in places reads what lies there") {
    Ends ends(shm_transport());
    Wire plain = ends.pair.link[1]->outlet(0);
    plain.takes_places = false;  // as a decorated link's
    Sender sender(plain);
    sender.exchange_by(ends.exchange[1].get());
    for (std::uint32_t n = 0; n < 2 * Exchange::depth; ++n) {
        ends.send(0, 100, std::byte{1});
        REQUIRE((ends.read(1) == Kind::exchanged) == (n < Exchange::depth));
        sender.place(100);
        sender.commit(Kind::slot, 100, 1);
        REQUIRE(ends.read(0) == Kind::slot);
    }
}

TEST_CASE("connections of many ranks, and those that kernels read, have no exchange") {
    const std::shared_ptr<Arena> few = Arena::make(few_ranks, false), many = Arena::make(few_ranks + 1, false);
    WakeUp wake_up{};
    CHECK(few->wire(1, 0, &wake_up).exchange != nullptr);
    CHECK(few->wire(1, answer_channel, &wake_up).exchange == nullptr);
    CHECK(many->wire(1, 0, &wake_up).exchange == nullptr);
    LinkedPair pair = join(local_transport());
    CHECK(without_references(std::move(pair.link[0]))->outlet(0).exchange == nullptr);
    const ArenaLayout layout = few->layout();
    CHECK(layout.exchange_offset(0, 0) >=
          layout.slots_offset(few_ranks - 1, channels_per_link - 1) + slot_depth * slot_stride);
    CHECK(layout.exchange_offset(few_ranks - 1, program_channels - 1) +
              Exchange::bytes_for(exchange_place_for(few_ranks)) <=
          few->memory().size());
}
