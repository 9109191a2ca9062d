// The GPUs of the programs in bench/ (bench/cuda.hpp) are emulated ones, which are the library's, too. Which *_perf it
// is says the name under which it is called.
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "../../bench/cuda.hpp"
#include "base/result.hpp"
#include "harness/emulated_gpus.hpp"

namespace perf::cuda {
namespace {

using tutti::harness::EmulatedGpus;

EmulatedGpus& emulated() {
    static auto* const gpus = [] {
        constexpr int devices = 1, blocks = 16, threads = 2;
        auto* const made = new EmulatedGpus(devices, blocks, threads);  // for as long as the process lives
        tutti::gpu::use_gpus(made);
        return made;
    }();
    return *gpus;
}

}  // namespace

int devices(int, std::string&) {
    return emulated().count();
}
std::string name_of(int) {
    return "emulated";
}
void use(int) {}

std::byte* allocate(int device, std::size_t bytes) {
    return emulated().allocate(device, bytes);
}
void release(int device, std::byte* memory) {
    emulated().free(device, memory);
}
void upload(int, std::byte* to, const void* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
}
void download(int, void* to, const std::byte* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
}
void fill(int, std::byte* memory, std::byte value, std::size_t bytes) {
    std::memset(memory, static_cast<int>(value), bytes);
}
double copy_seconds(int, std::byte* to, const std::byte* from, std::size_t bytes) {
    const auto begin = std::chrono::steady_clock::now();
    std::memcpy(to, from, bytes);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

void* make_stream(int device) {
    return emulated().make_stream(device);
}
void destroy_stream(int, void* stream) {
    emulated().destroy_stream(stream);
}

/// A mark behind what was on the stream at the first question tells the others.
bool idle(int device, void* stream) {
    using Mark = std::shared_ptr<std::atomic<bool>>;
    thread_local std::map<void*, Mark> marks;
    Mark& mark = marks[stream];
    if (mark == nullptr) {
        mark = std::make_shared<std::atomic<bool>>(false);
        const auto reached = [](void* argument) {
            const std::unique_ptr<Mark> own(static_cast<Mark*>(argument));
            (*own)->store(true);
        };
        emulated().call(device, reached, new Mark(mark), stream);
    }
    if (!mark->load()) {
        std::this_thread::yield();
        return false;
    }
    marks.erase(stream);
    return true;
}

void begin_capture(int, void* stream) {
    emulated().begin_capture(stream);
}
void* end_capture(int, void* stream) {
    return new EmulatedGpus::Graph(emulated().end_capture(stream));
}

void* upload_graph(int, void* captured, void*) {
    return captured;
}
void replay(int, void* graph, void* stream) {
    emulated().replay(*static_cast<EmulatedGpus::Graph*>(graph), stream);
}
void destroy_graph(void* graph) {
    delete static_cast<EmulatedGpus::Graph*>(graph);
}

}  // namespace perf::cuda
