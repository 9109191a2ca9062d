#include "base/similar_rows.hpp"

#include <algorithm>
#include <numeric>
#include <random>

#include "harness/catch.hpp"
#include "harness/harness.hpp"

namespace tutti::test {
namespace {

struct Row {
    std::array<std::uint8_t, 1200> bytes{};
    bool operator==(const Row&) const = default;
};

/// Like `other` but for some stretches, which may be the whole row.
Row changed(Row other, std::mt19937_64& random) {
    for (auto changes = random() % 8; changes > 0; --changes) {
        const std::size_t at = random() % other.bytes.size();
        const std::size_t end = std::min(other.bytes.size(), at + 1 + random() % (random() % 4 == 0 ? 1200 : 24));
        for (std::size_t i = at; i < end; ++i)
            other.bytes[i] = random() % 8 == 0 ? other.bytes[i] : static_cast<std::uint8_t>(random());
    }
    return other;
}

template <std::size_t Bytes>
bool starts_alike(const SimilarRows<Row>& stored, const std::vector<Row>& rows, std::size_t r) {
    const auto start = stored.first<std::array<std::uint8_t, Bytes>>(r);
    return std::ranges::equal(start, std::span(rows[r].bytes).first(Bytes));
}

/// Reverses append_runs().
std::vector<std::byte> expanded(const std::vector<std::byte>& runs) {
    std::vector<std::byte> all;
    for (std::size_t at = 0; at < runs.size(); at += 2 + static_cast<std::size_t>(runs.at(at + 1))) {
        REQUIRE((runs.at(at) != std::byte{0} || runs.at(at + 1) != std::byte{0}));
        all.resize(all.size() + static_cast<std::size_t>(runs.at(at)));
        for (std::size_t i = 0; i < static_cast<std::size_t>(runs.at(at + 1)); ++i) all.push_back(runs.at(at + 2 + i));
    }
    return all;
}

}  // namespace

TEST_CASE("rows that are alike come back as they were set, in any order") {
    std::mt19937_64 random(harness::seed());
    for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{300}}) {
        std::vector<Row> rows(count);
        for (Row& row : rows) row = changed(rows.front(), random);
        std::vector<std::size_t> order(count);
        std::iota(order.begin(), order.end(), std::size_t{0});
        std::ranges::shuffle(order, random);
        SimilarRows<Row> stored(count);
        for (const std::size_t r : order) {
            REQUIRE_FALSE(stored.has(r));
            stored.set(r, rows[r]);
            REQUIRE(stored.has(r));
            REQUIRE(stored[r] == rows[r]);
        }
        stored.push_back(rows.back());
        const SimilarRows<Row> copy = stored;
        REQUIRE(copy.size() == count + 1);
        for (std::size_t r = 0; r < count; ++r) {
            REQUIRE(copy[r] == rows[r]);
            REQUIRE(starts_alike<1>(copy, rows, r));
            REQUIRE(starts_alike<24>(copy, rows, r));
            REQUIRE(starts_alike<300>(copy, rows, r));
            REQUIRE(starts_alike<1200>(copy, rows, r));
        }
        REQUIRE(copy[count] == rows.back());
    }
}

TEST_CASE("runs stand for exactly the bytes that they were made of, and are short where most are zeros") {
    std::mt19937_64 random(harness::seed());
    for (std::size_t size = 0; size < 1000; ++size) {
        std::vector<std::byte> bytes(size);
        for (auto changes = size == 0 ? 0 : random() % 4; changes > 0; --changes)
            for (std::size_t i = random() % size, end = std::min(size, i + random() % 400); i < end; ++i)
                bytes[i] = static_cast<std::byte>(random() % 4);
        std::vector<std::byte> runs;
        append_runs(bytes, runs);
        REQUIRE(expanded(runs) == bytes);
        REQUIRE(runs.size() <= size + size / 64 + 8);
    }
    std::vector<std::byte> runs;
    append_runs(std::vector<std::byte>(1000), runs);
    REQUIRE(runs.size() == 8);
}

}  // namespace tutti::test
