// Groups that go on without ranks that are lost, or with others (shrink, reconfigure), and what torch is told of
// operations that end (hooks.hpp). All of it is for tensors on CPUs.
#include <Python.h>  // before all others, says its manual

#include "process_group.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <random>

namespace tutti_torch {

#if TUTTI_TORCH_AT_LEAST(2, 10)

namespace {

/// A key of the store that no group has had before, the same on all ranks: rank 0 draws it.
std::string new_key(Collectives& ranks) {
    const at::Tensor drawn = at::zeros({2}, at::kLong);
    if (ranks.rank() == 0) {
        std::random_device random;
        for (std::int64_t i = 0; i < 2; ++i)
            drawn[i] = static_cast<std::int64_t>(std::uint64_t{random()} << 31 | random());
    }
    ranks.broadcast(drawn, 0);
    return c10::str("tutti/group/", drawn[0].item<std::int64_t>(), "/", drawn[1].item<std::int64_t>());
}

}  // namespace

ProcessGroup::ProcessGroup(const c10::intrusive_ptr<c10d::Store>& store, std::unique_ptr<Collectives> ranks,
                           Milliseconds timeout, Settings settings)
    : Base(ranks->rank(), ranks->size()),
      store_(store),
      timeout_(timeout),
      settings_(std::move(settings)),
      queue_(std::make_shared<Queue>("tutti-torch")) {
    take(std::move(ranks));
    enlist();
}

void ProcessGroup::take(std::unique_ptr<Collectives> ranks) {
    key_ = new_key(*ranks);
#ifdef C10D_BACKEND_HAS_RECONFIGURE  // before, a group has those of its creation
    rank_ = ranks->rank();
    size_ = ranks->size();
#endif
    pairs_ = std::make_unique<Pairs>(store_, key_, rank_, size_, timeout_, settings_, hooks_);
    collectives_ = std::move(ranks);
}

c10::intrusive_ptr<c10d::Backend> ProcessGroup::shrink(const std::vector<std::int64_t>& ranks_to_exclude, int flags,
                                                       const c10::intrusive_ptr<Options>& options) {
    check_process();
    const WithoutPython unlocked;
    const std::lock_guard<std::mutex> lock(closing_);
    if (!collectives_) fail("tutti: shrink_group: the process group is closed");
    const bool abort = flags != 0;
    if (abort) collectives_->revoke();
    if (!queue_->drain(timeout_))
        fail(c10::str("tutti: shrink_group: operations are still under way after ", timeout_.load().count(),
                      " ms: wait for them before, or let SHRINK_ABORT end them"));
    const std::vector<int> excluded(ranks_to_exclude.begin(), ranks_to_exclude.end());
    const Milliseconds timeout = options ? options->timeout : timeout_.load();
    const Settings& settings = settings_of(options);
    auto ranks = std::make_unique<Collectives>(collectives_->shrunk(excluded, abort, timeout_, timeout, settings));
    return c10::make_intrusive<ProcessGroup>(store_, std::move(ranks), timeout, settings);
}

#endif

#ifdef C10D_BACKEND_HAS_RECONFIGURE

namespace {

constexpr char kHandle[] = "tutti:";

std::string handle_of(const tuttiUniqueId& id) {
    constexpr char digits[] = "0123456789abcdef";
    std::string text = kHandle;
    for (const char c : id.internal) {
        const auto byte = static_cast<unsigned char>(c);
        text += {digits[byte >> 4], digits[byte & 15]};
    }
    return text;
}

tuttiUniqueId id_of(const std::string& handle) {
    tuttiUniqueId id;
    constexpr std::size_t before = sizeof kHandle - 1, size = sizeof id.internal;
    const std::string hex = handle.substr(std::min(before, handle.size()));
    if (handle.compare(0, before, kHandle) != 0 || hex.size() != 2 * size ||
        hex.find_first_not_of("0123456789abcdef") != std::string::npos)
        fail("tutti: reconfigure: a handle that is not of Tutti's get_reconfigure_handle()");
    for (std::size_t i = 0; i < size; ++i)
        id.internal[i] = static_cast<char>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
    return id;
}

}  // namespace

c10d::ReconfigureHandle ProcessGroup::get_reconfigure_handle() const {
    const std::lock_guard<std::mutex> lock(closing_);
    if (handle_.empty()) {
        tuttiUniqueId id;
        must(tuttiGetUniqueId(&id), "get_reconfigure_handle");
        handle_ = handle_of(id);
    }
    return handle_;
}

c10::intrusive_ptr<c10d::Work> ProcessGroup::reconfigure(const c10d::ReconfigureOptions& options) {
    check_process();
    const WithoutPython unlocked;
    const std::lock_guard<std::mutex> lock(closing_);
    if (closed_) fail("tutti: reconfigure: the process group is closed");
    std::vector<std::string> handles;
    if (const auto* ordered = std::get_if<std::vector<std::string>>(&options.handles)) {
        handles = *ordered;
    } else {
        const auto& any_order = std::get<std::unordered_set<std::string>>(options.handles);
        handles.assign(any_order.begin(), any_order.end());
        std::sort(handles.begin(), handles.end());
    }
    const auto mine = std::find(handles.begin(), handles.end(), handle_);
    if (handle_.empty() || mine == handles.end())
        fail(
            "tutti: reconfigure: this rank's handle is not among the handles: exchange what get_reconfigure_handle() "
            "returns now; a handle is good for one reconfigure()");
    if (std::count(handles.begin(), handles.end(), handle_) != 1)
        fail("tutti: reconfigure: this rank's handle is there twice");
    const tuttiUniqueId id = id_of(handles.front());
    const int rank = static_cast<int>(mine - handles.begin()), size = static_cast<int>(handles.size());
    const Milliseconds timeout = within(options.timeout.value_or(Milliseconds(0)));
    handle_.clear();  // whatever becomes of it

    if (collectives_) collectives_->revoke();
    auto work = c10::make_intrusive<Work>(
        rank, Operation{c10d::OpType::UNKNOWN, "tutti:reconfigure", {}, {}, timeout, false, nullptr});
    queue_->push(work, [this, &id, rank, size, timeout] {
        collectives_.reset();
        if (pairs_) pairs_->close(true);
        {
            const std::lock_guard<std::mutex> devices(devices_mutex_);
            for (const auto& group : devices_) group->close(true);
            devices_.clear();
        }
        take(std::make_unique<Collectives>(id, rank, size, timeout, timeout_.load(), settings_));
    });
    queue_->drive(*work);  // at once: other calls must not come between
    return work;
}

#endif

#if TUTTI_TORCH_AT_LEAST(2, 15)

void Hooks::completed(const c10d::Work& work, float milliseconds) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    const c10d::CompletionHookArgs what{work.getCompletionKey(), milliseconds};
    for (const auto& [id, hook] : completion_) {
        try {
            hook(what);
        } catch (const std::exception& error) {  // the operation has ended well all the same
            TORCH_WARN("tutti: a completion hook has failed: ", error.what());
        }
    }
}

