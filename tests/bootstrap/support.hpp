// Ranks for the tests of the bootstrap: as threads (harness.hpp) and as processes that are driven line by line.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "bootstrap/rendezvous.hpp"
#include "bootstrap/session.hpp"
#include "harness/catch.hpp"
#include "harness/harness.hpp"

namespace tutti::test {

using namespace std::chrono_literals;
using bootstrap::Rendezvous;

inline Deadline within(std::chrono::milliseconds time) {
    return Clock::now() + time;
}

/// Waits until holds() does, at most that long.
template <class Condition>
bool eventually(const Condition& holds, std::chrono::milliseconds time = 30s) {
    for (const Deadline end = within(time); Clock::now() < end;) {
        if (holds()) return true;
        timespec pause{0, 1'000'000};
        nanosleep(&pause, nullptr);
    }
    return holds();
}

/// What attempt(limit) says, with limits that grow until it has `wanted` in it: a rank that stood still for longer than
/// a short limit is late, not wrong.
template <class Attempt>
std::string told_in_time(std::string_view wanted, const Attempt& attempt) {
    for (const std::chrono::milliseconds limit : {300ms, 3000ms})
        if (const std::string said = attempt(limit); said.find(wanted) != std::string::npos) return said;
    return attempt(20s);
}

/// A info that says whose it is; of another length for each rank.
std::vector<std::byte> info_of(Rank rank);
/// Throws unless the session has everybody's info.
void check_endpoint_infos(const Session& session);

std::shared_ptr<Session> join(const Identity& identity, Rank rank, int ranks, std::chrono::milliseconds timeout = 20s);

/// All ranks, joined by threads of this process.
std::vector<std::shared_ptr<Session>> join_all(const Identity& identity, int ranks);
void leave_all(const std::vector<std::shared_ptr<Session>>& sessions);

/// A memfd that holds a number, and the number that such a descriptor holds.
Fd make_note(std::uint64_t value);
std::uint64_t read_note(const Fd& fd);

/// What joining threw, as "code: text"; "" if it went well.
std::string join_error(const Identity& identity, Rank rank, int ranks, std::chrono::milliseconds timeout);

/// This test program again, as one rank. It joins and then obeys: see rank_process.cpp for the words.
class RankProcess {
  public:
    /// environment: "NAME=value".
    RankProcess(const Identity& identity, Rank rank, int ranks, std::chrono::milliseconds timeout = 20s,
                const std::vector<std::string>& environment = {});
    /// A rank that finds out by itself who it is, from these variables ("NAME=value").
    explicit RankProcess(const std::vector<std::string>& environment, std::chrono::milliseconds timeout = 20s);
    ~RankProcess();
    RankProcess(RankProcess&&) = default;

    void say(const std::string& line);
    /// The next line that it says; "(silence)" after 20 s, "(gone)" when it has ended.
    std::string hear();
    std::string ask(const std::string& line) {
        say(line);
        return hear();
    }
    void signal(int number) const;
    /// Waits until it has ended; its wait status.
    int wait();
    pid_t pid() const { return pid_; }

  private:
    void start(const std::vector<std::string>& environment);

    pid_t pid_ = -1;
    Fd to_, from_;
    std::string heard_;
};

std::vector<RankProcess> start_processes(const Identity& identity, int ranks);
/// As if each lived on the host of that name.
std::vector<RankProcess> start_on_hosts(const Identity& identity, const std::vector<std::string>& hosts);

}  // namespace tutti::test
