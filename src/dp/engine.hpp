// The layer of one rank: what every mode shares. A mode is who owns which part of a bucket, and whose memory stays:
//
//     mode            owners of a bucket     in                 out
//     naive, DDP      every rank, all of it  all-reduce         -
//     server          one rank               reduce             broadcast
//     sharded         k ranks, a k-th each   reduce-scatter     all-gather
//     ZeRO-1, 2, 3    all ranks              reduce-scatter     all-gather (3: when a unit is gathered)
//
// Asynchronous modes put `in`, the update and `out` into one queue, and go on: see stale.cpp.
//
// Memory and arithmetic are those of a Backend: the host's, or a GPU's. There all jobs only enqueue, so they are run at
// once, in the calling thread (worker.hpp); but not those of asynchronous modes, which go on beside the caller's: they
// have a thread, and on a GPU a stream of their own, and what they have enqueued is done when they end. Each rank has
// its backend: ranks on CPUs and on GPUs may work together.
//
// Files: engine.cpp (an iteration), setup.cpp (communicators and buckets), placing.cpp (memory), motion.cpp (in and
// out), stale.cpp, units.cpp (ZeRO-3), checks.cpp, checkpoint.cpp.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/caught.hpp"
#include "base/os.hpp"
#include "dp/calls.hpp"
#include "dp/compression.hpp"
#include "dp/layout.hpp"
#include "dp/memory.hpp"
#include "dp/optimizer.hpp"
#include "dp/trace.hpp"
#include "dp/worker.hpp"

namespace tutti::dp {

struct Manifest;  // of a checkpoint
struct Restored;

struct Bucket : BucketLayout {
    explicit Bucket(const BucketLayout& layout) : BucketLayout(layout) {}
    std::size_t index = 0;
    std::vector<Piece> mine;    // what this rank updates
    std::size_t own_begin = 0;  // the range that it owns
    std::size_t own_count = 0;

    std::byte* grad = nullptr;      // `count` gradients; nullptr: not borrowed yet, or a parameter's own memory is used
    Pool::Loan grad_loan;           // holds grad where gradients only pass
    std::byte* own_grad = nullptr;  // the owned range after the reduction: a part of grad, or
    std::unique_ptr<Block> own_grad_block;
    std::byte* data = nullptr;      // `count` values, where parameters are sent as they lie
    Pool::Loan data_loan;           // holds data (ZeRO-3)
    std::byte* own_data = nullptr;  // the owned range of values: a part of data, or
    std::unique_ptr<Block> own_data_block;
    States states;
    // config.offload: the owned range in the host's memory
    std::byte* host_grad = nullptr;
    std::byte* host_data = nullptr;  // always the current values

    std::atomic<int> pending{0};  // parameters that are not ready
    bool complete = false;
    tuttiDpBucketStatistics_t times{};
    std::uint64_t fetched = 0;  // ZeRO-3: the job that gathers its values; 0: they are not there
};

class Engine {
  public:
    /// What a rank asks for, or why that can't be.
    struct Request {
        std::vector<Parameter> parameters;
        Options options{};
        std::optional<Error> refusal;
    };
    /// Collective: if one rank refuses, all do.
    Engine(Request request, tuttiComm_t comm);
    ~Engine();

    /// The number, if it is one. Throws tuttiInvalidArgument.
    std::size_t checked(std::size_t parameter, const char* function) const {
        if (parameter >= parameters_.size())
            fail(tuttiInvalidArgument, "%s: parameter is %zu; there are %zu", function, parameter, parameters_.size());
        return parameter;
    }

    void* gradient(std::size_t parameter);
    void* data(std::size_t parameter);

    void begin();
    void no_sync(bool on);
    void grad_ready(std::size_t parameter);
    void synchronize();
    double clip(double limit);  // tuttiDpClipNorm
    void step();
    void wait();
    void set_learning_rate(double rate) { options_.optimizer.learningRate = rate; }
    void gather(int unit);
    void release(int unit);

