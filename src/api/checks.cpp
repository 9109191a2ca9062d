#include "api/checks.hpp"

#include <algorithm>
#include <cstdint>

namespace tutti {
namespace {

/// Which of the two buffers this rank uses, and how many rows of `count` elements each has.
struct Usage {
    bool reads, writes;
    std::size_t input_rows, output_rows;
};

Usage usage_of(const Arguments& a, Rank rank, int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    switch (a.collective) {
        case Collective::all_reduce:
            return {true, true, 1, 1};
        case Collective::reduce_scatter:
            return {true, true, n, 1};
        case Collective::all_gather:
            return {true, true, 1, n};
        case Collective::broadcast:
            return {rank == a.root, true, 1, 1};
        case Collective::reduce:
            return {true, rank == a.root, 1, 1};
        case Collective::all_to_all:
            return {true, true, n, n};
        case Collective::gather:
            return {true, rank == a.root, 1, n};
        case Collective::scatter:
            return {rank == a.root, true, n, 1};
        case Collective::barrier:
            return {false, false, 0, 0};
        case Collective::send:
            return {true, false, 1, 0};
        case Collective::recv:
            return {false, true, 0, 1};
    }
    return {};
}

void check_overlap(const Arguments& a, const Usage& e, std::size_t row, Rank rank) {
    const auto in = reinterpret_cast<std::uintptr_t>(a.input), out = reinterpret_cast<std::uintptr_t>(a.output);
    if (in + row * e.input_rows <= out || out + row * e.output_rows <= in) return;
    const auto r = static_cast<std::size_t>(rank);
    // In place, the smaller buffer is this rank's row of the larger one.
    const std::uintptr_t in_place_in = e.input_rows > e.output_rows ? in + r * row : in;
    const std::uintptr_t in_place_out = e.output_rows > e.input_rows ? out + r * row : out;
    if (in_place_in == in_place_out && a.collective != Collective::all_to_all) return;
    fail(tuttiInvalidArgument, "%s: sendbuff %p (%zu bytes) and recvbuff %p (%zu bytes) overlap without being in place",
         a.function, a.input, row * e.input_rows, a.output, row * e.output_rows);
}

void set_op(const Arguments& a, const std::vector<PremultipliedSum>& ops, Operation& o) {
    const int op = static_cast<int>(a.op);
    if (op >= 0 && op < reduce_ops) {
        o.op = static_cast<ReduceOp>(op);
    } else if (op == tuttiAvg) {
        o.average = true;
    } else {
        const auto found = std::ranges::find(ops, op, &PremultipliedSum::number);
        if (found == ops.end())
            fail(tuttiInvalidArgument, "%s: op %d is unknown, of another communicator, or was destroyed", a.function,
                 op);
        const PremultipliedSum& its = *found;
        if (its.type != o.type)
            fail(tuttiInvalidArgument, "%s: the pre-multiplied sum was made for %s, the data is %s", a.function,
                 std::string(name_of(its.type)).c_str(), std::string(name_of(o.type)).c_str());
        o.premultiply = true;
        o.scalar = its.scalar;
        o.immediate = its.immediate;
    }
    o.call_op = static_cast<std::uint8_t>(o.premultiply ? 5 : op);
}

}  // namespace

static_assert(tuttiNumTypes == static_cast<int>(data_types), "the C types are DataType, number by number");
static_assert(tuttiMin == static_cast<int>(ReduceOp::min) && tuttiAvg == reduce_ops, "and the C ops ReduceOp");

DataType check_type(const char* function, tuttiDataType_t type) {
    if (static_cast<int>(type) < 0 || static_cast<int>(type) >= tuttiNumTypes)
        fail(tuttiInvalidArgument, "%s: type %d is unknown", function, static_cast<int>(type));
    return static_cast<DataType>(type);
}

void refuse_pointer(const Arguments& a, const char* name, const void* pointer) {
    if (pointer == nullptr) fail(tuttiInvalidArgument, "%s: %s is NULL", a.function, name);
    const auto type = static_cast<DataType>(a.type);
    fail(tuttiInvalidArgument, "%s: %s is %p, which is not aligned to the %zu bytes of %s", a.function, name, pointer,
         size_of(type), std::string(name_of(type)).c_str());
}

Operation check(const Arguments& a, const Communicator& comm, const std::vector<PremultipliedSum>& ops) {
    Operation o;
    o.collective = a.collective;
    o.type = check_type(a.function, a.type);
    o.count = a.count;
    o.root = a.root;
    o.input = a.input;
    o.output = a.output;
    if (a.root < 0 || a.root >= comm.ranks())
        fail(tuttiInvalidArgument, "%s: %s is %d; the communicator has ranks 0 to %d", a.function,
             has_root(a.collective) ? "root" : "peer", a.root, comm.ranks() - 1);
    if (reduces(a.collective)) set_op(a, ops, o);
    if (a.uneven != nullptr) {
        a.uneven->rows = check_rows(a, comm.rank(), comm.ranks());
        o.rows = a.uneven->rows.get();
        o.count = o.rows->longest;
        return o;
    }
    const std::size_t size = size_of(o.type);
    std::size_t all = 0;  // bytes of all ranks' rows; checks largest_row() without a division
    if (__builtin_mul_overflow(a.count, size * static_cast<std::size_t>(comm.ranks()), &all) || all > SIZE_MAX / 4)
        fail(tuttiInvalidArgument, "%s: a count of %zu is too large (negative, perhaps?)", a.function, a.count);
    check_buffers(a, comm.rank(), comm.ranks());
    return o;
}

[[gnu::hot]] void check_buffers(const Arguments& a, Rank rank, int ranks) {
    if (a.count == 0) return;
    const std::size_t size = size_of(static_cast<DataType>(a.type));
    const Usage e = usage_of(a, rank, ranks);
    if (e.reads) check_pointer(a, "sendbuff", a.input, size);
    if (e.writes) check_pointer(a, "recvbuff", a.output, size);
    if (e.reads && e.writes) check_overlap(a, e, a.count * size, rank);
}

}  // namespace tutti
