// Windows of libnccl.so.2, for puts and for kernels, and the operations on peers' windows.
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "nccl/layouts.hpp"
#include "nccl/shared.hpp"

namespace tutti::nccl {
namespace {

constexpr int page_shift = 12;
static_assert(1 << page_shift == NCCL_WIN_REQUIRED_ALIGNMENT);

}  // namespace

/// What kernels read of a communicator's windows, on its GPU, and a copy of it here.
class KernelWindows {
  public:
    static constexpr std::size_t most = 512;  // as many as a rank may have

    KernelWindows() = default;
    ~KernelWindows() { tuttiMemFree(there_); }
    KernelWindows(const KernelWindows&) = delete;

    /// Makes it, on the communicator's device. Once.
    ncclResult_t make(const ncclComm& comm) {
        int device = 0;
        void* memory = nullptr;
        ncclResult_t result = converted(tuttiCommDevice(comm.inner, &device));
        if (result == ncclSuccess) result = converted(tuttiCommUserRank(comm.inner, &rank_));
        if (result == ncclSuccess) result = converted(tuttiMemAllocDevice(&memory, sizeof(Image), device));
        if (result != ncclSuccess) return result;
        there_ = static_cast<Image*>(memory);
        for (std::size_t i = 0; i + 1 < std::size(here_.tables); ++i) here_.tables[i].next = &there_->tables[i + 1];
        return write(here_);
    }
    void* table() const { return there_; }
    std::byte* multicast_base() const { return base_; }

    /// Makes the handle by which kernels use the window from now on.
    ncclResult_t add(Window& window, ncclWindow_t& handle) {
        std::size_t i = 0;
        while (i < most && entry_of(i).window != nullptr) ++i;
        if (i == most)
            return refuse(ncclInvalidUsage, "the communicator has " + std::to_string(most) +
                                                " windows for kernels, as many as there may be: deregister some");
        if (window.multicast != nullptr && base_of(window) != (base_ == nullptr ? base_of(window) : base_))
            return refuse(ncclSystemError,
                          "CUDA has given the window addresses of multicast too far from those of other windows");
        if (window.multicast != nullptr) base_ = base_of(window);
        here_.windows[i] = {};
        here_.windows[i].host = &window;
        here_.windows[i].first = window.first;
        here_.windows[i].lsa_rank = here_.windows[i].world_rank = rank_;
        here_.windows[i].stride = static_cast<std::uint32_t>(window.stride >> 32);
        here_.windows[i].multicast = multicast_pages(window);
        here_.windows[i].segments = 1;
        ncclResult_t result = write(here_.windows[i]);
        if (result != ncclSuccess) return result;
        handle = &there_->windows[i];
        entry_of(i) = {reinterpret_cast<std::uintptr_t>(window.base), window.bytes, handle};
        result = write(entry_of(i));
        if (result != ncclSuccess) entry_of(i) = {};
        return result;
    }
    void remove(ncclWindow_t handle) {
        for (std::size_t i = 0; i < most; ++i) {
            if (entry_of(i).window != handle) continue;
            entry_of(i) = {};
            write(entry_of(i));
        }
    }

  private:
    struct Image {
        ncclDevCommWindowTable tables[most / 32];
        ncclWindow_vidmem windows[most];
    };
    ncclDevCommWindowTable::Entry& entry_of(std::size_t i) { return here_.tables[i / 32].entries[i % 32]; }
    /// Writes a part of here_ to its place on the GPU.
    template <class Part>
    ncclResult_t write(const Part& part) {
        const auto at = reinterpret_cast<const std::byte*>(&part) - reinterpret_cast<const std::byte*>(&here_);
        return converted(tuttiMemWrite(reinterpret_cast<std::byte*>(there_) + at, &part, sizeof part));
    }

    /// So that each window's pages have 32 bits.
    static std::byte* base_of(const Window& window) {
        constexpr std::uintptr_t reach = std::uintptr_t{1} << (32 + page_shift);
        return reinterpret_cast<std::byte*>(reinterpret_cast<std::uintptr_t>(window.multicast) / reach * reach);
    }

