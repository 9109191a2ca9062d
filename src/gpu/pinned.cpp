#include "gpu/pinned.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "base/result.hpp"
#include "transport/arena.hpp"

namespace tutti::gpu {
namespace {

struct Registry {
    std::mutex mutex;
    std::map<std::byte*, int> users;  // of pages, by the first byte
};

Registry& registry() {
    static Registry* instance = new Registry;  // outlives every communicator, also those destroyed at exit
    return *instance;
}

}  // namespace

Pinned::Pinned(Gpus& gpus, std::span<std::byte> memory) : gpus_(gpus) {
    const auto at = reinterpret_cast<std::uintptr_t>(memory.data()), begin = at / page_bytes * page_bytes;
    begin_ = memory.data() - (at - begin);
    const std::lock_guard lock(registry().mutex);
    int& users = registry().users[begin_];
    try {
        if (users == 0) gpus.pin(begin_, whole_pages(at - begin + memory.size()));
    } catch (const Error& error) {
        registry().users.erase(begin_);
        fail(error.code(), "%zu bytes of host memory for connections of a GPU: %s (see `ulimit -l`)", memory.size(),
             error.what());
    }
    ++users;
}

Pinned::~Pinned() {
    if (begin_ == nullptr) return;
    const std::lock_guard lock(registry().mutex);
    const auto found = registry().users.find(begin_);
    if (--found->second > 0) return;
    registry().users.erase(found);
    gpus_.unpin(begin_);
}

Pinned::Pinned(Pinned&& other) noexcept : gpus_(other.gpus_), begin_(std::exchange(other.begin_, nullptr)) {}

}  // namespace tutti::gpu
