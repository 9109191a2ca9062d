// What ranks exchange on demand: parameters (broadcast, comparison), and which rank has a NaN.
#include <algorithm>

#include "dp/engine.hpp"
#include "dp/hash.hpp"

namespace tutti::dp {

void Engine::broadcast(int root) {
    announce({.call = Announcement::Call::broadcast, .number = root});
    agree([&] {
        if (root < 0 || root >= ranks_.size())
            fail(tuttiInvalidArgument, "tuttiDpBroadcast: root is %d; 0 to %d was expected", root, ranks_.size() - 1);
        units_.refuse_gathered("tuttiDpBroadcast");
    });
    units_.forget(*worker_);
    wait();
    worker_->or_fail([&] {
        const Block staged(backends_.values, storage_.largest_values());
        const bool is_apart = options().mode == tuttiDpZero3 && progress_.begun > 0;  // no rank has all trained values
        for (Bucket& b : storage_.buckets()) {
            if (is_apart) break;
            storage_.collect(b, staged.base());
            must(tuttiBroadcast(staged.base(), staged.base(), b.count, c_type(b.data_type), root, ranks_.comm(),
                                backends_.values->stream()));
            storage_.store(b, staged.base());
        }
        for (std::size_t p = 0; p < parameters().size(); ++p)
            if (!parameters()[p].is_trained()) reducer_.send_still(p, root);
    });
    worker_->or_fail([&] { sweep(); });
}

void Engine::check_equal() {
    announce({Announcement::Call::check_equal});
    worker_->check();
    if (options().mode == tuttiDpZero3) fail(tuttiInvalidUsage, "tuttiDpCheckEqual: in tuttiDpZero3 there is one copy");
    if (options().asynchronous())
        fail(tuttiInvalidUsage, "tuttiDpCheckEqual: asynchronous ranks may differ: %d steps are allowed",
             options().staleness);
    units_.arrive(*worker_);
    const std::size_t count = parameters().size();
    std::vector<std::uint64_t> hashes(count), table;
    std::vector<std::byte> here;  // a copy of a GPU's values on the host
    for (std::size_t p = 0; p < count; ++p) {
        if (parameters()[p].kind == tuttiDpBuffer) continue;  // buffers may differ; their hash is 0 on all ranks
        const std::size_t bytes = parameters()[p].count * size_of(parameters()[p].type);
        if (backends_.on_gpu) {
            here.resize(bytes);
            backends_.values->copy_now(here.data(), storage_.values()[p], bytes);
        }
        hashes[p] = hash(backends_.on_gpu ? here.data() : storage_.values()[p], bytes);
    }
    worker_->or_fail([&] { table = ranks_.gather(std::span<const std::uint64_t>(hashes)); });
    for (std::size_t p = 0; p < count; ++p)
        for (int r = 1; r < ranks_.size(); ++r)
            if (table[static_cast<std::size_t>(r) * count + p] != table[p])
                fail(tuttiInvalidUsage,
                     "tuttiDpCheckEqual: parameter %zu, '%s', is not the same on ranks 0 and %d after %lld steps", p,
                     parameters()[p].name.c_str(), r, statistics_.all().steps);
}

/// config.nanCheck: looks at a gradient before it is reduced, in the memory where it is accumulated or was written.
void Engine::look_for_nan(std::size_t p) {
    const Parameter& q = parameters()[p];
    const bool callers = q.grad != nullptr && !q.accumulates();
    const Run run{q.main_type, callers ? static_cast<std::byte*>(q.grad) : storage_.gradient(p), q.count};
    if (backends_.values->first_bad({&run, 1}) == 0) iteration_.set_bad(p);
}

void Engine::find_bad(int* rank, std::size_t* parameter) {
    announce({Announcement::Call::find_nan});
    const bool collecting = iteration_.phase == Phase::collecting;
    agree([&] {
        if (rank == nullptr || parameter == nullptr)
            fail(tuttiInvalidArgument, "tuttiDpFindNan: %s is NULL", rank == nullptr ? "rank" : "parameter");
        if (options().asynchronous())
            fail(tuttiInvalidUsage, "tuttiDpFindNan: asynchronous ranks would wait for each other here");
        if (collecting && iteration_.launched() > 0 && !options().nanCheck)
            fail(tuttiInvalidUsage,
                 "tuttiDpFindNan: gradients are being added up already, so no rank can tell whose they were: call it "
                 "before tuttiDpGradReady, or set config.nanCheck = 1");
    });
    std::vector<Run> runs;
    std::vector<std::uint64_t> whose;
    constexpr std::uint64_t nobody = UINT64_MAX;
    struct Found {
        std::uint64_t made, has;  // the first parameter whose gradient was bad when written here; whose is bad now
    } mine{nobody, nobody};
    for (std::size_t p = 0; p < parameters().size(); ++p) {
        const Parameter& q = parameters()[p];
        if (!q.is_trained()) continue;
        const Bucket& b = storage_.bucket_of(p);
        if (iteration_.bad(p)) mine.made = std::min<std::uint64_t>(mine.made, p);
        if (collecting && options().nanCheck && iteration_.is_ready(p))
            continue;  // was checked in grad_ready(), and may have been reduced since
        const bool callers = q.grad != nullptr;
        if (!callers && b.grad == nullptr) continue;
        std::byte* at = callers ? static_cast<std::byte*>(q.grad) : b.grad + storage_.offset(p, b.type);
        if (const void* const source = iteration_.source(p); collecting && source != nullptr)
            at = static_cast<std::byte*>(const_cast<void*>(source));  // first_bad() only reads
        runs.push_back({callers ? q.grad_type : b.type, at, q.count});
        whose.push_back(p);
        if (!collecting || !callers || !q.accumulates() || b.grad == nullptr) continue;
        runs.push_back({b.type, b.grad + storage_.offset(p, b.type), q.count});  // of earlier micro-batches
        whose.push_back(p);
    }
    for (const Bucket& b : storage_.buckets())
        for (const Piece& piece : b.mine) {
            if (collecting || !options().passing_gradients()) break;
            runs.push_back({b.type, b.own_grad + piece.at * size_of(b.type), piece.count});
            whose.push_back(piece.parameter);
        }
    whose.push_back(nobody);
    mine.has = whose[backends_.values->first_bad(runs)];
    if (collecting) mine.made = std::min(mine.made, mine.has);
    std::vector<Found> all;
    worker_->or_fail([&] { all = ranks_.exchange(mine); });
    const auto first = [&](std::uint64_t Found::*which) {
        return std::ranges::find_if(all, [&](const Found& f) { return f.*which != nobody; });
    };
    const bool known = first(&Found::made) != all.end();
    const auto found = known ? first(&Found::made) : first(&Found::has);
    *rank = found == all.end() ? -1 : static_cast<int>(found - all.begin());
    *parameter = found == all.end() ? 0 : static_cast<std::size_t>(known ? found->made : found->has);
}

}  // namespace tutti::dp
