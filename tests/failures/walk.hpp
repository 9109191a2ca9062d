// One operation after the other, in which everything that can fail fails, each time something else.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "failing.hpp"
#include "tutti/dp.h"
#include "tutti/tutti.h"

namespace tutti::failing {

enum class Way { local, shm, tcp };

/// A rank of the job in which the operation runs, with what is made for it before anything fails.
struct Party {
    Way way = Way::local;
    int rank = 0, ranks = 1;
    tuttiUniqueId id{};
    tuttiComm_t comm = nullptr;  // nullptr once the operation has destroyed it
    std::vector<std::int32_t> in, out;
    bool right = false;  // what has come out
    std::string text;    // of the first error, where calls follow it
};

/// The first error of a list of calls.
class Calls {
  public:
    explicit Calls(Party& party) : party_(party) {}
    bool operator()(tuttiResult_t result) {
        if (first_ == tuttiSuccess && result != tuttiSuccess) {
            const OfTheTest mine;
            first_ = result;
            party_.text = tuttiGetLastError(nullptr);
        }
        return result == tuttiSuccess;
    }
    bool good() const { return first_ == tuttiSuccess; }
    tuttiResult_t first() const { return first_; }

  private:
    Party& party_;
    tuttiResult_t first_ = tuttiSuccess;
};

struct Operation {
    const char* name;
    /// Called by each rank on a thread of its own: what a program would do, which gives back what it has taken, also
    /// after an error. Sets `right`.
    std::function<tuttiResult_t(Party&)> call;
    bool makes_comm = false;  // the ranks have none before
    bool refuses = false;     // with tuttiInvalidUsage on all ranks, instead of tuttiSystemError on one
};

/// Runs the operation again and again, until nothing fails any more. Throws std::runtime_error that says what failed
/// where, and what was wrong then.
struct Walk {
    Way way = Way::shm;
    int ranks = 2;
    Kind kind = Kind::memory;
    When when = When::new_place;
    int depth = most_frames;
};
/// Returns how many runs had a failure.
long walk(const Operation& operation, const Walk& how);

tuttiConfig_t config_of(Way way);

/// One-element sum over all ranks; false: it was an error, or wrong.
bool sums_up(tuttiComm_t comm);

/// Operations of the data-parallel layer, and those with files (training.cpp).
std::vector<Operation> training();

/// All, or those of these names.
std::vector<Operation> operations(std::initializer_list<const char*> names = {});

}  // namespace tutti::failing
