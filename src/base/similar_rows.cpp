#include "base/similar_rows.hpp"

#include <algorithm>
#include <bit>

#include "base/result.hpp"

namespace tutti {
namespace {

constexpr std::size_t longest_run = 255;

std::uint64_t word_at(const std::byte* bytes) {
    std::uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    return word;
}

/// Changes `bytes` by a difference. (By pointers that the compiler can keep in registers.)
void apply(std::byte* bytes, const std::byte* difference, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) bytes[i] ^= difference[i];
}

/// The number of zeros at the start, a word at a time.
std::size_t leading_zeros(std::span<const std::byte> bytes) {
    static_assert(std::endian::native == std::endian::little);
    std::size_t zeros = 0;
    for (; zeros + 8 <= bytes.size(); zeros += 8)
        if (const std::uint64_t word = word_at(&bytes[zeros]); word != 0)
            return zeros + static_cast<std::size_t>(std::countr_zero(word)) / 8;
    while (zeros < bytes.size() && bytes[zeros] == std::byte{0}) ++zeros;
    return zeros;
}

}  // namespace

/// One or two zeros among others do not end a run, since a new run costs as much.
void append_runs(std::span<const std::byte> left, std::vector<std::byte>& out) {
    while (!left.empty()) {
        const std::size_t zeros = leading_zeros(left.first(std::min(longest_run, left.size())));
        left = left.subspan(zeros);
        std::size_t others = 0;
        while (others < std::min(longest_run, left.size())) {
            const auto next = left.subspan(others).first(std::min<std::size_t>(3, left.size() - others));
            if (leading_zeros(next) == next.size()) break;
            ++others;
        }
        out.push_back(static_cast<std::byte>(zeros));
        out.push_back(static_cast<std::byte>(others));
        out.insert(out.end(), left.begin(), left.begin() + static_cast<std::ptrdiff_t>(others));
        left = left.subspan(others);
    }
}

void DifferentBytes::set(std::size_t row, std::span<std::byte> bytes) {
    TUTTI_ASSERT(!has(row));
    if (first_.empty()) first_.assign(bytes.begin(), bytes.end());
    apply(bytes.data(), first_.data(), bytes.size());
    std::size_t used = bytes.size();  // what ends in zeros ends early
    while (used >= 8 && word_at(&bytes[used - 8]) == 0) used -= 8;
    std::vector<std::byte> runs;
    runs.reserve(256);  // more than most need
    append_runs(bytes.first(used), runs);
    runs.insert(runs.end(), 2, std::byte{0});
    if (blocks_.empty()) blocks_.emplace_back();  // grows with its rows, for the table may stay small
    if (blocks_.back().size() + runs.size() > block_bytes) blocks_.emplace_back().reserve(block_bytes);
    const std::size_t start = (blocks_.size() - 1) * block_bytes + blocks_.back().size();
    TUTTI_ASSERT(start < absent);
    blocks_.back().insert(blocks_.back().end(), runs.begin(), runs.end());
    starts_[row] = static_cast<std::uint32_t>(start);
}

void DifferentBytes::get(std::size_t row, std::span<std::byte> bytes) const {
    TUTTI_ASSERT(has(row));
    std::copy_n(first_.begin(), bytes.size(), bytes.begin());
    const std::byte* run = &blocks_[starts_[row] / block_bytes][starts_[row] % block_bytes];
    while (run[0] != std::byte{0} || run[1] != std::byte{0}) {
        const std::size_t zeros = std::min(static_cast<std::size_t>(run[0]), bytes.size());
        const auto others = static_cast<std::size_t>(run[1]);
        bytes = bytes.subspan(zeros);
        if (bytes.empty()) return;
        apply(bytes.data(), run + 2, std::min(others, bytes.size()));
        bytes = bytes.subspan(std::min(others, bytes.size()));
        run += 2 + others;
    }
}

}  // namespace tutti