    void broadcast(int root);
    void check_equal();
    void find_bad(int* rank, std::size_t* parameter);
    void save(const char* path);
    void load(const char* path);
    void move(tuttiComm_t comm);
    void abandon();

    tuttiDpMemory_t memory() const;
    tuttiDpStatistics_t statistics();
    tuttiDpBucketStatistics_t bucket_statistics(std::size_t bucket);
    const Trace* trace() const { return trace_.get(); }

  private:
    enum class Phase { idle, collecting, synchronized };
    enum Flag : std::uint8_t { ready_now = 1, touched = 2, bad = 4 };  // of a parameter, in this iteration
    /// Gradients on their way: a job has what it needs, the bucket may be filled anew.
    struct Sent {
        Bucket* bucket;
        std::byte* grad;
        Pool::Loan loan;
        Deadline begun;       // the iteration
        Backend::Mark ready;  // asynchronous: the gradients are there
    };
    /// Values as they were after `version` steps; by bucket.
    struct Arrival {
        long long version;
        std::vector<Pool::Loan> values;
    };

    // setup.cpp
    /// The ranks of a communicator.
    struct Company {
        int rank = 0, ranks = 1;
        std::vector<std::uint8_t> gpus;  // by rank: whether it is on one
    };
    Company meet(tuttiComm_t comm, const std::optional<Error>& refusal);
    void join(tuttiComm_t comm, Company company);
    void make_places(int device);
    bool gpus_among_us() const;
    void check_places() const;
    bool owns(int rank) const;
    Resources resources() const;
    void sweep();
    void leave();
    void make_layout(std::span<const std::size_t> order);
    std::size_t own_shard(const Bucket& bucket) const;
    std::vector<std::size_t> backward_order() const;
    void start_worker();
    void relayout(std::span<const std::size_t> order);
    void rebuild();
    void rejoin(tuttiComm_t comm, Company company);
    void follow_the_furthest();
    void complete_the_step();

    // placing.cpp
    void place_gradients();
    void place_values();
    void place_states();

    // engine.cpp
    void expect(Phase phase, const char* function, const char* instead) const;
    bool serves_only() const { return options_.dedicated && rank_ == options_.server; }
    std::byte* borrow(Bucket& bucket);
    void complete(Bucket& bucket);
    void launch(Bucket& bucket);
    std::vector<std::size_t> missing() const;
    void refuse_missing(const std::vector<std::size_t>& parameters);
    void agree_on_unused();
    double since_begin_us() const;

    // motion.cpp
    void fetch(const Sent& sent);
    void reduce(const Sent& sent);
    void end_job();
    void reduce_to_owners(const Sent& sent, std::byte* own, tuttiRedOp_t op);
    void hand_back(Bucket& bucket, const std::byte* grad, bool touched_ones);
    double norm_of_own(double limit);
    void bring_gradients();
    void count_updates();
    void update_own(Bucket& bucket, const tuttiDpOptimizer_t& optimizer);
    void spread(Bucket& bucket, std::byte* into);
    void take_callers_values(Bucket& bucket);
    void copy_out(Bucket& bucket, const std::byte* values);
    void collect(const Bucket& bucket, std::byte* into) const;
    void store(Bucket& bucket, const std::byte* values);
    std::size_t largest_values() const;
    std::byte* value_of(const Bucket& bucket, const Piece& piece) const;

    // stale.cpp
    void step_later();
    void abandon_beside();
    void take_version();
    void apply(const Arrival& arrival);

