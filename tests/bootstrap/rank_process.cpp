// A rank in a process of its own. The test program starts itself again with the name of the hidden test below; orders
// come on descriptor 0, answers go to descriptor 3.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <mutex>
#include <sstream>

#include "base/result.hpp"
#include "bootstrap/launch.hpp"
#include "support.hpp"

namespace tutti::test {
namespace {

constexpr const char* hidden_name = "a rank in a process of its own";

std::string to_hex(const Identity& identity) {
    std::string hex;
    for (const std::byte b : identity.bytes) hex += text("%02x", static_cast<unsigned>(b));
    return hex;
}

Identity from_hex(const std::string& hex) {
    Identity identity;
    for (std::size_t i = 0; i < identity.bytes.size(); ++i)
        identity.bytes[i] = static_cast<std::byte>(std::stoi(hex.substr(2 * i, 2), nullptr, 16));
    return identity;
}

void answer(const std::string& line) {
    const std::string whole = line + "\n";
    if (write(3, whole.data(), whole.size()) < 0) _exit(9);
}

std::string list(const std::vector<Rank>& ranks) {
    std::string all;
    for (const Rank r : ranks) all += " " + std::to_string(r);
    return all;
}

class Obeyer {
  public:
    explicit Obeyer(std::shared_ptr<Session> session) : session_(std::move(session)) {
        session_->on_fault([this](const Fault& f) {
            std::lock_guard lock(mutex_);
            fault_ = text("fault %d %d %s", f.origin, f.code, f.text.c_str());
        });
    }

    std::string obey(const std::string& line) {
        std::istringstream words(line);
        std::string verb;
        std::uint64_t a = 0, b = 0;
        words >> verb >> a >> b;
        if (verb == "offer") return session_->offer(a, make_note(b)), "ok";
        if (verb == "fetch")
            return text("%llu", static_cast<unsigned long long>(
                                    read_note(session_->fetch(static_cast<Rank>(a), b, within(10s)))));
        if (verb == "raise") return session_->raise({tuttiInternalError, session_->rank(), "raised"}), "ok";
        if (verb == "agree") {  // with a, if that is a rank
            const std::vector<Rank> out(a < 100 ? 1 : 0, static_cast<Rank>(a));
            const Agreed agreed = session_->agree(out, b != 0, within(10s));
            return text("%s out:", agreed.ok ? "content," : "not content,") + list(agreed.out);
        }
        if (verb == "meet") return meet();
        if (verb == "round-trip") return text("%lld", static_cast<long long>(session_->round_trip().count()));
        if (verb == "leave") return session_->leave(), "ok";
        if (verb == "fault") return heard_fault(std::chrono::milliseconds(a));
        if (verb == "left")
            return eventually([&] { return session_->has_left(static_cast<Rank>(a)); }, std::chrono::milliseconds(b))
                       ? "yes"
                       : "no";
        return "what?";
    }

  private:
    /// Goes on with those that are left.
    std::string meet() {
        const Agreed agreed = session_->agree({}, false, within(10s));
        std::vector<Rank> members;
        for (Rank r = 0; r < session_->ranks(); ++r)
            if (std::ranges::count(agreed.out, r) == 0) members.push_back(r);
        const auto place = std::ranges::find(members, session_->rank()) - members.begin();
        const auto met = join(session_->rendezvous(members, agreed), static_cast<Rank>(place),
                              static_cast<int>(members.size()), 10s);
        const Agreed after = session_->agree(agreed.out, true, within(10s));
        session_->leave();
        session_ = met;
        return text("%s%d of %d by %s", after.ok && after.out == agreed.out ? "" : "but ", session_->rank(),
                    session_->ranks(), agreed.invitation ? "TCP" : "name");
    }

