#include <Python.h>  // before all others, says its manual

#include "process_group.hpp"

#include <pthread.h>

#include <ATen/record_function.h>
#if TUTTI_TORCH_AT_LEAST(2, 8)
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>
#endif

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>

namespace tutti_torch {
namespace {

using c10d::OpType;

// All groups of the process, for close_all.
std::mutex groups_mutex;
std::set<ProcessGroup*>& groups() {
    static auto* const all = new std::set<ProcessGroup*>;  // lives until the process has ended
    return *all;
}

std::atomic<int> forked{0};

/// How many forks lie between this process and the one that made the first group.
int forks() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { forked.fetch_add(1); });
    static_cast<void>(registered);
    return forked.load(std::memory_order_relaxed);
}

Tensors joined(const std::vector<Tensors>& lists) {
    Tensors all;
    for (const Tensors& list : lists) all.insert(all.end(), list.begin(), list.end());
    return all;
}

/// The bytes of each rank's rows of a tensor; without sizes all have equally many.
Counts dealt(const at::Tensor& tensor, const std::vector<std::int64_t>& sizes, int ranks) {
    const std::int64_t rows = tensor.dim() == 0 ? 0 : tensor.size(0);
    if (sizes.empty()) {
        if (rows % ranks != 0)
            fail(c10::str("tutti: all_to_all_single: ", rows, " rows can't be dealt to ", ranks,
                          " ranks: give the sizes of the splits"));
        return Counts(static_cast<std::size_t>(ranks), tensor.nbytes() / static_cast<std::size_t>(ranks));
    }
    std::int64_t sum = 0;
    for (const std::int64_t size : sizes) {
        if (size < 0) fail(c10::str("tutti: all_to_all_single: a split of ", size, " rows"));
        sum += size;
    }
    if (static_cast<int>(sizes.size()) != ranks || sum != rows)
        fail(c10::str("tutti: all_to_all_single: ", sizes.size(), " splits with ", sum, " rows, for ", ranks,
                      " ranks and a tensor of ", rows, " rows"));
    Counts counts;
    for (const std::int64_t size : sizes)
        counts.push_back(rows == 0 ? 0
                                   : tensor.nbytes() / static_cast<std::size_t>(rows) * static_cast<std::size_t>(size));
    return counts;
}

Counts bytes_of(const Tensors& tensors) {
    Counts counts;
    for (const at::Tensor& tensor : tensors) counts.push_back(tensor.nbytes());
    return counts;
}

/// Whether the caller waits for the operation at once: torch says so since 2.8.
template <typename Options>
auto waits_of(const Options& options, int) -> decltype(!options.asyncOp) {
    return !options.asyncOp;
}
template <typename Options>
bool waits_of(const Options&, long) {
    return false;
}
template <typename Options>
bool waits(const Options& options) {
    return waits_of(options, 0);
}

/// Looks for a key in the store until then.
bool comes(c10d::Store& store, const std::string& key, std::chrono::steady_clock::time_point until) {
    for (Milliseconds pause{1}; !store.check({key}); pause = std::min(pause * 2, Milliseconds(20))) {
        if (std::chrono::steady_clock::now() >= until) return false;
        std::this_thread::sleep_for(pause);
    }
    return true;
}

}  // namespace

WithoutPython::WithoutPython() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}

WithoutPython::~WithoutPython() {
    if (state_ != nullptr) PyEval_RestoreThread(static_cast<PyThreadState*>(state_));
}

