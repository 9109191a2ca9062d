#include "walk.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <thread>

#include "harness/asleep.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"

namespace tutti::failing {
namespace {

constexpr long most_told = 8;
constexpr int timeout_ms = 8'000, init_timeout_ms = 3'000, too_long_s = 30;

struct Ended {
    tuttiResult_t result = tuttiSuccess;
    std::string text;
};

std::vector<Party> make_parties(const Operation& operation, Way way, int ranks) {
    std::vector<Party> all(static_cast<std::size_t>(ranks));
    tuttiUniqueId id{};
    if (way != Way::local) harness::must_succeed(tuttiGetUniqueId(&id), "tuttiGetUniqueId");
    std::vector<tuttiComm_t> comms(all.size());
    const tuttiConfig_t config = config_of(way);
    if (!operation.makes_comm && way == Way::local) {
        comms = harness::make_comms(ranks);
    } else if (!operation.makes_comm) {
        tuttiGroupStart();
        for (int r = 0; r < ranks; ++r)
            tuttiCommInitRankConfig(&comms[static_cast<std::size_t>(r)], ranks, id, r, &config);
        harness::must_succeed(tuttiGroupEnd(), "tuttiCommInitRankConfig");
    }
    for (int r = 0; r < ranks; ++r) {
        Party& p = all[static_cast<std::size_t>(r)];
        p.way = way, p.rank = r, p.ranks = ranks, p.id = id, p.comm = comms[static_cast<std::size_t>(r)];
        p.in.reserve(1 << 16), p.out.reserve(1 << 16);
    }
    return all;
}

/// What a program does that gets an error: it says so, and gives up its communicator.
Ended run_rank(const Operation& operation, Party& p) {
    Ended ended;
    tuttiResult_t aborted = tuttiSuccess;
    {
        const OfTheLibrary its;
        ended.result = operation.call(p);
    }
    if (ended.result != tuttiSuccess) {
        ended.text = p.text.empty() ? tuttiGetLastError(nullptr) : p.text;
        const OfTheLibrary its;
        if (p.comm != nullptr) aborted = tuttiCommAbort(p.comm);
        p.comm = nullptr;
    }
    harness::check(aborted == tuttiSuccess, "tuttiCommAbort failed");
    return ended;
}

std::vector<Ended> run_all(const Operation& operation, std::vector<Party>& parties) {
    std::vector<Ended> ended(parties.size());
    harness::run(static_cast<int>(parties.size()), [&](int r) {
        const OfTheTest mine;
        const auto i = static_cast<std::size_t>(r);
        parties[i].right = false, parties[i].text.clear();
        ended[i] = run_rank(operation, parties[i]);
    });
    return ended;
}

void destroy_all(std::vector<Party>& parties) {
    harness::run(static_cast<int>(parties.size()), [&](int r) {
        const OfTheTest mine;
        Party& p = parties[static_cast<std::size_t>(r)];
        if (p.comm != nullptr) tuttiCommDestroy(p.comm);  // others have aborted theirs
        p.comm = nullptr;
    });
}

bool mentions(const std::string& text, std::initializer_list<const char*> words) {
    return std::ranges::any_of(words, [&](const char* word) { return text.find(word) != std::string::npos; });
}

bool tells(Kind kind, const std::string& text) {
    switch (kind) {
        case Kind::memory:
            return mentions(text, {"memory", "could not be started"});  // a thread needs some, too
        case Kind::descriptors:
            return mentions(text, {std::strerror(EMFILE), "descriptor"});
        case Kind::maps:
            return mentions(text, {std::strerror(ENOMEM), std::strerror(ENOSPC)});
        case Kind::threads:
            return mentions(text, {"thread"});
        case Kind::sockets:
            return mentions(text, {std::strerror(ENOBUFS), std::strerror(ENOMEM), "watch another", "closed"});
        case Kind::files:
            return mentions(text, {std::strerror(ENOSPC), std::strerror(EIO)});
        default:
            return !text.empty();
    }
}

/// Nothing, or what is wrong.
std::string judge(const Operation& operation, const std::vector<Ended>& ended, const std::vector<Party>& parties,
                  Kind kind) {
    bool failed = false, told = false;
    for (std::size_t i = 0; i < ended.size(); ++i) {
        const Ended& e = ended[i];
        const std::string who = "rank " + std::to_string(i) + ": ";
        if (e.result == tuttiSuccess && !parties[i].right) return who + "success with a wrong result";
        if (e.result == tuttiSuccess) continue;
        failed = true;
        told = told || tells(kind, e.text);
        if (must_not_matter(kind)) return who + "an error: " + e.text;
        if (e.text.empty()) return who + "an error without a word";
        // The others do not hear of a rank that fails before it begins to join.
        if (e.result == tuttiTimeout && kind != Kind::connections &&
            mentions(e.text, {"did not arrive", "could not connect", "could not reach the place"}))
            continue;
        if (operation.refuses && e.result == tuttiInvalidUsage) continue;
        if (e.result != tuttiSystemError && e.result != tuttiRemoteError)
            return who + "error " + std::to_string(e.result) + ": " + e.text;
    }
    if (!failed || told) return "";
    std::string all = "no rank tells of it:";
    for (const Ended& e : ended) all += "\n    " + e.text;
    return all;
}

/// A handle that was destroyed keeps its lock until it serves again, which is after 256 others.
void renew_handles() {
    for (int i = 0; i < 300; ++i)
        harness::must_succeed(tuttiCommDestroy(harness::make_comms(1)[0]), "tuttiCommDestroy");
}

/// Once what is kept for a while has gone, too.
void check_nothing_stays() {
    for (int tries = 0; tries < 20; ++tries) {
        harness::until_all_sleep();
        if (nothing_stays()) return;
        let_time_pass(std::chrono::seconds(1));
        if (tries == 15) renew_handles();
    }
    std::string all;
    for (const std::string& one : what_stays()) all += "\n  " + one;
    if (!all.empty()) throw std::runtime_error("what stays:" + all);
}

std::size_t threads_here() {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}));
}

