// Instructions on addresses of multicast, which lead to the same bytes on several GPUs: section 9.7.9.14 of PTX's
// manual. It leaves open in which order ld_reduce adds: here each one begins with another GPU.
#include "ptx_handlers.hpp"

namespace tutti::ptx {
namespace {

/// Where an address leads.
std::vector<std::byte*> replicas_at(Thread& t, const std::byte* at, std::size_t size, bool loads) {
    Block& b = *t.block;
    const auto inside = [&](const Block::Multicast& m) {
        return at >= m.its.range.begin && at + size <= m.its.range.end;
    };
    auto found = std::ranges::find_if(b.multicasts, inside);
    if (found == b.multicasts.end() && b.memory != nullptr) {
        Memory::Multicast fresh = b.memory->multicast_at(at);
        if (!fresh.replicas.empty()) found = b.multicasts.insert(b.multicasts.end(), {std::move(fresh)});
    }
    if (found == b.multicasts.end() || !inside(*found))
        fault("%zu bytes at %p are not memory of multicast that a kernel of this device can use", size,
              static_cast<const void*>(at));
    (loads ? found->moved.read : found->moved.written) += size;
    std::vector<std::byte*> replicas = found->its.replicas;
    for (std::byte*& replica : replicas) replica += at - found->its.range.begin;
    return replicas;
}

/// An access to `size` bytes on each GPU.
class Access {
  public:
    Access(Thread& t, const Instruction& i, int operand, std::size_t size, bool loads)
        : t_(t), i_(i), weak_(t.block->weak.get()) {
        const auto* const at =
            reinterpret_cast<const std::byte*>(static_cast<std::int64_t>(get<std::uint64_t>(t, i, operand)) + i.number);
        if (reinterpret_cast<std::uintptr_t>(at) % size != 0)
            fault("an address that is not aligned to %zu bytes: %p", size, static_cast<const void*>(at));
        replicas_ = replicas_at(t, at, size, loads);
        if (t.block->races != nullptr)
            t.block->races->use(at, size, t.number, loads ? Races::Kind::load : Races::Kind::store, "multicast");
    }
    std::size_t gpus() const { return replicas_.size(); }

    template <class Word>
    Word load(std::size_t gpu, std::size_t offset) const {
        Word word;
        if (weak_ == nullptr)
            word = __atomic_load_n(at<Word>(gpu, offset), __ATOMIC_RELAXED);
        else
            weak_->load(near(gpu, offset, sizeof word), &word);
        return word;
    }
    void loaded() const {
        if (!i_.memory.acquires) return;
        std::atomic_thread_fence(std::memory_order_acquire);
        if (weak_ != nullptr) weak_->acquire(t_.number, i_.memory.scope);
    }
    void to_store() const {
        if (!i_.memory.releases) return;
        std::atomic_thread_fence(std::memory_order_release);
        if (weak_ != nullptr) weak_->release(t_.number, i_.memory.scope);
    }
    template <class Word>
    void store(std::size_t gpu, std::size_t offset, Word word) const {
        if (weak_ == nullptr)
            __atomic_store_n(at<Word>(gpu, offset), word, __ATOMIC_RELAXED);
        else
            weak_->store(near(gpu, offset, sizeof word), &word);
    }
    template <class T>
    void add(std::size_t gpu, T value) const {
        if (weak_ != nullptr) weak_->before_atomic(near(gpu, 0, sizeof value));
        __atomic_fetch_add(at<T>(gpu, 0), value, __ATOMIC_RELAXED);
        if (weak_ != nullptr) weak_->after_atomic(near(gpu, 0, sizeof value));
    }