ProcessGroup::ProcessGroup(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, Milliseconds timeout,
                           Settings settings, bool deferred)
    : Base(rank, size),
      store_(store),
      timeout_(timeout),
      settings_(std::move(settings)),
      queue_(std::make_shared<Queue>("tutti-torch")) {
    if (deferred) {
        enlist();
        return;
    }
    // A group may be made, destroyed and made again over one store: each time the ranks meet at another key.
    const std::int64_t generation = store->add(c10::str("tutti/made/", rank), 1);
    key_ = c10::str("tutti/group/", generation);
    const tuttiUniqueId id = meet(*store, key_, rank == 0, timeout, [] { return false; });
    collectives_ = std::make_unique<Collectives>(id, rank, size, timeout, timeout, settings_);
    pairs_ = std::make_unique<Pairs>(store, key_, rank, size, timeout, settings_, hooks_);
    enlist();
}

void ProcessGroup::enlist() {
    forks_ = forks();
    const std::lock_guard<std::mutex> lock(groups_mutex);
    groups().insert(this);
}

Pairs& ProcessGroup::pairs() {
    members();
    return *pairs_;
}

void ProcessGroup::check_process() const {
    if (forks_ != forks())
        fail(
            "tutti: the process group was made before this process was forked: make a new one, or start processes by "
            "spawn instead of fork");
}

Collectives& ProcessGroup::members() {
    check_process();
    if (!collectives_) fail("tutti: the process group has no members: reconfigure() gives it some");
    return *collectives_;
}

ProcessGroup::~ProcessGroup() {
    const WithoutPython unlocked;
    {
        const std::lock_guard<std::mutex> lock(groups_mutex);
        groups().erase(this);
    }
    close(false);
}

void ProcessGroup::leave_to_parent() {
    // Threads are the parent's, and what it shares with other ranks, too: nothing is destroyed.
    static_cast<void>(collectives_.release());
    static_cast<void>(pairs_.release());
    new auto(hooks_);
    new auto(queue_);
    new auto(std::move(devices_));
}

void ProcessGroup::close(bool abandon) {
    if (forks_ != forks()) return leave_to_parent();
    const WithoutPython unlocked;
    hooks_->settle();
    {
        const std::lock_guard<std::mutex> lock(closing_);
        if (closed_) return;
        closed_ = true;
        if (abandon && !queue_->idle()) {
            hooks_->failed();
            if (collectives_) collectives_->revoke();
        }
        queue_->close();
        if (pairs_) pairs_->close(abandon);
        collectives_.reset();
        const std::lock_guard<std::mutex> devices(devices_mutex_);
        for (const auto& group : devices_) group->close(abandon);
    }
    hooks_->settle();  // of what has failed just now: its thread must not want Python's lock when Python ends
}

void ProcessGroup::close_all() {
    const std::lock_guard<std::mutex> lock(groups_mutex);
    for (ProcessGroup* group : groups()) group->close(true);
}

Milliseconds ProcessGroup::within(Milliseconds timeout) const {
    return timeout.count() > 0 ? timeout : timeout_.load();
}

const Settings& ProcessGroup::settings_of(const c10::intrusive_ptr<Options>& options) const {
    const auto* const own = dynamic_cast<const GroupOptions*>(options.get());
    return own == nullptr ? settings_ : *own;
}

void ProcessGroup::check_rank(int rank, const char* what) const {
    if (rank < 0 || rank >= size_) fail(c10::str("tutti: ", what, " ", rank, " of a group of ", size_, " ranks"));
}

void ProcessGroup::check_rows(const at::Tensor& all, const at::Tensor& one, const char* operation) const {
    check_same_type({all, one}, operation);
    if (all.numel() != one.numel() * size_)
        fail(c10::str("tutti: ", operation, ": ", all.numel(), " elements for ", size_, " ranks with ", one.numel(),
                      " each"));
}

void ProcessGroup::check_list(const Tensors& list, const char* operation) const {
    check_same_type(list, operation);
    if (static_cast<int>(list.size()) != size_)
        fail(c10::str("tutti: ", operation, ": a list of ", list.size(), " tensors for ", size_, " ranks"));
}

