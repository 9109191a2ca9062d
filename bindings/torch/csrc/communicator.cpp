#include "communicator.hpp"

#include <algorithm>
#include <climits>
#include <cstring>
#include <thread>

namespace tutti_torch {
namespace {

int whole(Milliseconds time) {
    return static_cast<int>(std::clamp<std::int64_t>(time.count(), 1, INT_MAX));
}

const char* text(const std::optional<std::string>& setting) {
    return setting ? setting->c_str() : nullptr;
}

/// Valid as long as the settings are.
tuttiConfig_t options(Milliseconds timeout, Milliseconds operation_timeout, const Settings& settings, int device) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.algorithm = text(settings.algorithm);
    config.transport = text(settings.transport);
    config.programs = text(settings.programs);
    config.channels = settings.channels.value_or(TUTTI_UNDEF_INT);
    config.threads = settings.threads.value_or(TUTTI_UNDEF_INT);
    if (settings.check) config.check = *settings.check;
    if (settings.reproducible) config.reproducible = *settings.reproducible;
    config.timeoutMs = whole(operation_timeout);
    config.initTimeoutMs = whole(timeout);
    config.device = device;
    config.commName = "torch";
    config.blocking = 1;
    return config;
}

}  // namespace

void fail(const std::string& text) {
    throw BackendError({__func__, __FILE__, static_cast<std::uint32_t>(__LINE__)}, text);
}

void must(tuttiResult_t result, const char* operation) {
    if (result == tuttiSuccess) return;
    // "timeout" is the word that scripts and PyTorch's tests look for.
    fail(c10::str("tutti: ", operation, ": ", result == tuttiTimeout ? "its timeout has passed: " : "",
                  tuttiGetLastError(nullptr)));
}

Communicator::Communicator(const tuttiUniqueId& id, int rank, int size, Milliseconds timeout,
                           Milliseconds operation_timeout, const Settings& settings, int device) {
    const tuttiConfig_t config = options(timeout, operation_timeout, settings, device);
    must(tuttiCommInitRankConfig(&comm_, size, id, rank, &config), "init_process_group");
}

Communicator::~Communicator() {
    tuttiCommDestroy(comm_);
}

void Communicator::revoke() {
    tuttiCommRevoke(comm_, TUTTI_REVOKE_DEFAULT);
}

tuttiComm_t Communicator::shrunk(const std::vector<int>& excluded, bool abort, Milliseconds timeout,
                                 Milliseconds operation_timeout, const Settings& settings) {
    const tuttiConfig_t config = options(timeout, operation_timeout, settings, TUTTI_DEVICE_CPU);
    tuttiComm_t smaller = nullptr;
    must(tuttiCommShrink(comm_, excluded.data(), static_cast<int>(excluded.size()), &smaller, &config,
                         abort ? TUTTI_SHRINK_ABORT : TUTTI_SHRINK_DEFAULT),
         "shrink_group");
    return smaller;
}

void Communicator::check(const char* operation) const {
    tuttiResult_t error = tuttiSuccess;
    must(tuttiCommGetAsyncError(comm_, &error), operation);
    if (error != tuttiSuccess) fail(c10::str("tutti: ", operation, ": ", tuttiGetLastError(comm_)));
}

tuttiResult_t Communicator::error() const {
    tuttiResult_t error = tuttiSuccess;
    const tuttiResult_t asked = tuttiCommGetAsyncError(comm_, &error);
    return asked == tuttiSuccess ? error : asked;
}

void await_key(c10d::Store& store, const std::string& key, Milliseconds timeout, const std::function<bool()>& stop) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point deadline = Clock::now() + timeout;
    for (Milliseconds pause{1}; !store.check({key}); pause = std::min(pause * 2, Milliseconds(20))) {
        if (stop()) fail("tutti: the process group is closed");
        if (Clock::now() > deadline)
            fail(c10::str("tutti: the store has no '", key, "' after ", timeout.count(),
                          " ms: the rank that writes it has not come this far. Look at its output"));
        std::this_thread::sleep_for(pause);
    }
}

tuttiUniqueId meet(c10d::Store& store, const std::string& key, bool first, Milliseconds timeout,
                   const std::function<bool()>& stop) {
    tuttiUniqueId id;
    if (first) {
        must(tuttiGetUniqueId(&id), "init_process_group");
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(id.internal);
        store.set(key, std::vector<std::uint8_t>(bytes, bytes + sizeof id.internal));
    } else {
        await_key(store, key, timeout, stop);
        const std::vector<std::uint8_t> bytes = store.get(key);
        if (bytes.size() != sizeof id.internal) fail("tutti: the store's '" + key + "' is no unique id");
        std::memcpy(id.internal, bytes.data(), bytes.size());
    }
    return id;
}

namespace {

class SharedMemory final : public c10::Allocator {
  public:
    c10::DataPtr allocate(std::size_t bytes) TUTTI_CONST_BEFORE_2_3 override {
        void* data = nullptr;
        if (bytes > 0) must(tuttiMemAlloc(&data, bytes), "memory that peers can map");
        return {data, data, [](void* at) { tuttiMemFree(at); }, c10::Device(at::kCPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override {
        return [](void* at) { tuttiMemFree(at); };
    }
    void copy_data(void* to, const void* from, std::size_t bytes) const TUTTI_OVERRIDE_SINCE_2_3 {
        std::memcpy(to, from, bytes);
    }
};

}  // namespace

std::shared_ptr<c10::Allocator> shared_memory() {
    static const auto allocator = std::make_shared<SharedMemory>();
    return allocator;
}

at::Tensor in_shared_memory(std::int64_t elements, at::TensorOptions options) {
    const std::size_t bytes = static_cast<std::size_t>(elements) * options.dtype().itemsize();
    c10::DataPtr data = shared_memory()->allocate(bytes);
    auto* const at = data.get();
    return at::from_blob(
        at, {elements}, [held = std::make_shared<c10::DataPtr>(std::move(data))](void*) {}, options);
}

Memory::~Memory() {
    if (device_.is_cpu()) tuttiMemFree(data_);
}

void* Memory::at_least(std::size_t bytes) {
    if (bytes > bytes_ && !device_.is_cpu()) {
        on_device_ =
            at::empty({static_cast<std::int64_t>(bytes)}, at::TensorOptions().dtype(at::kByte).device(device_));
        data_ = on_device_.data_ptr();
        bytes_ = bytes;
    }
    if (bytes > bytes_) {
        tuttiMemFree(data_);
        data_ = nullptr;
        bytes_ = 0;
        must(tuttiMemAlloc(&data_, bytes), "memory for tensors that are not contiguous");
        bytes_ = bytes;
    }
    return data_;
}

}  // namespace tutti_torch
