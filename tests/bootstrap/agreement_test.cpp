// The logic of agreements, over a mock network that delivers in any order between pairs, where members die and
// leave at any moment.
#include "bootstrap/agreement.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <random>

#include "harness/catch.hpp"

namespace tutti::bootstrap {
namespace {

using Value = Agreement::Value;

class World {
  public:
    World(int ranks, unsigned seed) : random_(seed) {
        for (Rank r = 0; r < ranks; ++r) members_.push_back(std::make_unique<Member>(*this, r, ranks));
    }
    Agreement& operator[](Rank r) { return members_[static_cast<std::size_t>(r)]->agreement; }
    bool lives(Rank r) const { return members_[static_cast<std::size_t>(r)]->lives; }
    unsigned random(unsigned below) { return static_cast<unsigned>(random_() % below); }

    /// In the midst of what it sends. What has gone out arrives, then its end is noticed, by each of the others at
    /// another time.
    void kill(Rank r) {
        members_[static_cast<std::size_t>(r)]->lives = false;
        for (Rank to = 0; to < ranks(); ++to) {
            if (to == r) continue;
            auto& pipe = pipes_[{r, to}];
            while (!pipe.empty() && random(2) == 0) pipe.pop_back();
            pipe.push_back(std::nullopt);
        }
    }
    /// Delivers one message, or the news of one end. False if there are none.
    bool step() {
        std::vector<std::pair<Rank, Rank>> ready;
        for (const auto& [ends, pipe] : pipes_)
            if (!pipe.empty()) ready.push_back(ends);
        if (ready.empty()) return false;
        const auto [from, to] = ready[random(static_cast<unsigned>(ready.size()))];
        auto& pipe = pipes_[{from, to}];
        const std::optional<Agree> message = std::move(pipe.front());
        pipe.pop_front();
        Member& m = *members_[static_cast<std::size_t>(to)];
        if (!m.lives) return true;
        if (message) {
            m.agreement.received(from, *message);
        } else {
            m.gone.insert(from);
            m.agreement.lost(from);
        }
        return true;
    }
    int ranks() const { return static_cast<int>(members_.size()); }
    /// One takes the other for dead, which it is not.
    void give_up(Rank by, Rank r) {
        Member& m = *members_[static_cast<std::size_t>(by)];
        m.gone.insert(r);
        m.agreement.lost(r);
    }
    int rendezvous_opened() const { return rendezvous_opened_; }

