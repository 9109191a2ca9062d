#include "servers.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace tutti::steps {
namespace {

constexpr auto told_within_ns = std::int64_t{5'000'000'000};       // of a death, by the communicator
constexpr auto finished_within_ns = std::int64_t{60'000'000'000};  // by workers that are stopped meanwhile

int digit(int value, int place) {
    return value >> 3 * place & 7;
}

void rest() {
    std::this_thread::sleep_for(std::chrono::microseconds(300));
}

/// A value, or a sum, as its digits; -1: it is none.
int digits_of(float value, int ranks) {
    if (!(value >= 0 && value < 1 << 24)) return -1;
    const int all = static_cast<int>(value);
    return static_cast<float>(all) == value && (ranks == 8 || all >> 3 * ranks == 0) ? all : -1;
}

}  // namespace

Servers::Servers(const World& world, Dice all, Dice& own, Memory& memory, std::size_t most_bytes, bool sums)
    : world_(world), own_{own.next()}, clocks_(1 + static_cast<int>(all.below(7))) {
    if (world.ranks > 8) throw std::runtime_error("servers among more than 8 ranks");
    const auto most_servers = std::min<std::size_t>(2, static_cast<std::size_t>(world.ranks));
    shape_.way = sums && all.chance(30) ? Way::sum : all.chance(70) ? Way::account : Way::subtract;
    shape_.servers = 1 + static_cast<int>(all.below(most_servers));
    shape_.dedicated = shape_.servers < world.ranks && all.chance(50) ? 1 : 0;
    shape_.staleness = shape_.way == Way::sum ? -1 : static_cast<int>(all.below(4)) - 1;
    keys_.resize(1 + all.below(3));
    for (Key& key : keys_) {
        key.name = "key " + std::to_string(&key - keys_.data());
        key.count = 1 + all.size(most_bytes / 32);
        key.values = static_cast<float*>(memory.take(key.count * sizeof(float), own));
        key.gradient = static_cast<float*>(memory.take(key.count * sizeof(float), own));
        std::fill_n(key.values, key.count, 0.0f);
    }
}

tuttiDpOptimizer_t Servers::optimizer() {
    const tuttiPsConfig_t defaults = TUTTI_PS_CONFIG_INITIALIZER;
    tuttiDpOptimizer_t its = defaults.optimizer;
    its.learningRate = 1;
    if (shape_.way == Way::subtract) its.kind = tuttiDpSgd;
    if (shape_.way != Way::account) return its;
    its.kind = tuttiDpCallback;
    its.update = &Servers::account;
    its.user = this;
    return its;
}

/// On a server: the k-th gradient of a rank comes when it has had k before.
tuttiResult_t Servers::account(void* self, const tuttiDpPiece_t* piece) {
    auto& its = *static_cast<Servers*>(self);
    for (std::size_t i = 0; i < piece->count; ++i) {
        const int rank = static_cast<int>(piece->gradients[i]) / 8, number = static_cast<int>(piece->gradients[i]) % 8;
        const int before = digits_of(-piece->weights[i], its.world_.ranks);
        if (before < 0 || digit(before, rank) != number) {
            std::lock_guard lock(its.mutex_);
            if (its.disorder_.empty())
                its.disorder_ = "gradient " + std::to_string(number) + " of rank " + std::to_string(rank) +
                                " is applied to " + its.keys_[piece->parameter].name + " after " +
                                std::to_string(before < 0 ? -1 : digit(before, rank)) + " of that rank";
        }
        piece->weights[i] -= static_cast<float>(1 << 3 * rank);
    }
    return tuttiSuccess;
}

void Servers::run() {
    const auto look_for_disorder = [this] {
        std::lock_guard lock(mutex_);
        if (!disorder_.empty()) throw Wrong(disorder_);
    };
    Counts mine{};
    try {
        if (works(world_.rank))
            work();
        else if (moves_at_ >= 0)
            move_now();
        if (!works(world_.rank)) serve();
        mine = counts();
        leave();
    } catch (const Failure& failure) {
        look_for_disorder();
        if (!moving_) judge(failure);
        throw;
    }
    look_for_disorder();
    if (shape_.staleness >= 0 && mine.staleness > shape_.staleness)
        throw Wrong("a staleness of " + std::to_string(mine.staleness) + ", more than " +
                    std::to_string(shape_.staleness));
    if (doubted_ != 0) await_excuse(doubted_, doubt_);
    agree(mine);
}

/// How many of each key a worker has pushed when it has ended so many clocks.
int Servers::gradients_by(int rank, int clock) const {
    const int first = rank == comes_ ? moves_at_ : 0, last = rank == leaves_ ? moves_at_ : clocks_;
    return std::clamp(clock, first, last) - first;
}

void Servers::work() {
    if (world_.rank == comes_) clock_ = moves_at_;
    for (; clock_ < clocks_; ++clock_) {
        if (clock_ == moves_at_) move_now();
        if (clock_ == moves_at_ && world_.rank == leaves_) return;
        if (own_.chance(20)) std::this_thread::sleep_for(std::chrono::microseconds(own_.below(3000)));
        if (shape_.way == Way::sum) {
            push_and_pull();
            look_at_all(clock_ + 1, clock_ + 1);
        } else {
            pull();
            look_at_all(shape_.staleness < 0 ? 0 : std::max(0, clock_ - shape_.staleness), clocks_);
            push();
        }
        tick();
    }
    if (shape_.way != Way::sum) meet();
}

/// If that fails, a rank has died, or its communicator says so of one.
void Servers::move_now() {
    moving_ = true;
    move();
    moving_ = false;
}

/// Until all workers that live have ended their last clock. Then no gradient of theirs may be lacking. With a bound
/// that is what a pull so many clocks later promises.
void Servers::meet() {
    for (int more = 0; more < shape_.staleness; ++more) tick();
    newest();
    unsigned missing = look_at_all(clocks_, clocks_);
    if (shape_.staleness >= 0) return;
    for (const std::int64_t limit = now_ns() + finished_within_ns; missing != 0 && !is_excused(missing);) {
        if (now_ns() > limit) throw Wrong(doubt_);
        rest();
        doubted_ = 0;
        newest();
        missing = look_at_all(clocks_, clocks_);
    }
}

float Servers::gradient_now() const {
    const int place = 1 << 3 * world_.rank;
    return static_cast<float>(shape_.way == Way::sum        ? (clock_ + 1) * place
                              : shape_.way == Way::subtract ? place
                                                            : 8 * world_.rank + gradients_by(world_.rank, clock_));
}

unsigned Servers::look_at_all(int least, int most) {
    unsigned missing = 0;
    for (const Key& key : keys_) missing |= look_at(key, least, most);
    return missing;
}

/// How often each worker's gradients are in what has been pulled; where servers only sum, which one of them is. Returns
/// a bit for each worker of which some are lacking.
unsigned Servers::look_at(const Key& key, int least, int most) {
    const bool sums = shape_.way == Way::sum;
    unsigned missing = 0;
    for (std::size_t i = 0; i < key.count; ++i) {
        const std::string what = "element " + std::to_string(i) + " of " + key.name + " in clock " +
                                 std::to_string(clock_) + " is " + std::to_string(key.values[i]) + ": ";
        const int all = digits_of(sums ? key.values[i] : -key.values[i], world_.ranks);
        if (all < 0) throw Wrong(what + "no sum of gradients");
        if (one_part_ && key.values[i] != key.values[0]) throw Wrong(what + "a part of an update");
        for (int rank = 0; rank < world_.ranks; ++rank) {
            const int times = digit(all, rank);
            const std::string whose = what + std::to_string(times) + " of rank " + std::to_string(rank) + "'s, ";
            if (times > (works(rank) ? gradients_by(rank, most) : 0)) throw Wrong(whose + "more than it has pushed");
            if (!works(rank)) continue;
            if (rank == world_.rank && times != gradients_by(rank, sums ? clock_ + 1 : clock_))
                throw Wrong(whose + "which are one's own");
            const int expected = gradients_by(rank, least);
            if (times >= expected) continue;
            if (sums && times != 0) throw Wrong(whose + "which is of another round");
            missing |= 1u << rank;
            if (doubt_.empty()) doubt_ = whose + "at least " + std::to_string(expected) + " were to be there";
        }
    }
    doubted_ |= missing;
    return missing;
}

// ---- who has died

/// A bit for each rank of which the communicator says so.
unsigned Servers::failed() const {
    int ranks[8], count = 0;
    must(tuttiCommGetFailedRanks(world_.comm, ranks, 8, &count), "tuttiCommGetFailedRanks");
    unsigned all = 0;
    for (int i = 0; i < count; ++i) all |= 1u << ranks[i];
    return all;
}

/// Of ranks that have died gradients may be lacking; where a server has died, of those that have given up for that,
/// too.
bool Servers::is_excused(unsigned missing) const {
    const unsigned gone = failed(), servers = (1u << shape_.servers) - 1;
    return (gone & servers) != 0 || (missing & ~gone) == 0;
}

void Servers::await_excuse(unsigned missing, const std::string& what) const {
    for (const std::int64_t limit = now_ns() + told_within_ns; !is_excused(missing); rest())
        if (now_ns() > limit) throw Wrong(what);
}

/// A server that fails is named. It has died, or it works as well and has given up because another one had died.
void Servers::judge(const Failure& failure) const {
    const std::string said = failure.what(), before = "the server on rank ";
    const auto at = said.find(before);
    if (at == std::string::npos) throw Wrong("no server is named: " + said);
    const int named = std::stoi(said.substr(at + before.size()));
    const unsigned servers = (1u << shape_.servers) - 1;
    const unsigned guilty = works(named) ? servers : 1u << named;
    for (const std::int64_t limit = now_ns() + told_within_ns; (failed() & guilty) == 0; rest())
        if (now_ns() > limit) throw Wrong("a server is named that lives: " + said);
}

/// All ranks are here. If that succeeds nobody has died, so nothing may be lacking.
void Servers::agree(const Counts& mine) {
    const bool sums = shape_.way == Way::sum;
    const long long here[] = {mine.lost, mine.updates, works(world_.rank) ? mine.pushes : 0, doubted_ != 0 ? 1 : 0};
    long long all[4];
    must(tuttiAllReduce(here, all, 4, tuttiInt64, tuttiSum, world_.comm, nullptr), "tuttiAllReduce");
    if (all[0] > 0) throw Wrong("servers have lost " + std::to_string(all[0]) + " workers, and all ranks are there");
    if (all[3] > 0) throw Wrong("gradients are lacking, and all ranks are there: " + doubt_);
    if (!sums && mine.complete && all[1] != all[2])
        throw Wrong(std::to_string(all[1]) + " updates of " + std::to_string(all[2]) + " gradients");
}

}  // namespace tutti::steps
