// What nvcc makes of kernels, run on hosts: PTX, instruction by instruction, as its manual says ("Parallel Thread
// Execution ISA", sections 8 and 9). So the tests run what ships, and not only the source that it is made of.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tutti::ptx {

struct Dim {
    unsigned x = 1, y = 1, z = 1;
    unsigned count() const { return x * y * z; }
};

struct Parameter {
    std::size_t offset = 0, size = 0;  // bytes, in the kernel's parameters
};

struct Function;  // decoded

/// An entry of a module.
class Kernel {
  public:
    explicit Kernel(std::shared_ptr<const Function> code) : code_(std::move(code)) {}
    const std::vector<Parameter>& parameters() const;
    std::size_t parameter_bytes() const;
    unsigned most_threads() const;  // of a block; 0 if it does not say
    const Function& code() const { return *code_; }

  private:
    std::shared_ptr<const Function> code_;
};

class Module {
  public:
    /// Throws std::runtime_error for what is no PTX, and in kernel() for what is unknown here, with its line.
    explicit Module(std::string text);
    ~Module();
    /// Decoded when it is first asked for. From any thread.
    Kernel kernel(const std::string& name);
    bool has(const std::string& name) const;

  private:
    struct Parts;
    std::unique_ptr<Parts> parts_;
};

class WeakGpu;

/// What a kernel can use besides its own.
class Memory {
  public:
    struct Range {
        const std::byte *begin = nullptr, *end = nullptr;  // of the allocation; empty: there is none
    };
    /// Bytes moved by plain loads and stores, which are those of data and of what a block has for itself; packs: those
    /// of 16 bytes at once; lines: data stored beside flags. Looks at flags, and their stores, are not counted.
    struct Traffic {
        std::uint64_t read = 0, written = 0, packs_read = 0, packs_written = 0, lines_written = 0;
        Traffic& operator+=(const Traffic& more) {
            read += more.read, written += more.written;
            packs_read += more.packs_read, packs_written += more.packs_written;
            lines_written += more.lines_written;
            return *this;
        }
    };
    virtual ~Memory() = default;
    virtual Range around(const std::byte* at) const = 0;  // from any thread, as what follows
    /// What a block has moved there, at its end.
    virtual void moved(const Range&, const Traffic&) const {}
    /// Of the GPU that runs the kernel, if its memory is as lazy as it may be (ptx_weak.hpp), its threads take turns
    /// at random, and races within blocks are faults (ptx_races.hpp); nullptr: none of these.
    virtual WeakGpu* weak() const { return nullptr; }
    virtual bool is_home(const Range&) const { return true; }  // on that GPU

    /// Addresses of multicast, and where their first byte lies on each GPU, as this process sees it.
    struct Multicast {
        Range range;
        std::vector<std::byte*> replicas = {};  // none: it is no such address
    };
    /// What only the instructions multimem.* can use.
    virtual Multicast multicast_at(const std::byte*) const { return {}; }
};

/// Runs a block to its end, on the calling thread. Its threads take turns, of some instructions each, so that they may
/// wait for one another, and for other blocks. Addresses are those of the host; what is not in memory is a fault, and
/// without memory none is looked up. Throws std::runtime_error at the first fault: a misaligned access, one outside of
/// memory, of shared or local memory, an instruction that is reached in a state in which it means nothing.
void run_block(const Kernel& kernel, const std::byte* parameters, Dim grid, Dim block, Dim at,
               std::size_t dynamic_shared = 0, const Memory* memory = nullptr);

}  // namespace tutti::ptx
