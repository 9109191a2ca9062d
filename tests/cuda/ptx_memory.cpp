// Loads, stores, atomics, and the spaces that addresses are in: sections 5.1, 9.7.9 and 9.7.13 of PTX's manual.
#include "ptx_handlers.hpp"

namespace tutti::ptx {
namespace {

enum class Space { generic, shared, local, param };

/// Where to count what is moved there.
Memory::Traffic& check_range(Thread& t, const std::byte* at, std::size_t size) {
    Block& b = *t.block;
    b.touched = nullptr;
    if (b.memory == nullptr) return b.elsewhere;
    const auto inside = [&](const Memory::Range& r) { return at >= r.begin && at + size <= r.end; };
    const auto found_in = [&](std::size_t n) -> Memory::Traffic& {
        b.last = n;
        b.touched = &b.known[n];
        return b.known[n].moved;
    };
    if (inside(b.known[b.last].range)) return found_in(b.last);
    for (std::size_t n = 0; n < b.known.size(); ++n)
        if (inside(b.known[n].range)) return found_in(n);
    const std::byte* const stack = t.stack.get();
    if (at >= stack && at + size <= stack + t.frames.front().function->stack_bytes + 16) return b.elsewhere;
    const Memory::Range found = b.memory->around(at);
    if (!inside(found))
        fault("%zu bytes at %p are not memory that a kernel of this device can use", size,
              static_cast<const void*>(at));
    b.known.push_back({found, true, b.memory->is_home(found)});
    return found_in(b.known.size() - 1);
}

/// Where parameters at an offset lie: those of a kernel are all threads' own.
std::byte* parameter_at(Thread& t, std::int64_t offset, std::size_t size) {
    const Function& f = *t.function;
    if (offset < 0 || static_cast<std::size_t>(offset) + size > f.own_bytes + f.call_bytes)
        fault("parameters at %lld of %zu bytes", static_cast<long long>(offset), f.own_bytes + f.call_bytes);
    const auto at = static_cast<std::size_t>(offset);
    return at < f.own_bytes ? t.own + at : t.calls + (at - f.own_bytes);
}

enum class Order { plain, relaxed, acquire, release };
enum class Access { load, store };

template <Access access, Order order>
void count(Memory::Traffic& moved, std::size_t size) {
    if (order == Order::relaxed && access == Access::store && size == 16) moved.lines_written += 8;
    if (order != Order::plain) return;
    (access == Access::load ? moved.read : moved.written) += size;
    if (size == 16) (access == Access::load ? moved.packs_read : moved.packs_written) += size;
}

template <Space space, Access access, Order order>
void check_race(Thread& t, const std::byte* at, std::size_t size) {
    Block& b = *t.block;
    if (b.races == nullptr || (space == Space::generic && b.touched == nullptr)) return;
    using Kind = Races::Kind;
    constexpr bool loads = access == Access::load;
    constexpr Kind kind =
        order == Order::plain ? (loads ? Kind::load : Kind::store) : (loads ? Kind::strong_load : Kind::strong_store);
    const bool shared = space == Space::shared || !b.touched->others_see;
    b.races->use(at, size, t.number, kind, shared ? "shared" : "global");
}

template <Space space, Access access = Access::load, Order order = Order::acquire>
std::byte* address(Thread& t, const Instruction& i, int operand, std::size_t size, std::size_t alignment) {
    const auto value = static_cast<std::int64_t>(get<std::uint64_t>(t, i, operand)) + i.number;
    std::byte* at = nullptr;
    if constexpr (space == Space::generic) {
        at = reinterpret_cast<std::byte*>(value);
    } else if constexpr (space == Space::param) {
        at = parameter_at(t, value, size);
        if (static_cast<std::size_t>(value) % alignment != 0)
            fault("a parameter at %lld, which is not aligned to %zu bytes", static_cast<long long>(value), alignment);
        return at;
    } else {
        const std::size_t limit = space == Space::shared ? t.block->shared_bytes : t.function->local_bytes;
        const std::int64_t low = space == Space::shared ? value & 0xffffffff : value;  // addresses of 32 bits, too
        if (low < 0 || static_cast<std::size_t>(low) + size > limit)
            fault("%zu bytes at %lld of %zu bytes of %s memory", size, static_cast<long long>(low), limit,
                  space == Space::shared ? "shared" : "local");
        at = (space == Space::shared ? t.block->shared : t.local) + low;
    }
    if (reinterpret_cast<std::uintptr_t>(at) % alignment != 0)
        fault("an address that is not aligned to %zu bytes: %p", alignment, static_cast<void*>(at));
    if constexpr (space == Space::generic) count<access, order>(check_range(t, at, size), size);
    if constexpr (space == Space::generic || space == Space::shared) check_race<space, access, order>(t, at, size);
    return at;
}

/// Whether an access, behind address(), goes to memory that is lazy.
bool is_weak(const Thread& t) {
    return t.block->weak != nullptr && t.block->touched != nullptr && t.block->touched->others_see;
}
Multiprocessor::Access weak_access(const Thread& t, const std::byte* at, std::size_t size) {
    return {const_cast<std::byte*>(at), size, t.block->touched->home, t.number};
}

template <Order order>
void weak_load(const Thread& t, const Instruction& i, const std::byte* from, std::size_t size, void* to) {
    Multiprocessor& own = *t.block->weak;
    const Multiprocessor::Access access = weak_access(t, from, size);
    if (i.memory.constant) return own.load_constant(access, to);
    if (order == Order::plain) return own.load(access, to);
    own.load_strong(access, i.memory.scope, to);
    if (order == Order::acquire) own.acquire(t.number, i.memory.scope);
}

template <Order order>
void weak_store(const Thread& t, const Instruction& i, std::byte* to, std::size_t size, const void* from) {
    Multiprocessor& own = *t.block->weak;
    if (order == Order::release) own.release(t.number, i.memory.scope);
    own.store(weak_access(t, to, size), from);
}

template <class T, Order order>
T load_one(const std::byte* from) {
    if constexpr (order == Order::plain || is_float<T> || sizeof(T) < 4) {
        T value;
        std::memcpy(&value, from, sizeof value);
        return value;
    } else {
        return __atomic_load_n(reinterpret_cast<const T*>(from),
                               order == Order::acquire ? __ATOMIC_ACQUIRE : __ATOMIC_RELAXED);
    }
}

template <Space space, Order order, unsigned n>
struct Load {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        const std::byte* const from = address<space, Access::load, order>(t, i, n, n * sizeof(T), n * sizeof(T));
        if constexpr (order != Order::plain) looked(t);
        if constexpr (space == Space::generic)
            if (is_weak(t)) {
                T values[n];
                weak_load<order>(t, i, from, sizeof values, values);
                for (unsigned k = 0; k < n; ++k) set<T>(t, i, static_cast<int>(k), values[k]);
                return;
            }
        if constexpr (order == Order::relaxed && n == 4 && sizeof(T) == 4) {  // lines: no more than halves at once
            const auto a = load_one<std::uint64_t, order>(from), b = load_one<std::uint64_t, order>(from + 8);
            const T parts[4] = {
                std::bit_cast<T>(static_cast<std::uint32_t>(a)), std::bit_cast<T>(static_cast<std::uint32_t>(a >> 32)),
                std::bit_cast<T>(static_cast<std::uint32_t>(b)), std::bit_cast<T>(static_cast<std::uint32_t>(b >> 32))};
            for (int k = 0; k < 4; ++k) set<T>(t, i, k, parts[k]);
        } else {
            for (unsigned k = 0; k < n; ++k)
                set<T>(t, i, static_cast<int>(k), load_one<T, order>(from + k * sizeof(T)));
        }
    }
};

template <class T, Order order>
void store_one(std::byte* to, T value) {
    if constexpr (order == Order::plain || is_float<T> || sizeof(T) < 4)
        std::memcpy(to, &value, sizeof value);
    else
        __atomic_store_n(reinterpret_cast<T*>(to), value,
                         order == Order::release ? __ATOMIC_RELEASE : __ATOMIC_RELAXED);
}

template <Space space, Order order, unsigned n>
struct Store {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        std::byte* const to = address<space, Access::store, order>(t, i, 0, n * sizeof(T), n * sizeof(T));
        if constexpr (space == Space::generic)
            if (is_weak(t)) {
                T values[n];
                for (unsigned k = 0; k < n; ++k) values[k] = get<T>(t, i, static_cast<int>(k + 1));
                return weak_store<order>(t, i, to, sizeof values, values);
            }
        if constexpr (order == Order::relaxed && n == 4 && sizeof(T) == 4) {
            const auto word = [&](int k) { return std::uint64_t{get<std::uint32_t>(t, i, k)}; };
            store_one<std::uint64_t, order>(to, word(1) | word(2) << 32);
            store_one<std::uint64_t, order>(to + 8, word(3) | word(4) << 32);
        } else {
            for (unsigned k = 0; k < n; ++k)
                store_one<T, order>(to + k * sizeof(T), get<T>(t, i, static_cast<int>(k + 1)));
        }
    }
};