std::shared_ptr<DeviceGroup> ProcessGroup::group_on(c10::Device device) {
    const std::lock_guard<std::mutex> lock(devices_mutex_);
    if (closed_) fail("tutti: the process group is closed");
    for (const auto& group : devices_)
        if (group->device() == device) return group;
    // The first that every rank makes belong together, and the second, whatever their devices' numbers.
    const std::string key = c10::str(key_, "/devices/", devices_.size());
    const tuttiUniqueId id = meet(*store_, key, rank_ == 0, timeout_, [] { return false; });
    return devices_.emplace_back(std::make_shared<DeviceGroup>(id, rank_, size_, timeout_, settings_, device));
}

void ProcessGroup::record([[maybe_unused]] const Operation& operation) const {
#if TUTTI_TORCH_AT_LEAST(2, 8)
    const auto elements = [](at::TensorList tensors) {
        return std::accumulate(tensors.begin(), tensors.end(), std::int64_t{0},
                               [](std::int64_t sum, const at::Tensor& tensor) { return sum + tensor.numel(); });
    };
    const at::TensorList typed = operation.inputs.empty() ? operation.outputs : operation.inputs;
    const std::string name = operation.type == OpType::ALLREDUCE ? "allreduce" : std::strchr(operation.name, ':') + 1;
    const at::ScalarType type = typed.empty() ? at::kByte : typed.front().scalar_type();
    const auto number = static_cast<std::int64_t>(operation.number);
    const std::vector<std::int64_t> even;
    const Tensors inputs = operation.inputs.vec(), outputs = operation.outputs.vec();
#if TUTTI_TORCH_AT_LEAST(2, 12)
    RECORD_PARAM_COMMS_DATA_WITH_ASYNC_OP(
        number, std::make_tuple(getGroupUid(), getGroupDesc()), inputs, outputs, rank_, std::string(name),
        elements(operation.inputs), elements(operation.outputs), type, even, even, -1, -1, size_, !operation.waits);
#else
    RECORD_PARAM_COMMS_DATA(number, std::make_tuple(getGroupUid(), getGroupDesc()), inputs, outputs, rank_,
                            std::string(name), elements(operation.inputs), elements(operation.outputs), type, even,
                            even, -1, -1, size_);
#endif
#endif
}

bool ProcessGroup::begin(Operation& operation) {
    check_process();
    operation.number = ++calls_;
    if (operation.profiled) record(operation);
    for (const at::TensorList tensors : {operation.inputs, operation.outputs})
        if (!tensors.empty() && !tensors.front().device().is_cpu()) return true;
    operation.timeout = within(operation.timeout);
    if (hooks_->any()) operation.hooks = hooks_;
    return false;
}

template <typename F>
ProcessGroup::Result ProcessGroup::enqueue(Operation operation, F&& job) {
    const bool on_device = begin(operation);
    if (operation.waits && !coalescing_ && !on_device) {
        auto work = c10::make_intrusive<Work>(rank_, operation);
        if (queue_->run_at_once(*work, [&] { job(members()); })) return work;
        return push(work, std::forward<F>(job));
    }
    return enqueue_later(operation, on_device, std::forward<F>(job));
}

ProcessGroup::Result ProcessGroup::enqueue_later(const Operation& operation, bool on_device, Job job) {
    if (on_device) {
        Tensors all = operation.inputs.vec();
        all.insert(all.end(), operation.outputs.begin(), operation.outputs.end());
        check(all, operation.name);
        return noted(group_on(all.front().device())->run(operation, job));
    }
    return push(c10::make_intrusive<Work>(rank_, operation), std::move(job));
}

ProcessGroup::Result ProcessGroup::push(const WorkPtr& work, Job job) {
    queue_->push(work, [this, job = std::move(job)] { job(members()); });
    return noted(work);
}

ProcessGroup::Result ProcessGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
    const at::Tensor& tensor = only(tensors, "broadcast");
    const int root = static_cast<int>(options.rootRank);
    check_rank(root, "broadcast from rank");
    return enqueue({OpType::BROADCAST, "tutti:broadcast", tensors, tensors, options.timeout, waits(options)},
                   [=](Collectives& all) { all.broadcast(tensor, root); });
}