/// One run. Returns how many calls have failed in it.
long try_once(const Operation& operation, const Walk& how, When when, long n) {
    std::vector<Party> parties = make_parties(operation, how.way, how.ranks);
    arm(how.kind, when, n, how.depth);
    std::vector<Ended> ended;
    std::string wrong;
    try {
        const FastClock clock;
        ended = run_all(operation, parties);
    } catch (const std::exception& error) {
        wrong = error.what();
    }
    if (wrong.empty()) wrong = judge(operation, ended, parties, how.kind);
    const long failed = disarm().failed;
    const auto is_error = [](const Ended& e) { return e.result != tuttiSuccess; };
    if (wrong.empty() && failed == 0 && std::ranges::any_of(ended, is_error)) wrong = "an error for no reason";
    destroy_all(parties);
    if (wrong.empty() && failed > 0) {  // the next one
        parties = make_parties(operation, how.way, how.ranks);
        ended = run_all(operation, parties);
        wrong = judge(operation, ended, parties, Kind::interrupted);
        if (!wrong.empty()) wrong = "after it, where nothing fails: " + wrong;
        destroy_all(parties);
    }
    if (!wrong.empty()) throw std::runtime_error(wrong);
    return failed;
}

}  // namespace

tuttiConfig_t config_of(Way way) {
    tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
    config.timeoutMs = timeout_ms;
    config.initTimeoutMs = init_timeout_ms;
    config.transport = way == Way::tcp ? "tcp" : way == Way::shm ? "shm" : nullptr;
    return config;
}

long walk(const Operation& operation, const Walk& how) {
    const OfTheTest mine;
    [[maybe_unused]] static const bool warm = [] {
        renew_handles();                                                      // from then on handles serve again
        std::vector<Party> parties = make_parties(Operation{}, Way::tcp, 8);  // tables grow once
        for (const int ranks : {1, 2, 3})
            for (Party& p : make_parties(Operation{}, Way::local, ranks)) parties.push_back(std::move(p));
        destroy_all(parties);
        return true;
    }();
    forget_what_stays();
    forget_places();
    watch(too_long_s);
    for (int i = 0; i < 3; ++i) try_once(operation, how, When::never, 0);
    stays_known();
    const std::size_t threads = threads_here();
    long runs = 0, wrongs = 0;
    std::string all_wrong;
    for (;; ++runs) {
        watch(too_long_s);
        std::string wrong;
        long failed = 0;
        try {
            failed = try_once(operation, how, how.when, how.when == When::every_other ? runs + 1 : runs);
            if (failed > 0) check_nothing_stays();
        } catch (const std::exception& error) {
            wrong = error.what();
        }
        if (!wrong.empty()) {
            all_wrong += std::string(operation.name) + ", " + name_of(how.kind) + " number " + std::to_string(runs) +
                         ": " + wrong + "\n  what failed:\n" + where();
            failed = ++wrongs < most_told;
            forget_what_stays();
        }
        if (how.when == When::every_other ? runs == 4 : failed == 0) break;
    }
    for (int i = 0; i < 2000 && threads_here() > threads; ++i) usleep(1000);
    if (threads_here() > threads) all_wrong += "threads stay\n", ++wrongs;
    watch(0);
    if (wrongs > 0) throw std::runtime_error(all_wrong);
    return runs;
}

bool sums_up(tuttiComm_t comm) {
    int rank = 0, ranks = 0, sum = 0;
    tuttiCommUserRank(comm, &rank);
    tuttiCommCount(comm, &ranks);
    sum = rank;
    return tuttiAllReduce(&sum, &sum, 1, tuttiInt32, tuttiSum, comm, nullptr) == tuttiSuccess &&
           sum == ranks * (ranks - 1) / 2;
}

}  // namespace tutti::failing
