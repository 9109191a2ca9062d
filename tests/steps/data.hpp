// What random operations work with: dice that all ranks throw alike, memory of several kinds, and numbers by which
// every byte of a result is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "harness/data.hpp"
#include "tutti/tutti.h"

namespace tutti::steps {

/// CLOCK_MONOTONIC, which all processes of a machine share, in nanoseconds.
std::int64_t now_ns();

/// A call of the library that returned an error, and when.
struct Failure : std::runtime_error {
    Failure(tuttiResult_t code, const char* call);
    tuttiResult_t code;
    std::string call;
    std::int64_t at_ns;
};

/// A result that is not what it should be.
struct Wrong : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Throws Failure.
void must(tuttiResult_t result, const char* call);
/// Called after each call that has succeeded; may be null.
extern void (*after_success)();

/// Random numbers that follow from a few seeds (SplitMix64).
class Dice {
  public:
    Dice(std::initializer_list<std::uint64_t> seeds);
    std::uint64_t next();
    /// 0 to limit - 1.
    std::size_t below(std::size_t limit) { return static_cast<std::size_t>(next() % limit); }
    bool chance(unsigned percent) { return next() % 100 < percent; }
    /// 0 to most, small ones as often as large ones.
    std::size_t size(std::size_t most);

  private:
    std::uint64_t state_ = 0;
};

/// Where buffers come from: private memory, and such that other processes can map. What is not taken has a sign that
/// nobody else writes.
class Memory {
  public:
    /// bytes: of each kind.
    explicit Memory(std::size_t bytes);
    ~Memory();
    Memory(const Memory&) = delete;
    /// Of either kind, as the rank's own dice say; valid until reset().
    void* take(std::size_t bytes, Dice& own);
    /// Gives back all that has been taken, and looks whether it was written around it (throws Wrong) or, after mark(),
    /// at all.
    void reset();
    /// Overwrites all that has been taken since reset(); untouched(): nobody else has written there since.
    void mark();
    bool untouched() const;
    bool is_marked() const { return marked_; }

  private:
    struct Piece {
        std::size_t begin, end;
    };
    struct Kind {
        unsigned char* base = nullptr;
        std::size_t used = 0;
        std::vector<Piece> taken;
    };

    std::size_t size_;
    Kind kinds_[2];
    bool marked_ = false;
};

std::size_t size_of(tuttiDataType_t type);

/// The numbers of one call (harness/data.hpp), of a type and, where they are reduced, for an op.
class Numbers {
  public:
    Numbers(std::uint64_t key, tuttiDataType_t type, std::optional<tuttiRedOp_t> op = std::nullopt)
        : data_{type, op}, offset_(static_cast<std::size_t>(key % 1'000'003)) {}
    /// Writes elements [first, first + count) of what the rank has.
    void put(int rank, std::size_t first, std::size_t count, void* to) const {
        data_.put_input(rank, offset_ + first, count, to);
    }
    /// Writes elements [first, first + count) of the reduction over so many ranks.
    void put_result(int ranks, std::size_t first, std::size_t count, void* to) const {
        data_.put_result(ranks, offset_ + first, count, to);
    }
    tuttiDataType_t type() const { return data_.type; }
    std::size_t element() const { return size_of(data_.type); }

  private:
    harness::Data data_;
    std::size_t offset_;
};

/// Throws Wrong unless the memory is what put(to) writes.
void expect(const void* at, std::size_t count, const Numbers& numbers, const std::function<void(void* to)>& put,
            const std::string& what);

/// Whole numbers of 0 to 60 as float32: sums and differences of some hundred are exact.
int value(std::uint64_t key, int rank, std::size_t i);
void fill(void* at, std::size_t count, std::uint64_t key, int rank);
/// Throws Wrong unless element i is expected(i): all elements of small results, some thousands of large ones.
void expect_values(const void* at, std::size_t count, const std::function<int(std::size_t)>& expected,
                   const std::string& what);

/// A communicator, as one of its ranks sees it.
struct World {
    tuttiComm_t comm = nullptr;
    int rank = 0, ranks = 0;
};

/// A call that is to be issued, and the check of what came of it.
struct Call {
    std::string what;
    std::function<tuttiResult_t(tuttiStream_t)> issue;
    std::function<void()> check;
};

/// One that a message by reference, or one that lands in its place, is likely in: large, of few types and kinds, which
/// `all` says.
Call large_collective(const World& world, std::uint64_t key, Dice all, Dice& own, Memory& memory);

/// A collective of any kind; of a rank's rows there are most_bytes at most. all: dice that are the same on all ranks;
/// own: this rank's.
Call some_collective(const World& world, std::uint64_t key, Dice all, Dice& own, Memory& memory,
                     std::size_t most_bytes);

}  // namespace tutti::steps
