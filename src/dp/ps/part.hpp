// A part of a key on its server: values that are updated when a gradient arrives, or sums of all workers' gradients.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/os.hpp"
#include "base/result.hpp"
#include "dp/memory.hpp"
#include "dp/ps/clocks.hpp"
#include "dp/ps/table.hpp"

namespace tutti::dp::ps {

/// What a worker asks of a part, or what the part is to hear of a worker.
struct Task {
    enum class Kind { push, pull, push_pull, fetch, store, drop, expire };
    Kind kind;
    int worker = -1;
    std::uint64_t ticket = 0;  // of the answer
    long long clock = 0;       // the worker's
    double rate = 0, unscale = 1;
    Pool::Loan gradient;    // push, push_pull; store: a Snapshot
    std::size_t bytes = 0;  // of it
};

/// Where parts send what they have. Any thread.
class Answers {
  public:
    virtual ~Answers() = default;
    virtual void values(int worker, std::uint64_t ticket, std::size_t part, Pool::Loan values, long long stale) = 0;
    /// data nullptr: a Snapshot has been stored.
    virtual void snapshot(int worker, std::uint64_t ticket, std::size_t part, Pool::Loan data) = 0;
    virtual void refuse(int worker, std::uint64_t ticket, std::size_t part, const Error& why) = 0;
    /// Asks whether a pull may have values now; as Clocks::admit.
    virtual std::optional<long long> admit(std::size_t part, const Task& pull) = 0;
    virtual void updated(int worker, long long clock, long long stale, long long missed) = 0;
};

/// handle(): one thread at a time; tasks of one worker in their order. Throws what an update throws.
class Part {
  public:
    virtual ~Part() = default;
    virtual void handle(Task& task) = 0;
    /// Before the first task: the values to begin with. nullptr where there are none.
    virtual std::byte* initial() = 0;
    virtual std::size_t state_bytes() const { return 0; }  // of the optimizer, with the master

    // The mailbox: of the server, under `mutex`.
    std::mutex mutex;
    std::deque<Task> mail;
    bool scheduled = false;
};

struct PartContext {
    const Settings& settings;
    const Key& key;
    const PartPlace& place;
    std::size_t index;  // of the part
    Pool& pool;
    Answers& answers;
};

/// Applies gradients as they come.
std::unique_ptr<Part> updated_part(const PartContext& context);
/// Sums rounds: the k-th gradients of all workers, in the order of workers.
std::unique_ptr<Part> summed_part(const PartContext& context);

}  // namespace tutti::dp::ps
