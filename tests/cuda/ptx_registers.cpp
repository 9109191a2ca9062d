// nvcc writes PTX with thousands of registers, each set once. What is needed at the same time is known from where each
// is live (data flow, backwards); intervals of the text that don't overlap share one (linear scan: Poletto and Sarkar,
// 1999). A thread's registers then fit in a cache.
#include <algorithm>
#include <bit>
#include <queue>

#include "ptx_code.hpp"

namespace tutti::ptx {
namespace {

using Bits = std::vector<std::uint64_t>;

bool get(const Bits& bits, std::size_t i) {
    return (bits[i / 64] >> i % 64 & 1) != 0;
}
void set(Bits& bits, std::size_t i) {
    bits[i / 64] |= std::uint64_t{1} << i % 64;
}

template <class Work>
void each(const Bits& bits, Work work) {
    for (std::size_t w = 0; w < bits.size(); ++w)
        for (std::uint64_t left = bits[w]; left != 0; left &= left - 1)
            work(64 * w + static_cast<std::size_t>(std::countr_zero(left)));
}

/// Instructions of which only the first is jumped to, and only the last jumps.
struct Straight {
    std::size_t begin = 0, end = 0;
    std::vector<std::size_t> followers;
    Bits read, written, live_in, live_out;  // of Crossing::registers; read: before they are written
};

struct Interval {
    std::size_t begin = SIZE_MAX, end = 0;
    void cover(std::size_t at) {
        begin = std::min(begin, at);
        end = std::max(end, at);
    }
};

std::vector<Straight> straights_of(const Function& f) {
    const std::size_t n = f.code.size();
    std::vector<char> first(n + 1, 0);
    first[0] = 1;
    for (std::size_t i = 0; i < n; ++i) {
        if (f.code[i].run == do_branch) first[static_cast<std::size_t>(f.code[i].number)] = 1;
        if (f.code[i].run == do_branch || f.code[i].run == do_return) first[i + 1] = 1;
    }
    std::vector<Straight> found;
    std::vector<std::size_t> at(n + 1, 0);
    for (std::size_t i = 0; i < n; ++i) {
        if (first[i]) found.emplace_back().begin = i;
        at[i] = found.size() - 1;
        found.back().end = i + 1;
    }
    for (Straight& s : found) {
        const Instruction& last = f.code[s.end - 1];
        if (last.run == do_branch) s.followers.push_back(at[static_cast<std::size_t>(last.number)]);
        const bool goes_on = (last.run != do_branch && last.run != do_return) || last.guard >= 0;
        if (goes_on && s.end < n) s.followers.push_back(at[s.end]);
    }
    return found;
}

template <class Read, class Write>
void visit(const Instruction& i, Read read, Write write) {
    for (int o = i.destinations; o < i.operands; ++o)
        if (i.operand[o] >= 0) read(static_cast<std::size_t>(i.operand[o]));
    if (i.guard >= 0) read(static_cast<std::size_t>(i.guard));
    for (int o = 0; o < i.destinations; ++o)
        if (i.operand[o] >= 0) write(static_cast<std::size_t>(i.operand[o]));
}

/// The registers that some part reads before it writes them. All others are live within one part.
struct Crossing {
    static constexpr std::size_t none = SIZE_MAX;
    std::vector<std::size_t> registers, bit;  // bit: of each register; none: it does not cross

