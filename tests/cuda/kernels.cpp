// Kernels: how nvcc's objects register them, and how they are loaded and launched.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/result.hpp"
#include "fatbin.hpp"
#include "internal.hpp"
#include "registration.hpp"

namespace tutti::on_hosts {

/// What one object brings.
struct Binary {
    const void* wrapper;
    std::string text;
    std::unique_ptr<ptx::Module> module;  // once a kernel of it is loaded
};

struct Function {
    Binary* binary;
    std::string name;
    std::optional<ptx::Kernel> kernel;
    std::unique_ptr<ptx::Module> mutant = {};  // where the kernel is then
    unsigned least_blocks = 1;                 // on a multiprocessor: what its launch bounds ask for
};

namespace {

/// For all machines: objects register before main().
struct Registry {
    std::vector<std::unique_ptr<Binary>> binaries;
    std::map<const void*, std::unique_ptr<Function>> functions;  // by their stubs on the host
};
Registry& registry() {
    static auto* const it = new Registry;
    return *it;
}

/// By the stub or by what __cudaGetKernel gave.
Function& function_of(const void* handle) {
    if (const auto found = registry().functions.find(handle); found != registry().functions.end())
        return *found->second;
    for (const auto& [stub, function] : registry().functions)
        if (function.get() == handle) return *function;
    refuse(cudaErrorInvalidDeviceFunction);
}

/// What .minnctapersm says in the head of an entry.
unsigned least_blocks_of(const std::string& text, const std::string& name) {
    const std::size_t from = text.find(".entry " + name + "("), to = text.find('{', from);
    if (from == std::string::npos || to == std::string::npos) return 1;
    constexpr std::string_view directive = ".minnctapersm";
    const std::size_t found = text.find(directive, from);
    if (found == std::string::npos || found > to) return 1;
    return std::max(1u, static_cast<unsigned>(std::stoul(text.substr(found + directive.size(), 16))));
}

bool is_mutant(const Function& function) {
    const auto& mutants = machine().settings.mutants;
    return mutants.change && function.name.find(mutants.kernels) != std::string::npos;
}

void decode(Function& function) {
    Binary& binary = *function.binary;
    if (binary.module == nullptr) {
        binary.text = ptx_of(binary.wrapper);
        binary.module = std::make_unique<ptx::Module>(binary.text);
    }
    if (const auto& mutants = machine().settings.mutants; is_mutant(function)) {
        function.mutant = std::make_unique<ptx::Module>(mutants.change(binary.text));
        function.kernel = function.mutant->kernel(function.name);
        return;
    }
    function.kernel = binary.module->kernel(function.name);
    function.least_blocks = least_blocks_of(binary.text, function.name);
}

void require_decoded(Function& function) {
    try {
        if (!function.kernel) decode(function);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "GPUs on hosts: %s can't be loaded: %s\n", function.name.c_str(), error.what());
        refuse(cudaErrorNoKernelImageForDevice);
    }
}

/// Once per device, lazily, when nothing runs there: kernels that wait for one that is not loaded yet wait for ever.
void load(Lock& lock, Device& device, Function& function) {
    if (device.loaded.contains(&function)) return;
    wait_for_all(lock, device, ("loading the kernel " + function.name).c_str());
    require_decoded(function);
    device.loaded.insert(&function);
}

unsigned most_threads(const Function& function) {
    const unsigned bound = function.kernel->most_threads();
    return bound == 0 ? 1024 : bound;
}

int blocks_at_a_time(const Function& function, unsigned threads) {
    const int wanted = machine().settings.blocks * static_cast<int>(function.least_blocks);
    return std::clamp(std::min(wanted, static_cast<int>(2048 / threads)), 1, 16);
}

void check_shape(const Function& function, const dim3& grid, const dim3& block, std::size_t shared) {
    const bool some = grid.x > 0 && grid.y > 0 && grid.z > 0 && block.x > 0 && block.y > 0 && block.z > 0;
    require(some && grid.x <= 0x7fffffff && grid.y <= 65535 && grid.z <= 65535, cudaErrorInvalidConfiguration);
    require(block.x <= 1024 && block.y <= 1024 && block.z <= 64 && std::uint64_t{block.x} * block.y * block.z <= 1024,
            cudaErrorInvalidConfiguration);
    require(block.x * block.y * block.z <= most_threads(function), cudaErrorInvalidValue);
    require(shared <= 48 << 10, cudaErrorInvalidValue);
}

void launch(Lock& lock, Function& function, const dim3& grid, const dim3& block, void** arguments, std::size_t shared,
            cudaStream_t handle) {
    Stream& stream = stream_of(handle);
    require(stream.device == &current(), cudaErrorInvalidResourceHandle);
    load(lock, current(), function);
    check_shape(function, grid, block, shared);
    const ptx::Kernel& kernel = *function.kernel;
    std::vector<std::byte> parameters(kernel.parameter_bytes());
    for (std::size_t p = 0; p < kernel.parameters().size(); ++p) {
        require(arguments != nullptr && arguments[p] != nullptr, cudaErrorInvalidValue);
        const ptx::Parameter& its = kernel.parameters()[p];
        std::memcpy(parameters.data() + its.offset, arguments[p], its.size);
    }
    const unsigned threads = block.x * block.y * block.z;
    auto made = std::make_shared<Launch>(Launch{kernel,
                                                std::move(parameters),
                                                {grid.x, grid.y, grid.z},
                                                {block.x, block.y, block.z},
                                                shared,
                                                blocks_at_a_time(function, threads)});
    submit(stream, {.what = "kernel " + function.name, .launch = std::move(made)});
}

struct Configuration {
    dim3 grid, block;
    std::size_t shared;
    cudaStream_t stream;
};
thread_local std::vector<Configuration> configurations;  // of <<<>>>

}  // namespace

