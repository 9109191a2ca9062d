// A kind of device for torch, "privateuseone", that behaves as CUDA's: memory and streams are emulated GPUs', what is
// enqueued runs later on a thread of the stream, events order streams, and freed memory is overwritten at once when the
// stream it was made on, and those that it was recorded on, have come so far. Copies, fill() and what is freed are
// enqueued; all other operations wait for the stream and run on the CPU.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/NativeFunctions.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/extension.h>
#include <torch/library.h>
#include <torch/version.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "gpus.h"

namespace {

constexpr auto kKind = c10::DeviceType::PrivateUse1;

void enqueue(int device, void* stream, std::function<void()> work) {
    emulated_call(
        device,
        [](void* argument) {
            const std::unique_ptr<std::function<void()>> own(static_cast<std::function<void()>*>(argument));
            (*own)();
        },
        new std::function<void()>(std::move(work)), stream);
}

// ------------------------------------------------------------------------------------------------------------- streams

std::mutex streams_mutex;
std::map<int, void*> default_streams;
thread_local int current_device = 0;
thread_local std::map<int, c10::StreamId> current_streams;

/// Stream 0 is the default one, others have the numbers that they have as pointers.
void* handle_of(c10::Stream stream) {
    if (stream.id() != 0) return reinterpret_cast<void*>(stream.id());
    const std::lock_guard<std::mutex> lock(streams_mutex);
    void*& made = default_streams[stream.device_index()];
    if (made == nullptr) made = emulated_stream(stream.device_index());
    return made;
}

c10::Device with_index(c10::Device device) {
    return device.has_index() ? device : c10::Device(kKind, static_cast<c10::DeviceIndex>(current_device));
}

c10::Stream current_stream(c10::Device device) {
    device = with_index(device);
    return c10::Stream(c10::Stream::UNSAFE, device, current_streams[device.index()]);
}

/// What is enqueued on the current stream of a device runs in its turn.
void enqueue_here(c10::Device device, std::function<void()> work) {
    device = with_index(device);
    enqueue(device.index(), handle_of(current_stream(device)), std::move(work));
}

class Mark {
  public:
    void reach() {
        const std::lock_guard<std::mutex> lock(mutex_);
        reached_ = true;
        changed_.notify_all();
    }
    void wait() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return reached_; });
    }
    bool reached() {
        const std::lock_guard<std::mutex> lock(mutex_);
        return reached_;
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool reached_ = false;
};
using Event = std::shared_ptr<Mark>;

Event mark(c10::Stream stream) {
    auto event = std::make_shared<Mark>();
    enqueue(stream.device_index(), handle_of(stream), [event] { event->reach(); });
    return event;
}

// -------------------------------------------------------------------------------------------------------------- memory

struct Block {
    void* data;
    std::size_t bytes;
    c10::Stream made_on;
    std::mutex mutex;
    std::set<void*> recorded;  // streams
};

/// As CUDA's caching allocator: when the streams that it was recorded on have come so far, whoever makes the next
/// tensor on the stream that it was made on gets this memory.
void release(void* context) {
    auto* const block = static_cast<Block*>(context);
    const int device = block->made_on.device_index();
    const auto free = [block, device] {
        enqueue(device, handle_of(block->made_on), [block, device] {
            std::memset(block->data, 0xab, block->bytes);
            emulated_free(device, block->data);
            delete block;
        });
    };
    if (block->recorded.empty()) return free();
    const auto left = std::make_shared<std::atomic<std::size_t>>(block->recorded.size());
    const std::set<void*> recorded = block->recorded;
    for (void* stream : recorded)
        enqueue(device, stream, [left, free] {
            if (--*left == 0) free();
        });
}

class Allocator final : public c10::Allocator {
  public:
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 3)
    c10::DataPtr allocate(std::size_t bytes) override {
        return made(bytes);
    }
    void copy_data(void* to, const void* from, std::size_t count) const override {
        std::memcpy(to, from, count);
    }
