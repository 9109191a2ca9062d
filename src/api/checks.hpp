// What a call's arguments must satisfy before anything is issued.
#pragma once

#include <cstdint>

#include "api/handles.hpp"

namespace tutti {

/// One buffer's rows in an uneven collective as the user gave them.
struct RowArguments {
    enum class Form {
        one,     // a row: *counts is its length
        own,     // a row, as long as this rank's of the other buffer
        packed,  // a row per rank, one after the other
        placed,  // a row per rank, with displacements
    } form;
    const char* counts_name;
    const std::size_t* counts;
    const char* displs_name = nullptr;
    const std::size_t* displs = nullptr;
};
struct UnevenArguments {
    RowArguments input, output;
    std::shared_ptr<const Rows> rows = nullptr;  // what check() makes of them; operations point there
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
    UnevenArguments* uneven = nullptr;  // instead of count
};

/// Elements, such that no sum of rows of all ranks, counted in bytes, overflows.
constexpr std::size_t largest_row(DataType type, int ranks) {
    return SIZE_MAX / 4 / size_of(type) / static_cast<std::size_t>(ranks);
}

/// Throws tuttiInvalidArgument that names the function, the argument and what was expected. ops may only be used for
/// the call.
Operation check(const Arguments& arguments, const Communicator& comm, const std::vector<PremultipliedSum>& ops);

DataType check_type(const char* function, tuttiDataType_t type);
[[noreturn]] void refuse_pointer(const Arguments& arguments, const char* name, const void* pointer);
/// alignment: a power of two.
inline void check_pointer(const Arguments& arguments, const char* name, const void* pointer, std::size_t alignment) {
    if (pointer == nullptr || (reinterpret_cast<std::uintptr_t>(pointer) & (alignment - 1)) != 0) [[unlikely]]
        refuse_pointer(arguments, name, pointer);
}

/// The part of check() that concerns uneven collectives: lengths, displacements, pointers, overlaps.
std::shared_ptr<const Rows> check_rows(const Arguments& arguments, Rank rank, int ranks);

}  // namespace tutti
