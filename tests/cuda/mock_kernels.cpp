#include "mock_kernels.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <stdexcept>

#include "registration.hpp"

#ifdef TUTTI_ZSTD
#include <zstd.h>
#endif

namespace tutti::ptx {

struct Function {
    on_hosts::MockKernel::Work work;
    std::vector<Parameter> parameters{{0, sizeof(void*)}};
    unsigned most_threads = 64;
};
struct Module::Parts {
    std::string text;
};

namespace {
std::map<std::string, std::shared_ptr<Function>>& functions() {
    static std::map<std::string, std::shared_ptr<Function>> all;
    return all;
}
}  // namespace

const std::vector<Parameter>& Kernel::parameters() const {
    return code_->parameters;
}
std::size_t Kernel::parameter_bytes() const {
    return sizeof(void*);
}
unsigned Kernel::most_threads() const {
    return code_->most_threads;
}

Module::Module(std::string text) : parts_(std::make_unique<Parts>(Parts{std::move(text)})) {
    if (!parts_->text.starts_with("mock")) throw std::runtime_error("this is not mock");
}
Module::~Module() = default;
Kernel Module::kernel(const std::string& name) {
    return Kernel(functions().at(name));
}
bool Module::has(const std::string& name) const {
    return functions().contains(name);
}

void run_block(const Kernel& kernel, const std::byte* parameters, Dim grid, Dim, Dim at, std::size_t,
               const Memory* memory) {
    void* argument;
    std::memcpy(&argument, parameters, sizeof argument);
    if (argument != nullptr && memory->around(static_cast<std::byte*>(argument)).begin == nullptr)
        throw std::runtime_error("the kernel can't use its argument");
    kernel.code().work(argument, at.x + grid.x * (at.y + grid.y * at.z));
}

}  // namespace tutti::ptx

namespace tutti::on_hosts {
namespace {

template <class T>
void append(std::vector<unsigned char>& bytes, T value) {
    unsigned char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    bytes.insert(bytes.end(), raw, raw + sizeof value);
}

std::string compress(const std::string& text) {
#ifdef TUTTI_ZSTD
    std::string out(ZSTD_compressBound(text.size()), '\0');
    out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
    return out;
#else
    throw std::runtime_error("built without zstd: " + text);
#endif
}

}  // namespace

Fatbin::Fatbin(const std::string& text, unsigned architecture, bool compressed) {
    append(bytes_, 0xba55ed50u);
    append(bytes_, std::uint16_t{1});
    append(bytes_, std::uint16_t{16});
    append(bytes_, std::uint64_t{0});
    add(text, architecture, compressed);
}

void Fatbin::add(const std::string& text, unsigned architecture, bool compressed) {
    std::string payload = compressed ? compress(text) : text + '\0';
    const std::size_t stored = payload.size();
    payload.resize((stored + 7) / 8 * 8);
    append(bytes_, std::uint16_t{1});
    append(bytes_, std::uint16_t{0x101});
    append(bytes_, std::uint32_t{64});
    append(bytes_, std::uint64_t{payload.size()});
    append(bytes_, static_cast<std::uint32_t>(compressed ? stored : 0));
    append(bytes_, std::uint64_t{64});
    append(bytes_, architecture);
    for (int i = 0; i < 3; ++i) append(bytes_, std::uint64_t{0});
    append(bytes_, static_cast<std::uint64_t>(compressed ? text.size() : 0));
    bytes_.insert(bytes_.end(), payload.begin(), payload.end());
    const std::uint64_t size = bytes_.size() - 16;
    std::memcpy(bytes_.data() + 8, &size, sizeof size);
}

void* Fatbin::wrapper() {
    wrapper_.container = bytes_.data();
    return &wrapper_;
}

MockKernel::MockKernel(std::string name, Work work, const std::string& bounds)
    : name_(std::move(name)), fatbin_("mock .entry " + name_ + "(one)" + bounds + "{}", 90) {
    auto function = std::make_shared<ptx::Function>();
    function->work = std::move(work);
    ptx::functions()[name_] = std::move(function);
    void** const handle = __cudaRegisterFatBinary(fatbin_.wrapper());
    __cudaRegisterFunction(handle, static_cast<const char*>(stub()), nullptr, name_.c_str(), -1, nullptr, nullptr,
                           nullptr, nullptr, nullptr);
    __cudaRegisterFatBinaryEnd(handle);
}

cudaError_t MockKernel::launch(cudaStream_t stream, unsigned blocks, unsigned threads, void* argument) const {
    void* arguments[] = {&argument};
    return cudaLaunchKernel(stub(), dim3(blocks), dim3(threads), arguments, 0, stream);
}

void Gate::pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    if (!changed_.wait_for(lock, std::chrono::seconds(30), [this] { return open_; }))
        throw std::runtime_error("nobody has opened the gate");
}

void Gate::open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
}

void Gate::await(int arrivals) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::seconds(30), [&] { return arrived_ >= arrivals; }))
        throw std::runtime_error("a kernel did not begin:\n" + snapshot());
}

bool Gate::opened() const {
    const std::lock_guard lock(mutex_);
    return open_;
}

std::string snapshot() {
    const Lock lock = locked();
    return picture();
}

namespace {
const Op* find(const MockKernel& kernel) {
    for (const auto& device : machine().devices)
        for (const OpRef& op : device->live)
            if (op->task.what == "kernel " + kernel.name()) return op.get();
    return nullptr;
}
}  // namespace

bool begun(const MockKernel& kernel) {
    const Lock lock = locked();
    const Op* const op = find(kernel);
    return op != nullptr && op->blocks_begun > 0;
}

bool waiting(const MockKernel& kernel) {
    const Lock lock = locked();
    return find(kernel) != nullptr;
}

Outcome in_other_process(const std::string& test, const std::vector<std::string>& environment) {
    std::vector<std::string> variables = environment;
    for (char** v = environ; *v != nullptr; ++v) variables.emplace_back(*v);
    std::vector<char*> pointers;
    for (std::string& v : variables) pointers.push_back(v.data());
    pointers.push_back(nullptr);
    std::string program = "/proc/self/exe", name = test;
    char* arguments[] = {program.data(), name.data(), nullptr};
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    for (const int output : {1, 2}) posix_spawn_file_actions_adddup2(&actions, ends[1], output);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    pid_t pid = 0;
    const int failed = posix_spawn(&pid, program.c_str(), &actions, nullptr, arguments, pointers.data());
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    Outcome outcome{};
    char part[4096];
    for (ssize_t got; failed == 0 && (got = read(ends[0], part, sizeof part)) > 0;)
        outcome.output.append(part, static_cast<std::size_t>(got));
    close(ends[0]);
    if (failed != 0 || waitpid(pid, &outcome.status, 0) != pid) throw std::runtime_error("posix_spawn");
    return outcome;
}

}  // namespace tutti::on_hosts
