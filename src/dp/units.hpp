// The values of a unit. ZeRO-3: they are gathered when they are needed, and before that if it is known what comes next.
// Other modes: after a step they may come beside the caller's work (config.overlapParamGather).
#pragma once

#include <map>
#include <vector>

#include "dp/reducer.hpp"
#include "dp/trace.hpp"
#include "dp/worker.hpp"

namespace tutti::dp {

/// The caller's thread; values are gathered in jobs.
class Units {
  public:
    /// All outlive this. trace: nullptr if there is none.
    Units(Storage& storage, const Reducer& reducer, Trace* trace)
        : storage_(storage), reducer_(reducer), trace_(trace) {}
    /// When buckets have been laid out.
    void lay_out();
    /// An iteration begins: units are expected in the order of the last one.
    void begin() { last_sequence_ = std::exchange(sequence_, {}); }

    /// ZeRO-3: throws if the caller has it already; or, for release(), not. Others: waits for values that were sent.
    void gather(Worker& worker, int unit);
    void release(int unit);
    /// Not ZeRO-3: the owners have new values of the bucket, which come to all ranks in a job.
    void send(Worker& worker, const Bucket& bucket);
    /// All values that were sent have come.
    void arrive(Worker& worker) const;
    /// Throws if the caller still has a unit.
    void refuse_gathered(const char* function) const;
    /// Values are about to change: what was gathered ahead is dropped, when the jobs that gather it have ended.
    void forget(Worker& worker);
    /// Where there are no jobs: drops the caller's, too.
    void reset();

  private:
    struct Gathered {
        Pool::Loan loan;
        std::uint64_t job = 0;
    };
    const std::vector<std::size_t>& buckets_of(int unit, const char* function) const;
    bool is_here(const std::vector<std::size_t>& buckets) const;
    void fetch(Worker& worker, const std::vector<std::size_t>& buckets);
    void arrive(Worker& worker, const std::vector<std::size_t>& buckets) const;

    Storage& storage_;
    const Reducer& reducer_;
    Trace* const trace_;
    std::map<int, std::vector<std::size_t>> units_;  // and their buckets: one for each pair of types
    std::vector<Gathered> gathered_;                 // by bucket
    std::vector<int> sequence_, last_sequence_;      // of gathered units
};

}  // namespace tutti::dp