  private:
    template <class Word>
    Word* at(std::size_t gpu, std::size_t offset) const {
        return reinterpret_cast<Word*>(replicas_[gpu] + offset);
    }
    /// All are reached through the switch, this GPU's own one too.
    Multiprocessor::Access near(std::size_t gpu, std::size_t offset, std::size_t size) const {
        return {replicas_[gpu] + offset, size, false, t_.number};
    }
    Thread& t_;
    const Instruction& i_;
    Multiprocessor* const weak_;
    std::vector<std::byte*> replicas_;
};

template <std::size_t bytes>
using Word = std::conditional_t<bytes == 8, std::uint64_t, std::uint32_t>;

/// Two small floats in a word. wide: they are added in fp32, and rounded once.
template <class Small, bool wide>
struct Pair {
    std::uint32_t word;
};

enum class Op { add, min, max };

template <Op op, class T>
struct Reduction {
    static T of(const std::vector<T>& values) {
        T result = values[0];
        for (std::size_t k = 1; k < values.size(); ++k)
            if constexpr (op == Op::add)
                result = static_cast<T>(result + values[k]);
            else
                result = op == Op::min ? std::min(result, values[k]) : std::max(result, values[k]);
        return result;
    }
};

template <class Small, bool wide>
struct Reduction<Op::add, Pair<Small, wide>> {
    static Pair<Small, wide> of(const std::vector<Pair<Small, wide>>& values) {
        std::uint32_t result = 0;
        for (unsigned shift = 0; shift < 32; shift += 16) {
            const auto half = [&](std::size_t k) {
                return static_cast<float>(Small{static_cast<std::uint16_t>(values[k].word >> shift)}.number());
            };
            float sum = half(0);
            for (std::size_t k = 1; k < values.size(); ++k) {
                sum += half(k);
                if (!wide) sum = static_cast<float>(Small::of(sum).number());
            }
            result |= std::uint32_t{Small::of(sum).code} << shift;
        }
        return {result};
    }
};

template <Op op, unsigned n>
struct LoadReduce {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        thread_local std::size_t first = 0;
        const Access access(t, i, n, n * sizeof(T), true);
        looked(t);
        ++first;
        for (unsigned k = 0; k < n; ++k) {
            std::vector<T> values(access.gpus());
            for (std::size_t g = 0; g < values.size(); ++g)
                values[g] = std::bit_cast<T>(access.load<Word<sizeof(T)>>((first + g) % values.size(), k * sizeof(T)));
            const auto result = std::bit_cast<Word<sizeof(T)>>(Reduction<op, T>::of(values));
            set<Word<sizeof(T)>>(t, i, static_cast<int>(k), result);
        }
        access.loaded();
    }
};

template <unsigned n>
struct MultiStore {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        const Access access(t, i, 0, n * sizeof(T), false);
        access.to_store();
        for (std::size_t g = 0; g < access.gpus(); ++g)
            for (unsigned k = 0; k < n; ++k)
                access.store(g, k * sizeof(T), get<Word<sizeof(T)>>(t, i, static_cast<int>(k + 1)));
    }
};

struct MultiReduce {
    template <class T>
    static void run(Thread& t, const Instruction& i) {
        const Access access(t, i, 0, sizeof(T), false);
        access.to_store();
        for (std::size_t g = 0; g < access.gpus(); ++g) access.add(g, get<T>(t, i, 1));
    }
};

template <class T>
Handler sum_of(unsigned n) {
    return n == 1   ? LoadReduce<Op::add, 1>::run<T>
           : n == 2 ? LoadReduce<Op::add, 2>::run<T>
           : n == 4 ? LoadReduce<Op::add, 4>::run<T>
                    : nullptr;
}

Handler load_of(const Opcode& o, unsigned n) {
    const std::string& type = o.back();
    const bool wide = has(o, "acc::f32");
    if (has(o, "add")) {
        if (type == "f16x2") return wide ? sum_of<Pair<Half, true>>(n) : sum_of<Pair<Half, false>>(n);
        if (type == "bf16x2") return wide ? sum_of<Pair<Bfloat, true>>(n) : sum_of<Pair<Bfloat, false>>(n);
        if (wide) return nullptr;
        if (type == "f32") return sum_of<float>(n);
        if (n != 1) return nullptr;
        if (type == "f64") return sum_of<double>(1);
        return type == "s64" ? nullptr : of<LoadReduce<Op::add, 1>>(Atoms{}, type);
    }
    if (n != 1 || wide) return nullptr;
    if (has(o, "min")) return of<LoadReduce<Op::min, 1>>(Atoms{}, type);
    return has(o, "max") ? of<LoadReduce<Op::max, 1>>(Atoms{}, type) : nullptr;
}

Handler store_of(const std::string& type, unsigned n) {
    if (type == "f16x2" || type == "bf16x2" || type == "f32")
        return n == 1   ? MultiStore<1>::run<std::uint32_t>
               : n == 2 ? MultiStore<2>::run<std::uint32_t>
               : n == 4 ? MultiStore<4>::run<std::uint32_t>
                        : nullptr;
    if (n != 1) return nullptr;
    return type == "f64" ? MultiStore<1>::run<std::uint64_t> : of<MultiStore<1>>(Atoms{}, type);
}

}  // namespace

Handler multimem_of(const Opcode& o, unsigned n) {
    if (!only(o, {"ld_reduce", "st", "red", "weak", "relaxed", "acquire", "release", "sys", "gpu", "cta", "global",
                  "add", "min", "max", "acc::f32", "v2", "v4"}))
        return nullptr;
    if (has(o, "v2") != (n == 2) || has(o, "v4") != (n == 4)) return nullptr;
    if (has(o, "ld_reduce")) return load_of(o, n);
    if (has(o, "st")) return store_of(o.back(), n);
    return n == 1 && has(o, "red") && has(o, "add") && o.back() != "s64" ? of<MultiReduce>(Atoms{}, o.back()) : nullptr;
}

}  // namespace tutti::ptx