    Crossing(const Function& f, const std::vector<Straight>& parts, unsigned used) : bit(used, none) {
        std::vector<std::size_t> written(used, none);  // by which part last
        for (std::size_t part = 0; part < parts.size(); ++part)
            for (std::size_t i = parts[part].begin; i < parts[part].end; ++i) {
                const bool guarded = f.code[i].guard >= 0;  // what it writes may stay as it was
                const auto read = [&](std::size_t r) {
                    if (written[r] == part || bit[r] != none) return;
                    bit[r] = registers.size();
                    registers.push_back(r);
                };
                visit(f.code[i], read, [&](std::size_t r) { guarded ? read(r) : void(written[r] = part); });
            }
    }
};

void find_live(const Function& f, std::vector<Straight>& parts, const Crossing& crossing) {
    const std::size_t words = crossing.registers.size() / 64 + 1;
    for (Straight& s : parts) {
        s.read = s.written = s.live_in = s.live_out = Bits(words);
        for (std::size_t i = s.begin; i < s.end; ++i) {
            const bool guarded = f.code[i].guard >= 0;
            const auto read = [&](std::size_t r) {
                const std::size_t b = crossing.bit[r];
                if (b != Crossing::none && !get(s.written, b)) set(s.read, b);
            };
            visit(f.code[i], read, [&](std::size_t r) {
                if (guarded) return read(r);
                if (crossing.bit[r] != Crossing::none) set(s.written, crossing.bit[r]);
            });
        }
    }
    std::vector<char> changes(parts.size(), 1);  // whether live_in changed when it was last looked at
    for (bool changed = true, first = true; changed; first = false) {
        changed = false;
        for (std::size_t at = parts.size(); at-- > 0;) {
            Straight& s = parts[at];
            const bool same = std::ranges::none_of(s.followers, [&](std::size_t next) { return changes[next] != 0; });
            changes[at] = 0;
            if (same && !first) continue;
            for (std::size_t w = 0; w < words; ++w) {
                std::uint64_t out = 0;
                for (const std::size_t next : s.followers) out |= parts[next].live_in[w];
                const std::uint64_t in = s.read[w] | (out & ~s.written[w]);
                changes[at] |= in != s.live_in[w];
                s.live_out[w] = out;
                s.live_in[w] = in;
            }
            changed |= changes[at] != 0;
        }
    }
}

}  // namespace

void assign_registers(Function& function, unsigned used) {
    if (function.code.empty()) return;
    std::vector<Straight> parts = straights_of(function);
    const Crossing crossing(function, parts, used);
    find_live(function, parts, crossing);
    // An instruction reads before it writes: at 2 i and 2 i + 1.
    std::vector<Interval> intervals(used);
    for (const Straight& s : parts) {
        each(s.live_in, [&](std::size_t bit) { intervals[crossing.registers[bit]].cover(2 * s.begin); });
        each(s.live_out, [&](std::size_t bit) { intervals[crossing.registers[bit]].cover(2 * s.end - 1); });
        for (std::size_t i = s.begin; i < s.end; ++i) {
            const bool guarded = function.code[i].guard >= 0;
            visit(
                function.code[i], [&](std::size_t r) { intervals[r].cover(2 * i); },
                [&](std::size_t r) {
                    intervals[r].cover(2 * i + 1);
                    if (guarded) intervals[r].cover(2 * i);
                });
        }
    }
    std::vector<std::size_t> order;
    for (std::size_t r = 0; r < used; ++r)
        if (intervals[r].begin != SIZE_MAX) order.push_back(r);
    std::ranges::sort(order, {}, [&](std::size_t r) { return intervals[r].begin; });
    using Busy = std::pair<std::size_t, std::int32_t>;  // until when, which
    std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy;
    std::priority_queue<std::int32_t, std::vector<std::int32_t>, std::greater<>> free;
    std::vector<std::int32_t> number(used, -1);
    std::int32_t all = 0;
    for (const std::size_t r : order) {
        while (!busy.empty() && busy.top().first < intervals[r].begin) {
            free.push(busy.top().second);
            busy.pop();
        }
        if (free.empty())
            number[r] = all++;
        else {
            number[r] = free.top();
            free.pop();
        }
        busy.emplace(intervals[r].end, number[r]);
    }
    function.registers = static_cast<unsigned>(all);
    for (Instruction& i : function.code) {
        for (int o = 0; o < i.operands; ++o)
            if (i.operand[o] >= 0) i.operand[o] = number[static_cast<std::size_t>(i.operand[o])];
        if (i.guard >= 0) i.guard = number[static_cast<std::size_t>(i.guard)];
    }
}

}  // namespace tutti::ptx