ProcessGroup::Result ProcessGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
    if (tensors.size() == 1 && tensors.front().defined() && tensors.front().layout() == at::kSparse)
        return allreduce_sparse(tensors, options);
    const at::Tensor& tensor = only(tensors, "all_reduce");
    check_arithmetic(tensor.scalar_type(), options.reduceOp, "all_reduce");
    return enqueue({OpType::ALLREDUCE, "tutti:all_reduce", tensors, tensors, options.timeout, waits(options)},
                   [=, op = options.reduceOp](Collectives& all) { all.all_reduce(tensor, op); });
}

ProcessGroup::Result ProcessGroup::allreduce_coalesced(Tensors& tensors,
                                                       const c10d::AllreduceCoalescedOptions& options) {
    check(tensors, "all_reduce_coalesced");
    for (const at::Tensor& tensor : tensors)
        check_arithmetic(tensor.scalar_type(), options.reduceOp, "all_reduce_coalesced");
    return enqueue({OpType::ALLREDUCE_COALESCED, "tutti:all_reduce", tensors, tensors, options.timeout, waits(options)},
                   [tensors, op = options.reduceOp](Collectives& all) {
                       for (const at::Tensor& tensor : tensors) all.all_reduce(tensor, op);
                   });
}

ProcessGroup::Result ProcessGroup::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
    if (tensors.size() != 1 || tensors.front().layout() != at::kSparse || !tensors.front().device().is_cpu())
        fail("tutti: all_reduce of sparse tensors takes one tensor in coordinates (COO), on the CPU");
    if (static_cast<c10d::ReduceOp::RedOpType>(options.reduceOp) != c10d::ReduceOp::SUM)
        fail("tutti: all_reduce: sparse tensors can be added up only (SUM)");
    return enqueue({OpType::ALLREDUCE, "tutti:all_reduce", tensors, tensors, options.timeout, waits(options)},
                   [tensor = tensors.front()](Collectives& all) { all.all_reduce_sparse(tensor); });
}

ProcessGroup::Result ProcessGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
    const at::Tensor& tensor = only(tensors, "reduce");
    const int root = static_cast<int>(options.rootRank);
    check_rank(root, "reduce to rank");
    check_arithmetic(tensor.scalar_type(), options.reduceOp, "reduce");
    return enqueue({OpType::REDUCE, "tutti:reduce", tensors, tensors, options.timeout, waits(options)},
                   [=, op = options.reduceOp](Collectives& all) { all.reduce(tensor, op, root); });
}

ProcessGroup::Result ProcessGroup::allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
    const at::Tensor& input = only(inputs, "all_gather");
    if (outputs.size() != 1) fail("tutti: all_gather takes one list of outputs");
    const Tensors list = outputs.front();
    check_list(list, "all_gather");
    check_same_type({list.front(), input}, "all_gather");
    if (list[static_cast<std::size_t>(rank_)].numel() != input.numel())
        fail(c10::str("tutti: all_gather: the output for rank ", rank_, ", this one, has ",
                      list[static_cast<std::size_t>(rank_)].numel(), " elements, its input ", input.numel()));
    return enqueue({OpType::ALLGATHER, "tutti:all_gather", inputs, list, options.timeout, waits(options)},
                   [=](Collectives& all) { all.all_gather(list, input); });
}

