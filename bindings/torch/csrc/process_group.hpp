// The backend "tutti" of torch.distributed. Collectives of a group on tensors of CPUs run one after another, in the
// order of the calls, and sends and receives beside them (pairs.hpp). On tensors of a device all run in the order of
// the calls (device_group.hpp).
#pragma once

#include <atomic>
#include <memory>

#include "collectives.hpp"
#include "device_group.hpp"
#include "hooks.hpp"
#include "pairs.hpp"
#include "work.hpp"

namespace tutti_torch {

/// Lets go of Python's lock, if this thread has it. A group may be destroyed by Python's destructor of something else
/// (DDP's reducer), while its own thread wants the lock to free a tensor or to call back: they would wait for each
/// other.
class WithoutPython {
  public:
    WithoutPython();
    ~WithoutPython();
    WithoutPython(const WithoutPython&) = delete;

  private:
    void* state_;  // Python's; null: this thread did not have the lock
};

/// pg_options. Groups that are made of a group have its own, unless they are given others.
struct GroupOptions final : Base::Options, Settings {
    explicit GroupOptions(Settings settings) : Options("tutti"), Settings(std::move(settings)) {}
#if TUTTI_TORCH_AT_LEAST(2, 15)
    c10::intrusive_ptr<Options> clone() const override {
        return c10::make_intrusive<GroupOptions>(*this);
    }
#endif
};

class ProcessGroup final : public Base {
  public:
    /// Blocks until all ranks of the group have called it. The store brings them together. `deferred`: the group has no
    /// members before reconfigure() gives it some.
    ProcessGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, Milliseconds timeout,
                 Settings settings, bool deferred = false);
    ~ProcessGroup() override;

    /// Ends the group: waits for what is under way, or, if `abandon`, ends it. Any number of times.
    void close(bool abandon);
    /// Of all groups of the process, when it ends: what is under way is abandoned.
    static void close_all();

    const std::string getBackendName() const override { return "tutti"; }
    void setSequenceNumberForGroup() override {}
    std::uint64_t getSequenceNumberForGroup() override { return calls_; }
    void abort() { close(true); }
    void shutdown() { close(false); }
    /// Of the works that begin from now on. How long an operation of a communicator waits for peers is settled when it
    /// is made: a longer time has no effect on that.
    void setTimeout(Milliseconds timeout) TUTTI_OVERRIDE_SINCE_2_9 { timeout_ = timeout; }
#if TUTTI_TORCH_AT_LEAST(2, 8)
    c10d::ErrorType getError() override;
    bool supportsTensorAlloc(c10::DeviceIndex device) override {
        return device < 0;  // that of CPUs
    }
    /// In memory that the other ranks of the host can map.
    at::Tensor allocateTensor(long size, at::TensorOptions options) override;
    std::shared_ptr<c10::Allocator> getMemAllocator() override;
#endif
#if TUTTI_TORCH_AT_LEAST(2, 9)
    c10::intrusive_ptr<Options> getBackendOptions() override;
    bool supportsSplitting() const override {
        return true;
    }
    c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                            const c10::intrusive_ptr<Options>& options) override;
    c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                            const c10::intrusive_ptr<Options>& options, const int& rank,
                                            const int& size) override;
#endif
#if TUTTI_TORCH_AT_LEAST(2, 10)
    /// Over the ranks of a communicator that was made already.
    ProcessGroup(const c10::intrusive_ptr<c10d::Store>& store, std::unique_ptr<Collectives> ranks, Milliseconds timeout,
                 Settings settings);
    bool supportsShrinking() const override {
        return true;
    }
    /// Called by the ranks that are to remain; who has died is left out, named or not. Ranks on CPUs, of any hosts.
    c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<std::int64_t>& ranks_to_exclude, int flags,
                                             const c10::intrusive_ptr<Options>& options) override;
#endif
#ifdef C10D_BACKEND_HAS_RECONFIGURE
    bool supportsReconfigure() const override {
        return true;
    }
    /// A secret: whoever has it can join. Good for one reconfigure().
    c10d::ReconfigureHandle get_reconfigure_handle() const override;
    /// Ends what is under way, and makes a group of those whose handles are given, in the order of the list, or of the
    /// sorted set. Blocks until all have come. Sends and receives meet in the store of the group's creation, which all
    /// of them have to share.
    c10::intrusive_ptr<c10d::Work> reconfigure(const c10d::ReconfigureOptions& options) override;