/// Around what an atomic does to memory itself.
class Atomic {
  public:
    Atomic(Thread& t, const Instruction& i, int operand, std::size_t size)
        : thread_(t), its_(i.memory), at_(address<Space::generic, Access::store>(t, i, operand, size, size)) {
        looked(t);
        if (!is_weak(t)) return;
        access_ = weak_access(t, at_, size);
        if (its_.releases) t.block->weak->release(t.number, its_.scope);
        t.block->weak->before_atomic(access_);
    }
    ~Atomic() {
        if (access_.at == nullptr) return;
        thread_.block->weak->after_atomic(access_);
        if (its_.acquires) thread_.block->weak->acquire(thread_.number, its_.scope);
    }
    Atomic(const Atomic&) = delete;
    template <class T>
    T* at() const {
        return reinterpret_cast<T*>(at_);
    }

  private:
    Thread& thread_;
    const decltype(Instruction::memory)& its_;
    std::byte* const at_;
    Multiprocessor::Access access_{};
};

struct CompareAndSwap {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        const Atomic atomic(t, i, 1, sizeof(T));
        T expected = get<T>(t, i, 2);
        __atomic_compare_exchange_n(atomic.at<T>(), &expected, get<T>(t, i, 3), false, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST);
        set<T>(t, i, 0, expected);
    }
};
struct AtomicAdd {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        const Atomic atomic(t, i, 1, sizeof(T));
        set<T>(t, i, 0, __atomic_fetch_add(atomic.at<T>(), get<T>(t, i, 2), __ATOMIC_SEQ_CST));
    }
};
/// An addition whose result nobody wants.
struct Reduce {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        const Atomic atomic(t, i, 0, sizeof(T));
        __atomic_fetch_add(atomic.at<T>(), get<T>(t, i, 1), __ATOMIC_SEQ_CST);
    }
};
struct AtomicExchange {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        const Atomic atomic(t, i, 1, sizeof(T));
        set<T>(t, i, 0, __atomic_exchange_n(atomic.at<T>(), get<T>(t, i, 2), __ATOMIC_SEQ_CST));
    }
};

