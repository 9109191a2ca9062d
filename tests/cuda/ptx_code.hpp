// PTX as it is run: functions of instructions, threads in the middle of them. For the files ptx_*.cpp alone.
#pragma once

#include <array>
#include <bitset>
#include <cstdarg>
#include <cstdint>
#include <functional>
#include <stdexcept>

#include "ptx.hpp"
#include "ptx_races.hpp"
#include "ptx_weak.hpp"

namespace tutti::ptx {

struct Thread;
struct Instruction;
using Handler = void (*)(Thread&, const Instruction&);

/// Registers are words of 64 bits, of which an instruction uses as many as its type has.
struct Instruction {
    Handler run = nullptr;
    std::int32_t operand[6] = {};  // destinations first; registers, or ~index of a constant
    std::uint8_t operands = 0, destinations = 0;
    std::int32_t guard = -1;  // the predicate under which it runs; -1: always
    bool guard_not = false;
    std::int64_t number = 0;  // of an address: what is added; of a jump: where to; else the handler's own
    struct {
        Scope scope = Scope::sys;
        bool acquires = false, releases = false;  // of atomics and fences
        bool constant = false;                    // .nc
    } memory;
    std::uint32_t line = 0;  // of the text
};

/// Which values a call passes: from one place of the caller's parameters to one of the callee's.
struct Passed {
    std::size_t from = 0, to = 0, size = 0;
};
struct Call {
    std::shared_ptr<const Function> function;
    std::vector<Passed> arguments, results;  // results: from the callee's to the caller's
};

/// Where parameters lie: a function's own ones, results included, then those of the calls that it makes.
struct Function {
    std::string name;
    bool entry = false;
    std::vector<Instruction> code;
    std::vector<std::uint64_t> constants;
    std::vector<Call> calls;
    std::vector<Parameter> parameters, results;
    std::size_t own_bytes = 0, call_bytes = 0, local_bytes = 0, shared_bytes = 0;
    unsigned registers = 0, most_threads = 0;
    std::size_t stack_bytes = 0;         // of a thread, callees included
    std::vector<Memory::Range> globals;  // the module's variables
};

struct Block;

/// What threads of a warp do together: those of the mask, without the ones that have gone.
using Meeting = void (*)(const std::vector<Thread*>& there);

/// A thread of a block, and the call of a function that it is in.
struct Thread {
    std::uint64_t* registers = nullptr;
    const std::uint64_t* constants = nullptr;
    const Instruction* next = nullptr;
    const Function* function = nullptr;
    std::byte *own = nullptr, *calls = nullptr, *local = nullptr;
    Block* block = nullptr;
    Dim at;
    std::uint32_t number = 0;

    enum class State { running, at_barrier, in_warp, done } state = State::running;
    unsigned patience = 0;          // looks at flags until others have their turn
    unsigned barrier = 0;           // at which it waits
    std::int32_t vote_result = -1;  // what a barrier with votes sets
    bool vote = false;
    enum class Vote { any, all, count } vote_as = Vote::any;
    Meeting meeting = nullptr;  // for which it waits in its warp
    std::uint32_t members = 0;  // its mask

    struct Frame {
        const Function* function;
        const Instruction* next;
        std::byte* base;
        const Call* call;  // that has led here
    };
    std::vector<Frame> frames;
    std::unique_ptr<std::byte[]> stack;

    std::uint64_t word(std::int32_t operand) const { return operand >= 0 ? registers[operand] : constants[~operand]; }
    void enter(const Function& called, std::byte* base);
};

struct Block {
    Dim grid, block, at;
    const std::byte* parameters = nullptr;
    std::byte* shared = nullptr;
    std::size_t shared_bytes = 0;
    const Memory* memory = nullptr;
    struct Known {
        Memory::Range range;
        bool others_see = false;  // not only this block
        bool home = true;         // on its own GPU
        Memory::Traffic moved = {};
    };
    std::vector<Known> known;  // that may be used
    struct Multicast {
        Memory::Multicast its;
        Memory::Traffic moved = {};
    };
    std::vector<Multicast> multicasts;
    std::size_t last = 0;            // of these
    const Known* touched = nullptr;  // by the access under way; nullptr: a thread's own
    Memory::Traffic elsewhere;       // in threads' own memory
    struct Barrier {
        std::uint32_t count = 0;  // threads for which it opens; 0: all that are left
        std::bitset<1024> there;  // have come since it has opened last
    };
    std::array<Barrier, Order::barriers> barriers;
    bool may_open = false;                 // some thread has come to one, or ended
    std::unique_ptr<Multiprocessor> weak;  // where memory is
    std::unique_ptr<Races> races;
};

class Fault : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};
[[noreturn]] __attribute__((format(printf, 1, 2))) void fault(const char* format, ...);

/// What an instruction is, without its operands: "ld.param.u64" in parts.
using Opcode = std::vector<std::string>;

/// How to read its operands.
struct Form {
    Handler run = nullptr;
    std::uint8_t destinations = 1;
    decltype(Instruction::memory) memory = {};
};
/// vector: how many registers stand in braces; run is nullptr for what is unknown.
Form form_of(const Opcode& opcode, unsigned vector);
/// Of mov from a special register; nullptr if it is unknown.
Handler special_of(const std::string& name);
extern const Handler do_branch, do_call, do_return, do_pack, do_unpack;

/// Numbers the registers anew, so that those share one that are never needed at the same time.
void assign_registers(Function& function, unsigned used);

}  // namespace tutti::ptx
