#include "bootstrap/roster.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/config.hpp"
#include "base/result.hpp"
#include "bootstrap/service.hpp"

namespace tutti::bootstrap {

Roster::Roster(Rank self, int ranks, View info, std::span<const std::uint64_t> processes)
    : self_(self),
      ranks_(ranks),
      lines_(static_cast<std::size_t>(ranks)),
      processes_(processes.begin(), processes.end()) {
    char host[host_limit + 1] = "?";
    gethostname(host, host_limit);
    Member& mine = mine_.member;
    mine.rank = self;
    mine.pid = static_cast<std::uint32_t>(getpid());
    mine.uid = geteuid();
    mine.host = host_id();
    mine.process = process_id();
    mine.host_name = host;
    mine_.info.assign(info.begin(), info.end());
    processes_.resize(static_cast<std::size_t>(ranks));
    processes_[static_cast<std::size_t>(self)] = mine.process;
    if (self == 0) mine_.share = Secret::random();
    if (config().round_trip_us >= 0) add_round_trip(std::chrono::microseconds(config().round_trip_us));
}

void Roster::add_round_trip(std::chrono::microseconds measured) {
    if (std::exchange(has_round_trip_, true)) return;
    mine_.round_trip_us = static_cast<std::uint32_t>(measured.count());
}

std::chrono::microseconds Roster::round_trip() const {
    return std::chrono::microseconds(std::max(longest_us_, mine_.round_trip_us));
}

bool Roster::add(const Record& record) {
    const Member& m = record.member;
    if (has(m.rank)) return false;
    TUTTI_ASSERT(m.host_name.size() <= host_limit && record.info.size() <= endpoint_info_limit);
    Line line{
        m.host, m.pid, m.uid, record.round_trip_us, static_cast<std::uint32_t>(record.info.size()), m.local, m.remote,
        {},     {}};
    std::ranges::copy(m.host_name, line.host_name.begin());
    std::ranges::copy(record.info, line.info.begin());
    lines_.set(static_cast<std::size_t>(m.rank), line);
    processes_[static_cast<std::size_t>(m.rank)] = m.process;
    if (record.share) share_ = record.share;
    longest_us_ = std::max(longest_us_, record.round_trip_us);
    ++known_;
    return true;
}

std::vector<Rank> Roster::missing() const {
    std::vector<Rank> missing;
    for (Rank r = 0; r < ranks(); ++r)
        if (!has(r)) missing.push_back(r);
    return missing;
}

Record Roster::record(Rank rank) const {
    if (rank == self_) return mine_;
    const Line line = lines_[static_cast<std::size_t>(rank)];
    const auto end = line.info.begin() + line.info_size;
    return {member_of(line, rank), Bytes(line.info.begin(), end), rank == 0 ? share_ : std::nullopt,
            line.round_trip_us};
}

Member Roster::member(Rank rank) const {
    return rank == self_ ? mine() : member_of(lines_[static_cast<std::size_t>(rank)], rank);
}

std::uint64_t Roster::host(Rank rank) const {
    return rank == self_ ? mine().host : lines_.first<std::uint64_t>(static_cast<std::size_t>(rank));
}

Member Roster::member_of(const Line& line, Rank rank) const {
    const auto name_end = std::ranges::find(line.host_name, '\0');
    return {rank,       line.pid,   line.uid, line.host, process(rank), std::string(line.host_name.begin(), name_end),
            line.local, line.remote};
}

std::string Roster::name(Rank rank) const {
    if (rank < 0 || rank >= ranks()) return "the rendezvous";  // the only peer without a rank
    return has(rank) ? member(rank).text() : text("rank %d", rank);
}

}  // namespace tutti::bootstrap
