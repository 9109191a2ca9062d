#include "harness/collective.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "harness/data.hpp"
#include "harness/emulated_gpus.hpp"
#include "harness/guarded.hpp"
#include "kernels/convert.hpp"

namespace tutti::harness {
namespace {

constexpr std::size_t guard = 64;

/// count elements with guards around them; private memory also has a page without access at one end.
class Buffer {
  public:
    Buffer(std::size_t count, std::size_t size, const Case& c, Guarded::At end)
        : bytes_(count * size), mapped_(c.mapped), gpus_(c.gpus), device_(c.device), offset_(c.shift * size) {
        if (gpus_ == nullptr && !mapped_) {
            base_ = own_.emplace(offset_ + bytes_, end).data();
            return;
        }
        offset_ += guard;
        const std::size_t all = offset_ + bytes_ + 2 * guard;
        if (gpus_ != nullptr) {
            base_ = reinterpret_cast<unsigned char*>(gpus_->allocate(device_, all));
        } else {
            void* p = nullptr;
            must_succeed(tuttiMemAlloc(&p, all), "tuttiMemAlloc");
            base_ = static_cast<unsigned char*>(p);
        }
        std::memset(base_, untouched_byte, all);
        size_ = all;
    }
    Buffer(const Buffer&) = delete;
    ~Buffer() {
        if (gpus_ != nullptr)
            gpus_->free(device_, reinterpret_cast<std::byte*>(base_));
        else if (mapped_)
            tuttiMemFree(base_);
    }
    unsigned char* data() { return base_ + offset_; }
    bool guards_hold() const {
        if (own_) return own_->untouched(offset_, bytes_);
        const unsigned char* const end = base_ + offset_ + bytes_;
        return untouched(base_, base_ + offset_) && untouched(end, base_ + size_);
    }

