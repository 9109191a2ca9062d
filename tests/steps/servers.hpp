// Parameter servers among the ranks of a communicator, and what their keys must hold, whoever is slow, stopped or dead:
// each gradient of the living once, of the dead at most once, each rank's in their order; no worker further ahead than
// it may be; the values as of the last push of one's own.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "data.hpp"
#include "tutti/ps.h"

namespace tutti::steps {

/// A value has a digit to the base of 8 for each rank: how often its gradients have been applied. Up to 7 clocks of 8
/// ranks are exact in a float32.
class Servers {
  public:
    virtual ~Servers() = default;  // ends what is under way
    Servers(const Servers&) = delete;

    /// Collective. Throws Failure or Wrong.
    void run();

  protected:
    /// How servers make of a gradient what values hold.
    enum class Way {
        sum,       // they only sum: values are the round's
        subtract,  // SGD with a rate of 1
        account    // an update of the test's own, which sees each gradient's number and its predecessors
    };
    struct Shape {
        Way way;
        int servers, dedicated, staleness;  // ranks 0 to servers - 1 serve; staleness -1: unbounded
    };
    struct Key {
        std::string name;
        std::size_t count;
        float *values, *gradient;
    };
    struct Counts {
        long long lost, updates, pushes;  // pushes: of parts
        int staleness;                    // the largest
        bool complete;                    // updates has all
    };

    /// all: dice that all ranks throw alike. sums: whether servers may only sum.
    Servers(const World& world, Dice all, Dice& own, Memory& memory, std::size_t most_bytes, bool sums);

    tuttiDpOptimizer_t optimizer();
    float gradient_now() const;  // all elements of a gradient
    bool works(int rank) const { return shape_.dedicated != 1 || rank >= shape_.servers; }

    /// All keys, with the bound on staleness; newest(): between two iterations.
    virtual void pull() = 0;
    virtual void newest() = 0;
    virtual void push() = 0;
    virtual void push_and_pull() = 0;  // where servers only sum
    virtual void tick() = 0;           // ends an iteration, also one without a push
    /// Of a rank that only serves: until all workers have left.
    virtual void serve() = 0;
    /// All ranks, with dedicated servers, before the same clock: the servers' values go to other communicators, without
    /// leaves_.
    virtual void move() {}
    virtual Counts counts() = 0;
    virtual void leave() = 0;

    World world_;
    Dice own_;
    Shape shape_;
    std::vector<Key> keys_;
    bool one_part_ = true;  // each key is one part
    int clocks_;
    int moves_at_ = -1;  // before this clock all ranks move(); -1: never
    // Workers that do not serve: the one whose last clock is the one before the move; the one that comes with it, and
    // knows nobody before. -1: none.
    int leaves_ = -1, comes_ = -1;

  private:
    int gradients_by(int rank, int clock) const;
    void move_now();
    static tuttiResult_t account(void* self, const tuttiDpPiece_t* piece);
    void work();
    void meet();
    unsigned look_at_all(int least, int most);
    unsigned look_at(const Key& key, int least, int most);
    unsigned failed() const;
    bool is_excused(unsigned missing) const;
    void await_excuse(unsigned missing, const std::string& what) const;
    void judge(const Failure& failure) const;
    void agree(const Counts& mine);

    int clock_ = 0;
    bool moving_ = false;
    std::string doubt_;     // the first gradient that was missing
    unsigned doubted_ = 0;  // a bit for each rank with doubted gradients
    std::mutex mutex_;
    std::string disorder_;  // the first gradient that came out of its order
};

/// By the calls of tutti/ps.h.
std::unique_ptr<Servers> servers_of_keys(const World& world, Dice all, Dice& own, Memory& memory,
                                         std::size_t most_bytes);
/// By a data-parallel layer with config.onArrival.
std::unique_ptr<Servers> servers_on_arrival(const World& world, Dice all, Dice& own, Memory& memory,
                                            std::size_t most_bytes);

}  // namespace tutti::steps