ProcessGroup::Result ProcessGroup::allgather_coalesced(Lists& outputs, Tensors& inputs,
                                                       const c10d::AllgatherOptions& options) {
    // outputs[rank][i] is what inputs[i] of that rank becomes.
    const Lists lists = outputs;
    const Tensors mine = inputs;
    check(mine, "all_gather_coalesced");
    if (static_cast<int>(lists.size()) != size_)
        fail(c10::str("tutti: all_gather_coalesced: ", lists.size(), " lists for ", size_, " ranks"));
    Lists wanted(mine.size());
    for (const Tensors& list : lists) {
        if (list.size() != mine.size())
            fail(c10::str("tutti: all_gather_coalesced: a list of ", list.size(), " outputs for ", mine.size(),
                          " inputs"));
        for (std::size_t i = 0; i < mine.size(); ++i) {
            check_same_type({list[i], mine[i]}, "all_gather_coalesced");
            if (list[i].numel() != mine[i].numel())
                fail(c10::str("tutti: all_gather_coalesced: an output of ", list[i].numel(),
                              " elements for an input of ", mine[i].numel()));
            wanted[i].push_back(list[i]);
        }
    }
    return enqueue(
        {OpType::ALLGATHER_COALESCED, "tutti:all_gather", mine, joined(lists), options.timeout, waits(options)},
        [=](Collectives& all) {
            for (std::size_t i = 0; i < mine.size(); ++i) all.all_gather(wanted[i], mine[i]);
        });
}

ProcessGroup::Result ProcessGroup::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                   const c10d::AllgatherOptions& options) {
    check_rows(output, input, "all_gather_into_tensor");
    return enqueue({OpType::_ALLGATHER_BASE, "tutti:all_gather", input, output, options.timeout, waits(options)},
                   [output, input](Collectives& all) { all.all_gather(output, input); });
}

ProcessGroup::Result ProcessGroup::gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
    const at::Tensor& input = only(inputs, "gather");
    const int root = static_cast<int>(options.rootRank);
    check_rank(root, "gather to rank");
    if (outputs.size() != (root == rank_ ? 1u : 0u))
        fail(c10::str("tutti: gather: ", outputs.size(), " lists of outputs on rank ", rank_, "; the root ", root,
                      " has one, the others none"));
    const Tensors list = joined(outputs);
    if (root == rank_) {
        check_list(list, "gather");
        for (const at::Tensor& output : list)
            if (output.numel() != input.numel() || output.scalar_type() != input.scalar_type())
                fail(c10::str("tutti: gather: an output of ", output.numel(), " ", output.scalar_type(),
                              " for inputs of ", input.numel(), " ", input.scalar_type()));
    }
    return enqueue({OpType::GATHER, "tutti:gather", inputs, list, options.timeout, waits(options)},
                   [=](Collectives& all) { all.gather(list, input, root); });
}

#if TUTTI_TORCH_AT_LEAST(2, 15)
ProcessGroup::Result ProcessGroup::gather_single(at::Tensor& output, at::Tensor& input,
                                                 const c10d::GatherOptions& options) {
    Lists outputs;
    if (options.rootRank == rank_) {
        check_rows(output, input, "gather_single");
        if (!output.is_contiguous()) fail("tutti: gather_single: the output is not contiguous");
        outputs.push_back(output.view({size_, input.numel()}).unbind(0));  // neighbours: nothing is copied
    }
    Tensors inputs{input};
    return gather(outputs, inputs, options);
}
#endif

ProcessGroup::Result ProcessGroup::scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) {
    const at::Tensor& output = only(outputs, "scatter");
    const int root = static_cast<int>(options.rootRank);
    check_rank(root, "scatter from rank");
    if (inputs.size() != (root == rank_ ? 1u : 0u))
        fail(c10::str("tutti: scatter: ", inputs.size(), " lists of inputs on rank ", rank_, "; the root ", root,
                      " has one, the others none"));
    const Tensors list = joined(inputs);
    if (root == rank_) {
        check_list(list, "scatter");
        for (const at::Tensor& input : list)
            if (input.numel() != output.numel() || input.scalar_type() != output.scalar_type())
                fail(c10::str("tutti: scatter: an input of ", input.numel(), " ", input.scalar_type(),
                              " for outputs of ", output.numel(), " ", output.scalar_type()));
    }
    return enqueue({OpType::SCATTER, "tutti:scatter", list, outputs, options.timeout, waits(options)},
                   [=](Collectives& all) { all.scatter(output, list, root); });
}