void fence(Thread& t, const Instruction& i) {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (t.block->weak == nullptr) return;
    t.block->weak->release(t.number, i.memory.scope);
    t.block->weak->acquire(t.number, i.memory.scope);
}

/// Between a space's own addresses and those of all memory.
template <Space space, bool to_generic>
void change_space(Thread& t, const Instruction& i) {
    std::byte* base = nullptr;
    if constexpr (space == Space::shared) base = t.block->shared;
    if constexpr (space == Space::local) base = t.local;
    const auto value = get<std::uint64_t>(t, i, 1);
    if constexpr (space == Space::param) {
        static_assert(to_generic);
        set<std::uint64_t>(t, i, 0,
                           reinterpret_cast<std::uint64_t>(parameter_at(t, static_cast<std::int64_t>(value), 1)));
    } else {
        const auto offset = reinterpret_cast<std::uint64_t>(base);
        set<std::uint64_t>(t, i, 0, to_generic ? value + offset : value - offset);
    }
}

template <template <Space, Order, unsigned> class Op, Space space, Order order>
Handler access_of(unsigned n, const std::string& type) {
    if (n <= 1) return of<Op<space, order, 1>>(All{}, type);
    if (n == 2) return of<Op<space, order, 2>>(All{}, type);
    if (n == 4) return of<Op<space, order, 4>>(All{}, type);
    return nullptr;
}

