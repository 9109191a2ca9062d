// What the steps of a storm work with: dice that all ranks throw alike, memory of several kinds, and values by which
// every element of a result is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tutti/tutti.h"

namespace tutti::storm {

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

/// Where buffers come from: private memory, and such that other processes can map.
class Memory {
  public:
    Memory();
    ~Memory();
    Memory(const Memory&) = delete;
    /// Of either kind, as the rank's own dice say; valid until reset().
    void* take(std::size_t bytes, Dice& own);
    void reset() { used_[0] = used_[1] = 0; }
    /// Overwrites all that has been taken since reset(); untouched(): nobody else has written there since.
    void mark();
    bool untouched() const;

  private:
    static constexpr std::size_t size_ = std::size_t{32} << 20;
    unsigned char* base_[2] = {};
    std::size_t used_[2] = {};
};

std::size_t size_of(tuttiDataType_t type);

/// Element i of what rank `rank` has in a call: 0 to 60, so that all types have exact sums of a few ranks.
int value(std::uint64_t key, int rank, std::size_t i);

/// Element i becomes value(key, rank, first + i).
void fill(void* at, tuttiDataType_t type, std::size_t count, std::uint64_t key, int rank, std::size_t first);

/// Throws Wrong unless element i is expected(i): all elements of small results, some thousands of large ones.
void expect(const void* at, tuttiDataType_t type, std::size_t count, const std::function<int(std::size_t)>& expected,
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

/// A collective of any kind. all: dice that are the same on all ranks; own: this rank's.
Call some_collective(const World& world, std::uint64_t key, Dice all, Dice& own, Memory& memory);

}  // namespace tutti::storm