    int rank_ = 0;
    std::byte* base_ = nullptr;
    Image here_{};
    Image* there_ = nullptr;
};

namespace {

/// All windows, by handle.
struct All {
    std::mutex mutex;
    std::map<ncclWindow_t, std::shared_ptr<Window>> windows;
};
All& all() {
    static auto* const instance = new All;  // never destroyed: windows may be used at exit
    return *instance;
}

std::shared_ptr<Window> taken(ncclWindow_t handle) {
    const std::lock_guard lock(all().mutex);
    const auto found = all().windows.find(handle);
    if (found == all().windows.end()) return nullptr;
    std::shared_ptr<Window> window = std::move(found->second);
    all().windows.erase(found);
    return window;
}

/// A window for kernels that the communicator's user has not deregistered, the caller's now; nullptr if there is none.
std::shared_ptr<Window> left_by(const ncclComm& comm) {
    const std::lock_guard lock(all().mutex);
    for (auto it = all().windows.begin(); it != all().windows.end(); ++it)
        if (it->second->comm == &comm && it->second->first != nullptr)
            return std::move(all().windows.extract(it).mapped());
    return nullptr;
}

/// Gives a window that is open its handle, and keeps it.
ncclResult_t give_handle(const std::shared_ptr<Window>& window, ncclWindow_t& handle) {
    ncclWindow_t made = reinterpret_cast<ncclWindow_t>(window.get());
    ncclComm& comm = *window->comm;
    void *first = nullptr, *table = nullptr;
    if (has_addresses(&comm) &&
        tuttiCommWindowAddresses(comm.inner, window->inner, &first, &window->stride) == tuttiSuccess) {
        window->first = static_cast<std::byte*>(first);
        void* multicast = nullptr;
        if (has_multicast(&comm) && tuttiCommWindowMulticast(comm.inner, window->inner, &multicast) == tuttiSuccess)
            if (reinterpret_cast<std::uintptr_t>(multicast) % NCCL_WIN_REQUIRED_ALIGNMENT == 0)
                window->multicast = static_cast<std::byte*>(multicast);
        ncclResult_t result = window_table(comm, table);
        if (result == ncclSuccess) result = comm.kernel_windows->add(*window, made);
        if (result != ncclSuccess) return result;
    }
    const std::lock_guard lock(all().mutex);
    all().windows[made] = window;
    handle = made;
    return ncclSuccess;
}

}  // namespace

Window::~Window() {
    if (owned) tuttiMemFree(base);
}

Window* find_window(ncclWindow_t handle) {
    const std::lock_guard lock(all().mutex);
    const auto found = all().windows.find(handle);
    return found == all().windows.end() ? nullptr : found->second.get();
}

std::byte* multicast_base(const ncclComm& comm) {
    return comm.kernel_windows == nullptr ? nullptr : comm.kernel_windows->multicast_base();
}

std::uint32_t multicast_pages(const Window& window) {
    return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(window.multicast) >> page_shift);
}

ncclResult_t window_table(ncclComm& comm, void*& table) {
    if (comm.kernel_windows == nullptr) {
        const auto made = std::make_shared<KernelWindows>();
        if (const ncclResult_t result = made->make(comm); result != ncclSuccess) return result;
        comm.kernel_windows = made;
    }
    table = comm.kernel_windows->table();
    return ncclSuccess;
}

ncclResult_t register_window(std::shared_ptr<Window> window, int flags,
                             std::function<ncclResult_t(ncclWindow_t)> done) {
    Window& w = *window;
    const auto begin = [&w, flags] {
        return converted(tuttiCommWindowRegister(inner(w.comm), w.base, w.bytes, &w.inner, flags));
    };
    return begin_and_finish(begin, [window = std::move(window), done = std::move(done)](ncclResult_t how) {
        if (window->inner == nullptr) return how;  // the group issued nothing
        ncclWindow_t handle = nullptr;
        ncclResult_t made = how == ncclInProgress ? ncclSuccess : how;
        if (made == ncclSuccess)
            made = if_memory([&] {
                const ncclResult_t given = give_handle(window, handle);
                return given == ncclSuccess ? done(handle) : given;
            });
        if (made == ncclSuccess) return made;
        const std::string why = refusal();
        if (handle != nullptr)
            deregister_window(window->comm, handle);
        else
            tuttiCommWindowDeregister(window->comm->inner, window->inner);
        return made == how || why.empty() ? made : refuse(made, why);
    });
}

ncclResult_t deregister_window(ncclComm_t comm, ncclWindow_t handle) {
    const Window* const window = find_window(handle);
    const ncclResult_t result =
        converted(tuttiCommWindowDeregister(inner(comm), window == nullptr ? nullptr : window->inner));
    if (result != ncclSuccess) return result;
    const std::shared_ptr<Window> ended = taken(handle);
    if (ended != nullptr && ended->first != nullptr && comm->kernel_windows != nullptr)
        comm->kernel_windows->remove(handle);
    return ncclSuccess;
}

}  // namespace tutti::nccl

using namespace tutti::nccl;

ncclComm::~ncclComm() {
    while (const std::shared_ptr<Window> left = left_by(*this)) tuttiCommWindowDeregister(inner, left->inner);
}
