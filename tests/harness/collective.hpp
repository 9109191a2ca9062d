// One collective on the numbers of data.hpp, and what must come out of it.
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
    std::size_t shift = 0;         // elements that the buffers start after an aligned address
    EmulatedGpus* gpus = nullptr;  // buffers in the memory of `device` there
    int device = 0;
};

const char* name_of(Case::What what);

/// Makes the buffers, calls, checks every element and what lies around the buffers. Throws std::runtime_error.
void run_case(const Case& c, tuttiComm_t comm, int rank, int ranks, tuttiStream_t stream = nullptr);

/// A communicator of this process: its ranks' handles.
std::vector<tuttiComm_t> make_comms(int ranks, const char* transport = nullptr);

/// Whether all words are in the last error's text; comm: of that communicator, as tuttiGetLastError.
bool mentions(tuttiComm_t comm, std::initializer_list<const char*> words);

/// Throws with tuttiGetLastError() unless result is success.
void require_success(tuttiResult_t result, const char* what);

}  // namespace tutti::harness