template <template <Space, Order, unsigned> class Op>
Handler accesses_of(const Opcode& o, unsigned n) {
    const std::string& type = o.back();
    if (!only(o, {"v2",          "v4",
                  "param",       "param::entry",
                  "param::func", "shared",
                  "shared::cta", "local",
                  "global",      "const",
                  "volatile",    "relaxed",
                  "acquire",     "release",
                  "sys",         "gpu",
                  "cta",         "nc",
                  "ca",          "cg",
                  "cs",          "lu",
                  "cv",          "wb",
                  "wt",          "L1::no_allocate"}))
        return nullptr;
    if (has(o, "param") || has(o, "param::entry") || has(o, "param::func"))
        return access_of<Op, Space::param, Order::plain>(n, type);
    if (has(o, "local")) return access_of<Op, Space::local, Order::plain>(n, type);
    if (has(o, "shared") || has(o, "shared::cta"))
        return has(o, "volatile") ? access_of<Op, Space::shared, Order::relaxed>(n, type)
                                  : access_of<Op, Space::shared, Order::plain>(n, type);
    if (has(o, "volatile") || has(o, "relaxed")) return access_of<Op, Space::generic, Order::relaxed>(n, type);
    if (has(o, "acquire")) return access_of<Op, Space::generic, Order::acquire>(n, type);
    if (has(o, "release")) return access_of<Op, Space::generic, Order::release>(n, type);
    return access_of<Op, Space::generic, Order::plain>(n, type);
}

Handler space_change(const Opcode& o) {
    if (has(o, "to"))
        return has(o, "shared")                      ? change_space<Space::shared, false>
               : has(o, "local")                     ? change_space<Space::local, false>
               : has(o, "global") || has(o, "const") ? change_space<Space::generic, false>
                                                     : nullptr;
    return has(o, "shared")                      ? change_space<Space::shared, true>
           : has(o, "local")                     ? change_space<Space::local, true>
           : has(o, "param")                     ? change_space<Space::param, true>
           : has(o, "global") || has(o, "const") ? change_space<Space::generic, true>
                                                 : nullptr;
}

}  // namespace

decltype(Instruction::memory) memory_order_of(const Opcode& o) {
    decltype(Instruction::memory) order;
    const bool fence = o.front() == "fence" || o.front() == "membar";
    const bool atomic = o.front() == "atom" || o.front() == "red";
    order.scope = has(o, "cta")                                    ? Scope::cta
                  : has(o, "gpu") || has(o, "gl")                  ? Scope::gpu
                  : has(o, "proxy")                                ? Scope::gpu  // other addresses of the same memory
                  : has(o, "sys") || has(o, "volatile") || !atomic ? Scope::sys
                                                                   : Scope::gpu;  // what atomics have without one
    const bool both = fence || has(o, "acq_rel");
    order.acquires = both || has(o, "acquire");
    order.releases = both || has(o, "release");
    order.constant = has(o, "nc");
    return order;
}

Handler memory_of(const Opcode& o, unsigned vector) {
    const std::string &name = o.front(), &type = o.back();
    if (name == "ld") return accesses_of<Load>(o, vector);
    if (name == "st") return accesses_of<Store>(o, vector);
    if (name == "cvta") return space_change(o);
    if (name == "fence" && has(o, "proxy")) return o.size() == 3 && o.back() == "alias" ? fence : nullptr;
    if (name == "fence" || name == "membar") return fence;
    if (has(o, "shared")) return nullptr;
    if (name == "red") return has(o, "add") ? of<Reduce>(Atoms{}, type) : nullptr;
    if (has(o, "cas")) return of<CompareAndSwap>(Atoms{}, type);
    if (has(o, "add")) return of<AtomicAdd>(Atoms{}, type);
    if (has(o, "exch")) return of<AtomicExchange>(Atoms{}, type);
    return nullptr;
}

}  // namespace tutti::ptx
