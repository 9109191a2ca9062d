#include "collectives.hpp"

#include <algorithm>
#include <deque>
#include <numeric>

namespace tutti_torch {
namespace {

// What only moves does so as bytes, whatever its type.
constexpr tuttiDataType_t kBytes = tuttiUint8;

bool even(const Counts& counts) {
    return std::all_of(counts.begin(), counts.end(), [&](std::size_t count) { return count == counts.front(); });
}

Counts offsets(const Counts& counts) {
    Counts all(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), all.begin(), std::size_t{0});
    return all;
}

/// The bytes of each rank's tensor; one tensor is all ranks' in equal parts.
Counts parts(at::TensorList tensors, int ranks) {
    if (tensors.size() == 1)
        return Counts(static_cast<std::size_t>(ranks), tensors[0].nbytes() / static_cast<std::size_t>(ranks));
    Counts counts;
    for (const at::Tensor& tensor : tensors) counts.push_back(tensor.nbytes());
    return counts;
}

std::size_t elements(const at::Tensor& tensor) {
    return static_cast<std::size_t>(tensor.numel());
}

/// How an operation adds elements up, while it runs: a factor of PREMUL_SUM is known to the communicator that long.
class Summing {
  public:
    Summing(at::ScalarType type, const c10d::ReduceOp& op, tuttiComm_t comm)
        : comm_(comm), how_(arithmetic(type, op)), factor_(factor(op, type)) {
        if (how_ && factor_.defined())
            must(tuttiRedOpCreatePreMulSum(&how_->op, factor_.data_ptr(), how_->type, tuttiScalarHostImmediate, comm_),
                 "the factor of PREMUL_SUM");
    }
    ~Summing() {
        if (how_ && factor_.defined()) tuttiRedOpDestroy(how_->op, comm_);
    }
    Summing(const Summing&) = delete;

    explicit operator bool() const { return how_.has_value(); }
    const Arithmetic* operator->() const { return &*how_; }

  private:
    tuttiComm_t comm_;
    std::optional<Arithmetic> how_;
    at::Tensor factor_;
};

}  // namespace

Collectives::Collectives(const tuttiUniqueId& id, int rank, int size, Milliseconds timeout,
                         Milliseconds operation_timeout, const Settings& settings, Place place)
    : comm_(id, rank, size, timeout, operation_timeout, settings,
            place.device.is_cpu() ? TUTTI_DEVICE_CPU : place.device.index()),
      rank_(rank),
      size_(size),
      stream_(place.stream),
      in_(place.device),
      out_(place.device),
      rows_(place.device) {}

Collectives::Collectives(tuttiComm_t made) : comm_(made), rank_(0), size_(0), stream_(nullptr) {
    must(tuttiCommUserRank(made, &rank_), "rank");
    must(tuttiCommCount(made, &size_), "size");
}

at::Tensor Collectives::rows_like(const at::Tensor& tensor) {
    const std::size_t bytes = tensor.nbytes() * static_cast<std::size_t>(size_);
    return lying_at(rows_.at_least(std::max<std::size_t>(bytes, 64)), {size_, tensor.numel()}, tensor);
}

void Collectives::all_reduce(const at::Tensor& tensor, const c10d::ReduceOp& op) {
    const Packed data(tensor, Access::both, in_);
    if (const Summing how{tensor.scalar_type(), op, comm_.get()}) {
        must(tuttiAllReduce(data.data(), data.data(), elements(tensor), how->type, how->op, comm_.get(), stream_),
             "all_reduce");
        data.put_back();
        return;
    }
    const at::Tensor rows = rows_like(tensor);
    must(tuttiAllGather(data.data(), rows.data_ptr(), data.bytes(), kBytes, comm_.get(), stream_), "all_reduce");
    at::Tensor(tensor).copy_(fold(rows, op).view(tensor.sizes()));
}

void Collectives::all_reduce_sparse(const at::Tensor& tensor) {
    const at::Tensor mine = tensor.coalesce();
    // Each rank's number of elements and its shape.
    std::vector<std::int64_t> shape = mine.sizes().vec();
    shape.push_back(mine._nnz());
    const at::Tensor own = at::tensor(shape, at::kLong);
    const at::Tensor all = at::empty({size_, own.numel()}, at::kLong);
    all_gather(all, own);
    for (int r = 0; r < size_; ++r)
        if (!all[r].slice(0, 0, -1).equal(own.slice(0, 0, -1)))
            fail(c10::str("tutti: all_reduce: a sparse tensor of ", mine.sizes(), " on rank ", rank_,
                          " and one of another shape on rank ", r));
    const at::Tensor indices = mine._indices().t().contiguous(), values = mine._values().contiguous();
    const std::int64_t total = all.select(1, -1).sum().item<std::int64_t>();
    std::vector<std::int64_t> index_sizes = indices.sizes().vec(), value_sizes = values.sizes().vec();
    index_sizes[0] = value_sizes[0] = total;
    const at::Tensor all_indices = at::empty(index_sizes, indices.options());
    const at::Tensor all_values = at::empty(value_sizes, values.options());
    const auto rows = [&](const at::Tensor& of) {
        Tensors list;
        for (std::int64_t r = 0, at = 0; r < size_; ++r) {
            const std::int64_t count = all[r][-1].item<std::int64_t>();
            list.push_back(of.narrow(0, at, count));
            at += count;
        }
        return list;
    };
    if (total > 0 && size_ > 1) {
        all_gather(rows(all_indices), indices);
        all_gather(rows(all_values), values);
        at::Tensor(tensor).copy_(at::sparse_coo_tensor(all_indices.t(), all_values, mine.sizes()).coalesce());
    }
}

