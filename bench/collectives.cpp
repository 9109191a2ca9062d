#include "collectives.hpp"

#include <cstring>

#include "numbers.hpp"

namespace perf {

namespace {

using Pieces = std::vector<Piece>;

Shape same(std::size_t elements, int) {
    return {elements, elements, elements, 0, 0};
}

Shape scattered(std::size_t elements, int ranks) {
    const std::size_t part = elements / static_cast<std::size_t>(ranks);
    return {part * static_cast<std::size_t>(ranks), part, part, 0, part};
}

Shape gathered(std::size_t elements, int ranks) {
    const std::size_t part = elements / static_cast<std::size_t>(ranks);
    return {part, part * static_cast<std::size_t>(ranks), part, part, 0};
}

Shape exchanged(std::size_t elements, int ranks) {
    const std::size_t part = elements / static_cast<std::size_t>(ranks), all = part * static_cast<std::size_t>(ranks);
    return {all, all, part, 0, 0};
}

double once(int) {
    return 1;
}
double all_but_own(int ranks) {
    return (ranks - 1.0) / ranks;
}
double twice_all_but_own(int ranks) {
    return 2 * all_but_own(ranks);
}

bool everybody(int, int) {
    return true;
}
bool root_only(int rank, int root) {
    return rank == root;
}

Pieces all_parts(const Shape& shape, int, int ranks, int) {
    Pieces pieces;
    for (int from = 0; from < ranks; ++from)
        pieces.push_back({shape.count * static_cast<std::size_t>(from), shape.count, 0, from});
    return pieces;
}

/// Of every rank's input the part with this rank's number.
Pieces own_parts(const Shape& shape, int rank, int ranks, int) {
    Pieces pieces = all_parts(shape, rank, ranks, 0);
    for (Piece& piece : pieces) piece.first = shape.count * static_cast<std::size_t>(rank);
    return pieces;
}

/// What `from` has for `to` when pairs have `part` in the mean: from nothing to twice that, in even steps. Each rank
/// sends and receives as much as every other one.
std::size_t skewed(std::size_t part, int from, int to, int ranks) {
    const auto step = static_cast<std::size_t>((from + to) % ranks);
    return ranks == 1 ? part : part * 2 * step / static_cast<std::size_t>(ranks - 1);
}

/// Rows one after the other; length(q) is that of row q.
struct Packed {
    std::vector<std::size_t> counts, displs;