ProcessGroup::Result ProcessGroup::reduce_scatter(Tensors& outputs, Lists& inputs,
                                                  const c10d::ReduceScatterOptions& options) {
    const at::Tensor& output = only(outputs, "reduce_scatter");
    check_arithmetic(output.scalar_type(), options.reduceOp, "reduce_scatter");
    if (inputs.size() != 1) fail("tutti: reduce_scatter takes one list of inputs");
    const Tensors list = inputs.front();
    check_list(list, "reduce_scatter");
    check_same_type({list.front(), output}, "reduce_scatter");
    if (list[static_cast<std::size_t>(rank_)].numel() != output.numel())
        fail(c10::str("tutti: reduce_scatter: the input for rank ", rank_, ", this one, has ",
                      list[static_cast<std::size_t>(rank_)].numel(), " elements, its output ", output.numel()));
    return enqueue({OpType::REDUCE_SCATTER, "tutti:reduce_scatter", list, outputs, options.timeout, waits(options)},
                   [=, op = options.reduceOp](Collectives& all) { all.reduce_scatter(output, list, op); });
}

ProcessGroup::Result ProcessGroup::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::ReduceScatterOptions& options) {
    check_rows(input, output, "reduce_scatter_tensor");
    check_arithmetic(output.scalar_type(), options.reduceOp, "reduce_scatter_tensor");
    return enqueue(
        {OpType::_REDUCE_SCATTER_BASE, "tutti:reduce_scatter", input, output, options.timeout, waits(options)},
        [output, input, op = options.reduceOp](Collectives& all) { all.reduce_scatter(output, input, op); });
}

ProcessGroup::Result ProcessGroup::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                 std::vector<std::int64_t>& output_splits,
                                                 std::vector<std::int64_t>& input_splits,
                                                 const c10d::AllToAllOptions& options) {
    check_same_type({output, input}, "all_to_all_single");
    const Counts from = dealt(output, output_splits, size_), to = dealt(input, input_splits, size_);
    return enqueue({OpType::ALLTOALL_BASE, "tutti:all_to_all", input, output, options.timeout, waits(options)},
                   [output, input, from, to](Collectives& all) { all.all_to_all(output, from, input, to); });
}

ProcessGroup::Result ProcessGroup::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
    const Tensors from = outputs, to = inputs;
    check_list(from, "all_to_all");
    check_list(to, "all_to_all");
    check_same_type({from.front(), to.front()}, "all_to_all");
    return enqueue({OpType::ALLTOALL, "tutti:all_to_all", to, from, options.timeout, waits(options)},
                   [=](Collectives& all) { all.all_to_all(from, bytes_of(from), to, bytes_of(to)); });
}

ProcessGroup::Result ProcessGroup::barrier(const c10d::BarrierOptions& options) {
    return enqueue({OpType::BARRIER, "tutti:barrier", {}, {}, options.timeout, waits(options)},
                   [](Collectives& all) { all.barrier(); });
}