void Collectives::broadcast(const at::Tensor& tensor, int root) {
    const Packed data(tensor, root == rank_ ? Access::read : Access::write, in_);
    must(tuttiBroadcast(data.data(), data.data(), data.bytes(), kBytes, root, comm_.get(), stream_), "broadcast");
    if (root != rank_) data.put_back();
}

void Collectives::reduce(const at::Tensor& tensor, const c10d::ReduceOp& op, int root) {
    const Packed data(tensor, Access::both, in_);
    if (const Summing how{tensor.scalar_type(), op, comm_.get()}) {
        must(tuttiReduce(data.data(), root == rank_ ? data.data() : nullptr, elements(tensor), how->type, how->op, root,
                         comm_.get(), stream_),
             "reduce");
        if (root == rank_) data.put_back();
        return;
    }
    const at::Tensor rows = rows_like(tensor);
    must(tuttiGather(data.data(), rows.data_ptr(), data.bytes(), kBytes, root, comm_.get(), stream_), "reduce");
    if (root == rank_) at::Tensor(tensor).copy_(fold(rows, op).view(tensor.sizes()));
}

void Collectives::all_gather(at::TensorList outputs, const at::Tensor& input) {
    const Packed in(input, Access::read, in_), out(outputs, Access::write, out_);
    const Counts counts = parts(outputs, size_);
    if (even(counts)) {
        must(tuttiAllGather(in.data(), out.data(), in.bytes(), kBytes, comm_.get(), stream_), "all_gather");
    } else {
        must(tuttiAllGatherv(in.data(), in.bytes(), out.data(), counts.data(), offsets(counts).data(), kBytes,
                             comm_.get(), stream_),
             "all_gather");
    }
    out.put_back();
}

void Collectives::gather(at::TensorList outputs, const at::Tensor& input, int root) {
    const Packed in(input, Access::read, in_);
    if (root != rank_) {
        must(tuttiGather(in.data(), nullptr, in.bytes(), kBytes, root, comm_.get(), stream_), "gather");
        return;
    }
    const Packed out(outputs, Access::write, out_);
    must(tuttiGather(in.data(), out.data(), in.bytes(), kBytes, root, comm_.get(), stream_), "gather");
    out.put_back();
}

void Collectives::scatter(const at::Tensor& output, at::TensorList inputs, int root) {
    const Packed out(output, Access::write, out_);
    const Packed in(inputs, Access::read, in_);
    must(tuttiScatter(root == rank_ ? in.data() : nullptr, out.data(), out.bytes(), kBytes, root, comm_.get(), stream_),
         "scatter");
    out.put_back();
}

void Collectives::reduce_scatter(const at::Tensor& output, at::TensorList inputs, const c10d::ReduceOp& op) {
    const Packed in(inputs, Access::read, in_), out(output, Access::write, out_);
    Counts counts = parts(inputs, size_);
    if (const Summing how{output.scalar_type(), op, comm_.get()}) {
        if (even(counts)) {
            must(tuttiReduceScatter(in.data(), out.data(), elements(output), how->type, how->op, comm_.get(), stream_),
                 "reduce_scatter");
        } else {
            for (std::size_t& count : counts) count /= output.element_size();
            must(tuttiReduceScatterv(in.data(), out.data(), counts.data(), how->type, how->op, comm_.get(), stream_),
                 "reduce_scatter");
        }
        out.put_back();
        return;
    }
    const at::Tensor rows = rows_like(output);
    exchange(in.data(), counts, rows.data_ptr(), Counts(counts.size(), out.bytes()));
    at::Tensor(output).copy_(fold(rows, op).view(output.sizes()));
}

void Collectives::all_to_all(at::TensorList outputs, const Counts& from, at::TensorList inputs, const Counts& to) {
    const Packed in(inputs, Access::read, in_), out(outputs, Access::write, out_);
    exchange(in.data(), to, out.data(), from);
    out.put_back();
}

void Collectives::exchange(const void* input, const Counts& to, void* output, const Counts& from) {
    must(tuttiAlltoAllv(input, to.data(), offsets(to).data(), output, from.data(), offsets(from).data(), kBytes,
                        comm_.get(), stream_),
         "all_to_all");
}

void Collectives::exchange(const std::vector<Message>& messages) {
    // Each with memory of its own: all are under way at once.
    std::deque<Memory> spare;
    std::deque<Packed> packed;
    for (const Message& m : messages)
        packed.emplace_back(m.tensor, m.sends ? Access::read : Access::write, spare.emplace_back(m.tensor.device()));
    must(tuttiGroupStart(), "send and recv");
    tuttiResult_t first = tuttiSuccess;
    std::size_t next = 0;
    for (const Message& m : messages) {
        const Packed& data = packed[next++];
        if (data.bytes() == 0 || first != tuttiSuccess) continue;
        first = m.sends ? tuttiSend(data.data(), data.bytes(), kBytes, m.peer, comm_.get(), stream_)
                        : tuttiRecv(data.data(), data.bytes(), kBytes, m.peer, comm_.get(), stream_);
    }
    const tuttiResult_t ended = tuttiGroupEnd();
    must(first, "send and recv");
    must(ended, "send and recv");
    next = 0;
    for (const Message& m : messages) {
        const Packed& data = packed[next++];
        if (!m.sends) data.put_back();
    }
}

void Collectives::barrier() {
    must(tuttiBarrier(comm_.get(), stream_), "barrier");
}

}  // namespace tutti_torch
