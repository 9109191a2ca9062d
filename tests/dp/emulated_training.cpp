// The GPUs of examples/train_chars (gpu.hpp) on emulated ones: a stream runs its kernels when it comes to them, each on
// a few host threads that share its elements in no order. They are the library's GPUs, too.
#include <memory>
#include <thread>
#include <vector>

#include "../../examples/train_chars/gpu.hpp"
#include "base/result.hpp"
#include "harness/emulated_gpus.hpp"

namespace gpu {
namespace {

constexpr int devices = 2, threads = 3;

tutti::harness::EmulatedGpus& emulated() {
    static auto* const gpus = [] {
        auto* const made = new tutti::harness::EmulatedGpus(devices);  // for as long as the process lives
        tutti::gpu::use_gpus(made);
        return made;
    }();
    return *gpus;
}

template <class Any>
void elements(const Any& work, int first) {
    for (int i = first; i < work.count(); i += threads) work.element(i);
}

void run_now(const kernels::Work& work) {
    std::visit(
        [](const auto& one) {
            std::vector<std::thread> others;
            for (int t = 1; t < threads; ++t) others.emplace_back([&one, t] { elements(one, t); });
            elements(one, 0);
            for (std::thread& t : others) t.join();
        },
        work);
}

}  // namespace

int count(int, std::string&) {
    return emulated().count();
}

Stream make_stream(int device) {
    return {device, emulated().make_stream(device)};
}
void destroy(Stream stream) noexcept {
    emulated().destroy_stream(stream.handle);
}
void follow(Stream later, Stream earlier) {
    void* event = nullptr;
    emulated().mark(earlier.device, event, earlier.handle);
    emulated().follow(later.device, event, later.handle);
    emulated().drop(earlier.device, event);
}

void* allocate(int device, std::size_t bytes) {
    return emulated().allocate(device, bytes);
}
void release(int device, void* memory) noexcept {
    emulated().free(device, static_cast<std::byte*>(memory));
}
void upload(Stream stream, void* to, const void* from, std::size_t bytes) {
    emulated().copy(stream.device, to, from, bytes, stream.handle);
    emulated().synchronize_stream(stream.handle);
}
void download(Stream stream, void* to, const void* from, std::size_t bytes) {
    upload(stream, to, from, bytes);
}

void run(Stream stream, const kernels::Work& work) {
    emulated().call(
        stream.device,
        [](void* argument) {
            const std::unique_ptr<const kernels::Work> own(static_cast<const kernels::Work*>(argument));
            run_now(*own);
        },
        new kernels::Work(work), stream.handle);
}

}  // namespace gpu
