// The values of a unit. ZeRO-3: they are gathered when they are needed, or ahead of that, in the order of the last
// iteration. Other modes: after a step they may arrive while the caller works (config.overlapParamGather).
#pragma once

#include <map>
#include <vector>

#include "dp/reducer.hpp"
#include "dp/trace.hpp"
#include "dp/worker.hpp"

namespace tutti::dp {

/// Owned by the Engine. Used by the caller's thread; values are gathered in jobs of the Worker.
class Units {
  public:
    /// All arguments must outlive this. trace: nullptr if there is none.
    Units(Storage& storage, const Reducer& reducer, Trace* trace)
        : storage_(storage), reducer_(reducer), trace_(trace) {}
    /// Call after buckets have been laid out.
    void lay_out();
    /// Begins an iteration: units are expected in the order of the last one.
    void begin() { last_sequence_ = std::exchange(sequence_, {}); }

    /// ZeRO-3: waits until the unit's values are gathered, and begins to fetch the next units; throws if the caller has
    /// the unit already. Other modes: waits for the unit's values that were sent.
    void gather(Worker& worker, int unit);
    /// ZeRO-3: gives the unit's memory back; throws if the caller does not have the unit. Other modes: does nothing.
    void release(int unit);
    /// Not ZeRO-3: starts a job that sends the owners' new values of a bucket to all ranks.
    void send(Worker& worker, const Bucket& bucket);
    /// Waits for all values that were sent.
    void arrive(Worker& worker) const;
    /// ZeRO-3: throws if the caller still has a unit.
    void refuse_gathered(const char* function) const;
    /// ZeRO-3: waits for all jobs and drops what was gathered ahead, because values are about to change.
    void forget(Worker& worker);
    /// Drops everything, also what the caller has gathered. Call while no job is under way.
    void reset();

  private:
    struct Gathered {
        Pool::Loan loan;
        std::uint64_t job = 0;  // the last job that gathers this bucket; 0 if there was none
    };
    const std::vector<std::size_t>& buckets_of(int unit, const char* function) const;
    bool is_here(const std::vector<std::size_t>& buckets) const;
    Trace::Track track() const {
        return storage_.options().gathers_apart() ? Trace::Track::gathers : Trace::Track::layer;
    }
    void fetch(Worker& worker, const std::vector<std::size_t>& buckets);
    void arrive(Worker& worker, const std::vector<std::size_t>& buckets) const;

    Storage& storage_;
    const Reducer& reducer_;
    Trace* const trace_;
    std::map<int, std::vector<std::size_t>> units_;  // by unit: its buckets; in ZeRO-3 one for each pair of types
    std::vector<Gathered> gathered_;                 // by bucket
    std::vector<int> sequence_, last_sequence_;      // units in the order of gather(), in this and the last iteration
};

}  // namespace tutti::dp
