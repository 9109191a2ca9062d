// Blocks: their threads take turns on one thread of the host.
#include <cstdio>
#include <cstring>
#include <thread>

#include "ptx_code.hpp"

namespace tutti::ptx {
namespace {

constexpr unsigned turn = 4096, looks = 16;  // instructions of a turn, and looks at flags

std::byte* aligned(std::byte* at) {
    return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(at) + 15) / 16 * 16);
}

void take_turn(Thread& t) {
    t.patience = looks;
    for (unsigned n = 0; n < turn && t.patience > 0; ++n) {
        const Instruction& i = *t.next++;
        if (i.guard >= 0 && (t.registers[i.guard] != 0) == i.guard_not) continue;
        try {
            i.run(t, i);
        } catch (const Fault& e) {
            char where[256];
            std::snprintf(where, sizeof where, " (thread %u of block %u,%u in %.120s, line %u of its PTX)", t.at.x,
                          t.block->at.x, t.block->at.y, t.function->name.c_str(), i.line);
            throw std::runtime_error(e.what() + std::string(where));
        }
        if (t.state != Thread::State::running) return;
    }
}

/// All that are left are at the barrier.
void open_barrier(Block& block, std::vector<Thread>& threads) {
    bool any = false, all = true;
    for (const Thread& t : threads)
        if (t.state == Thread::State::at_barrier) any |= t.vote, all &= t.vote;
    for (Thread& t : threads) {
        if (t.state != Thread::State::at_barrier) continue;
        if (t.vote_result >= 0) t.registers[t.vote_result] = (block.all_vote ? all : any) ? 1 : 0;
        t.vote = false;
        t.vote_result = -1;
        t.state = Thread::State::running;
    }
}

}  // namespace

void fault(const char* format, ...) {
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    throw Fault(text);
}

void Thread::enter(const Function& called, std::byte* base) {
    function = &called;
    constants = called.constants.data();
    registers = reinterpret_cast<std::uint64_t*>(base);
    std::byte* part = aligned(base + 8 * std::size_t{called.registers});
    if (!called.entry) {
        own = part;
        part = aligned(part + called.own_bytes);
    } else {
        own = const_cast<std::byte*>(block->parameters);
    }
    calls = part;
    local = aligned(part + called.call_bytes);
    next = called.code.data();
}

const std::vector<Parameter>& Kernel::parameters() const {
    return code_->parameters;
}
std::size_t Kernel::parameter_bytes() const {
    return code_->own_bytes;
}
unsigned Kernel::most_threads() const {
    return code_->most_threads;
}

void run_block(const Kernel& kernel, const std::byte* parameters, Dim grid, Dim size, Dim at,
               std::size_t dynamic_shared, const Memory* memory) {
    const Function& code = kernel.code();
    Block block;
    block.grid = grid, block.block = size, block.at = at;
    block.shared_bytes = code.shared_bytes + dynamic_shared;
    const std::unique_ptr<std::byte[]> own(new std::byte[block.shared_bytes + 16]);
    const std::vector<std::byte> copied(parameters, parameters + code.own_bytes);
    block.parameters = copied.data();
    block.shared = aligned(own.get());
    block.memory = memory;
    block.known.push_back({{block.shared, block.shared + block.shared_bytes}});
    for (const Memory::Range& global : code.globals) block.known.push_back({global});
    block.known.push_back({{block.parameters, block.parameters + code.own_bytes}});
    const std::size_t own_ranges = block.known.size();
    std::memset(block.shared, 0xcd, block.shared_bytes);  // nobody has set it

    std::vector<Thread> threads(size.count());
    for (unsigned n = 0; n < size.count(); ++n) {
        Thread& t = threads[n];
        t.at = {n % size.x, n / size.x % size.y, n / size.x / size.y};
        t.block = &block;
        t.stack.reset(new std::byte[code.stack_bytes + 16]);
        std::memset(t.stack.get(), 0xcd, code.stack_bytes + 16);
        t.frames.push_back({&code, nullptr, aligned(t.stack.get()), nullptr});
        t.enter(code, t.frames.back().base);
    }
    for (std::size_t left = threads.size(); left > 0;) {
        std::size_t waiting = 0;
        bool moved = false;
        for (Thread& t : threads) {
            if (t.state == Thread::State::running) {
                take_turn(t);
                moved |= t.state != Thread::State::running || t.patience > 0;
                if (t.state == Thread::State::done) --left;
            }
            if (t.state == Thread::State::at_barrier) ++waiting;
        }
        if (left > 0 && waiting == left)
            open_barrier(block, threads);
        else if (!moved)
            std::this_thread::yield();
    }
    for (std::size_t n = own_ranges; n < block.known.size(); ++n)
        memory->moved(block.known[n].range, block.known[n].moved);
}

}  // namespace tutti::ptx
