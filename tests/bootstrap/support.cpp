#include "support.hpp"

#include <unistd.h>

#include <cstring>

#include "base/result.hpp"

namespace tutti::test {

std::vector<std::byte> info_of(Rank rank) {
    if (rank < 0) return {};
    return std::vector<std::byte>(static_cast<std::size_t>(rank * 37 % 1025), static_cast<std::byte>(rank + 1));
}

void check_endpoint_infos(const Session& session) {
    for (Rank r = 0; r < session.ranks(); ++r) {
        const auto info = session.info(r);
        const auto expected = info_of(r);
        harness::check(std::equal(info.begin(), info.end(), expected.begin(), expected.end()),
                       text("rank %d has a wrong info of rank %d", session.rank(), r));
    }
}

std::shared_ptr<Session> join(const Identity& identity, Rank rank, int ranks, std::chrono::milliseconds timeout) {
    return Session::join(identity, rank, ranks, info_of(rank), timeout);
}

std::vector<std::shared_ptr<Session>> join_all(const Identity& identity, int ranks) {
    std::vector<std::shared_ptr<Session>> sessions(static_cast<std::size_t>(ranks));
    harness::run(ranks, [&](int rank) { sessions[static_cast<std::size_t>(rank)] = join(identity, rank, ranks); });
    return sessions;
}

void leave_all(const std::vector<std::shared_ptr<Session>>& sessions) {
    for (const auto& s : sessions) s->leave();
}

Fd make_note(std::uint64_t value) {
    Fd fd = make_memfd("note", sizeof value);
    const Mapping map = Mapping::of(fd);
    std::memcpy(map.base(), &value, sizeof value);
    return fd;
}

std::uint64_t read_note(const Fd& fd) {
    std::uint64_t value = 0;
    if (pread(fd.get(), &value, sizeof value, 0) != sizeof value) fail_errno("reading a note failed");
    return value;
}

std::string join_error(const Identity& identity, Rank rank, int ranks, std::chrono::milliseconds timeout) {
    try {
        join(identity, rank, ranks, timeout)->leave();
        return "";
    } catch (const Error& e) {
        return text("%d: %s", e.code(), e.what());
    }
}

}  // namespace tutti::test
