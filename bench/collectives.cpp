#include "collectives.hpp"

#include <cstring>

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

tuttiResult_t send_around(const Call& c) {
    if (const auto result = tuttiGroupStart()) return result;
    const int next = (c.rank + 1) % c.ranks, previous = (c.rank + c.ranks - 1) % c.ranks;
    const auto sent = tuttiSend(c.send, c.count, c.type, next, c.comm, c.stream);
    const auto received = tuttiRecv(c.receive, c.count, c.type, previous, c.comm, c.stream);
    const auto ended = tuttiGroupEnd();
    return sent ? sent : received ? received : ended;
}

const Collective table[] = {
    {.name = "all_reduce",
     .reduces = true,
     .has_root = false,
     .has_in_place = true,
     .shape = same,
     .call = [](const Call& c) { return tuttiAllReduce(c.send, c.receive, c.count, c.type, c.op, c.comm, c.stream); },
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
         [](const Call& c) { return tuttiReduceScatter(c.send, c.receive, c.count, c.type, c.op, c.comm, c.stream); },
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
     .call = [](const Call& c) { return tuttiAllGather(c.send, c.receive, c.count, c.type, c.comm, c.stream); },
     .result = all_parts,
     .sends = everybody,
     .bus_factor = all_but_own},
    {.name = "broadcast",
     .reduces = false,
     .has_root = true,
     .has_in_place = true,
     .shape = same,
     .call = [](const Call& c) { return tuttiBroadcast(c.send, c.receive, c.count, c.type, c.root, c.comm, c.stream); },
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
         [](const Call& c) { return tuttiReduce(c.send, c.receive, c.count, c.type, c.op, c.root, c.comm, c.stream); },
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
     .call = [](const Call& c) { return tuttiAlltoAll(c.send, c.receive, c.count, c.type, c.comm, c.stream); },
     .result = own_parts,
     .sends = everybody,
     .bus_factor = all_but_own},
    {.name = "gather",
     .reduces = false,
     .has_root = true,
     .has_in_place = true,
     .shape = gathered,
     .call = [](const Call& c) { return tuttiGather(c.send, c.receive, c.count, c.type, c.root, c.comm, c.stream); },
     .result = [](const Shape& s, int rank, int ranks,
                  int root) { return rank == root ? all_parts(s, rank, ranks, root) : Pieces{}; },
     .sends = everybody,
     .bus_factor = all_but_own},
    {.name = "scatter",
     .reduces = false,
     .has_root = true,
     .has_in_place = true,
     .shape = scattered,
     .call = [](const Call& c) { return tuttiScatter(c.send, c.receive, c.count, c.type, c.root, c.comm, c.stream); },
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
};

}  // namespace

const Collective* collective_named(const char* name) {
    for (const Collective& collective : table)
        if (std::strcmp(collective.name, name) == 0) return &collective;
    return nullptr;
}

}  // namespace perf
