// What ranks compare: what they registered, their parameters, who has a NaN.
#include <algorithm>
#include <cstdio>

#include "dp/engine.hpp"
#include "dp/hash.hpp"

namespace tutti::dp {
namespace {

struct Text {
    char words[480];
    explicit Text(const std::string& text = {}) { std::snprintf(words, sizeof words, "%s", text.c_str()); }
};

}  // namespace

void Engine::agree_on_registration() {
    std::vector<std::string> texts{options_.describe()};
    for (const Parameter& p : parameters_) texts.push_back(describe(p));
    struct Summary {
        std::uint64_t items, hash;
    };
    std::vector<std::uint64_t> hashes;
    for (const std::string& t : texts) hashes.push_back(hash(t));
    const auto all = exchange(cpu_comm_, ranks_, Summary{hashes.size(), hash(hashes.data(), hashes.size() * 8)});
    const auto differs = [&](const Summary& s) { return s.items != all[0].items || s.hash != all[0].hash; };
    if (std::ranges::none_of(all, differs)) return;
    const std::size_t longest = std::ranges::max(all, {}, &Summary::items).items;
    hashes.resize(longest, 0);
    std::vector<std::uint64_t> table(longest * static_cast<std::size_t>(ranks_));
    must(tuttiAllGather(hashes.data(), table.data(), longest, tuttiUint64, cpu_comm_, nullptr));
    for (std::size_t i = 0; i < longest; ++i)
        for (int r = 1; r < ranks_; ++r) {
            if (table[static_cast<std::size_t>(r) * longest + i] == table[i]) continue;
            const auto said = exchange(cpu_comm_, ranks_, Text(i < texts.size() ? texts[i] : "nothing"));
            const char *on_0 = said[0].words, *on_r = said[static_cast<std::size_t>(r)].words;
            if (i == 0)
                fail(tuttiInvalidUsage, "tuttiDpCreate: the options differ: rank 0 has %s, but rank %d has %s", on_0, r,
                     on_r);
            fail(tuttiInvalidUsage, "tuttiDpCreate: parameter %zu differs: rank 0 has %s, but rank %d has %s", i - 1,
                 on_0, r, on_r);
        }
}

/// On GPUs, what has befallen kernels that were enqueued is known later than on CPUs.
void Engine::check_communicator() {
    if (!on_gpu_) return;
    tuttiResult_t state = tuttiSuccess;
    must(tuttiCommGetAsyncError(comm_, &state));
    if (state == tuttiSuccess) return;
    const Error error(state, tuttiGetLastError(comm_));
    worker_->fail(error);
    throw error;
}

void Engine::broadcast(int root) {
    agree([&] {
        if (root < 0 || root >= ranks_)
            fail(tuttiInvalidArgument, "tuttiDpBroadcast: root is %d; 0 to %d was expected", root, ranks_ - 1);
        if (options_.mode == tuttiDpZero3 && steps_ > 0)
            fail(tuttiInvalidUsage, "tuttiDpBroadcast: in tuttiDpZero3 no rank has all parameters");
        refuse_gathered("tuttiDpBroadcast");
    });
    forget_gathered();
    wait();
    or_end([&] {
        const Block staged(backend_, largest_values());
        for (const auto& b : buckets_) {
            collect(*b, staged.base());
            must(tuttiBroadcast(staged.base(), staged.base(), b->count, static_cast<tuttiDataType_t>(b->data_type),
                                root, comm_, backend_->stream()));
            store(*b, staged.base());
        }
    });
    or_end([&] { sweep(); });
}

void Engine::check_equal() {
    worker_->check();
    if (options_.mode == tuttiDpZero3) fail(tuttiInvalidUsage, "tuttiDpCheckEqual: in tuttiDpZero3 there is one copy");
    if (options_.asynchronous())
        fail(tuttiInvalidUsage, "tuttiDpCheckEqual: asynchronous ranks may differ: %d steps are allowed",
             options_.staleness);
    const std::size_t count = parameters_.size();
    std::vector<std::uint64_t> hashes(count), table(count * static_cast<std::size_t>(ranks_));
    std::vector<std::byte> here;  // a GPU's values come to the host for this
    for (std::size_t p = 0; p < count; ++p) {
        const std::size_t bytes = parameters_[p].count * size_of(parameters_[p].type);
        if (on_gpu_) {
            here.resize(bytes);
            backend_->copy_now(here.data(), values_at_[p], bytes);
        }
        hashes[p] = hash(on_gpu_ ? here.data() : values_at_[p], bytes);
    }
    or_end([&] { must(tuttiAllGather(hashes.data(), table.data(), count, tuttiUint64, control_, nullptr)); });
    for (std::size_t p = 0; p < count; ++p)
        for (int r = 1; r < ranks_; ++r)
            if (table[static_cast<std::size_t>(r) * count + p] != table[p])
                fail(tuttiInvalidUsage,
                     "tuttiDpCheckEqual: parameter %zu, '%s', is not the same on ranks 0 and %d after %lld steps", p,
                     parameters_[p].name.c_str(), r, statistics_.steps);
}

/// config.nanCheck: before the gradient goes its way. In the memory where it is added up, or written.
void Engine::look_for_nan(std::size_t p) {
    const Parameter& q = parameters_[p];
    Bucket& b = *buckets_[layout_.bucket[p]];
    const bool callers = q.grad != nullptr && !q.accumulates();
    const std::byte* at = callers ? static_cast<std::byte*>(q.grad) : borrow(b) + layout_.offset[p] * size_of(b.type);
    const Run run{b.type, at, q.count};
    std::lock_guard lock(looking_);  // a GPU's findings have one place
    if (backend_->first_bad({&run, 1}) == 0) flags_[p].fetch_or(bad, std::memory_order_relaxed);
}

void Engine::find_bad(int* rank, std::size_t* parameter) {
    const bool collecting = phase_ == Phase::collecting;
    agree([&] {
        if (rank == nullptr || parameter == nullptr)
            fail(tuttiInvalidArgument, "tuttiDpFindNan: %s is NULL", rank == nullptr ? "rank" : "parameter");
        if (options_.asynchronous())
            fail(tuttiInvalidUsage, "tuttiDpFindNan: asynchronous ranks would wait for each other here");
        if (collecting && next_launch_ > 0 && !options_.nan_check)
            fail(
                tuttiInvalidUsage,
                "tuttiDpFindNan: gradients are being added up already, and nobody has kept whose they were: ask before "
                "tuttiDpGradReady, or set config.nanCheck = 1");
    });
    std::vector<Run> runs;
    std::vector<std::uint64_t> whose;
    constexpr std::uint64_t nobody = UINT64_MAX;
    struct Found {
        std::uint64_t made, has;  // which parameter's gradient was bad as this rank made it, or is bad as it is now
    } mine{nobody, nobody};
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
        const Parameter& q = parameters_[p];
        const Bucket& b = *buckets_[layout_.bucket[p]];
        const std::uint8_t flags = flags_[p].load(std::memory_order_acquire);
        if (flags & bad) mine.made = std::min<std::uint64_t>(mine.made, p);
        if (collecting && options_.nan_check && (flags & ready_now)) continue;  // seen, and perhaps not here any more
        const bool callers = q.grad != nullptr;
        if (!callers && b.grad == nullptr) continue;
        const std::byte* at = callers ? static_cast<std::byte*>(q.grad) : b.grad + layout_.offset[p] * size_of(b.type);
        runs.push_back({callers ? q.grad_type : b.type, at, q.count});
        whose.push_back(p);
    }
    for (const auto& b : buckets_)
        for (const Piece& piece : b->mine) {
            if (collecting || !options_.passing_gradients()) break;
            runs.push_back({b->type, b->own_grad + piece.at * size_of(b->type), piece.count});
            whose.push_back(piece.parameter);
        }
    whose.push_back(nobody);
    mine.has = whose[backend_->first_bad(runs)];
    if (collecting) mine.made = std::min(mine.made, mine.has);
    std::vector<Found> all;
    or_end([&] { all = exchange(control_, ranks_, mine); });
    const auto first = [&](std::uint64_t Found::*which) {
        return std::ranges::find_if(all, [&](const Found& f) { return f.*which != nobody; });
    };
    const bool known = first(&Found::made) != all.end();
    const auto found = known ? first(&Found::made) : first(&Found::has);
    *rank = found == all.end() ? -1 : static_cast<int>(found - all.begin());
    *parameter = found == all.end() ? 0 : static_cast<std::size_t>(known ? found->made : found->has);
}

}  // namespace tutti::dp
