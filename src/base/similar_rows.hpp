// A table of plain data whose rows are much alike, such as what the ranks of a job tell of themselves: most of their
// bytes depend on the host, the version or the job.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

namespace tutti {

/// Appends `bytes`, of which most are zeros, to `out` in a short form: runs of a byte for the number of zeros, a byte
/// for the number of others, and those. Both numbers of a run are never 0.
void append_runs(std::span<const std::byte> bytes, std::vector<std::byte>& out);

/// SimilarRows for rows of any type.
class DifferentBytes {
  public:
    std::size_t size() const { return starts_.size(); }
    bool has(std::size_t row) const { return starts_[row] != absent; }
    void resize(std::size_t rows) { starts_.resize(rows, absent); }
    /// Overwrites `bytes`.
    void set(std::size_t row, std::span<std::byte> bytes);
    /// Copies the row's first bytes.size() bytes.
    void get(std::size_t row, std::span<std::byte> bytes) const;

  private:
    static constexpr std::uint32_t absent = UINT32_MAX;
    static constexpr std::size_t block_bytes = 16384;

    std::vector<std::byte> first_;                // the row that was set first
    std::vector<std::uint32_t> starts_;           // by row: its block * block_bytes + where in the block it starts
    std::vector<std::vector<std::byte>> blocks_;  // differences: runs, and {0, 0}
};

/// Stores each row as its difference from the row that was set first. A row is set once; reading makes a copy. Several
/// threads may read at once.
template <class T>
class SimilarRows {
    static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>);  // no padding
    static_assert(sizeof(T) < 8192);                                                                // fits a block

  public:
    SimilarRows() = default;
    explicit SimilarRows(std::size_t rows) { rows_.resize(rows); }

    std::size_t size() const { return rows_.size(); }
    bool empty() const { return size() == 0; }
    /// Whether the row was set.
    bool has(std::size_t row) const { return rows_.has(row); }
    void set(std::size_t row, const T& value) {
        std::array<std::byte, sizeof(T)> bytes;
        std::memcpy(bytes.data(), &value, sizeof(T));
        rows_.set(row, bytes);
    }
    void push_back(const T& value) {
        rows_.resize(size() + 1);
        set(size() - 1, value);
    }
    /// A row that was set.
    T operator[](std::size_t row) const {
        T value{};
        rows_.get(row, std::as_writable_bytes(std::span(&value, 1)));
        return value;
    }
    /// The first member of a row that was set, which takes less time than the whole row.
    template <class Member>
    Member first(std::size_t row) const {
        static_assert(std::is_trivially_copyable_v<Member> && sizeof(Member) <= sizeof(T));
        Member value{};
        rows_.get(row, std::as_writable_bytes(std::span(&value, 1)));
        return value;
    }

  private:
    DifferentBytes rows_;
};

}  // namespace tutti