Hooks::AbortHooks Hooks::abort_hooks() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return abort_;
}

void Hooks::tell(const AbortHooks& hooks) {
    for (const auto& [id, hook] : hooks) {
        try {
            (*hook)();
        } catch (const std::exception& error) {
            TORCH_WARN("tutti: an abort hook has failed: ", error.what());
        }
    }
}

void Hooks::failed_meanwhile() const {
    const std::lock_guard<std::mutex> lock(telling_mutex_);
    if (tells_.exchange(true)) return;
    if (telling_.joinable()) telling_.join();  // it has told all
    try {
        telling_ = start_thread("tutti-hooks", [this, hooks = abort_hooks()] {
            tell(hooks);
            tells_ = false;
        });
    } catch (const std::exception& error) {
        tells_ = false;
        TORCH_WARN("abort hooks are not called: ", error.what());
    }
}

void Hooks::settle() const {
    const WithoutPython unlocked;  // hooks may be Python's
    std::thread telling;
    {
        const std::lock_guard<std::mutex> lock(telling_mutex_);
        if (telling_.get_id() == std::this_thread::get_id()) return;  // a hook's own call
        telling = std::move(telling_);
    }
    if (telling.joinable()) telling.join();
}

bool ProcessGroup::supportsCompletionHooks() const {
    // Of operations on a device nobody watches the end. Asking CUDA for its devices would spoil later forks.
    return !any_has_streams() || access("/dev/nvidiactl", F_OK) != 0;
}

#endif

}  // namespace tutti_torch