  private:
    std::size_t bytes_, size_ = 0;
    bool mapped_;
    EmulatedGpus* gpus_;
    int device_;
    std::size_t offset_;
    std::optional<Guarded> own_;
    unsigned char* base_ = nullptr;
};

/// The kind of a case's data. If the case reduces, the op decides.
Data data_of(const Case& c) {
    const bool reduces =
        c.what == Case::What::all_reduce || c.what == Case::What::reduce_scatter || c.what == Case::What::reduce;
    return {c.type, reduces ? std::optional(c.op) : std::nullopt};
}

struct Sizes {
    std::size_t in, out;
    bool reads, writes;
};

Sizes sizes_of(const Case& c, int rank, int ranks) {
    const auto n = static_cast<std::size_t>(ranks);
    switch (c.what) {
        case Case::What::all_reduce:
            return {c.count, c.count, true, true};
        case Case::What::reduce_scatter:
            return {c.count * n, c.count, true, true};
        case Case::What::all_gather:
            return {c.count, c.count * n, true, true};
        case Case::What::broadcast:
            return {c.count, c.count, rank == c.root, true};
        case Case::What::reduce:
            return {c.count, c.count, true, rank == c.root};
        case Case::What::all_to_all:
            return {c.count * n, c.count * n, true, true};
        case Case::What::gather:
            return {c.count, c.count * n, true, rank == c.root};
        case Case::What::scatter:
            return {c.count * n, c.count, rank == c.root, true};
    }
    return {};
}

/// What the rank must have got.
std::vector<unsigned char> expected(const Case& c, int rank, int ranks, std::size_t elements) {
    const Data data = data_of(c);
    const std::size_t size = size_of(static_cast<DataType>(c.type)), mine = static_cast<std::size_t>(rank) * c.count;
    std::vector<unsigned char> all(elements * size);
    const auto from_each = [&](std::size_t first) {
        for (int r = 0; r < ranks; ++r)
            data.put_input(r, first, c.count, all.data() + static_cast<std::size_t>(r) * c.count * size);
    };
    switch (c.what) {
        case Case::What::all_reduce:
        case Case::What::reduce:
            data.put_result(ranks, 0, c.count, all.data());
            break;
        case Case::What::reduce_scatter:
            data.put_result(ranks, mine, c.count, all.data());
            break;
        case Case::What::all_gather:
        case Case::What::gather:
            from_each(0);
            break;
        case Case::What::all_to_all:
            from_each(mine);
            break;
        case Case::What::scatter:
            data.put_input(c.root, mine, c.count, all.data());
            break;
        case Case::What::broadcast:
            data.put_input(c.root, 0, c.count, all.data());
            break;
    }
    return all;
}

/// The first element of `got` that differs from `want`, as text.
std::string first_difference(DataType type, const std::vector<unsigned char>& want, const unsigned char* got) {
    const std::size_t size = size_of(type);
    std::size_t i = 0;
    while (std::memcmp(&want[i * size], got + i * size, size) == 0) ++i;
    return "element " + std::to_string(i) + " of " + std::to_string(want.size() / size) + ": " +
           std::to_string(load_as_double(type, got + i * size)) + ", expected " +
           std::to_string(load_as_double(type, &want[i * size]));
}

tuttiResult_t call(const Case& c, const void* in, void* out, tuttiComm_t comm, tuttiStream_t stream) {
    switch (c.what) {
        case Case::What::all_reduce:
            return tuttiAllReduce(in, out, c.count, c.type, c.op, comm, stream);
        case Case::What::reduce_scatter:
            return tuttiReduceScatter(in, out, c.count, c.type, c.op, comm, stream);
        case Case::What::all_gather:
            return tuttiAllGather(in, out, c.count, c.type, comm, stream);
        case Case::What::broadcast:
            return tuttiBroadcast(in, out, c.count, c.type, c.root, comm, stream);
        case Case::What::reduce:
            return tuttiReduce(in, out, c.count, c.type, c.op, c.root, comm, stream);
        case Case::What::all_to_all:
            return tuttiAlltoAll(in, out, c.count, c.type, comm, stream);
        case Case::What::gather:
            return tuttiGather(in, out, c.count, c.type, c.root, comm, stream);
        case Case::What::scatter:
            return tuttiScatter(in, out, c.count, c.type, c.root, comm, stream);
    }
    return tuttiInternalError;
}

}  // namespace

const char* name_of(Case::What what) {
    constexpr const char* names[] = {"all_reduce", "reduce_scatter", "all_gather", "broadcast",
                                     "reduce",     "all_to_all",     "gather",     "scatter"};
    return names[static_cast<int>(what)];
}

void must_succeed(tuttiResult_t result, const char* what) {
    if (result != tuttiSuccess) throw std::runtime_error(std::string(what) + ": " + tuttiGetLastError(nullptr));
}

void run_case(const Case& c, tuttiComm_t comm, int rank, int ranks, tuttiStream_t stream) {
    const auto type = static_cast<DataType>(c.type);
    const std::size_t size = size_of(type);
    const Sizes s = sizes_of(c, rank, ranks);
    const bool in_place = c.where == Where::in_place && c.what != Case::What::all_to_all;  // which has none
    const Guarded::At ends[] = {Guarded::At::back, Guarded::At::front};
    Buffer big(std::max(s.in, s.out), size, c, ends[rank % 2]);
    std::unique_ptr<Buffer> second;
    unsigned char *in = big.data(), *out = big.data();
    if (!in_place) {
        second = std::make_unique<Buffer>(s.out, size, c, ends[(rank + 1) % 2]);
        out = second->data();
    } else if (c.what == Case::What::reduce_scatter || (c.what == Case::What::scatter && rank == c.root)) {
        out = in + static_cast<std::size_t>(rank) * c.count * size;
    } else if (c.what == Case::What::all_gather || (c.what == Case::What::gather && rank == c.root)) {
        in = out + static_cast<std::size_t>(rank) * c.count * size;
    }
    if (s.reads) data_of(c).put_input(rank, 0, s.in, in);
    must_succeed(call(c, s.reads ? in : nullptr, s.writes ? out : nullptr, comm, stream), name_of(c.what));
    if (c.gpus != nullptr) {
        c.gpus->synchronize_stream(stream);
        tuttiResult_t befallen = tuttiSuccess;
        must_succeed(tuttiCommGetAsyncError(comm, &befallen), "tuttiCommGetAsyncError");
        if (befallen != tuttiSuccess) throw std::runtime_error(tuttiGetLastError(comm));
    } else if (stream != nullptr) {
        must_succeed(tuttiStreamSynchronize(stream), "tuttiStreamSynchronize");
    }
    const std::vector<unsigned char> want = s.writes ? expected(c, rank, ranks, s.out) : std::vector<unsigned char>();
    if (!want.empty() && std::memcmp(want.data(), out, want.size()) != 0)
        throw std::runtime_error(std::string(name_of(c.what)) + " rank " + std::to_string(rank) + " " +
                                 first_difference(type, want, out));
    if (!big.guards_hold() || (second && !second->guards_hold()))
        throw std::runtime_error(std::string(name_of(c.what)) + " wrote outside of its buffer");
}

std::vector<tuttiComm_t> make_comms(int ranks, const char* transport, int timeout_ms) {
    std::vector<tuttiComm_t> comms(static_cast<std::size_t>(ranks));
    if (transport == nullptr) return must_succeed(tuttiCommInitAll(comms.data(), ranks, nullptr), "init"), comms;
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.transport = transport;
    if (timeout_ms > 0) config.timeoutMs = timeout_ms;
    const tuttiUniqueId id = new_id();
    must_succeed(tuttiGroupStart(), "tuttiGroupStart");
    for (int rank = 0; rank < ranks; ++rank)
        must_succeed(tuttiCommInitRankConfig(&comms[static_cast<std::size_t>(rank)], ranks, id, rank, &config),
                     "tuttiCommInitRankConfig");
    must_succeed(tuttiGroupEnd(), "tuttiGroupEnd");
    return comms;
}

tuttiUniqueId new_id() {
    tuttiUniqueId id;
    must_succeed(tuttiGetUniqueId(&id), "tuttiGetUniqueId");
    return id;
}

bool mentions(tuttiComm_t comm, std::initializer_list<const char*> words) {
    const std::string text = tuttiGetLastError(comm);
    for (const char* word : words)
        if (text.find(word) == std::string::npos) return false;
    return true;
}

}  // namespace tutti::harness
