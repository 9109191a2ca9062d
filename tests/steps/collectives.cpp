// Collectives of all kinds, of random sizes, with what they must give.
#include <numeric>

#include "data.hpp"

namespace tutti::steps {
namespace {

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
    Numbers moved() const { return {key, type}; }
    Numbers reduced() const { return {key, type, op}; }
    /// Elements that nobody has written yet.
    char* take(std::size_t n) const { return static_cast<char*>(memory.take(n * size_of(type), own)); }
    char* filled(std::size_t n, const Numbers& numbers) const {
        char* const at = take(n);
        numbers.put(world.rank, 0, n, at);
        return at;
    }
    char* at(char* base, std::size_t i) const { return base + i * size_of(type); }
    /// That n elements are those of the reduction from `first` on.
    std::function<void()> expects_reduced(const char* where, std::size_t first, std::size_t n, const char* what) const {
        return [=, all = world.ranks, numbers = reduced()] {
            expect(
                where, n, numbers, [&](void* to) { numbers.put_result(all, first, n, to); }, what);
        };
    }
    /// That n elements are those of rank `from`, from `first` on.
    std::function<void()> expects_moved(const char* where, int from, std::size_t first, std::size_t n,
                                        const char* what) const {
        return [=, numbers = moved()] {
            expect(
                where, n, numbers, [&](void* to) { numbers.put(from, first, n, to); }, what);
        };
    }
    /// That `count` elements of each rank follow each other, from `first` on.
    std::function<void()> expects_of_each(const char* where, std::size_t first, const char* what) const {
        return [=, n = count, all = world.ranks, size = size_of(type), numbers = moved()] {
            for (int q = 0; q < all; ++q)
                expect(
                    where + static_cast<std::size_t>(q) * n * size, n, numbers,
                    [&](void* to) { numbers.put(q, first, n, to); }, what);
        };
    }
};

const std::function<void()> nothing = [] {};

Call all_reduce(const Job& j) {
    char* const in = j.filled(j.count, j.reduced());
    char* const out = j.in_place ? in : j.take(j.count);
    return {"all-reduce",
            [=](tuttiStream_t s) { return tuttiAllReduce(in, out, j.count, j.type, j.op, j.world.comm, s); },
            j.expects_reduced(out, 0, j.count, "all-reduce")};
}

Call reduce(const Job& j) {
    char* const in = j.filled(j.count, j.reduced());
    char* const out = !j.is_root() ? nullptr : j.in_place ? in : j.take(j.count);
    return {"reduce",
            [=](tuttiStream_t s) { return tuttiReduce(in, out, j.count, j.type, j.op, j.root, j.world.comm, s); },
            j.is_root() ? j.expects_reduced(out, 0, j.count, "reduce") : nothing};
}

Call reduce_scatter(const Job& j) {
    char* const in = j.filled(j.count * j.ranks(), j.reduced());
    char* const out = j.in_place ? j.at(in, j.rank() * j.count) : j.take(j.count);
    return {"reduce-scatter",
            [=](tuttiStream_t s) { return tuttiReduceScatter(in, out, j.count, j.type, j.op, j.world.comm, s); },
            j.expects_reduced(out, j.rank() * j.count, j.count, "reduce-scatter")};
}

Call broadcast(const Job& j) {
    char* const in = j.is_root() ? j.filled(j.count, j.moved()) : nullptr;
    char* const out = j.is_root() && j.in_place ? in : j.take(j.count);
    return {"broadcast",
            [=](tuttiStream_t s) { return tuttiBroadcast(in, out, j.count, j.type, j.root, j.world.comm, s); },
            j.expects_moved(out, j.root, 0, j.count, "broadcast")};
}

/// What a rank gives to a gathering: a part of what it gets, or elsewhere.
char* gathered(const Job& j, char* out, std::size_t n, std::size_t place) {
    char* const in = j.in_place && out != nullptr ? j.at(out, place) : j.take(n);
    j.moved().put(j.world.rank, 0, n, in);
    return in;
}

Call all_gather(const Job& j) {
    char* const out = j.take(j.count * j.ranks());
    char* const in = gathered(j, out, j.count, j.rank() * j.count);
    return {"all-gather", [=](tuttiStream_t s) { return tuttiAllGather(in, out, j.count, j.type, j.world.comm, s); },
            j.expects_of_each(out, 0, "all-gather")};
}

Call gather(const Job& j) {
    char* const out = j.is_root() ? j.take(j.count * j.ranks()) : nullptr;
    char* const in = gathered(j, out, j.count, j.rank() * j.count);
    return {"gather", [=](tuttiStream_t s) { return tuttiGather(in, out, j.count, j.type, j.root, j.world.comm, s); },
            j.is_root() ? j.expects_of_each(out, 0, "gather") : nothing};
}

Call scatter(const Job& j) {
    char* const in = j.is_root() ? j.filled(j.count * j.ranks(), j.moved()) : nullptr;
    char* const out = j.is_root() && j.in_place ? j.at(in, j.rank() * j.count) : j.take(j.count);
    return {"scatter", [=](tuttiStream_t s) { return tuttiScatter(in, out, j.count, j.type, j.root, j.world.comm, s); },
            j.expects_moved(out, j.root, j.rank() * j.count, j.count, "scatter")};
}

Call all_to_all(const Job& j) {
    char* const in = j.filled(j.count * j.ranks(), j.moved());
    char* const out = j.take(j.count * j.ranks());
    return {"all-to-all", [=](tuttiStream_t s) { return tuttiAlltoAll(in, out, j.count, j.type, j.world.comm, s); },
            j.expects_of_each(out, j.rank() * j.count, "all-to-all")};
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

/// Where row number q of a call's buffer begins in what its rank has: rows differ.
std::size_t begin_of_row(std::size_t q) {
    return q * 100'003;
}

void put_rows(const Job& j, char* at, const Rows& rows) {
    for (std::size_t q = 0; q < j.ranks(); ++q)
        j.moved().put(j.world.rank, begin_of_row(q), rows.counts[q], j.at(at, rows.displs[q]));
}

/// Rows of all ranks, those from `first` on of each.
std::function<void()> expects_rows(const Job& j, char* out, const Rows& rows, std::size_t first, const char* what) {
    return [=] {
        for (std::size_t q = 0; q < j.ranks(); ++q)
            j.expects_moved(j.at(out, rows.displs[q]), static_cast<int>(q), first, rows.counts[q], what)();
    };
}

Call all_to_all_v(const Job& j) {
    const Rows sends = rows_of(j, j.world.rank, -1), recvs = rows_of(j, -1, j.world.rank);
    char *const in = j.take(sends.all), *const out = j.take(recvs.all);
    put_rows(j, in, sends);
    return {"all-to-all-v",
            [=](tuttiStream_t s) {
                return tuttiAlltoAllv(in, sends.counts.data(), sends.displs.data(), out, recvs.counts.data(),
                                      recvs.displs.data(), j.type, j.world.comm, s);
            },
            expects_rows(j, out, recvs, begin_of_row(j.rank()), "all-to-all-v")};
}

Call all_gather_v(const Job& j) {
    const Rows rows = rows_of(j, -1, 0);
    const std::size_t mine = rows.counts[j.rank()];
    char* const out = j.take(rows.all);
    char* const in = gathered(j, out, mine, rows.displs[j.rank()]);
    return {"all-gather-v",
            [=](tuttiStream_t s) {
                return tuttiAllGatherv(in, mine, out, rows.counts.data(), rows.displs.data(), j.type, j.world.comm, s);
            },
            expects_rows(j, out, rows, 0, "all-gather-v")};
}

Call gather_v(const Job& j) {
    const Rows rows = rows_of(j, -1, 0);
    const std::size_t mine = rows.counts[j.rank()];
    char* const out = j.is_root() ? j.take(rows.all) : nullptr;
    char* const in = gathered(j, out, mine, rows.displs[j.rank()]);
    return {"gather-v",
            [=](tuttiStream_t s) {
                return tuttiGatherv(in, mine, out, rows.counts.data(), rows.displs.data(), j.type, j.root, j.world.comm,
                                    s);
            },
            j.is_root() ? expects_rows(j, out, rows, 0, "gather-v") : nothing};
}

Call scatter_v(const Job& j) {
    const Rows rows = rows_of(j, 0, -1);
    const std::size_t mine = rows.counts[j.rank()];
    char* const in = j.is_root() ? j.take(rows.all) : nullptr;
    char* const out = j.is_root() && j.in_place ? j.at(in, rows.displs[j.rank()]) : j.take(mine);
    if (j.is_root()) put_rows(j, in, rows);
    return {"scatter-v",
            [=](tuttiStream_t s) {
                return tuttiScatterv(in, rows.counts.data(), rows.displs.data(), out, mine, j.type, j.root,
                                     j.world.comm, s);
            },
            j.expects_moved(out, j.root, begin_of_row(j.rank()), mine, "scatter-v")};
}

Call reduce_scatter_v(const Job& j) {
    const Rows rows = rows_of(j, -1, 0);
    const auto& counts = rows.counts;
    const std::size_t first = std::accumulate(counts.begin(), counts.begin() + j.world.rank, std::size_t{0});
    const std::size_t mine = counts[j.rank()];
    char* const in = j.filled(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), j.reduced());
    char* const out = j.in_place ? j.at(in, first) : j.take(mine);
    return {"reduce-scatter-v",
            [=](tuttiStream_t s) {
                return tuttiReduceScatterv(in, out, rows.counts.data(), j.type, j.op, j.world.comm, s);
            },
            j.expects_reduced(out, first, mine, "reduce-scatter-v")};
}

}  // namespace