    template <class Length>
    Packed(int ranks, Length length) {
        std::size_t at = 0;
        for (int q = 0; q < ranks; ++q) {
            counts.push_back(length(q));
            displs.push_back(at);
            at += counts.back();
        }
    }
};
Packed sent_skewed(std::size_t part, int rank, int ranks) {
    return Packed(ranks, [&](int to) { return skewed(part, rank, to, ranks); });
}
Packed received_skewed(std::size_t part, int rank, int ranks) {
    return Packed(ranks, [&](int from) { return skewed(part, from, rank, ranks); });
}

/// Rows to and from everybody, by sends and receives in a group: for libraries without a function for it.
tuttiResult_t by_pairs(const Call& c, const Packed& out, const Packed& in) {
    tuttiResult_t result = c.library->group_start();
    const auto at = [&](const void* buffer, std::size_t element) {
        return const_cast<std::byte*>(static_cast<const std::byte*>(buffer)) + element * size_of(c.type);
    };
    for (int q = 0; q < c.ranks && result == tuttiSuccess; ++q) {
        const auto row = static_cast<std::size_t>(q);
        if (out.counts[row] > 0)
            result = c.library->send(at(c.send, out.displs[row]), out.counts[row], c.type, q, c.comm, c.stream);
        if (in.counts[row] > 0 && result == tuttiSuccess)
            result = c.library->receive(at(c.receive, in.displs[row]), in.counts[row], c.type, q, c.comm, c.stream);
    }
    const auto ended = c.library->group_end();
    return result ? result : ended;
}

/// The part of a row per rank that `owner` alone has.
Packed rows_of_root(const Call& c, bool mine) {
    return Packed(c.ranks, [&](int) { return mine ? c.count : 0; });
}
Packed row_towards_root(const Call& c) {
    return Packed(c.ranks, [&](int q) { return q == c.root ? c.count : 0; });
}

tuttiResult_t exchange(const Call& c) {
    if (c.library->all_to_all) return c.library->all_to_all(c.send, c.receive, c.count, c.type, c.comm, c.stream);
    return by_pairs(c, rows_of_root(c, true), rows_of_root(c, true));
}

tuttiResult_t gather_rows(const Call& c) {
    if (c.library->gather) return c.library->gather(c.send, c.receive, c.count, c.type, c.root, c.comm, c.stream);
    return by_pairs(c, row_towards_root(c), rows_of_root(c, c.rank == c.root));
}

tuttiResult_t scatter_rows(const Call& c) {
    if (c.library->scatter) return c.library->scatter(c.send, c.receive, c.count, c.type, c.root, c.comm, c.stream);
    return by_pairs(c, rows_of_root(c, c.rank == c.root), row_towards_root(c));
}

tuttiResult_t exchange_skewed(const Call& c) {
    const Packed out = sent_skewed(c.count, c.rank, c.ranks), in = received_skewed(c.count, c.rank, c.ranks);
    if (c.library->all_to_allv == nullptr) return by_pairs(c, out, in);
    return c.library->all_to_allv(c.send, out.counts.data(), out.displs.data(), c.receive, in.counts.data(),
                                  in.displs.data(), c.type, c.comm, c.stream);
}

Pieces own_skewed_parts(const Shape& shape, int rank, int ranks, int) {
    const Packed in = received_skewed(shape.count, rank, ranks);
    Pieces pieces;
    for (int from = 0; from < ranks; ++from) {
        const auto q = static_cast<std::size_t>(from);
        const std::size_t first = sent_skewed(shape.count, from, ranks).displs[static_cast<std::size_t>(rank)];
        pieces.push_back({in.displs[q], in.counts[q], first, from});
    }
    return pieces;
}

/// A group of a send and a receive.
tuttiResult_t send_and_receive(const Call& c, const void* send, void* receive, std::size_t count, int to, int from) {
    if (const auto result = c.library->group_start()) return result;
    const auto sent = c.library->send(send, count, c.type, to, c.comm, c.stream);
    const auto received = c.library->receive(receive, count, c.type, from, c.comm, c.stream);
    const auto ended = c.library->group_end();
    return sent ? sent : received ? received : ended;
}

/// Every rank to the next one.
tuttiResult_t send_around(const Call& c) {
    return send_and_receive(c, c.send, c.receive, c.count, (c.rank + 1) % c.ranks, (c.rank + c.ranks - 1) % c.ranks);
}

/// All-gather by pairs along the edges of a hypercube: each round everybody swaps all that it has.
tuttiResult_t gather_over_hypercube(const Call& c) {
    const std::size_t row = c.count * size_of(c.type);
    const auto rows_of = [&](int rank) {
        return static_cast<std::byte*>(c.receive) + static_cast<std::size_t>(rank) * row;
    };
    if (c.send != rows_of(c.rank))
        if (const auto result = send_and_receive(c, c.send, rows_of(c.rank), c.count, c.rank, c.rank)) return result;
    for (int d = 1; d < c.ranks; d *= 2) {
        const int partner = c.rank ^ d;
        const std::size_t count = c.count * static_cast<std::size_t>(d);
        if (const auto result =
                send_and_receive(c, rows_of(c.rank / d * d), rows_of(partner / d * d), count, partner, partner))
            return result;
    }
    return tuttiSuccess;
}

const Collective table[] = {
    {.name = "all_reduce",
     .reduces = true,
     .has_root = false,
     .has_in_place = true,
     .shape = same,
     .call =
         [](const Call& c) {
             return c.library->all_reduce(c.send, c.receive, c.count, c.type, c.op, c.comm, c.stream);
         },
     .result =
         [](const Shape& s, int, int, int) {
             return Pieces{{0, s.count, 0, Piece::reduction}};
         },
     .sends = everybody,
     .bus_factor = twice_all_but_own},
    {.name = "reduce_scatter",
     .reduces = true,
     .has_root = false,
     .has_in_place = true,
     .shape = scattered,
     .call =
         [](const Call& c) {
             return c.library->reduce_scatter(c.send, c.receive, c.count, c.type, c.op, c.comm, c.stream);
         },
     .result =
         [](const Shape& s, int rank, int, int) {
             return Pieces{{0, s.count, s.count * static_cast<std::size_t>(rank), Piece::reduction}};
         },
     .sends = everybody,
     .bus_factor = all_but_own},
    {.name = "all_gather",
     .reduces = false,
     .has_root = false,
     .has_in_place = true,
     .shape = gathered,
     .call = [](const Call& c) { return c.library->all_gather(c.send, c.receive, c.count, c.type, c.comm, c.stream); },
     .result = all_parts,
     .sends = everybody,
     .bus_factor = all_but_own},
    {.name = "broadcast",
     .reduces = false,
     .has_root = true,
     .has_in_place = true,
     .shape = same,
     .call =
         [](const Call& c) {
             return c.library->broadcast(c.send, c.receive, c.count, c.type, c.root, c.comm, c.stream);
         },
     .result =
         [](const Shape& s, int, int, int root) {
             return Pieces{{0, s.count, 0, root}};
         },
     .sends = root_only,
     .bus_factor = once},
    {.name = "reduce",
     .reduces = true,
     .has_root = true,
     .has_in_place = true,
     .shape = same,
     .call =
         [](const Call& c) {
             return c.library->reduce(c.send, c.receive, c.count, c.type, c.op, c.root, c.comm, c.stream);
         },
     .result =
         [](const Shape& s, int rank, int, int root) {
             return rank == root ? Pieces{{0, s.count, 0, Piece::reduction}} : Pieces{};
         },
     .sends = everybody,
     .bus_factor = once},
    {.name = "alltoall",
     .reduces = false,
     .has_root = false,
     .has_in_place = false,
     .shape = exchanged,
     .call = exchange,
     .result = own_parts,
     .sends = everybody,
     .bus_factor = all_but_own},
    {.name = "alltoallv",
     .reduces = false,
     .has_root = false,
     .has_in_place = false,
     .shape = exchanged,
     .call = exchange_skewed,
     .result = own_skewed_parts,
     .sends = everybody,
     .bus_factor = all_but_own},
    {.name = "gather",
     .reduces = false,
     .has_root = true,
     .has_in_place = true,
     .shape = gathered,
     .call = gather_rows,
     .result = [](const Shape& s, int rank, int ranks,
                  int root) { return rank == root ? all_parts(s, rank, ranks, root) : Pieces{}; },
     .sends = everybody,
     .bus_factor = all_but_own},
    {.name = "scatter",
     .reduces = false,
     .has_root = true,
     .has_in_place = true,
     .shape = scattered,
     .call = scatter_rows,
     .result =
         [](const Shape& s, int rank, int, int root) {
             return Pieces{{0, s.count, s.count * static_cast<std::size_t>(rank), root}};
         },
     .sends = root_only,
     .bus_factor = all_but_own},
    {.name = "sendrecv",
     .reduces = false,
     .has_root = false,
     .has_in_place = false,
     .shape = same,
     .call = send_around,
     .result =
         [](const Shape& s, int rank, int ranks, int) {
             return Pieces{{0, s.count, 0, (rank + ranks - 1) % ranks}};
         },
     .sends = everybody,
     .bus_factor = once},
    {.name = "hypercube",
     .reduces = false,
     .has_root = false,
     .has_in_place = true,
     .shape = gathered,
     .call = gather_over_hypercube,
     .result = all_parts,
     .sends = everybody,
     .bus_factor = all_but_own,
     .in_rounds = true},
};

}  // namespace

const Collective* collective_named(const char* name) {
    for (const Collective& collective : table)
        if (std::strcmp(collective.name, name) == 0) return &collective;
    return nullptr;
}

}  // namespace perf
