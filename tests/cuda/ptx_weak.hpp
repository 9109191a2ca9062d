// Memory as lazy as PTX's memory model lets it be (section 8 of its manual), and no lazier. What a block stores lies in
// a buffer of its multiprocessor, and leaves it in an order that a seed decides, until a release says which of it must
// be seen. What it loads it keeps, a whole cache line at a time, and finds there again until an acquire. Stores to
// other GPUs and to the host are under way for longer: they have left once more, behind the GPU's own. So
//
//     .cta    orders nothing here: barriers do that within a block
//     .gpu    empties the multiprocessor's buffer, and forgets its lines
//     .sys    does so for what goes to, or comes from, elsewhere, too
//     .nc     finds what it found at first, for as long as the block runs
//
// and a thread's release or acquire serves other threads of its block only behind a barrier between them. Loads and
// stores that are volatile or relaxed have no order among each other, but see memory (as far as their scope reaches).
// For the files ptx_*.cpp, and for Memory::weak().
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <random>
#include <unordered_map>
#include <vector>

#include "ptx.hpp"
#include "ptx_order.hpp"

namespace tutti::ptx {

enum class Scope : std::uint8_t { cta, gpu, sys };

/// Stores under way, by words of 8 bytes. Those to one word keep their order.
class StoreBuffer {
  public:
    static constexpr std::uint32_t several = ~0u;  // threads have stored to the word
    struct Word {
        std::uint64_t* at;
        std::uint64_t data;
        std::uint8_t mask;           // of bytes
        std::uint32_t thread, time;  // of Order
    };
    void put(const Word& word);
    /// value: the word's as it is in memory; becomes what it will be.
    void overlay(const std::uint64_t* at, std::uint64_t& value) const;
    bool empty() const { return words_.empty(); }
    std::size_t size() const { return words_.size(); }
    Word take(std::size_t number);
    bool take_at(const std::uint64_t* at, Word& word);
    const Word& operator[](std::size_t number) const { return words_[number]; }

  private:
    std::vector<Word> words_;
    std::unordered_map<const std::uint64_t*, std::size_t> number_of_;
};

/// Lines as they were when they were asked for.
class LineCache {
  public:
    static constexpr std::size_t words = 16;
    using Line = std::array<std::uint64_t, words>;
    struct Kept {
        Line line;
        std::uint64_t since;
    };
    /// most: it begins anew when it has this many.
    explicit LineCache(std::size_t most) : most_(most) {}
    static std::uint64_t* line_of(const std::uint64_t* word);
    Kept* find(const std::uint64_t* word);
    void keep(const std::uint64_t* word, const Kept& kept);
    void update(const StoreBuffer::Word& word);
    void forget(const std::uint64_t* word);
    void clear() { lines_.clear(); }
    void forget_some(std::mt19937_64& random);

  private:
    const std::size_t most_;
    std::unordered_map<const std::uint64_t*, Kept> lines_;
};

/// What the multiprocessors of a GPU have in common: the way to memory elsewhere. From any thread.
class WeakGpu {
  public:
    explicit WeakGpu(std::uint64_t seed) : random_(seed), forgets_(random_() % 2 == 0) {}
    std::uint64_t draw();  // a seed

    void store(const StoreBuffer::Word& word);  // to memory elsewhere, now or later
    std::uint64_t load(const std::uint64_t* at, Scope scope);
    LineCache::Line load_line(const std::uint64_t* at);
    void release();  // all stores have arrived
    void acquire();
    void arrive(const std::uint64_t* at);  // those to one word
    void tick(bool idle);

  private:
    void arrived(const StoreBuffer::Word& word);
    LineCache::Kept& kept(const std::uint64_t* at);
    std::mutex mutex_;
    std::mt19937_64 random_;
    const bool forgets_;  // some lines while nobody goes on
    StoreBuffer under_way_;
    LineCache lines_{1 << 18};  // 32 MiB
};

/// What a block has of it.
class Multiprocessor {
  public:
    Multiprocessor(WeakGpu& gpu, std::uint32_t threads);
    ~Multiprocessor();  // what a kernel has stored is there at its end
    Multiprocessor(const Multiprocessor&) = delete;

    /// Of 1 to 16 bytes, aligned to their number. home: on the block's own GPU.
    struct Access {
        std::byte* at;
        std::size_t size;
        bool home;
        std::uint32_t thread;
    };
    void load(const Access& access, void* to);                      // plain
    void load_constant(const Access& access, void* to);             // .nc
    void load_strong(const Access& access, Scope scope, void* to);  // relaxed, or volatile
    void store(const Access& access, const void* from);             // of any kind
    void release(std::uint32_t thread, Scope scope);                // before the store
    void acquire(std::uint32_t thread, Scope scope);                // after the load
    void before_atomic(const Access& access);                       // what was stored there is there
    void after_atomic(const Access& access);
    /// As Order has them.
    void barrier(std::uint32_t warps = all_warps, unsigned number = Order::none);
    void arrive(unsigned number, std::uint32_t thread);

    void tick(bool idle);  // time passes; idle: and nobody goes on
    std::mt19937_64& random() { return random_; }

  private:
    template <class LoadWord>
    static void load_words(const Access& access, void* to, LoadWord&& load_word);
    std::uint64_t word_near(const std::uint64_t* at, const Access& access);
    void fetch(const std::uint64_t* at, bool home);
    void leave(const StoreBuffer::Word& word);

    WeakGpu& gpu_;
    std::mt19937_64 random_;
    unsigned laziness_;  // one in so many stores leaves in a tick; 0: most leave late
    StoreBuffer stored_;
    std::unordered_map<const std::uint64_t*, bool> home_;  // of words in stored_
    LineCache lines_{1 << 11}, constant_lines_{1 << 18};  // 256 KiB; whatever a kernel reads here
    std::uint64_t clock_ = 0;
    Order order_;
    std::vector<std::uint64_t> fresh_since_;                          // by thread: lines that it may find
    std::array<std::uint64_t, Order::barriers + 1> arrived_fresh_{};  // of threads that have come to a barrier
};

}  // namespace tutti::ptx
