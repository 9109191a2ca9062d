// Collectives of all kinds, of random sizes, with what they must give.
#include <algorithm>
#include <numeric>

#include "data.hpp"

namespace tutti::storm {
namespace {

constexpr std::size_t most_bytes = std::size_t{1} << 20;  // of a rank's row

/// The arguments of a call, and the memory that it works in.
struct Job {
    World world;
    std::uint64_t key;
    tuttiDataType_t type;
    tuttiRedOp_t op;
    std::size_t count;
    int root;
    bool in_place;
    Dice& own;
    Memory& memory;

    std::size_t ranks() const { return static_cast<std::size_t>(world.ranks); }
    std::size_t rank() const { return static_cast<std::size_t>(world.rank); }
    bool is_root() const { return world.rank == root; }
    /// Elements that nobody has written yet.
    char* take(std::size_t n) const { return static_cast<char*>(memory.take(n * size_of(type), own)); }
    char* filled(std::size_t n) const {
        char* const at = take(n);
        fill(at, type, n, key, world.rank, 0);
        return at;
    }
    char* at(char* base, std::size_t i) const { return base + i * size_of(type); }
    std::function<void()> expects(const void* where, std::size_t n, std::function<int(std::size_t)> expected,
                                  std::string what) const {
        return [=, t = type] { expect(where, t, n, expected, what); };
    }
    /// Element i of what all ranks' rows give.
    std::function<int(std::size_t)> reduced(std::size_t first) const {
        return [=, k = key, all = world.ranks, how = op](std::size_t i) {
            int result = value(k, 0, first + i);
            for (int r = 1; r < all; ++r) {
                const int v = value(k, r, first + i);
                result = how == tuttiSum ? result + v : how == tuttiMax ? std::max(result, v) : std::min(result, v);
            }
            return result;
        };
    }
};

const std::function<void()> nothing = [] {};

Call all_reduce(const Job& j) {
    char* const in = j.filled(j.count);
    char* const out = j.in_place ? in : j.take(j.count);
    return {"all-reduce",
            [=](tuttiStream_t s) { return tuttiAllReduce(in, out, j.count, j.type, j.op, j.world.comm, s); },
            j.expects(out, j.count, j.reduced(0), "all-reduce")};
}

Call reduce(const Job& j) {
    char* const in = j.filled(j.count);
    char* const out = !j.is_root() ? nullptr : j.in_place ? in : j.take(j.count);
    return {"reduce",
            [=](tuttiStream_t s) { return tuttiReduce(in, out, j.count, j.type, j.op, j.root, j.world.comm, s); },
            j.is_root() ? j.expects(out, j.count, j.reduced(0), "reduce") : nothing};
}

Call reduce_scatter(const Job& j) {
    char* const in = j.filled(j.count * j.ranks());
    char* const out = j.in_place ? j.at(in, j.rank() * j.count) : j.take(j.count);
    return {"reduce-scatter",
            [=](tuttiStream_t s) { return tuttiReduceScatter(in, out, j.count, j.type, j.op, j.world.comm, s); },
            j.expects(out, j.count, j.reduced(j.rank() * j.count), "reduce-scatter")};
}

Call broadcast(const Job& j) {
    char* const in = j.is_root() ? j.filled(j.count) : nullptr;
    char* const out = j.is_root() && j.in_place ? in : j.take(j.count);
    return {"broadcast",
            [=](tuttiStream_t s) { return tuttiBroadcast(in, out, j.count, j.type, j.root, j.world.comm, s); },
            j.expects(
                out, j.count, [k = j.key, r = j.root](std::size_t i) { return value(k, r, i); }, "broadcast")};
}

Call all_gather(const Job& j) {
    char* const out = j.take(j.count * j.ranks());
    char* const in = j.in_place ? j.at(out, j.rank() * j.count) : j.take(j.count);
    fill(in, j.type, j.count, j.key, j.world.rank, 0);
    const auto expected = [k = j.key, n = j.count](std::size_t i) { return value(k, static_cast<int>(i / n), i % n); };
    return {"all-gather", [=](tuttiStream_t s) { return tuttiAllGather(in, out, j.count, j.type, j.world.comm, s); },
            j.expects(out, j.count * j.ranks(), expected, "all-gather")};
}

Call gather(const Job& j) {
    char* const out = j.is_root() ? j.take(j.count * j.ranks()) : nullptr;
    char* const in = j.is_root() && j.in_place ? j.at(out, j.rank() * j.count) : j.take(j.count);
    fill(in, j.type, j.count, j.key, j.world.rank, 0);
    const auto expected = [k = j.key, n = j.count](std::size_t i) { return value(k, static_cast<int>(i / n), i % n); };
    return {"gather", [=](tuttiStream_t s) { return tuttiGather(in, out, j.count, j.type, j.root, j.world.comm, s); },
            j.is_root() ? j.expects(out, j.count * j.ranks(), expected, "gather") : nothing};
}

Call scatter(const Job& j) {
    char* const in = j.is_root() ? j.filled(j.count * j.ranks()) : nullptr;
    char* const out = j.is_root() && j.in_place ? j.at(in, j.rank() * j.count) : j.take(j.count);
    const auto expected = [k = j.key, r = j.root, first = j.rank() * j.count](std::size_t i) {
        return value(k, r, first + i);
    };
    return {"scatter", [=](tuttiStream_t s) { return tuttiScatter(in, out, j.count, j.type, j.root, j.world.comm, s); },
            j.expects(out, j.count, expected, "scatter")};
}

Call all_to_all(const Job& j) {
    char* const in = j.filled(j.count * j.ranks());
    char* const out = j.take(j.count * j.ranks());
    const auto expected = [k = j.key, n = j.count, me = j.rank()](std::size_t i) {
        return value(k, static_cast<int>(i / n), me * n + i % n);
    };
    return {"all-to-all", [=](tuttiStream_t s) { return tuttiAlltoAll(in, out, j.count, j.type, j.world.comm, s); },
            j.expects(out, j.count * j.ranks(), expected, "all-to-all")};
}

Call barrier(const Job& j) {
    return {"barrier", [=](tuttiStream_t s) { return tuttiBarrier(j.world.comm, s); }, nothing};
}

/// How the rows of a buffer lie: with gaps.
struct Rows {
    std::vector<std::size_t> counts, displs;
    std::size_t all = 0;
    void add(std::size_t count, std::size_t gap) {
        counts.push_back(count);
        displs.push_back(all + gap);
        all += gap + count;
    }
};

/// counts[q] is what rank `from` sends to `to`; -1 stands for q.
Rows rows_of(const Job& j, int from, int to) {
    Rows rows;
    for (int q = 0; q < j.world.ranks; ++q) {
        const auto a = static_cast<std::uint64_t>(from < 0 ? q : from), b = static_cast<std::uint64_t>(to < 0 ? q : to);
        rows.add(Dice{j.key, a, b, 77}.size(j.count), j.own.below(3));
    }
    return rows;
}

Call all_to_all_v(const Job& j) {
    const Rows sends = rows_of(j, j.world.rank, -1), recvs = rows_of(j, -1, j.world.rank);
    char *const in = j.take(sends.all), *const out = j.take(recvs.all);
    for (std::size_t q = 0; q < j.ranks(); ++q)
        fill(j.at(in, sends.displs[q]), j.type, sends.counts[q], j.key + q, j.world.rank, 0);
    return {"all-to-all-v",
            [=](tuttiStream_t s) {
                return tuttiAlltoAllv(in, sends.counts.data(), sends.displs.data(), out, recvs.counts.data(),
                                      recvs.displs.data(), j.type, j.world.comm, s);
            },
            [=] {
                for (std::size_t q = 0; q < j.ranks(); ++q)
                    expect(
                        j.at(out, recvs.displs[q]), j.type, recvs.counts[q],
                        [&](std::size_t i) { return value(j.key + j.rank(), static_cast<int>(q), i); }, "all-to-all-v");
            }};
}

/// Rows of all ranks, one after the other in memory.
std::function<void()> expects_rows(const Job& j, char* out, const Rows& rows, const char* what) {
    return [=] {
        for (std::size_t q = 0; q < j.ranks(); ++q)
            expect(
                j.at(out, rows.displs[q]), j.type, rows.counts[q],
                [&](std::size_t i) { return value(j.key, static_cast<int>(q), i); }, what);
    };
}

Call all_gather_v(const Job& j) {
    const Rows rows = rows_of(j, -1, 0);
    const std::size_t mine = rows.counts[j.rank()];
    char *const in = j.filled(mine), *const out = j.take(rows.all);
    return {"all-gather-v",
            [=](tuttiStream_t s) {
                return tuttiAllGatherv(in, mine, out, rows.counts.data(), rows.displs.data(), j.type, j.world.comm, s);
            },
            expects_rows(j, out, rows, "all-gather-v")};
}

Call gather_v(const Job& j) {
    const Rows rows = rows_of(j, -1, 0);
    const std::size_t mine = rows.counts[j.rank()];
    char *const in = j.filled(mine), *const out = j.is_root() ? j.take(rows.all) : nullptr;
    return {"gather-v",
            [=](tuttiStream_t s) {
                return tuttiGatherv(in, mine, out, rows.counts.data(), rows.displs.data(), j.type, j.root, j.world.comm,
                                    s);
            },
            j.is_root() ? expects_rows(j, out, rows, "gather-v") : nothing};
}

Call scatter_v(const Job& j) {
    const Rows rows = rows_of(j, 0, -1);
    const std::size_t mine = rows.counts[j.rank()];
    char *const in = j.is_root() ? j.take(rows.all) : nullptr, *const out = j.take(mine);
    for (std::size_t q = 0; j.is_root() && q < j.ranks(); ++q)
        fill(j.at(in, rows.displs[q]), j.type, rows.counts[q], j.key, static_cast<int>(q), 0);
    return {"scatter-v",
            [=](tuttiStream_t s) {
                return tuttiScatterv(in, rows.counts.data(), rows.displs.data(), out, mine, j.type, j.root,
                                     j.world.comm, s);
            },
            j.expects(
                out, mine, [k = j.key, r = j.world.rank](std::size_t i) { return value(k, r, i); }, "scatter-v")};
}

Call reduce_scatter_v(const Job& j) {
    const Rows rows = rows_of(j, -1, 0);
    const auto& counts = rows.counts;
    const std::size_t first = std::accumulate(counts.begin(), counts.begin() + j.world.rank, std::size_t{0});
    const std::size_t mine = counts[j.rank()];
    char *const in = j.filled(std::accumulate(counts.begin(), counts.end(), std::size_t{0})), *const out = j.take(mine);
    return {"reduce-scatter-v",
            [=](tuttiStream_t s) {
                return tuttiReduceScatterv(in, out, rows.counts.data(), j.type, j.op, j.world.comm, s);
            },
            j.expects(out, mine, j.reduced(first), "reduce-scatter-v")};
}

}  // namespace

Call some_collective(const World& world, std::uint64_t key, Dice all, Dice& own, Memory& memory) {
    constexpr tuttiDataType_t types[] = {tuttiUint8, tuttiInt32, tuttiInt64, tuttiFloat32, tuttiFloat64};
    constexpr tuttiRedOp_t ops[] = {tuttiSum, tuttiSum, tuttiMax, tuttiMin};
    constexpr Call (*kinds[])(const Job&) = {all_reduce,   all_reduce, reduce,       reduce_scatter, broadcast,
                                             all_gather,   gather,     scatter,      all_to_all,     barrier,
                                             all_to_all_v, gather_v,   all_gather_v, scatter_v,      reduce_scatter_v};
    const tuttiDataType_t type = types[all.below(std::size(types))];
    Job job{world, key, type, ops[all.below(std::size(ops))], 0, 0, own.chance(25), own, memory};
    job.root = static_cast<int>(all.below(static_cast<std::size_t>(world.ranks)));
    const auto kind = kinds[all.below(std::size(kinds))];
    const bool many_rows = kind != all_reduce && kind != reduce && kind != broadcast;
    job.count = all.size(most_bytes / size_of(type) / (many_rows ? job.ranks() : 1));
    return kind(job);
}

}  // namespace tutti::storm
