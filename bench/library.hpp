// A library of collectives as a table of functions: Tutti's own, or one with NCCL's interface that is loaded at run
// time to race against it. Types, values and arguments of the two are the same.
#pragma once

#include <tutti/tutti.h>

#include <memory>
#include <string>

namespace perf {

struct Library {
    std::string name;  // for columns and texts
    std::string path;  // empty: linked
    int version = 0;   // as the library says

    decltype(&tuttiAllReduce) all_reduce = nullptr;
    decltype(&tuttiReduceScatter) reduce_scatter = nullptr;
    decltype(&tuttiAllGather) all_gather = nullptr;
    decltype(&tuttiBroadcast) broadcast = nullptr;
    decltype(&tuttiReduce) reduce = nullptr;
    decltype(&tuttiAlltoAll) all_to_all = nullptr;  // nullptr: by pairs; these four
    decltype(&tuttiAlltoAllv) all_to_allv = nullptr;
    decltype(&tuttiGather) gather = nullptr;
    decltype(&tuttiScatter) scatter = nullptr;
    decltype(&tuttiSend) send = nullptr;
    decltype(&tuttiRecv) receive = nullptr;
    decltype(&tuttiGroupStart) group_start = nullptr;
    decltype(&tuttiGroupEnd) group_end = nullptr;
    decltype(&tuttiRedOpCreatePreMulSum) create_op = nullptr;
    decltype(&tuttiRedOpDestroy) destroy_op = nullptr;
    decltype(&tuttiGetUniqueId) get_unique_id = nullptr;
    decltype(&tuttiCommInitRank) init_rank = nullptr;
    decltype(&tuttiCommDestroy) destroy = nullptr;
    decltype(&tuttiCommGetAsyncError) async_error = nullptr;
    decltype(&tuttiGetErrorString) error_string = nullptr;
    decltype(&tuttiGetLastError) last_error = nullptr;

    /// What went wrong in the library's words.
    std::string text_of(tuttiResult_t result, tuttiComm_t comm) const;

    /// Does nothing on success. Otherwise prints who and why and ends the process: see World's expect().
    void expect(tuttiResult_t result, tuttiComm_t comm, int rank) const;
};

const Library& own_library();

/// what: "nccl", which is libnccl.so.2 wherever the loader finds it, or "nccl=PATH". Ends the process with 6 if it
/// can't be loaded.
std::unique_ptr<const Library> load_library(const std::string& what);

}  // namespace perf
