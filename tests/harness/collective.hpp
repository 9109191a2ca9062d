// Runs one collective on the data of data.hpp and checks the results.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <vector>

#include "tutti/tutti.h"

namespace tutti::harness {

class EmulatedGpus;

enum class Where { out_of_place, in_place };

/// A call as a test describes it.
struct Case {
    enum class What { all_reduce, reduce_scatter, all_gather, broadcast, reduce, all_to_all, gather, scatter } what;
    std::size_t count;
    tuttiDataType_t type = tuttiFloat32;
    tuttiRedOp_t op = tuttiSum;
    int root = 0;
    Where where = Where::out_of_place;
    bool mapped = false;           // buffers of tuttiMemAlloc
    std::size_t shift = 0;         // offset of the buffers from an aligned address, in elements
    EmulatedGpus* gpus = nullptr;  // buffers are in the memory of `device`; nullptr for host memory
    int device = 0;
};

const char* name_of(Case::What what);

/// Makes the buffers, calls the collective, and checks every element and the memory around the buffers. Throws
/// std::runtime_error.
void run_case(const Case& c, tuttiComm_t comm, int rank, int ranks, tuttiStream_t stream = nullptr);

/// Makes a communicator whose ranks are all in this process. Returns their handles.
std::vector<tuttiComm_t> make_comms(int ranks, const char* transport = nullptr, int timeout_ms = 0);

/// Throws if there is none.
tuttiUniqueId new_id();

/// True if the text of tuttiGetLastError(comm) has all words.
bool mentions(tuttiComm_t comm, std::initializer_list<const char*> words);
/// Likewise for the calling thread's last error.
inline bool says(std::initializer_list<const char*> words) {
    return mentions(nullptr, words);
}
inline bool says(const char* words) {
    return says({words});
}

/// Throws with tuttiGetLastError() unless result is success.
void must_succeed(tuttiResult_t result, const char* what);

}  // namespace tutti::harness