Call large_collective(const World& world, std::uint64_t key, Dice all, Dice& own, Memory& memory) {
    constexpr Call (*kinds[])(const Job&) = {all_reduce, all_reduce, reduce_scatter, reduce, broadcast, all_gather};
    constexpr tuttiDataType_t types[] = {tuttiInt32, tuttiFloat32, tuttiBfloat16};
    const auto kind = kinds[all.below(std::size(kinds))];
    Job job{world, key, types[all.below(std::size(types))], tuttiSum, 0, 0, own.chance(25), own, memory};
    job.root = static_cast<int>(all.below(job.ranks()));
    const std::size_t bytes_of_a_chunk = (16 << 10) + (all.below(3) << 12);
    const bool many_rows = kind == reduce_scatter || kind == all_gather;
    job.count = bytes_of_a_chunk * (many_rows ? 1 : job.ranks()) / size_of(job.type);
    return kind(job);
}

Call some_collective(const World& world, std::uint64_t key, Dice all, Dice& own, Memory& memory,
                     std::size_t most_bytes) {
    constexpr Call (*kinds[])(const Job&) = {all_reduce,   all_reduce, reduce,       reduce_scatter, broadcast,
                                             all_gather,   gather,     scatter,      all_to_all,     barrier,
                                             all_to_all_v, gather_v,   all_gather_v, scatter_v,      reduce_scatter_v};
    auto type = static_cast<tuttiDataType_t>(all.below(tuttiNumTypes));
    if (type == tuttiFloat8e5m2 && world.ranks > 4) type = tuttiFloat8e4m3;  // sums of more are not exact
    Job job{world, key, type, static_cast<tuttiRedOp_t>(all.below(tuttiNumOps)), 0, 0, own.chance(25), own, memory};
    job.root = static_cast<int>(all.below(static_cast<std::size_t>(world.ranks)));
    const auto kind = kinds[all.below(std::size(kinds))];
    const bool many_rows = kind != all_reduce && kind != reduce && kind != broadcast;
    job.count = all.size(most_bytes / size_of(type) / (many_rows ? job.ranks() : 1));
    return kind(job);
}

}  // namespace tutti::steps
