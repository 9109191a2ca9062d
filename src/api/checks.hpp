// Checks of a call's arguments, before anything is issued.
#pragma once

#include <cstdint>

#include "api/handles.hpp"

namespace tutti {

/// The rows of one buffer in an uneven collective, as the user gave them.
struct RowArguments {
    enum class Form {
        one,     // one row of *counts elements
        own,     // one row, as long as this rank's in the other buffer
        packed,  // a row for each rank, one after the other
        placed,  // a row for each rank, at its displacement
    } form;
    const char* counts_name;
    const std::size_t* counts;
    const char* displs_name = nullptr;
    const std::size_t* displs = nullptr;
};
struct UnevenArguments {
    RowArguments input, output;
    std::shared_ptr<const Rows> rows = nullptr;  // set by check(); the operation points to it
};

/// The arguments of a collective, send or receive as the user gave them.
struct Arguments {
    const char* function;
    Collective collective;
    const void* input;
    void* output;
    std::size_t count;
    tuttiDataType_t type;
    tuttiRedOp_t op;
    int root;
    UnevenArguments* uneven = nullptr;  // not null: an uneven collective, and count is unused
};

/// The most elements of a row, so that no sum over all ranks' rows, in bytes, overflows.
constexpr std::size_t largest_row(DataType type, int ranks) {
    return SIZE_MAX / 4 / size_of(type) / static_cast<std::size_t>(ranks);
}

/// The operation that the arguments ask for. ops: the communicator's pre-multiplied sums, used during the call only.
/// Throws tuttiInvalidArgument, which names the function, the argument and what was expected.
Operation check(const Arguments& arguments, const Communicator& comm, const std::vector<PremultipliedSum>& ops);

/// Whether the arguments ask for an operation that differs from that one, which check() has made, at most in its
/// buffers. Then check_buffers() is all of check() that is left to do. Not for pre-multiplied sums.
inline bool is_like(const Arguments& arguments, const Operation& checked) {
    return arguments.count == checked.count && arguments.collective == checked.collective &&
           static_cast<int>(arguments.type) == static_cast<int>(checked.type) &&  // a DataType has fewer bits
           static_cast<int>(arguments.op) == checked.call_op && arguments.root == checked.root &&
           arguments.uneven == nullptr;
}
void check_buffers(const Arguments& arguments, Rank rank, int ranks);

DataType check_type(const char* function, tuttiDataType_t type);
[[noreturn]] void refuse_pointer(const Arguments& arguments, const char* name, const void* pointer);
/// alignment: a power of two.
inline void check_pointer(const Arguments& arguments, const char* name, const void* pointer, std::size_t alignment) {
    if (pointer == nullptr || (reinterpret_cast<std::uintptr_t>(pointer) & (alignment - 1)) != 0) [[unlikely]]
        refuse_pointer(arguments, name, pointer);
}

/// The part of check() for uneven collectives: lengths, displacements, pointers, overlaps. Throws as check().
std::shared_ptr<const Rows> check_rows(const Arguments& arguments, Rank rank, int ranks);

}  // namespace tutti
