// A part of a key on its server: values that are updated when a gradient arrives, or sums of all workers' gradients.
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include "base/os.hpp"
#include "base/result.hpp"
#include "dp/memory.hpp"
#include "dp/ps/clocks.hpp"
#include "dp/ps/table.hpp"

namespace tutti::dp::ps {

/// A worker's request for a part, or news for a part: a worker has left (drop), or time has passed (expire).
struct Task {
    enum class Kind { push, pull, push_pull, fetch, store, drop, expire };
    Kind kind;
    int worker = -1;
    std::uint64_t ticket = 0;      // the worker's request, returned in the answer
    long long clock = 0;           // the worker's clock at the request
    double rate = 0, unscale = 1;  // learning rate; factor of the gradient
    Pool::Loan gradient;           // push, push_pull: the gradient; store: a Snapshot
    std::size_t bytes = 0;         // length of `gradient`
};

/// Takes the results of parts; the Server implements it. Any thread.
class Answers {
  public:
    virtual ~Answers() = default;
    virtual void values(int worker, std::uint64_t ticket, std::size_t part, Pool::Loan values, long long stale) = 0;
    /// The answer to fetch, with a Snapshot in data; or to store, with data nullptr.
    virtual void snapshot(int worker, std::uint64_t ticket, std::size_t part, Pool::Loan data) = 0;
    virtual void refuse(int worker, std::uint64_t ticket, std::size_t part, const Error& why) = 0;
    /// Asks whether a pull may be answered now, as Clocks::admit. If not, the server posts it again later.
    virtual std::optional<long long> admit(std::size_t part, const Task& pull) = 0;
    /// An update has been applied. stale, missed: as in tuttiPsStatistics_t.
    virtual void updated(int worker, long long clock, long long stale, long long missed) = 0;
};

/// Owned by the Server. One thread at a time calls handle(), with the tasks of each worker in order.
class Part {
  public:
    virtual ~Part() = default;
    virtual void handle(Task& task) = 0;  // throws if an update fails
    /// Where to write the initial values, before the first task; nullptr where servers only sum.
    virtual std::byte* initial() = 0;
    // Where servers update, while no thread handles the part: its Snapshot.
    virtual void read(std::byte*) const {}
    virtual void write(const std::byte*) {}
    virtual std::size_t state_bytes() const { return 0; }  // of the optimizer's states, with the master

    // The part's mailbox. Only the Server uses it, under `mutex`.
    std::mutex mutex;
    std::deque<Task> mail;
    bool scheduled = false;  // queued for, or handled by, an update thread
};

struct PartContext {
    const Settings& settings;
    const Key& key;
    const PartPlace& place;
    std::size_t index;  // number of the part
    Pool& pool;
    Answers& answers;
};

/// Makes a part that applies each gradient when it arrives.
std::unique_ptr<Part> updated_part(const PartContext& context);
/// Makes a part that sums rounds: the k-th gradients of all workers, in the order of workers.
std::unique_ptr<Part> summed_part(const PartContext& context);

}  // namespace tutti::dp::ps