    std::string heard_fault(std::chrono::milliseconds time) {
        const auto get = [&] {
            std::lock_guard lock(mutex_);
            return fault_;
        };
        eventually([&] { return !get().empty(); }, time);
        return get().empty() ? "none" : get();
    }
    std::mutex mutex_;
    std::string fault_;
    std::shared_ptr<Session> session_;
};

}  // namespace

TEST_CASE(hidden_name, "[.rank]") {
    std::string hex;
    int rank = 0, ranks = 0, timeout = 0;
    std::cin >> hex >> rank >> ranks >> timeout;
    try {
        Launch launch;
        if (hex == "environment") {
            // The first communicator of the job; its rendezvous is not that of the second, which is the one to test.
            Launch::from_environment();
            launch = Launch::from_environment();
        } else {
            launch.identity = from_hex(hex);
            launch.rank = rank;
            launch.ranks = ranks;
        }
        Obeyer obeyer(join(launch.identity, launch.rank, launch.ranks, std::chrono::milliseconds(timeout)));
        answer("joined");
        std::string line;
        std::getline(std::cin, line);
        while (std::getline(std::cin, line) && line != "quit") {
            try {
                answer(obeyer.obey(line));
            } catch (const Error& e) {
                answer(text("error %d %s", e.code(), e.what()));
            }
        }
        if (line != "quit") _exit(0);  // the test is over
    } catch (const Error& e) {
        answer(text("error %d %s", e.code(), e.what()));
    }
}

RankProcess::RankProcess(const Identity& identity, Rank rank, int ranks, std::chrono::milliseconds timeout,
                         const std::vector<std::string>& environment) {
    start(environment);
    say(to_hex(identity) + text(" %d %d %d", rank, ranks, static_cast<int>(timeout.count())));
}

RankProcess::RankProcess(const std::vector<std::string>& environment, std::chrono::milliseconds timeout) {
    start(environment);
    say(text("environment 0 0 %d", static_cast<int>(timeout.count())));
}

void RankProcess::start(const std::vector<std::string>& environment) {
    int to[2], from[2];
    if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) fail_errno("pipe2 failed");
    to_ = Fd(to[1]);
    from_ = Fd(from[0]);
    const Fd orders(to[0]), answers(from[1]);
    const std::string self = harness::this_program();
    pid_ = fork();
    if (pid_ < 0) fail_errno("fork failed");
    if (pid_ == 0) {
        // dup2 clears close-on-exec, unless source and target are the same.
        const int source = fcntl(answers.get(), F_DUPFD_CLOEXEC, 10);
        const int null = open("/dev/null", O_WRONLY);
        dup2(orders.get(), 0);
        dup2(null, 1);
        dup2(source, 3);
        for (const std::string& variable : environment) putenv(const_cast<char*>(variable.c_str()));
        execl(self.c_str(), "test-bootstrap", hidden_name, static_cast<char*>(nullptr));
        _exit(127);
    }
}

RankProcess::~RankProcess() {
    if (pid_ <= 0 || !to_) return;
    signal(SIGKILL);
    waitpid(pid_, nullptr, 0);
}

void RankProcess::say(const std::string& line) {
    const std::string whole = line + "\n";
    if (write(to_.get(), whole.data(), whole.size()) < 0) fail_errno("talking to a rank's process failed");
}

std::string RankProcess::hear() {
    for (const Deadline end = within(20s); Clock::now() < end;) {
        if (const auto at = heard_.find('\n'); at != std::string::npos) {
            const std::string line = heard_.substr(0, at);
            heard_.erase(0, at + 1);
            return line;
        }
        pollfd ready{from_.get(), POLLIN, 0};
        if (poll(&ready, 1, 100) <= 0) continue;
        char buffer[4096];
        const ssize_t got = read(from_.get(), buffer, sizeof buffer);
        if (got == 0) return "(gone)";
        if (got > 0) heard_.append(buffer, static_cast<std::size_t>(got));
    }
    return "(silence)";
}

void RankProcess::signal(int number) const {
    kill(pid_, number);
}

int RankProcess::wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
}

std::vector<RankProcess> start_processes(const Identity& identity, int ranks) {
    std::vector<RankProcess> all;
    for (Rank r = 0; r < ranks; ++r) all.emplace_back(identity, r, ranks);
    for (auto& p : all) REQUIRE(p.hear() == "joined");
    return all;
}

std::vector<RankProcess> start_on_hosts(const Identity& identity, const std::vector<std::string>& hosts) {
    std::vector<RankProcess> all;
    for (std::size_t r = 0; r < hosts.size(); ++r)
        all.emplace_back(identity, static_cast<Rank>(r), static_cast<int>(hosts.size()), 20s,
                         std::vector{"TUTTI_HOSTID=" + hosts[r]});
    for (auto& p : all) REQUIRE(p.hear() == "joined");
    return all;
}

}  // namespace tutti::test