    // checks.cpp
    /// What a call was given, checked by every rank before any of them begins: if one refuses, all do, and nothing has
    /// happened. Otherwise the others would wait for it.
    template <class Checks>
    void agree(Checks checks) {
        worker_->check();
        const Verdict mine = Verdict::of(checks);
        std::vector<Verdict> all;
        or_end([&] { all = verdicts(control_, ranks_, mine); });
        judge(all);
    }
    /// If body fails, so has the layer.
    template <class Body>
    void or_end(Body body) {
        try {
            body();
        } catch (...) {
            worker_->fail(caught());
            throw;
        }
    }
    void agree_on_registration();
    void look_for_nan(std::size_t parameter);
    void check_communicator();

    // checkpoint.cpp
    void check_file(const char* function, const char* path) const;
    void restore(const std::string& path, Manifest& manifest, std::vector<Restored>& restored) const;

    std::vector<Parameter> parameters_;
    Options options_;
    tuttiComm_t comm_ = nullptr;      // the layer's own
    tuttiComm_t cpu_comm_ = nullptr;  // of the ranks' CPUs; on CPUs comm_
    tuttiComm_t control_ = nullptr;   // of the ranks' CPUs: for what callers' threads agree on beside reductions
    tuttiComm_t users_ = nullptr;     // the caller's, from which the others were split
    int rank_ = 0, ranks_ = 1;
    int device_ = TUTTI_DEVICE_CPU;
    bool on_gpu_ = false, offloads_ = false;
    std::vector<std::uint8_t> gpus_;  // by rank: whether it is on one
    BackendPtr backend_;              // gradients and values
    BackendPtr communication_;        // the same memory, as jobs see it: backend_ itself but for asynchronous GPUs
    BackendPtr states_backend_;       // what the update works on
    BackendPtr pinned_;               // beside a GPU
    int owners_ = 1, owner_ = 0;      // which shard of a bucket is this rank's; -1: none
    int divisor_ = 1;
    tuttiRedOp_t premultiplied_[tuttiNumTypes];  // by type, where gradients are divided first
    std::unique_ptr<Trace> trace_;
    std::unique_ptr<Compression> compression_;

    Pool pool_{nullptr};
    std::unique_ptr<Block> gradients_, values_, states_, staging_;
    Layout layout_;
    std::vector<std::unique_ptr<Bucket>> buckets_;
    std::vector<std::byte*> values_at_;  // by parameter: what data() returns; ZeRO-3: nullptr unless gathered

    Phase phase_ = Phase::idle;
    bool no_sync_ = false;
    std::unique_ptr<std::atomic<std::uint8_t>[]> flags_;
    std::vector<std::uint8_t> skipped_;  // parameters that no rank used
    std::vector<long long> updates_;     // by parameter: how many it has had, the same on all ranks
    std::mutex launching_;
    std::size_t next_launch_ = 0;
    bool recording_ = false;  // the order of readiness, for rebuild()
    std::vector<std::size_t> order_;
    std::atomic<std::size_t> recorded_{0};

    Deadline begun_{};
    std::mutex looking_;        // for NaNs
    mutable std::mutex times_;  // of buckets
    tuttiDpStatistics_t statistics_{};
    long long steps_ = 0;     // begun
    long long updated_ = 0;   // whose updates have all been made here
    bool updating_ = false;   // some of the next one's have
    long long received_ = 0;  // whose values have come from all ranks

    std::mutex arrivals_mutex_;
    std::deque<Arrival> arrivals_;
    std::vector<Pool::Loan> leaving_;      // a GPU's values that have been taken, perhaps only in its stream
    std::deque<std::uint64_t> step_jobs_;  // of the last staleness + 1 steps

    std::map<int, std::vector<std::size_t>> units_;  // and their buckets: one for each pair of types
    std::vector<int> sequence_, last_sequence_;      // of gathered units
    std::vector<std::size_t>* unit_buckets(int unit, const char* function);
    void fetch_values(std::span<const std::size_t> buckets);
    void refuse_gathered(const char* function) const;
    void forget_gathered();
    static void drop_values(Bucket& bucket);

    std::unique_ptr<Worker> worker_;  // the last: it ends first
};

}  // namespace tutti::dp