#else
    c10::DataPtr allocate(std::size_t bytes) const override {
        return made(bytes);
    }
#endif

  private:
    static c10::DataPtr made(std::size_t bytes) {
        const c10::Device device(kKind, static_cast<c10::DeviceIndex>(current_device));
        if (bytes == 0) return {nullptr, device};
        void* const data = emulated_allocate(current_device, bytes);
        auto* const block = new Block{data, bytes, current_stream(device), {}, {}};
        return {data, block, &release, device};
    }
};
Allocator allocator;

class Guard final : public c10::impl::DeviceGuardImplInterface {
  public:
    c10::DeviceType type() const override { return kKind; }
    c10::Device exchangeDevice(c10::Device device) const override {
        const c10::Device before = getDevice();
        setDevice(device);
        return before;
    }
    c10::Device getDevice() const override { return {kKind, static_cast<c10::DeviceIndex>(current_device)}; }
    void setDevice(c10::Device device) const override { current_device = with_index(device).index(); }
    void uncheckedSetDevice(c10::Device device) const noexcept override { setDevice(device); }
    c10::Stream getStream(c10::Device device) const noexcept override { return current_stream(device); }
    c10::Stream getDefaultStream(c10::Device device) const override {
        return c10::Stream(c10::Stream::DEFAULT, device);
    }
    c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
        device = with_index(device);
        const auto id = reinterpret_cast<c10::StreamId>(emulated_stream(device.index()));
        return c10::Stream(c10::Stream::UNSAFE, device, id);
    }
    c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
        const c10::Stream before = current_stream(stream.device());
        current_streams[stream.device_index()] = stream.id();
        return before;
    }
    c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(emulated_devices()); }

    void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
        if (*event == nullptr) *event = new Event;
        *static_cast<Event*>(*event) = mark(stream);
    }
    void block(void* event, const c10::Stream& stream) const override {
        if (event == nullptr) return;
        enqueue(stream.device_index(), handle_of(stream), [own = *static_cast<Event*>(event)] { own->wait(); });
    }
    bool queryEvent(void* event) const override { return event == nullptr || (*static_cast<Event*>(event))->reached(); }
    void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
        delete static_cast<Event*>(event);
    }
    bool queryStream(const c10::Stream& stream) const override {
        const Event event = mark(stream);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return event->reached();
    }
    void synchronizeStream(const c10::Stream& stream) const override { mark(stream)->wait(); }

    void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
        if (data.get_deleter() != &release) return;
        auto* const block = static_cast<Block*>(data.get_context());
        const std::lock_guard<std::mutex> lock(block->mutex);
        if (stream != block->made_on) block->recorded.insert(handle_of(stream));
    }
};

// ---------------------------------------------------------------------------------------------------------- operations

/// The same memory as a tensor on the CPU; it does not keep it.
at::Tensor as_cpu(const at::Tensor& tensor) {
    return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                         at::TensorOptions().dtype(tensor.dtype()));
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool) {
    if (to.numel() == 0) return to;
    const c10::Device device = to.device().is_cpu() ? from.device() : to.device();
    const at::Tensor spread = from.expand_as(to);
    const at::Tensor source = spread.device().is_cpu() ? spread.clone() : as_cpu(spread);  // as from pageable memory
    const at::Tensor target = to.device().is_cpu() ? to : as_cpu(to);
    enqueue_here(device, [target, source]() mutable {
        const at::NoGradGuard values_only;
        target.copy_(source);
    });
    if (to.device().is_cpu()) mark(current_stream(device))->wait();
    return to;
}
at::Tensor copy_from(const at::Tensor& from, const at::Tensor& to, bool later) {
    at::Tensor target = to;
    return copy(target, from, later);
}
at::Tensor copy_from_and_resize(const at::Tensor& from, const at::Tensor& to) {
    at::Tensor target = to;
    return copy(target, from, false);
}

