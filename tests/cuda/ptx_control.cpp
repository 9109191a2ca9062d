// Jumps, calls, barriers, special registers: sections 9.7.12, 9.7.13 and 10 of PTX's manual. And which file knows an
// instruction.
#include <chrono>

#include "ptx_handlers.hpp"

namespace tutti::ptx {
namespace {

void branch(Thread& t, const Instruction& i) {
    t.next = t.function->code.data() + i.number;
}

void call(Thread& t, const Instruction& i) {
    const Call& call = t.function->calls[static_cast<std::size_t>(i.number)];
    std::byte* const caller = t.calls;
    const Function& from = *t.function;
    std::byte* const base = t.frames.back().base + (from.stack_bytes - call.function->stack_bytes);
    t.frames.back().next = t.next;
    t.frames.push_back({call.function.get(), nullptr, base, &call});
    t.enter(*call.function, base);
    for (const Passed& p : call.arguments) std::memcpy(t.own + p.to, caller + p.from, p.size);
}

void exit_thread(Thread& t, const Instruction&) {
    t.state = Thread::State::done;
    t.block->may_open = true;  // a barrier for those that are left
}

void leave(Thread& t, const Instruction& i) {
    const Thread::Frame left = t.frames.back();
    if (left.call == nullptr) return exit_thread(t, i);
    const std::byte* const results = t.own;
    t.frames.pop_back();
    const Thread::Frame& back = t.frames.back();
    t.enter(*back.function, back.base);
    t.next = back.next;
    for (const Passed& p : left.call->results) std::memcpy(t.calls + p.to, results + p.from, p.size);
}

void trap(Thread&, const Instruction&) {
    fault("a trap");
}

/// From no time at all to twice as long as it says: for the others' turns.
void sleep(Thread& t, const Instruction&) {
    t.patience = 0;
}

/// Comes to the barrier that the first of so many operands names; the second, if it is there, says for how many
/// threads.
void come_to_barrier(Thread& t, const Instruction& i, int first, int operands) {
    const auto number = get<std::uint32_t>(t, i, first);
    if (number >= Order::barriers) fault("barrier %u, of 16", number);
    const std::uint32_t count = operands > 1 ? get<std::uint32_t>(t, i, first + 1) : 0;
    if (operands > 1 && (count == 0 || count % 32 != 0)) fault("a barrier for %u threads, which are no warps", count);
    Block::Barrier& barrier = t.block->barriers[number];
    if (barrier.there.any() && barrier.count != count)
        fault("barrier %u for %u threads, at which others wait for %u", number, count, barrier.count);
    if (barrier.there[t.number]) fault("a thread comes to barrier %u twice before it opens", number);
    barrier.count = count;
    barrier.there.set(t.number);
    t.barrier = number;
    t.block->may_open = true;
}

void barrier(Thread& t, const Instruction& i) {
    come_to_barrier(t, i, 0, i.operands);
    t.state = Thread::State::at_barrier;
    t.vote_result = -1;
}

void arrive_at_barrier(Thread& t, const Instruction& i) {
    come_to_barrier(t, i, 0, i.operands);
    if (t.block->weak != nullptr) t.block->weak->arrive(t.barrier, t.number);
    if (t.block->races != nullptr) t.block->races->arrive(t.barrier, t.number);
}

/// operand: the result, those of a barrier, the vote.
template <Thread::Vote as>
void barrier_with_votes(Thread& t, const Instruction& i) {
    come_to_barrier(t, i, 1, i.operands - 2);
    t.vote = truth(t, i, i.operands - 1);
    t.vote_as = as;
    t.vote_result = i.operand[0];
    t.state = Thread::State::at_barrier;
}

unsigned lane_of(const Thread& t) {
    return t.number % 32;
}

/// The last operand is the mask.
template <Meeting meeting>
void meet(Thread& t, const Instruction& i) {
    t.members = get<std::uint32_t>(t, i, i.operands - 1);
    if ((t.members >> lane_of(t) & 1) == 0) fault("a mask of threads, %#x, without the one that uses it", t.members);
    t.meeting = meeting;
    t.state = Thread::State::in_warp;
}

template <class T>
T value_of(const Thread& t) {
    return get<T>(t, t.next[-1], t.next[-1].destinations);
}

void warp_barrier(const std::vector<Thread*>& there) {
    const Block& block = *there.front()->block;  // memory is in order for all of the warp, whatever the mask
    const std::uint32_t warp = bit_of_warp(there.front()->number);
    if (block.weak != nullptr) block.weak->barrier(warp, Order::none);
    if (block.races != nullptr) block.races->barrier(warp, Order::none);
}

/// operand: the result, perhaps also whether all have the same, the value, the mask.
template <class T, bool all>
void match(const std::vector<Thread*>& there) {
    std::uint32_t everyone = 0, same[32] = {};
    for (const Thread* t : there) {
        everyone |= 1U << lane_of(*t);
        for (const Thread* other : there)
            if (value_of<T>(*other) == value_of<T>(*t)) same[lane_of(*t)] |= 1U << lane_of(*other);
    }
    for (Thread* t : there) {  // whose results may be their values
        const Instruction& i = t->next[-1];
        const std::uint32_t its = same[lane_of(*t)];
        set<std::uint32_t>(*t, i, 0, all && its != everyone ? 0 : its);
        if (i.destinations > 1) t->registers[i.operand[1]] = its == everyone;
    }
}

/// operand: the result, the vote, the mask.
enum class Vote { ballot, any, all, uni };
template <Vote kind>
void count_votes(const std::vector<Thread*>& there) {
    std::uint32_t votes = 0, all = 0;
    for (const Thread* t : there) {
        all |= 1U << lane_of(*t);
        if (truth(*t, t->next[-1], 1)) votes |= 1U << lane_of(*t);
    }
    const bool any = votes != 0, every = votes == all;
    const std::uint32_t result = kind == Vote::ballot ? votes
                                 : kind == Vote::any  ? any
                                 : kind == Vote::all  ? every
                                                      : every || !any;
    for (Thread* t : there) t->registers[t->next[-1].operand[0]] = result;
}

/// operand: the result, a predicate that may be left out, the value, which lane, where lanes end, the mask.
enum class From { up, down, bfly, idx };
template <From kind>
void shuffle(const std::vector<Thread*>& there) {
    const auto operand = [](const Thread& t, int number) {
        return get<std::uint32_t>(t, t.next[-1], t.next[-1].destinations + number);
    };
    std::uint32_t values[32] = {};
    for (const Thread* t : there) values[lane_of(*t)] = operand(*t, 0);
    for (Thread* t : there) {
        const unsigned lane = lane_of(*t), b = operand(*t, 1) % 32, c = operand(*t, 2);
        const unsigned segment = c >> 8 & 31, first = lane & segment, last = first | (c & 31 & ~segment);
        const unsigned from = kind == From::up     ? lane - b
                              : kind == From::down ? lane + b
                              : kind == From::bfly ? lane ^ b
                                                   : first | (b & ~segment);
        const bool inside = kind == From::up ? static_cast<int>(from) >= static_cast<int>(last) : from <= last;
        const Instruction& i = t->next[-1];
        set<std::uint32_t>(*t, i, 0, values[inside ? from : lane]);
        if (i.destinations > 1) t->registers[i.operand[1]] = inside;
    }
}

/// Threads take turns: whenever one asks, the others stand.
void active_mask(Thread& t, const Instruction& i) {
    set<std::uint32_t>(t, i, 0, 1U << lane_of(t));
}

/// A word of several registers, and back: lower bits first. number: bits of each.
void pack(Thread& t, const Instruction& i) {
    std::uint64_t word = 0;
    const auto bits = static_cast<unsigned>(i.number);
    for (int k = 1; k < i.operands; ++k)
        word |= (t.word(i.operand[k]) & mask<std::uint64_t>(bits)) << (bits * static_cast<unsigned>(k - 1));
    t.registers[i.operand[0]] = word;
}
void unpack(Thread& t, const Instruction& i) {
    const std::uint64_t word = t.word(i.operand[i.destinations]);
    const auto bits = static_cast<unsigned>(i.number);
    for (unsigned k = 0; k < i.destinations; ++k)
        t.registers[i.operand[k]] = word >> bits * k & mask<std::uint64_t>(bits);
}

template <unsigned which>
void special(Thread& t, const Instruction& i) {
    const Block& b = *t.block;
    const unsigned values[] = {t.at.x, t.at.y, t.at.z, b.block.x, b.block.y, b.block.z,
                               b.at.x, b.at.y, b.at.z, b.grid.x,  b.grid.y,  b.grid.z};
    set<std::uint32_t>(t, i, 0, values[which]);
}
void lane(Thread& t, const Instruction& i) {
    set<std::uint32_t>(t, i, 0, lane_of(t));
}
void lanes_below(Thread& t, const Instruction& i) {
    set<std::uint32_t>(t, i, 0, mask<std::uint32_t>(lane_of(t)));
}
void global_timer(Thread& t, const Instruction& i) {
    looked(t);
    set<std::int64_t>(t, i, 0, std::chrono::steady_clock::now().time_since_epoch().count());
}
/// Of a GHz.
template <class T>
void cycles(Thread& t, const Instruction& i) {
    set<T>(t, i, 0, static_cast<T>(std::chrono::steady_clock::now().time_since_epoch().count()));
}

Handler warp_of(const Opcode& o) {
    if (o.front() == "activemask") return active_mask;
    if (!has(o, "sync")) return nullptr;
    if (o.front() == "match") {
        if (o.back() == "b32")
            return has(o, "any") ? meet<match<std::uint32_t, false>> : meet<match<std::uint32_t, true>>;
        if (o.back() == "b64")
            return has(o, "any") ? meet<match<std::uint64_t, false>> : meet<match<std::uint64_t, true>>;
        return nullptr;
    }
    if (o.back() == "b32" && has(o, "ballot")) return meet<count_votes<Vote::ballot>>;
    if (o.back() == "b32" && has(o, "up")) return meet<shuffle<From::up>>;
    if (o.back() == "b32" && has(o, "down")) return meet<shuffle<From::down>>;
    if (o.back() == "b32" && has(o, "bfly")) return meet<shuffle<From::bfly>>;
    if (o.back() == "b32" && has(o, "idx")) return meet<shuffle<From::idx>>;
    if (has(o, "any")) return meet<count_votes<Vote::any>>;
    if (has(o, "all")) return meet<count_votes<Vote::all>>;
    return has(o, "uni") ? meet<count_votes<Vote::uni>> : nullptr;
}

}  // namespace

Handler barrier_of(const Opcode& o) {
    if (has(o, "cluster")) return nullptr;
    if (has(o, "warp")) return meet<warp_barrier>;
    if (has(o, "sync")) return barrier;
    if (has(o, "arrive")) return arrive_at_barrier;
    if (!has(o, "red")) return nullptr;
    using Vote = Thread::Vote;
    if (has(o, "or")) return barrier_with_votes<Vote::any>;
    if (has(o, "and")) return barrier_with_votes<Vote::all>;
    return has(o, "popc") ? barrier_with_votes<Vote::count> : nullptr;
}

Handler control_of(const Opcode& o) {
    const std::string& name = o.front();
    if (name == "vote" || name == "shfl" || name == "activemask" || name == "match") return warp_of(o);
    if (name == "bar" || name == "barrier") return barrier_of(o);
    if (name == "bra") return branch;
    if (name == "call") return call;
    if (name == "ret") return leave;
    if (name == "exit") return exit_thread;
    if (name == "trap") return trap;
    if (name == "nanosleep") return sleep;
    return nullptr;
}

const Handler do_branch = branch, do_call = call, do_return = leave, do_pack = pack, do_unpack = unpack;

Form form_of(const Opcode& opcode, unsigned vector) {
    Form form;
    const std::string& name = opcode.front();
    const auto among = [&](std::initializer_list<const char*> names) {
        return std::ranges::any_of(names, [&](const char* n) { return name == n; });
    };
    const bool memory = among({"ld", "st", "atom", "red", "cvta", "fence", "membar"});
    const bool control = among({"bar", "barrier", "bra", "call", "ret", "exit", "trap", "nanosleep"});
    const bool warp = among({"vote", "shfl", "activemask", "match"});
    const bool multicast = name == "multimem", loads = name == "ld" || (multicast && has(opcode, "ld_reduce"));
    form.run = control || warp ? control_of(opcode)
               : name == "cvt" ? conversion_of(opcode)
               : memory        ? memory_of(opcode, vector)
               : multicast     ? multimem_of(opcode, vector)
                               : arithmetic_of(opcode);
    if (memory || multicast) form.memory = memory_order_of(opcode);
    if (loads || name == "shfl" || name == "match") form.destinations = static_cast<std::uint8_t>(vector);
    if (control || (multicast && !loads) || among({"st", "red", "fence", "membar"}))
        form.destinations = control && has(opcode, "red") ? 1 : 0;
    return form;
}

Handler special_of(const std::string& name) {
    static const char* const names[] = {"%tid.x",   "%tid.y",   "%tid.z",   "%ntid.x",   "%ntid.y",   "%ntid.z",
                                        "%ctaid.x", "%ctaid.y", "%ctaid.z", "%nctaid.x", "%nctaid.y", "%nctaid.z"};
    static const Handler handlers[] = {special<0>, special<1>, special<2>, special<3>, special<4>,  special<5>,
                                       special<6>, special<7>, special<8>, special<9>, special<10>, special<11>};
    for (std::size_t n = 0; n < std::size(names); ++n)
        if (name == names[n]) return handlers[n];
    if (name == "%laneid") return lane;
    if (name == "%lanemask_lt") return lanes_below;
    if (name == "%clock") return cycles<std::uint32_t>;
    if (name == "%clock64") return cycles<std::uint64_t>;
    if (name == "%globaltimer") return global_timer;
    return nullptr;
}

}  // namespace tutti::ptx
