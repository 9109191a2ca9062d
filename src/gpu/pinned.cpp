#include "gpu/pinned.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "base/result.hpp"
#include "transport/arena.hpp"

namespace tutti::gpu {
namespace {

struct PinnedPages {
    std::mutex mutex;                 // guards users
    std::map<std::byte*, int> users;  // number of Pinned, by the first byte of their pages
};

PinnedPages& pinned_pages() {
    static PinnedPages* instance = new PinnedPages;  // never destroyed: communicators may be destroyed at exit
    return *instance;
}

}  // namespace

Pinned::Pinned(Gpus& gpus, std::span<std::byte> memory) : gpus_(gpus) {
    const auto at = reinterpret_cast<std::uintptr_t>(memory.data()), begin = at / page_bytes * page_bytes;
    begin_ = memory.data() - (at - begin);
    const std::lock_guard lock(pinned_pages().mutex);
    int& users = pinned_pages().users[begin_];
    try {
        if (users == 0) gpus.pin(begin_, whole_pages(at - begin + memory.size()));
    } catch (const Error& error) {
        pinned_pages().users.erase(begin_);
        fail(error.code(), "%zu bytes of host memory for connections of a GPU: %s (see `ulimit -l`)", memory.size(),
             error.what());
    }
    ++users;
}

Pinned::~Pinned() {
    if (begin_ == nullptr) return;
    const std::lock_guard lock(pinned_pages().mutex);
    const auto found = pinned_pages().users.find(begin_);
    if (--found->second > 0) return;
    pinned_pages().users.erase(found);
    gpus_.unpin(begin_);
}

Pinned::Pinned(Pinned&& other) noexcept : gpus_(other.gpus_), begin_(std::exchange(other.begin_, nullptr)) {}

}  // namespace tutti::gpu
