// The collectives on tensors. On CPUs they are done when the function returns; on a device they are enqueued on one
// stream, which is to be the current one. One thread at a time; see process_group.hpp for how they get into a queue.
#pragma once

#include "tensors.hpp"

namespace tutti_torch {

/// Numbers of bytes, one for each rank.
using Counts = std::vector<std::size_t>;

/// Where a group's tensors lie, and the stream of their operations as Tutti knows it.
struct Place {
    c10::Device device = at::kCPU;
    tuttiStream_t stream = nullptr;
};

/// To or from a rank.
struct Message {
    at::Tensor tensor;
    int peer;
    bool sends;
};

class Collectives {
  public:
    /// Blocks until all ranks have come, at most for `timeout`. operation_timeout: how long an operation may wait.
    Collectives(const tuttiUniqueId& id, int rank, int size, Milliseconds timeout, Milliseconds operation_timeout,
                const Settings& settings, Place place = {});
    /// Over a communicator on CPUs that was made already, and is owned from now on.
    explicit Collectives(tuttiComm_t made);

    void all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op);
    /// Of sparse tensors (COO): the elements that any rank has, added up.
    void all_reduce_sparse(const at::Tensor& tensor);
    void broadcast(const at::Tensor& tensor, int root);
    void reduce(const at::Tensor& tensor, const c10d::ReduceOp& op, int root);
    /// outputs: a tensor for each rank, or one for all.
    void all_gather(at::TensorList outputs, const at::Tensor& input);
    /// outputs are used on root only.
    void gather(at::TensorList outputs, const at::Tensor& input, int root);
    /// inputs are used on root only.
    void scatter(const at::Tensor& output, at::TensorList inputs, int root);
    /// inputs: a tensor for each rank, or one for all.
    void reduce_scatter(const at::Tensor& output, at::TensorList inputs, const c10d::ReduceOp& op);
    /// What goes to and comes from each rank.
    void all_to_all(at::TensorList outputs, const Counts& from, at::TensorList inputs, const Counts& to);
    void barrier();
    /// All at the same time, so that none waits for another.
    void exchange(const std::vector<Message>& messages);

    /// Throws what has befallen operations that were enqueued. Any thread.
    void check_errors(const char* operation) const { comm_.check(operation); }
    tuttiResult_t error() const { return comm_.error(); }
    /// Ends what is under way. Any thread.
    void revoke() { comm_.revoke(); }
    /// See Communicator::shrunk.
    tuttiComm_t shrunk(const std::vector<int>& excluded, bool abort, Milliseconds timeout,
                       Milliseconds operation_timeout, const Settings& settings) {
        return comm_.shrunk(excluded, abort, timeout, operation_timeout, settings);
    }
    int rank() const { return rank_; }
    int size() const { return size_; }

  private:
    /// The rows of n ranks, each like `tensor`, as a tensor.
    at::Tensor rows_like(const at::Tensor& tensor);
    void exchange(const void* input, const Counts& to, void* output, const Counts& from);

    Communicator comm_;
    int rank_, size_;
    tuttiStream_t stream_;
    Memory in_, out_, rows_;
};

}  // namespace tutti_torch
