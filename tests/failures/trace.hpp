// Where a call comes from, told without memory and in less time than the unwinder takes.
#pragma once

#include <sched.h>
#include <unwind.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "failing.hpp"

namespace tutti::failing {

class Lock {
  public:
    Lock() {
        while (taken_.test_and_set(std::memory_order_acquire)) sched_yield();
    }
    ~Lock() { taken_.clear(std::memory_order_release); }

  private:
    static inline constinit std::atomic_flag taken_;
};

/// How far the stack pointer of a caller is from that of what it has called, by where that returns to. The unwinder
/// takes longer than all that the library does, and the answer is mostly the same for one place: only where it is not,
/// or not known yet, the unwinder is asked.
class Strides {
  public:
    static constexpr std::ptrdiff_t unknown = 0, varies = -1, outermost = -2;

    std::ptrdiff_t of(std::uintptr_t place) const {
        for (std::size_t i = first(place);; i = (i + 1) % size) {
            const std::uintptr_t at = slots_[i].place.load(std::memory_order_acquire);
            if (at == place) return slots_[i].stride.load(std::memory_order_relaxed);
            if (at == 0) return unknown;
        }
    }
    void learn(std::uintptr_t place, std::ptrdiff_t stride) {
        const Lock lock;
        std::size_t i = first(place);
        while (slots_[i].place != 0 && slots_[i].place != place) i = (i + 1) % size;
        const bool same = slots_[i].place == 0 || slots_[i].stride == stride;
        if (slots_[i].place == 0 && ++used_ > size / 2) std::abort();
        slots_[i].stride.store(same ? stride : varies, std::memory_order_relaxed);
        slots_[i].place.store(place, std::memory_order_release);
    }

  private:
    static constexpr std::size_t size = 1 << 16;
    static std::size_t first(std::uintptr_t place) { return place * 0x9e3779b97f4a7c15u >> 48; }
    struct Slot {
        std::atomic<std::uintptr_t> place;
        std::atomic<std::ptrdiff_t> stride;
    };
    Slot slots_[size]{};
    std::size_t used_ = 0;
};
inline constinit Strides strides;

constexpr int own_frames = 2;  // the function that was asked, the one that was replaced

/// Where one call came from, taken when something wants to know it.
struct Trace {
    void* frames[most_frames];
    int depth = 0;

    __attribute__((noinline)) void take(int most = most_frames) {
        if (depth > 0) return;
        if (!take_known(static_cast<std::byte*>(__builtin_dwarf_cfa()), most)) take_unwound(most);
    }

  private:
    __attribute__((always_inline)) inline bool take_known(const std::byte* stack, int most) {
        void* place = __builtin_return_address(0);
        int taken = 0;
        for (int i = 0;; ++i) {
            if (i >= own_frames) frames[taken++] = place;
            if (taken == most) break;
            const std::ptrdiff_t stride = strides.of(reinterpret_cast<std::uintptr_t>(place));
            if (stride == Strides::outermost) break;
            if (stride <= 0) return false;
            stack += stride;
            std::memcpy(&place, stack - sizeof place, sizeof place);
        }
        depth = taken;
        return true;
    }
    void take_unwound(int most) {
        struct All {
            std::uintptr_t places[most_frames + own_frames + 2], stacks[most_frames + own_frames + 2];
            int wanted, count = -2;  // not this function, nor take()
        } all{};
        all.wanted = most + own_frames;
        _Unwind_Backtrace(
            [](_Unwind_Context* frame, void* to) {
                All& a = *static_cast<All*>(to);
                if (a.count >= 0) {
                    a.places[a.count] = _Unwind_GetIP(frame);
                    a.stacks[a.count] = _Unwind_GetCFA(frame);
                }
                return ++a.count > a.wanted ? _URC_END_OF_STACK : _URC_NO_REASON;
            },
            &all);
        for (int i = 0; i + 1 < all.count; ++i)
            strides.learn(all.places[i], static_cast<std::ptrdiff_t>(all.stacks[i + 1] - all.stacks[i]));
        if (all.count <= all.wanted && all.count > 0) strides.learn(all.places[all.count - 1], Strides::outermost);
        depth = std::clamp(all.count - own_frames, 0, most);
        for (int i = 0; i < depth; ++i) frames[i] = reinterpret_cast<void*>(all.places[i + own_frames]);
    }

  public:
    std::uint64_t hash(int callers = most_frames) const {
        std::uint64_t h = 14695981039346656037ull;
        for (int i = 0; i < std::min(depth, callers); ++i)
            h = (h ^ reinterpret_cast<std::uint64_t>(frames[i])) * 1099511628211ull;
        return h | 1;
    }
};

}  // namespace tutti::failing
