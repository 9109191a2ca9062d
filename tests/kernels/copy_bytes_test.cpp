#include "kernels/host/copy_bytes.hpp"

#include <algorithm>
#include <vector>

#include "harness/catch.hpp"

using namespace tutti;

TEST_CASE("copies of few bytes and of many write these bytes and no others, also onto themselves") {
    std::vector<std::byte> from(256);
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + 1);
    for (std::size_t bytes = 0; bytes <= 100; ++bytes)
        for (std::size_t at = 0; at < 17; ++at) {
            std::vector<std::byte> to(256, std::byte{0xee}), expected = to;
            std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), bytes, expected.begin() + 20);
            copy_bytes(to.data() + 20, from.data() + at, bytes);
            REQUIRE(to == expected);
            copy_bytes(to.data() + 20, to.data() + 20, bytes);
            REQUIRE(to == expected);
        }
    copy_bytes(nullptr, nullptr, 0);
}