void forget_mutants() {
    for (const auto& [stub, function] : registry().functions)
        if (function->mutant != nullptr || is_mutant(*function)) function->kernel.reset();
}

std::size_t loaded_kernels(int device) {
    const Lock lock = locked();
    return device_numbered(device).loaded.size();
}

}  // namespace tutti::on_hosts

using namespace tutti::on_hosts;

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
    const Lock lock = locked();
    auto& all = registry().binaries;
    all.push_back(std::make_unique<Binary>(Binary{wrapper, {}, nullptr}));
    return reinterpret_cast<void**>(all.back().get());
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) {
    return 1;
}
void __cudaRegisterVar(void**, char*, char*, const char*, int, std::size_t, int, int) {}

void __cudaRegisterFunction(void** binary, const char* stub, char*, const char* name, int, uint3*, uint3*, dim3*, dim3*,
                            int*) {
    const Lock lock = locked();
    auto made = std::make_unique<Function>(Function{reinterpret_cast<Binary*>(binary), name, std::nullopt});
    registry().functions[stub] = std::move(made);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, CUstream_st* stream) {
    configurations.push_back({grid, block, shared, stream});
    return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
    if (configurations.empty()) return cudaErrorMissingConfiguration;
    const Configuration& last = configurations.back();
    *grid = last.grid;
    *block = last.block;
    *shared = last.shared;
    *static_cast<cudaStream_t*>(stream) = last.stream;
    configurations.pop_back();
    return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* out, const void* stub) {
    return call(nothing, [&](Lock&) { *out = reinterpret_cast<cudaKernel_t>(&function_of(stub)); });
}

cudaError_t cudaLaunchKernel(const void* handle, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                             cudaStream_t stream) {
    return call(context,
                [&](Lock& lock) { launch(lock, function_of(handle), grid, block, arguments, shared, stream); });
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                               cudaStream_t stream) {
    return cudaLaunchKernel(kernel, grid, block, arguments, shared, stream);
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* handle) {
    return call(context, [&](Lock& lock) {
        Function& function = function_of(handle);
        load(lock, current(), function);
        *out = {};
        out->maxThreadsPerBlock = static_cast<int>(most_threads(function));
        out->ptxVersion = out->binaryVersion = 90;
        out->maxDynamicSharedSizeBytes = 48 << 10;
    });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* out, const void* handle, int threads,
                                                          std::size_t shared) {
    return call(context, [&](Lock&) {
        Function& function = function_of(handle);
        require(out != nullptr && threads > 0, cudaErrorInvalidValue);
        require_decoded(function);  // CUDA does not say that this loads it
        const bool fits = static_cast<unsigned>(threads) <= most_threads(function) && shared <= 48 << 10;
        *out = fits ? blocks_at_a_time(function, static_cast<unsigned>(threads)) : 0;
    });
}
}
