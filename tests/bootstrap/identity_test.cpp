#include <algorithm>
#include <cstring>

#include "base/result.hpp"
#include "support.hpp"

namespace tutti::test {
namespace {

std::string refusal(const tuttiUniqueId& id) {
    try {
        Identity::from(id);
        return "";
    } catch (const Error& e) {
        REQUIRE(e.code() == tuttiInvalidArgument);
        return e.what();
    }
}

}  // namespace

TEST_CASE("an identity survives its way through a unique id") {
    const Identity made = Identity::create();
    const Identity read = Identity::from(made.to_unique_id());
    REQUIRE(made.bytes == read.bytes);
    REQUIRE(Identity::create().bytes != made.bytes);
}

TEST_CASE("damaged, cut, foreign and other versions' ids are refused with the reason") {
    const tuttiUniqueId good = Identity::create().to_unique_id();
    tuttiUniqueId id = good;
    std::memset(id.internal, 0, sizeof id.internal);
    CHECK(refusal(id).find("all zeros") != std::string::npos);
    std::strcpy(id.internal, "something else altogether");
    CHECK(refusal(id).find("not made by tuttiGetUniqueId") != std::string::npos);
    id = good;
    std::memset(id.internal + 60, 0, sizeof id.internal - 60);
    CHECK(refusal(id).find("cut off") != std::string::npos);
    id = good;
    id.internal[8]++;
    CHECK(refusal(id).find("version 2") != std::string::npos);
    for (std::size_t i = 0; i < sizeof id.internal; ++i) {
        id = good;
        id.internal[i] = static_cast<char>(id.internal[i] ^ 4);
        CHECK(!refusal(id).empty());
    }
}

TEST_CASE("an invitation leads members to one place, and is of no use to anybody else") {
    const auto members = Session::in_process({{}, {}}), outsider = Session::in_process({{}});
    const Invitation invitation = members[0]->invite();
    const Identity one = members[0]->accept(invitation), other = members[1]->accept(invitation);
    CHECK(one.bytes == other.bytes);
    CHECK(one.bytes != members[0]->accept(members[0]->invite()).bytes);
    const auto key = std::span(one.bytes).subspan(16, 32);
    const auto& told = invitation.bytes;
    CHECK(std::search(told.begin(), told.end(), key.begin(), key.end()) == told.end());
    const Identity theirs = outsider[0]->accept(invitation);
    CHECK_FALSE(std::ranges::equal(key, std::span(theirs.bytes).subspan(16, 32)));
    const auto sessions = join_all(other, 2);
    CHECK(sessions[1]->ranks() == 2);
}

TEST_CASE("an invitation to a place that can't be is refused") {
    const auto member = Session::in_process({{}}).front();
    Invitation invitation = member->invite();
    invitation.bytes[40] = std::byte{1};  // a Unix socket
    CHECK_THROWS_AS(member->accept(invitation), Error);
    invitation.bytes[40] = std::byte{2};
    invitation.bytes[42] = invitation.bytes[43] = std::byte{0};  // port 0
    CHECK_THROWS_AS(member->accept(invitation), Error);
}

TEST_CASE("an id of which bytes are wrong opens nothing and names no secret") {
    const Identity made = Identity::create();
    tuttiUniqueId id = made.to_unique_id();
    id.internal[127] ^= 1;
    const std::string text = refusal(id);
    const std::string secret(made.to_unique_id().internal + 16, 32);
    CHECK(text.find(secret) == std::string::npos);
}

}  // namespace tutti::test
