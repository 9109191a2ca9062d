// Blocks: their threads take turns on one thread of the host.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "ptx_code.hpp"

namespace tutti::ptx {
namespace {

constexpr unsigned turn = 4096, looks = 16;  // instructions of a turn, and looks at flags

std::byte* aligned(std::byte* at) {
    return reinterpret_cast<std::byte*>((reinterpret_cast<std::uintptr_t>(at) + 15) / 16 * 16);
}

void take_turn(Thread& t, unsigned instructions) {
    t.patience = looks;
    for (unsigned n = 0; n < instructions && t.patience > 0; ++n) {
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

/// Whether all are there for whom the barrier opens. Where they are counted, a warp counts as 32 once all of its
/// threads that are left have come.
bool is_complete(const Block::Barrier& barrier, const std::vector<Thread>& threads) {
    std::uint32_t come = 0;
    for (std::size_t first = 0; first < threads.size(); first += 32) {
        bool any = false, all = true;
        for (std::size_t n = first; n < std::min(first + 32, threads.size()); ++n) {
            any |= barrier.there[n];
            all &= barrier.there[n] || threads[n].state == Thread::State::done;
        }
        if (barrier.count == 0 && !all) return false;
        if (any && all) come += 32;
    }
    if (barrier.count != 0 && come > barrier.count)
        fault("%u threads at a barrier that %u were to come to", come, barrier.count);
    return barrier.count == 0 || come == barrier.count;
}

void open_barrier(Block& block, std::vector<Thread>& threads, unsigned number) {
    const auto waits = [&](const Thread& t) { return t.state == Thread::State::at_barrier && t.barrier == number; };
    Block::Barrier& barrier = block.barriers[number];
    std::uint32_t count = 0, votes = 0, warps = barrier.count == 0 ? all_warps : 0;
    for (const Thread& t : threads)
        if (waits(t)) ++count, votes += t.vote, warps |= bit_of_warp(t.number);
    for (Thread& t : threads) {
        if (!waits(t)) continue;
        using Vote = Thread::Vote;
        if (t.vote_result >= 0)
            t.registers[t.vote_result] = t.vote_as == Vote::count ? votes
                                         : t.vote_as == Vote::all ? votes == count
                                                                  : votes > 0;
        t.vote = false;
        t.vote_result = -1;
        t.state = Thread::State::running;
    }
    barrier = {};
    if (block.weak != nullptr) block.weak->barrier(warps, number);
    if (block.races != nullptr) block.races->barrier(warps, number);
}

/// Opens the barriers that are complete; whether any is.
bool open_barriers(Block& block, std::vector<Thread>& threads) {
    if (!std::exchange(block.may_open, false)) return false;
    bool opens = false;
    for (unsigned number = 0; number < block.barriers.size(); ++number)
        if (block.barriers[number].there.any() && is_complete(block.barriers[number], threads)) {
            open_barrier(block, threads, number);
            opens = true;
        }
    return opens;
}

/// Lets the threads of one's warp go on if all are where it is; whether they were.
bool meet(std::vector<Thread>& threads, const Thread& one) {
    std::vector<Thread*> there;
    const std::size_t first = one.number / 32 * 32;
    for (std::size_t lane = 0; lane < 32 && first + lane < threads.size(); ++lane) {
        Thread& t = threads[first + lane];
        if ((one.members >> lane & 1) == 0 || t.state == Thread::State::done) continue;
        if (t.state != Thread::State::in_warp || t.meeting != one.meeting || t.members != one.members) return false;
        there.push_back(&t);
    }
    one.meeting(there);
    for (Thread* t : there) t->state = Thread::State::running;
    return true;
}

/// Whose turn it is, and how long.
class Turns {
  public:
    explicit Turns(std::vector<Thread>& threads) {
        for (Thread& t : threads) order_.push_back(&t);
    }
    const std::vector<Thread*>& next_round(Block& block) {
        if (block.weak == nullptr) return order_;
        std::ranges::shuffle(order_, block.weak->random());
        constexpr unsigned lengths[] = {4, 32, turn};
        length_ = lengths[block.weak->random()() % std::size(lengths)];
        return order_;
    }
    /// 0: none at all in this round.
    unsigned length(Block& block) const {
        if (block.weak == nullptr) return turn;
        const std::uint64_t drawn = block.weak->random()();
        return drawn % 4 == 0 ? 0 : 1 + static_cast<unsigned>(drawn >> 8) % length_;
    }

  private:
    std::vector<Thread*> order_;
    unsigned length_ = turn;
};

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
    if (memory != nullptr && memory->weak() != nullptr) {
        block.weak = std::make_unique<Multiprocessor>(*memory->weak(), size.count());
        block.races = std::make_unique<Races>();
    }
    block.known.push_back({{block.shared, block.shared + block.shared_bytes}});
    for (const Memory::Range& global : code.globals) block.known.push_back({global, true});
    block.known.push_back({{block.parameters, block.parameters + code.own_bytes}});
    const std::size_t own_ranges = block.known.size();
    std::memset(block.shared, 0xcd, block.shared_bytes);  // nobody has set it

    std::vector<Thread> threads(size.count());
    for (unsigned n = 0; n < size.count(); ++n) {
        Thread& t = threads[n];
        t.at = {n % size.x, n / size.x % size.y, n / size.x / size.y};
        t.block = &block;
        t.number = n;
        t.stack.reset(new std::byte[code.stack_bytes + 16]);
        std::memset(t.stack.get(), 0xcd, code.stack_bytes + 16);
        t.frames.push_back({&code, nullptr, aligned(t.stack.get()), nullptr});
        t.enter(code, t.frames.back().base);
    }
    Turns turns(threads);
    for (std::size_t left = threads.size(); left > 0;) {
        std::size_t waiting = 0;
        bool moved = false;
        for (Thread* const its : turns.next_round(block)) {
            Thread& t = *its;
            if (t.state == Thread::State::running) {
                if (const unsigned length = turns.length(block); length > 0) take_turn(t, length);
                moved |= t.state != Thread::State::running || t.patience > 0;
                if (t.state == Thread::State::done) --left;
            }
            if (t.state == Thread::State::at_barrier) ++waiting;
        }
        for (const Thread& t : threads) moved |= t.state == Thread::State::in_warp && meet(threads, t);
        if (block.weak != nullptr) block.weak->tick(!moved);
        if (open_barriers(block, threads)) continue;
        if (left > 0 && waiting == left)
            fault("all %zu threads that are left wait at barriers, and none is complete", left);
        if (!moved) std::this_thread::yield();
    }
    for (std::size_t n = own_ranges; n < block.known.size(); ++n)
        memory->moved(block.known[n].range, block.known[n].moved);
    for (const Block::Multicast& m : block.multicasts) memory->moved(m.its.range, m.moved);
}

}  // namespace tutti::ptx
