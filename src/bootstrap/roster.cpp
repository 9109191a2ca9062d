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
      processes_(processes.begin(), processes.end()),
      table_(static_cast<std::size_t>(ranks)) {
    char host[host_limit + 1] = "?";
    gethostname(host, host_limit);
    Member mine;
    mine.rank = self;
    mine.pid = static_cast<std::uint32_t>(getpid());
    mine.uid = geteuid();
    mine.host = host_id();
    mine.process = process_id();
    mine.host_name = host;
    auto& line = table_[static_cast<std::size_t>(self)];
    line = Record{mine, Bytes(info.begin(), info.end()), {}};
    if (self == 0) line->share = Secret::random();
    if (config().round_trip_us >= 0) add_round_trip(std::chrono::microseconds(config().round_trip_us));
}

void Roster::add_round_trip(std::chrono::microseconds measured) {
    if (std::exchange(has_round_trip_, true)) return;
    table_[static_cast<std::size_t>(self_)]->round_trip_us = static_cast<std::uint32_t>(measured.count());
}

std::chrono::microseconds Roster::round_trip() const {
    std::uint32_t longest = 0;
    for (const auto& line : table_) longest = std::max(longest, line->round_trip_us);
    return std::chrono::microseconds(longest);
}

bool Roster::add(const Record& record) {
    auto& line = table_[static_cast<std::size_t>(record.member.rank)];
    if (line) return false;
    line = record;
    ++known_;
    return true;
}

std::vector<Rank> Roster::missing() const {
    std::vector<Rank> missing;
    for (Rank r = 0; r < ranks(); ++r)
        if (!table_[static_cast<std::size_t>(r)]) missing.push_back(r);
    return missing;
}

std::string Roster::name(Rank rank) const {
    if (rank < 0 || rank >= ranks()) return "the rendezvous";  // the only peer without a rank
    const auto& line = table_[static_cast<std::size_t>(rank)];
    return line ? line->member.text() : text("rank %d", rank);
}

std::uint64_t Roster::process(Rank rank) const {
    const auto r = static_cast<std::size_t>(rank);
    if (table_[r]) return table_[r]->member.process;
    return r < processes_.size() ? processes_[r] : 0;
}

}  // namespace tutti::bootstrap