  private:
    struct Member : Agreement::Port {
        Member(World& w, Rank self, int ranks) : world(w), rank(self), agreement(self, ranks, *this) {}
        void send(Rank to, const Agree& message) override { world.pipes_[{rank, to}].push_back(message); }
        void reach(Rank) override {}
        bool is_gone(Rank r) const override { return gone.contains(r); }
        Bytes open_rendezvous(const std::vector<Rank>&) override {
            ++world.rendezvous_opened_;
            return Bytes(1, static_cast<std::byte>(rank));
        }
        World& world;
        Rank rank;
        bool lives = true;
        std::set<Rank> gone;
        Agreement agreement;
    };
    int rendezvous_opened_ = 0;  // that were opened
    std::mt19937 random_;
    std::vector<std::unique_ptr<Member>> members_;
    std::map<std::pair<Rank, Rank>, std::deque<std::optional<Agree>>> pipes_;
};

}  // namespace

TEST_CASE("members that propose different exclusions agree on all of them") {
    World world(5, 1);
    world[0].begin({3}, true);
    world[1].begin({}, true);
    world[2].begin({3, 4}, false);
    CHECK(world[0].awaited() == std::vector<Rank>{1, 2, 4});
    while (world.step()) {
    }
    for (const Rank r : {0, 1, 2}) {
        REQUIRE(!world[r].is_under_way());
        CHECK(world[r].outcome().out == std::vector<Rank>{3, 4});
        CHECK(!world[r].outcome().ok);
        CHECK(world[r].outcome().number == world[0].outcome().number);
    }
}

TEST_CASE("groups that exclude each other agree each for itself") {
    World world(4, 1);
    for (const Rank r : {0, 1}) world[r].begin({2, 3}, true);
    for (const Rank r : {2, 3}) world[r].begin({0, 1}, true);
    while (world.step()) {
    }
    for (Rank r = 0; r < 4; ++r) REQUIRE(!world[r].is_under_way());
    CHECK(world[1].outcome().out == std::vector<Rank>{2, 3});
    CHECK(world[2].outcome().out == std::vector<Rank>{0, 1});
    CHECK(world[1].outcome().number != world[2].outcome().number);
}

TEST_CASE("one that lives although all others have given it up is told that it is out") {
    World world(4, 1);
    for (const Rank by : {0, 1, 3}) world.give_up(by, 2);
    for (const Rank r : {0, 1, 2, 3}) world[r].begin({}, true);
    while (world.step()) {
    }
    for (Rank r = 0; r < 4; ++r) {
        REQUIRE(!world[r].is_under_way());
        CHECK(world[r].outcome().out == std::vector<Rank>{2});
        CHECK(world[r].outcome().ok == (r != 2));
    }
}

TEST_CASE("whoever hears that others take it for dead agrees on nothing with anybody") {
    World world(3, 1);
    world[0].begin({}, true);
    world.give_up(1, 0), world.give_up(2, 0);
    CHECK(world[0].is_under_way());
    world[0].leave_out_self();  // it would wait for the others
    CHECK(world[0].outcome().out == std::vector<Rank>{0});
    world[0].begin({}, true);
    CHECK(!world[0].is_under_way());
    CHECK(world[0].outcome().out == std::vector<Rank>{0});
}

TEST_CASE("a place to meet is opened by the coordinator, once, where there is a reason to meet, and told to all") {
    World world(3, 1);
    const auto agree = [&](const std::vector<Rank>& out, bool ok) {
        for (const Rank r : {0, 1, 2})
            if (std::ranges::count(out, r) == 0) world[r].begin(out, ok);
        while (world.step()) {
        }
    };
    agree({}, false);
    CHECK(world.rendezvous_opened() == 1);
    for (const Rank r : {0, 1, 2}) CHECK(world[r].outcome().invitation == Bytes(1, std::byte{0}));
    agree({}, true);  // all are content with what they have
    CHECK(world.rendezvous_opened() == 1);
    CHECK(world[1].outcome().invitation.empty());
    agree({0}, false);
    CHECK(world.rendezvous_opened() == 2);
    CHECK(world[2].outcome().invitation == Bytes(1, std::byte{1}));
}

TEST_CASE("whoever dies whenever, all that are told something are told the same, and nobody waits for ever") {
    for (unsigned seed = 0; seed < 4000; ++seed) {
        CAPTURE(seed);
        const int ranks = 2 + static_cast<int>(seed % 6), rounds = 3;
        World world(ranks, seed);
        std::vector<int> round(static_cast<std::size_t>(ranks), -1);
        std::vector<std::optional<Value>> told(static_cast<std::size_t>(rounds));
        int left_to_die = static_cast<int>(world.random(static_cast<unsigned>(ranks)));
        for (bool moved = true; moved;) {
            moved = false;
            for (Rank r = 0; r < ranks; ++r) {
                int& mine = round[static_cast<std::size_t>(r)];
                if (!world.lives(r) || (mine >= 0 && world[r].is_under_way()) || mine == rounds) continue;
                if (world.random(3) == 0) {  // late for the next one
                    moved = true;
                    continue;
                }
                if (mine >= 0) {
                    auto& value = told[static_cast<std::size_t>(mine)];
                    if (!value) value = world[r].outcome();
                    const Value& mine_told = world[r].outcome();
                    REQUIRE(value->number == mine_told.number);
                    REQUIRE(value->out == mine_told.out);
                    REQUIRE(value->ok == mine_told.ok);
                    REQUIRE(std::ranges::count(value->out, r) == 0);
                }
                if (++mine < rounds) world[r].begin({}, true);
                moved = true;
            }
            moved |= world.step();
            if (left_to_die > 0 && world.random(12) == 0) {
                const auto victim = static_cast<Rank>(world.random(static_cast<unsigned>(ranks)));
                if (world.lives(victim)) world.kill(victim), --left_to_die, moved = true;
            }
        }
        for (Rank r = 0; r < ranks; ++r)
            if (world.lives(r)) REQUIRE(round[static_cast<std::size_t>(r)] == rounds);
    }
}

}  // namespace tutti::bootstrap