void ProcessGroup::monitoredBarrier(const c10d::BarrierOptions& options, bool all) {
    check_process();
    using Clock = std::chrono::steady_clock;
    const Milliseconds timeout = options.timeout.count() >= 0 ? options.timeout : timeout_.load();
    const Clock::time_point until = Clock::now() + timeout;
    const auto arrived = [&](int rank) { return c10::str(key_, "/monitored/arrived/", rank); };
    const auto answer = [&](int rank) { return c10::str(key_, "/monitored/answer/", rank); };
    if (rank_ != 0) {
        // Rank 0 waits as long for each that is before this one.
        store_->set(arrived(rank_), std::vector<std::uint8_t>{1});
        const bool came = comes(*store_, answer(rank_), until + timeout * size_);
        const std::vector<std::uint8_t> text = came ? store_->get(answer(rank_)) : std::vector<std::uint8_t>{};
        const std::string said = came ? std::string(text.begin(), text.end()) : "it did not answer";
        store_->deleteKey(came ? answer(rank_) : arrived(rank_));
        if (said != "passed")
            fail(c10::str("Rank ", rank_,
                          " successfully reached monitoredBarrier, but received errors while waiting "
                          "for send/recv from rank 0. Please check rank 0 logs for faulty rank.\nRank 0: ",
                          said));
        return;
    }
    if (timeout.count() == 0 && size_ > 1)
        fail(c10::str("Rank 0 timed out in monitoredBarrier after ", timeout.count(), " ms."));
    std::vector<int> here, missing;
    for (int r = 1; r < size_ && (all || missing.empty()); ++r)
        (comes(*store_, arrived(r), until) ? here : missing).push_back(r);
    const std::string text = c10::str("[Rank 0]: Rank", missing.size() > 1 ? "s " : " ", c10::Join(", ", missing),
                                      " failed to pass monitoredBarrier in ", timeout.count(), " ms");
    for (int r = 1; r < size_; ++r) {
        if (std::count(missing.begin(), missing.end(), r) != 0) continue;
        if (!missing.empty() && std::count(here.begin(), here.end(), r) == 0 && !store_->check({arrived(r)})) continue;
        store_->deleteKey(arrived(r));
        const std::string said = missing.empty() ? "passed" : text;
        store_->set(answer(r), std::vector<std::uint8_t>(said.begin(), said.end()));
    }
    if (!missing.empty()) fail(text);
}

#if TUTTI_TORCH_AT_LEAST(2, 8)
c10d::ErrorType ProcessGroup::getError() {
    const std::lock_guard<std::mutex> lock(closing_);
    if (!collectives_) return c10d::ErrorType::COMM_ERROR;
    switch (collectives_->error()) {
        case tuttiSuccess:
        case tuttiInProgress:
            return c10d::ErrorType::SUCCESS;
        case tuttiTimeout:
            return c10d::ErrorType::TIMEOUT;
        case tuttiRemoteError:
            return c10d::ErrorType::REMOTE_ERROR;
        default:
            return c10d::ErrorType::COMM_ERROR;
    }
}

at::Tensor ProcessGroup::allocateTensor(long size, at::TensorOptions options) {
    if (size < 0) fail(c10::str("tutti: allocate_tensor: ", size, " elements"));
    if (!options.device().is_cpu()) fail("tutti: allocate_tensor: of tensors on CPUs only");
    return in_shared_memory(size, options);
}

std::shared_ptr<c10::Allocator> ProcessGroup::getMemAllocator() {
    return shared_memory();
}
#endif

#if TUTTI_TORCH_AT_LEAST(2, 9)
c10::intrusive_ptr<c10d::Backend::Options> ProcessGroup::getBackendOptions() {
    auto options = c10::make_intrusive<GroupOptions>(settings_);
    options->timeout = timeout_;
    return options;
}

c10::intrusive_ptr<c10d::Backend> ProcessGroup::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const std::vector<int>& ranks,
                                                      const c10::intrusive_ptr<Options>& options) {
    const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
    if (mine == ranks.end()) return nullptr;
    return merge(store, options, static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()));
}

c10::intrusive_ptr<c10d::Backend> ProcessGroup::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const c10::intrusive_ptr<Options>& options, const int& rank,
                                                      const int& size) {
    check_process();
    return c10::make_intrusive<ProcessGroup>(store, rank, size, options ? options->timeout : timeout_.load(),
                                             settings_of(options));
}
#endif

