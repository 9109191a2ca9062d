#include "library.hpp"

#include <dlfcn.h>

#include "world.hpp"

namespace perf {

namespace {

/// Functions of NCCL's interface by name. optional ones may be missing.
class Loader {
  public:
    explicit Loader(const std::string& path) : path_(path) {
        // Its own symbols before ours, and none of them for us.
        handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
        if (handle_ == nullptr) fail(exit_usage, "--vs: " + std::string(dlerror()));
    }
    template <class Function>
    void optional(Function& to, const char* name) const {
        to = reinterpret_cast<Function>(dlsym(handle_, name));
    }
    template <class Function>
    void required(Function& to, const char* name) const {
        optional(to, name);
        if (to == nullptr) fail(exit_usage, "--vs: " + path_ + " has no function " + name);
    }

  private:
    std::string path_;
    void* handle_;
};

}  // namespace

std::string Library::text_of(tuttiResult_t result, tuttiComm_t comm) const {
    const char* detail = last_error == nullptr ? nullptr : last_error(comm);
    const std::string text = detail == nullptr ? "" : detail;
    if (path.empty()) return text.empty() ? error_string(result) : text;
    return name + ": " + error_string(result) + (text.empty() ? "" : ": " + text);
}

void Library::expect(tuttiResult_t result, tuttiComm_t comm, int rank) const {
    if (result == tuttiSuccess) return;
    fail(result == tuttiTimeout ? exit_timeout : exit_library,
         "rank " + std::to_string(rank) + ": " + text_of(result, comm));
}

const Library& own_library() {
    static const Library own = [] {
        Library l;
        l.name = "tutti";
        tuttiGetVersion(&l.version);
        l.all_reduce = tuttiAllReduce;
        l.reduce_scatter = tuttiReduceScatter;
        l.all_gather = tuttiAllGather;
        l.broadcast = tuttiBroadcast;
        l.reduce = tuttiReduce;
        l.all_to_all = tuttiAlltoAll;
        l.all_to_allv = tuttiAlltoAllv;
        l.gather = tuttiGather;
        l.scatter = tuttiScatter;
        l.send = tuttiSend;
        l.receive = tuttiRecv;
        l.group_start = tuttiGroupStart;
        l.group_end = tuttiGroupEnd;
        l.create_op = tuttiRedOpCreatePreMulSum;
        l.destroy_op = tuttiRedOpDestroy;
        l.get_unique_id = tuttiGetUniqueId;
        l.init_rank = tuttiCommInitRank;
        l.destroy = tuttiCommDestroy;
        l.async_error = tuttiCommGetAsyncError;
        l.error_string = tuttiGetErrorString;
        l.last_error = tuttiGetLastError;
        return l;
    }();
    return own;
}

std::unique_ptr<const Library> load_library(const std::string& what) {
    auto l = std::make_unique<Library>();
    const std::size_t equals = what.find('=');
    l->name = what.substr(0, equals);
    l->path = equals == std::string::npos ? "libnccl.so.2" : what.substr(equals + 1);
    const Loader from(l->path);
    from.required(l->all_reduce, "ncclAllReduce");
    from.required(l->reduce_scatter, "ncclReduceScatter");
    from.required(l->all_gather, "ncclAllGather");
    from.required(l->broadcast, "ncclBroadcast");
    from.required(l->reduce, "ncclReduce");
    from.optional(l->all_to_all, "ncclAlltoAll");
    from.optional(l->gather, "ncclGather");
    from.optional(l->scatter, "ncclScatter");
    from.required(l->send, "ncclSend");
    from.required(l->receive, "ncclRecv");
    from.required(l->group_start, "ncclGroupStart");
    from.required(l->group_end, "ncclGroupEnd");
    from.required(l->create_op, "ncclRedOpCreatePreMulSum");
    from.required(l->destroy_op, "ncclRedOpDestroy");
    from.required(l->get_unique_id, "ncclGetUniqueId");
    from.required(l->init_rank, "ncclCommInitRank");
    from.required(l->destroy, "ncclCommDestroy");
    from.required(l->async_error, "ncclCommGetAsyncError");
    from.required(l->error_string, "ncclGetErrorString");
    from.optional(l->last_error, "ncclGetLastError");
    decltype(&tuttiGetVersion) version = nullptr;
    from.required(version, "ncclGetVersion");
    if (version(&l->version) != tuttiSuccess) l->version = 0;
    return l;
}

}  // namespace perf
