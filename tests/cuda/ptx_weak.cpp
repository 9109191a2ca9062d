#include "ptx_weak.hpp"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

namespace tutti::ptx {
namespace {

constexpr std::size_t most_stores = 4096, page_bytes = 4096;

std::uint64_t bits_of(std::uint8_t mask) {
    std::uint64_t bits = 0;
    for (unsigned b = 0; b < 8; ++b)
        if ((mask >> b & 1) != 0) bits |= std::uint64_t{0xff} << 8 * b;
    return bits;
}

std::uint64_t in_memory(const std::uint64_t* at) {
    return __atomic_load_n(at, __ATOMIC_ACQUIRE);
}

/// Of a whole word or half of one at once.
void to_memory(const StoreBuffer::Word& w) {
    auto* const halves = reinterpret_cast<std::uint32_t*>(w.at);
    if (w.mask == 0xff) return __atomic_store_n(w.at, w.data, __ATOMIC_RELEASE);
    for (unsigned h = 0; h < 2; ++h) {
        const unsigned mask = w.mask >> 4 * h & 0xf;
        const auto half = static_cast<std::uint32_t>(w.data >> 32 * h);
        if (mask == 0xf) {
            __atomic_store_n(halves + h, half, __ATOMIC_RELEASE);
            continue;
        }
        for (unsigned b = 0; b < 4; ++b)
            if ((mask >> b & 1) != 0)
                __atomic_store_n(reinterpret_cast<std::uint8_t*>(halves + h) + b,
                                 static_cast<std::uint8_t>(half >> 8 * b), __ATOMIC_RELEASE);
    }
}

std::uint64_t* word_of(std::byte* at) {
    return reinterpret_cast<std::uint64_t*>(reinterpret_cast<std::uintptr_t>(at) / 8 * 8);
}

}  // namespace

void StoreBuffer::put(const Word& word) {
    const auto [found, is_new] = number_of_.try_emplace(word.at, words_.size());
    if (is_new) {
        words_.push_back(word);
        return;
    }
    Word& own = words_[found->second];
    const std::uint64_t bits = bits_of(word.mask);
    own.data = (own.data & ~bits) | (word.data & bits);
    own.mask |= word.mask;
    if (own.thread != word.thread) own.thread = several;
    own.time = std::min(own.time, word.time);
}

void StoreBuffer::overlay(const std::uint64_t* at, std::uint64_t& value) const {
    const auto found = number_of_.find(at);
    if (found == number_of_.end()) return;
    const Word& own = words_[found->second];
    const std::uint64_t bits = bits_of(own.mask);
    value = (value & ~bits) | (own.data & bits);
}

StoreBuffer::Word StoreBuffer::take(std::size_t number) {
    const Word word = words_[number];
    number_of_.erase(word.at);
    if (number + 1 < words_.size()) {
        words_[number] = words_.back();
        number_of_[words_[number].at] = number;
    }
    words_.pop_back();
    return word;
}

bool StoreBuffer::take_at(const std::uint64_t* at, Word& word) {
    const auto found = number_of_.find(at);
    if (found == number_of_.end()) return false;
    word = take(found->second);
    return true;
}

std::uint64_t* LineCache::line_of(const std::uint64_t* word) {
    const auto at = reinterpret_cast<std::uintptr_t>(word);
    return reinterpret_cast<std::uint64_t*>(at / sizeof(Line) * sizeof(Line));
}

LineCache::Kept* LineCache::find(const std::uint64_t* word) {
    const auto found = lines_.find(line_of(word));
    return found == lines_.end() ? nullptr : &found->second;
}

void LineCache::keep(const std::uint64_t* word, const Kept& kept) {
    if (lines_.size() >= most_) lines_.clear();
    lines_[line_of(word)] = kept;
}

void LineCache::update(const StoreBuffer::Word& word) {
    Kept* const kept = find(word.at);
    if (kept == nullptr) return;
    std::uint64_t& own = kept->line[static_cast<std::size_t>(word.at - line_of(word.at))];
    const std::uint64_t bits = bits_of(word.mask);
    own = (own & ~bits) | (word.data & bits);
}

void LineCache::forget(const std::uint64_t* word) {
    lines_.erase(line_of(word));
}

void LineCache::forget_some(std::mt19937_64& random) {
    std::erase_if(lines_, [&](const auto&) { return random() % 8 == 0; });
}

std::uint64_t WeakGpu::draw() {
    const std::lock_guard lock(mutex_);
    return random_();
}

void WeakGpu::store(const StoreBuffer::Word& word) {
    const std::lock_guard lock(mutex_);
    under_way_.put(word);
    if (under_way_.size() > most_stores) arrived(under_way_.take(random_() % under_way_.size()));
}

void WeakGpu::arrived(const StoreBuffer::Word& word) {
    to_memory(word);
    lines_.update(word);
}

LineCache::Kept& WeakGpu::kept(const std::uint64_t* at) {
    if (LineCache::Kept* const known = lines_.find(at)) return *known;
    LineCache::Kept fresh{};
    const std::uint64_t* const line = LineCache::line_of(at);
    for (std::size_t w = 0; w < LineCache::words; ++w) fresh.line[w] = in_memory(line + w);
    lines_.keep(at, fresh);
    return *lines_.find(at);
}

std::uint64_t WeakGpu::load(const std::uint64_t* at, Scope scope) {
    const std::lock_guard lock(mutex_);
    std::uint64_t value =
        scope == Scope::sys ? in_memory(at) : kept(at).line[static_cast<std::size_t>(at - LineCache::line_of(at))];
    under_way_.overlay(at, value);
    return value;
}

LineCache::Line WeakGpu::load_line(const std::uint64_t* at) {
    const std::lock_guard lock(mutex_);
    LineCache::Line line = kept(at).line;
    const std::uint64_t* const first = LineCache::line_of(at);
    for (std::size_t w = 0; w < LineCache::words; ++w) under_way_.overlay(first + w, line[w]);
    return line;
}

void WeakGpu::release() {
    const std::lock_guard lock(mutex_);
    while (!under_way_.empty()) arrived(under_way_.take(random_() % under_way_.size()));
}

void WeakGpu::acquire() {
    const std::lock_guard lock(mutex_);
    lines_.clear();
}

void WeakGpu::arrive(const std::uint64_t* at) {
    const std::lock_guard lock(mutex_);
    StoreBuffer::Word word;
    if (under_way_.take_at(at, word)) arrived(word);
    lines_.forget(at);
}

void WeakGpu::tick(bool idle) {
    const std::lock_guard lock(mutex_);
    std::size_t leaving = under_way_.size() / (idle ? 2 : 16);
    if (leaving < under_way_.size() && random_() % 4 == 0) ++leaving;
    for (; leaving > 0; --leaving) arrived(under_way_.take(random_() % under_way_.size()));
    if (idle && forgets_) lines_.forget_some(random_);
}

Multiprocessor::Multiprocessor(WeakGpu& gpu, std::uint32_t threads)
    : gpu_(gpu), random_(gpu.draw()), fresh_since_(threads, 0) {
    constexpr unsigned some[] = {0, 4, 64};
    laziness_ = some[random_() % std::size(some)];
    gpu_.acquire();  // what was there before the kernel is seen
}

Multiprocessor::~Multiprocessor() {
    const bool slowly = random_() % 2 == 0;
    while (!stored_.empty()) {
        leave(stored_.take(random_() % stored_.size()));
        if (slowly) std::this_thread::yield();
    }
    gpu_.release();
}

template <class LoadWord>
void Multiprocessor::load_words(const Access& access, void* to, LoadWord&& load_word) {
    std::uint64_t words[2];
    const std::uint64_t* const first = word_of(access.at);
    const std::size_t offset = static_cast<std::size_t>(access.at - reinterpret_cast<const std::byte*>(first));
    for (std::size_t w = 0; 8 * w < offset + access.size; ++w) words[w] = load_word(first + w);
    std::memcpy(to, reinterpret_cast<const std::byte*>(words) + offset, access.size);
}

/// Through the multiprocessor's lines.
std::uint64_t Multiprocessor::word_near(const std::uint64_t* at, const Access& access) {
    const auto number = static_cast<std::size_t>(at - LineCache::line_of(at));
    if (const LineCache::Kept* const kept = lines_.find(at); kept != nullptr)
        if (kept->since >= fresh_since_[access.thread]) return kept->line[number];
    fetch(at, access.home);
    const std::uint64_t value = lines_.find(at)->line[number];
    // Those behind it in its page come along where they are not there, as late as it, and before what they are to hold.
    for (const std::uint64_t* next = LineCache::line_of(at); random_() % 2 == 0;) {
        next += LineCache::words;
        if (reinterpret_cast<std::uintptr_t>(next) % page_bytes == 0 || lines_.find(next) != nullptr) break;
        fetch(next, access.home);
    }
    return value;
}

void Multiprocessor::fetch(const std::uint64_t* at, bool home) {
    LineCache::Kept fresh{{}, clock_};
    const std::uint64_t* const line = LineCache::line_of(at);
    if (home)
        for (std::size_t w = 0; w < LineCache::words; ++w) fresh.line[w] = in_memory(line + w);
    else
        fresh.line = gpu_.load_line(at);
    lines_.keep(at, fresh);
}

void Multiprocessor::load(const Access& access, void* to) {
    load_words(access, to, [&](const std::uint64_t* at) {
        std::uint64_t value = word_near(at, access);
        stored_.overlay(at, value);
        return value;
    });
}

void Multiprocessor::load_constant(const Access& access, void* to) {
    load_words(access, to, [&](const std::uint64_t* at) {
        const auto number = static_cast<std::size_t>(at - LineCache::line_of(at));
        if (const LineCache::Kept* const kept = constant_lines_.find(at)) return kept->line[number];
        word_near(at, access);
        if (lines_.find(at) == nullptr) fetch(at, access.home);  // those that came along took its room
        const LineCache::Kept kept = *lines_.find(at);
        constant_lines_.keep(at, kept);
        return kept.line[number];
    });
}

void Multiprocessor::load_strong(const Access& access, Scope scope, void* to) {
    load_words(access, to, [&](const std::uint64_t* at) {
        std::uint64_t value = scope == Scope::cta ? word_near(at, access)
                              : access.home       ? in_memory(at)
                                                  : gpu_.load(at, scope);
        stored_.overlay(at, value);
        return value;
    });
}

void Multiprocessor::store(const Access& access, const void* from) {
    std::uint64_t words[2] = {};
    std::uint64_t* const first = word_of(access.at);
    const std::size_t offset = static_cast<std::size_t>(access.at - reinterpret_cast<const std::byte*>(first));
    std::memcpy(reinterpret_cast<std::byte*>(words) + offset, from, access.size);
    for (std::size_t w = 0; 8 * w < offset + access.size; ++w) {
        std::uint8_t mask = 0;
        for (std::size_t b = 0; b < 8; ++b)
            if (8 * w + b >= offset && 8 * w + b < offset + access.size) mask |= static_cast<std::uint8_t>(1u << b);
        stored_.put({first + w, words[w], mask, access.thread, order_.now()});
        home_[first + w] = access.home;
    }
    if (stored_.size() > most_stores) leave(stored_.take(random_() % stored_.size()));
}

void Multiprocessor::leave(const StoreBuffer::Word& word) {
    lines_.update(word);
    const auto home = home_.find(word.at);
    if (home->second)
        to_memory(word);
    else
        gpu_.store(word);
    home_.erase(home);
}

void Multiprocessor::release(std::uint32_t thread, Scope scope) {
    if (scope == Scope::cta) return;
    for (std::size_t n = stored_.size(); n-- > 0;) {
        const StoreBuffer::Word& w = stored_[n];
        if (w.thread == thread || w.thread == StoreBuffer::several ||
            order_.is_before(w.time, bit_of_warp(w.thread), thread))
            leave(stored_.take(n));
    }
    if (scope == Scope::sys) gpu_.release();
}

void Multiprocessor::acquire(std::uint32_t thread, Scope scope) {
    if (scope == Scope::cta) return;
    fresh_since_[thread] = ++clock_;
    if (scope == Scope::sys) gpu_.acquire();
}

void Multiprocessor::before_atomic(const Access& access) {
    std::uint64_t* const at = word_of(access.at);
    StoreBuffer::Word word;
    if (stored_.take_at(at, word)) leave(word);
    if (!access.home) gpu_.arrive(at);
}

void Multiprocessor::after_atomic(const Access& access) {
    lines_.forget(word_of(access.at));
    if (!access.home) gpu_.arrive(word_of(access.at));
}

void Multiprocessor::barrier(std::uint32_t warps, unsigned number) {
    order_.meet(warps, number);
    std::uint64_t since = std::exchange(arrived_fresh_[number], 0);
    const auto of_threads = [&](auto&& act) {
        for (std::uint32_t t = 0; t < fresh_since_.size(); ++t)
            if ((warps & bit_of_warp(t)) != 0) act(fresh_since_[t]);
    };
    of_threads([&](std::uint64_t its) { since = std::max(since, its); });
    of_threads([&](std::uint64_t& its) { its = since; });
}

void Multiprocessor::arrive(unsigned number, std::uint32_t thread) {
    order_.arrive(number, thread);
    arrived_fresh_[number] = std::max(arrived_fresh_[number], fresh_since_[thread]);
}

void Multiprocessor::tick(bool idle) {
    std::size_t leaving = 0;
    if (idle || random_() % 256 == 0)  // whatever is stored leaves some day
        leaving = random_() % 2 == 0 ? stored_.size() : (stored_.size() + 1) / 2;
    else if (laziness_ != 0)
        leaving = (stored_.size() + random_() % laziness_) / laziness_;
    for (leaving = std::min(leaving, stored_.size()); leaving > 0; --leaving)
        leave(stored_.take(random_() % stored_.size()));
    gpu_.tick(idle);
}

}  // namespace tutti::ptx