#if TUTTI_TORCH_AT_LEAST(2, 1)
ProcessGroup::Result ProcessGroup::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                   const c10d::AllgatherOptions& options) {
    const Tensors to = outputs, from = inputs;
    if (to.size() != from.size())
        fail(c10::str("tutti: all_gather_into_tensor: ", to.size(), " outputs for ", from.size(), " inputs"));
    for (std::size_t i = 0; i < to.size(); ++i) check_rows(to[i], from[i], "all_gather_into_tensor");
    return enqueue({OpType::COALESCED, "tutti:all_gather", from, to, options.timeout, waits(options)},
                   [=](Collectives& all) {
                       for (std::size_t i = 0; i < to.size(); ++i) all.all_gather(to[i], from[i]);
                   });
}

ProcessGroup::Result ProcessGroup::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                   const c10d::ReduceScatterOptions& options) {
    const Tensors to = outputs, from = inputs;
    if (to.size() != from.size())
        fail(c10::str("tutti: reduce_scatter_tensor: ", to.size(), " outputs for ", from.size(), " inputs"));
    for (std::size_t i = 0; i < to.size(); ++i) {
        check_rows(from[i], to[i], "reduce_scatter_tensor");
        check_arithmetic(to[i].scalar_type(), options.reduceOp, "reduce_scatter_tensor");
    }
    return enqueue({OpType::COALESCED, "tutti:reduce_scatter", from, to, options.timeout, waits(options)},
                   [=, op = options.reduceOp](Collectives& all) {
                       for (std::size_t i = 0; i < to.size(); ++i) all.reduce_scatter(to[i], from[i], op);
                   });
}
#endif

ProcessGroup::Result ProcessGroup::send(Tensors& tensors, int peer, int tag) {
    check_rank(peer, "send to rank");
    const at::Tensor& tensor = only(tensors, "send");
    return tensor.device().is_cpu() ? noted(pairs().send(tensor, peer, tag)) : pass({tensor, peer, true});
}

ProcessGroup::Result ProcessGroup::recv(Tensors& tensors, int peer, int tag) {
    check_rank(peer, "recv from rank");
    const at::Tensor& tensor = only(tensors, "recv");
    return tensor.device().is_cpu() ? noted(pairs().recv(tensor, peer, tag)) : pass({tensor, peer, false});
}

ProcessGroup::Result ProcessGroup::recvAnysource(Tensors& tensors, int tag) {
    const at::Tensor& tensor = only(tensors, "recv");
    if (!tensor.device().is_cpu()) fail("tutti: recv: on devices the rank that sends has to be named");
    return noted(pairs().recv_any(tensor, tag));
}

ProcessGroup::Result ProcessGroup::noted(Result work) {
    if (coalescing_) works_.push_back(work);
    return work;
}

ProcessGroup::Result ProcessGroup::pass(const Message& message) {
    if (!coalescing_) return pass(std::vector<Message>{message});
    messages_.push_back(message);
    return c10::make_intrusive<Together>(std::vector<Result>{});
}

ProcessGroup::Result ProcessGroup::pass(const std::vector<Message>& messages) {
    Tensors sent, received;
    for (const Message& m : messages) (m.sends ? sent : received).push_back(m.tensor);
    const bool sends = received.empty();
    return enqueue({sends ? OpType::SEND : OpType::RECV, sends ? "tutti:send" : "tutti:recv", sent, received, timeout_},
                   [&](Collectives& all) { all.exchange(messages); });
}

#if TUTTI_TORCH_AT_LEAST(2, 1)
void ProcessGroup::startCoalescing() {
    coalescing_ = true;
}

ProcessGroup::Result ProcessGroup::endCoalescing() {
    coalescing_ = false;
    std::vector<Result> works = std::move(works_);
    const std::vector<Message> messages = std::move(messages_);
    works_.clear();
    messages_.clear();
    if (!messages.empty()) works.push_back(pass(messages));
    if (works.size() == 1) return works.front();
    return c10::make_intrusive<Together>(std::move(works));
}
#endif

}  // namespace tutti_torch