#endif
#if TUTTI_TORCH_AT_LEAST(2, 15)
    bool supportsAbortHooks() const override {
        return true;
    }
    void registerAbortHook(std::int64_t id, c10d::AbortHook hook) override {
        hooks_->add(id, std::move(hook));
    }
    void unregisterAbortHook(std::int64_t id) override {
        hooks_->remove_abort(id);
    }
    bool supportsCompletionHooks() const override;
    void registerCompletionHook(std::int64_t id, c10d::CompletionHook hook) override {
        hooks_->add(id, std::move(hook));
    }
    void unregisterCompletionHook(std::int64_t id) override {
        hooks_->remove_completion(id);
    }
#endif

    using Result = c10::intrusive_ptr<c10d::Work>;
    using Lists = std::vector<Tensors>;

    Result broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
    Result allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
    Result allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
    Result allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) TUTTI_OVERRIDE_SINCE_2_1;
    Result reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
    Result allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
    Result allgather_coalesced(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
    Result _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
    Result gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
#if TUTTI_TORCH_AT_LEAST(2, 15)
    Result gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options) override;
#endif
    Result scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) override;
    Result reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& options) override;
    Result _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                const c10d::ReduceScatterOptions& options) override;
    Result alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                         std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
    Result alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
    Result barrier(const c10d::BarrierOptions& options) override;
    /// Rank 0 waits for the others one after another, and says which do not come: the first, or all.
    void monitoredBarrier(const c10d::BarrierOptions& options, bool all) override;
    Result send(Tensors& tensors, int peer, int tag) override;
    Result recv(Tensors& tensors, int peer, int tag) override;
    Result recvAnysource(Tensors& tensors, int tag) override;
#if TUTTI_TORCH_AT_LEAST(2, 1)
    Result allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                           const c10d::AllgatherOptions& options) override;
    Result reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                           const c10d::ReduceScatterOptions& options) override;
    /// Between the two, sends and receives are of one group. The work of endCoalescing is all that began since.
    bool supportsCoalescing() const TUTTI_OVERRIDE_SINCE_2_7 {
        return any_has_streams();
    }
    void startCoalescing() override;
    Result endCoalescing() override;
#endif

  private:
    void enlist();               // among all groups of the process
    void check_process() const;  // refuses calls in a process that was forked from the group's
    void leave_to_parent();      // in such a process
    void take(std::unique_ptr<Collectives> ranks);
    Collectives& members();  // or an exception
    Pairs& pairs();
    void record(const Operation& operation) const;  // what the profiler knows of torch's own backends
    using Job = std::function<void(Collectives&)>;
    /// Begins an operation: it may be called, the profiler is told, and it has a number. Whether it is on a device.
    bool begin(Operation& operation);
    /// job: (Collectives&) -> void, which owns what it uses. A template, so that a call that waits does not allocate
    /// it.
    template <typename F>
    Result enqueue(Operation operation, F&& job);
    Result enqueue_later(const Operation& operation, bool on_device, Job job);
    Result push(const WorkPtr& work, Job job);
    std::shared_ptr<DeviceGroup> group_on(c10::Device device);
    /// message: of a tensor on a device. It waits for endCoalescing, if there was a startCoalescing.
    Result pass(const Message& message);
    Result pass(const std::vector<Message>& messages);
    Result noted(Result work);  // between startCoalescing and endCoalescing, whose work waits for it
    Milliseconds within(Milliseconds timeout) const;  // what an option means
    /// This group's, if there are none of Tutti's.
    const Settings& settings_of(const c10::intrusive_ptr<Options>& options) const;
    void check_rank(int rank, const char* what) const;
    /// Refuses tensors whose elements are not n times those of `one`.
    void check_rows(const at::Tensor& all, const at::Tensor& one, const char* operation) const;
    void check_list(const Tensors& list, const char* operation) const;

    c10::intrusive_ptr<c10d::Store> store_;
    std::string key_;  // of this group, in the store
    std::atomic<Milliseconds> timeout_;
    const Settings settings_;
    std::atomic<std::uint64_t> calls_{0};
    const std::shared_ptr<Hooks> hooks_ = std::make_shared<Hooks>();
    std::unique_ptr<Collectives> collectives_;  // none: the group is closed, or has no members yet
    std::unique_ptr<Pairs> pairs_;
    std::shared_ptr<Queue> queue_;
    std::mutex devices_mutex_;
    std::vector<std::shared_ptr<DeviceGroup>> devices_;  // in the order in which they were first used
    mutable std::mutex closing_;
    bool closed_ = false;
    int forks_ = 0;
    mutable std::string handle_;  // of the next reconfigure()
    // From startCoalescing to endCoalescing, which one thread calls:
    bool coalescing_ = false;
    std::vector<Message> messages_;  // of tensors on devices
    std::vector<Result> works_;      // of all else
};

}  // namespace tutti_torch