at::Tensor empty(at::IntArrayRef size, c10::optional<at::ScalarType> type, c10::optional<at::Layout>,
                 c10::optional<at::Device> device, c10::optional<bool>, c10::optional<at::MemoryFormat> format) {
    const c10::DeviceGuard guard(with_index(device.value_or(c10::Device(kKind))));
    return at::detail::empty_generic(size, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                                     type.value_or(at::kFloat), format);
}
at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride, c10::optional<at::ScalarType> type,
                         c10::optional<at::Layout>, c10::optional<at::Device> device, c10::optional<bool>) {
    const c10::DeviceGuard guard(with_index(device.value_or(c10::Device(kKind))));
    return at::detail::empty_strided_generic(
        size, stride, &allocator, c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type.value_or(at::kFloat));
}

at::Tensor as_strided(const at::Tensor& self, at::IntArrayRef size, at::IntArrayRef stride,
                      c10::optional<std::int64_t> offset) {
    return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

void on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&on_cpu>());
}
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
    m.impl("empty.memory_format", &empty);
    m.impl("empty_strided", &empty_strided);
    m.impl("copy_", &copy);
    m.impl("_copy_from", &copy_from);
    m.impl("_copy_from_and_resize", &copy_from_and_resize);
    m.impl("view", &at::native::view);
    m.impl("as_strided", &as_strided);
    m.impl("_reshape_alias", &at::native::_reshape_alias);
}

#if TORCH_VERSION_MAJOR < 2
/// torch.distributed knew no such devices then; its functions for CPUs do but call the group.
void as_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
}
constexpr const char* kCollectives[] = {"broadcast_", "allreduce_", "allgather_", "reduce_scatter_",
                                        "reduce_",    "gather_",    "scatter_",   "alltoall_",
                                        "send",       "recv_"};
TORCH_LIBRARY_IMPL(c10d, PrivateUse1, m) {
    for (const char* name : kCollectives) m.impl(name, torch::CppFunction::makeFromBoxedFunction<&as_on_cpu>());
}
TORCH_LIBRARY_IMPL(c10d, AutogradPrivateUse1, m) {
    for (const char* name : kCollectives) m.impl(name, torch::CppFunction::makeFallthrough());
}
#endif

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard);

/// The current stream of a device does not go on before open().
std::map<int, Event> gates;
int hold(int device) {
    const auto gate = std::make_shared<Mark>();
    enqueue_here(c10::Device(kKind, static_cast<c10::DeviceIndex>(device)), [gate] { gate->wait(); });
    const int number = static_cast<int>(gates.size());
    gates[number] = gate;
    return number;
}

void fill(const at::Tensor& tensor, double value) {
    enqueue_here(tensor.device(), [target = as_cpu(tensor), value]() mutable { target.fill_(value); });
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    c10::SetAllocator(kKind, &allocator);
    m.def("devices", &emulated_devices);
    m.def("hold", &hold);
    m.def("open", [](int gate) { gates.at(gate)->reach(); });
    m.def("fill", &fill);
    // As numbers: a stream for the library, and for torch.
    m.def("handle_of_current", [](int device) {
        return reinterpret_cast<std::uintptr_t>(
            handle_of(current_stream({kKind, static_cast<c10::DeviceIndex>(device)})));
    });
    m.def("new_stream", [](int device) { return reinterpret_cast<std::int64_t>(emulated_stream(device)); });
    m.def("set_stream", [](int device, std::int64_t id) {
        const c10::Device on(kKind, static_cast<c10::DeviceIndex>(device));
        return c10::impl::VirtualGuardImpl(kKind).exchangeStream(c10::Stream(c10::Stream::UNSAFE, on, id)).id();
    });
    m.def(
        "synchronize",
        [](int device) {
            mark(current_stream({kKind, static_cast<c10::DeviceIndex>(device)}))->wait();
        },
        pybind11::call_guard<pybind11::gil_scoped_release>());
}
