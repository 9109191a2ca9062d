#include "job.hpp"

#include <signal.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>

#include "harness/harness.hpp"
#include "picture.hpp"
#include "world.hpp"

namespace sim {
namespace {

using tutti::harness::Case;

constexpr std::uint64_t s = 1000 * ms;
constexpr std::uint64_t start = 1 * s;     // the world's time at its beginning
constexpr std::uint64_t soon = 1500 * ms;  // an error comes to everybody
constexpr std::uint64_t recovered_in = 1500 * ms;
constexpr int init_timeout_ms = 20'000;  // longer than ranks are stopped
constexpr int timeout_ms = 60'000;       // longer than ranks are busy and stopped

/// Of a rank, for the controller. In memory that all processes share.
struct Report {
    bool joined, done, suspended;
    std::uint64_t busy_until;  // it can't hear of anything
    std::uint64_t error_at, recovered_at;
    tuttiResult_t error;
    int named[most_ranks], named_count;
    int left;  // Shrink's
    bool recovered;
    char wrong[600];  // what can't be
    char said[600];   // the error's text
};

struct Board {
    bool id_is_there;
    tuttiUniqueId id;
    int struck;  // -1: nobody has been killed yet
    std::uint64_t struck_at;
    Report reports[most_ranks];
};
Board* board = nullptr;
const Job* job = nullptr;

template <std::size_t size>
void put(char (&where)[size], const std::string& what) {
    std::strncpy(where, what.c_str(), size - 1);
}

void pass_time(std::uint64_t ns) {
    timespec how_long{static_cast<time_t>(ns / s), static_cast<long>(ns % s)};
    nanosleep(&how_long, nullptr);
}

Case drawn_case(std::mt19937_64& random, int ranks) {
    const auto draw = [&](std::uint64_t below) { return random() % below; };
    static constexpr std::size_t counts[] = {0, 1, 3, 17, 250, 4000, 9000, 70'000};
    static constexpr tuttiDataType_t types[] = {tuttiInt32, tuttiFloat32, tuttiUint8, tuttiInt64};
    Case c{};
    c.what = static_cast<Case::What>(draw(8));
    c.count = counts[draw(std::size(counts))];
    c.type = types[draw(std::size(types))];
    c.op = tuttiSum;
    c.root = static_cast<int>(draw(static_cast<std::uint64_t>(ranks)));
    c.where = draw(3) == 0 ? tutti::harness::Where::in_place : tutti::harness::Where::out_of_place;
    return c;
}

/// What fails is a communicator, or what this test says about it.
struct Failed {};
void must(tuttiResult_t result) {
    if (result != tuttiSuccess) throw Failed{};
}

void run(const Case& c, tuttiComm_t comm, int rank, int ranks) {
    try {
        tutti::harness::run_case(c, comm, rank, ranks);
    } catch (const std::exception& error) {
        tuttiResult_t state = tuttiSuccess;
        tuttiCommGetAsyncError(comm, &state);
        if (state == tuttiSuccess) throw;  // a result was wrong
        throw Failed{};
    }
}

void ring(tuttiComm_t comm, int rank, int ranks, std::size_t count) {
    std::vector<int> out(count, rank), in(count, -1);
    const int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
    must(tuttiGroupStart());
    const tuttiResult_t sent = tuttiSend(out.data(), count, tuttiInt32, next, comm, nullptr);
    const tuttiResult_t received = tuttiRecv(in.data(), count, tuttiInt32, previous, comm, nullptr);
    must(tuttiGroupEnd());
    must(sent);
    must(received);
    if (std::ranges::count(in, previous) != static_cast<std::ptrdiff_t>(count))
        throw std::runtime_error("a message of a group is wrong");
}

void split(tuttiComm_t comm, int rank, int ranks) {
    tuttiComm_t part = nullptr;
    must(tuttiCommSplit(comm, rank % 2, -rank, &part, nullptr));
    int its_rank = -1, its_ranks = 0;
    must(tuttiCommUserRank(part, &its_rank));
    must(tuttiCommCount(part, &its_ranks));
    if (its_ranks != (ranks + 1 - rank % 2) / 2) throw std::runtime_error("a part has another size");
    Case c{};
    c.what = Case::What::all_reduce;
    c.count = 100;
    c.type = tuttiInt32;
    try {
        run(c, part, its_rank, its_ranks);
    } catch (const Failed&) {
        tuttiCommAbort(part);
        throw;
    }
    must(tuttiCommDestroy(part));
}

void make(const Call& call, tuttiComm_t comm, int rank, int ranks) {
    switch (call.what) {
        case Call::collective:
            return run(call.its, comm, rank, ranks);
        case Call::ring:
            return ring(comm, rank, ranks, call.its.count);
        case Call::split:
            return split(comm, rank, ranks);
        case Call::suspend:
            must(tuttiCommSuspend(comm));
            return must(tuttiCommResume(comm));
        case Call::pause:
            if (call.who != rank) return;
            pass_time(call.time);
            board->reports[rank].busy_until = world->now;
    }
}

/// What survivors do.
void recover(tuttiComm_t comm, int rank, Report& report) {
    must(tuttiCommGetFailedRanks(comm, report.named, most_ranks, &report.named_count));
    tuttiComm_t rest = nullptr;
    const tuttiResult_t result = tuttiCommShrink(comm, nullptr, 0, &rest, nullptr, TUTTI_SHRINK_ABORT);
    if (result == tuttiInvalidUsage && std::strstr(tuttiGetLastError(nullptr), "is suspended") != nullptr) {
        report.suspended = true;  // nothing can be made of it
        return;
    }
    if (result != tuttiSuccess) throw std::runtime_error(std::string("Shrink: ") + tuttiGetLastError(nullptr));
    int its_rank = -1, its_ranks = 0;
    must(tuttiCommUserRank(rest, &its_rank));
    must(tuttiCommCount(rest, &its_ranks));
    world->note("rank %d is rank %d of %d that are left", rank, its_rank, its_ranks);
    report.left = its_ranks;
    std::mt19937_64 random(job->seed);
    for (int i = 0; i < 3; ++i) run(drawn_case(random, its_ranks), rest, its_rank, its_ranks);
    report.recovered_at = world->now;
    report.recovered = true;
    must(tuttiCommDestroy(rest));
}

int take_part(int process) {
    const int rank = process - 1;
    Report& report = board->reports[rank];
    setenv("TUTTI_TUNING", "none", 1);
    setenv("TUTTI_TRANSPORT", job->transport.c_str(), 1);
    if (job->weather.silence_ms != 0) setenv("TUTTI_SILENCE_MS", std::to_string(job->weather.silence_ms).c_str(), 1);
    if (job->weather.apart) setenv("TUTTI_HOSTID", std::to_string(rank).c_str(), 1);
    tuttiComm_t comm = nullptr;
    try {
        if (rank == 0) {
            must(tuttiGetUniqueId(&board->id));
            board->id_is_there = true;
        }
        while (!board->id_is_there) {
            if (board->struck == 0) return 0;
            if (board->reports[0].error != tuttiSuccess) return report.done = true, 0;  // there is no job
            pass_time(ms);
        }
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.timeoutMs = timeout_ms;
        config.initTimeoutMs = init_timeout_ms;
        must(tuttiCommInitRankConfig(&comm, job->ranks, board->id, rank, &config));
        report.joined = true;
        world->note("rank %d is in", rank);
        for (const Call& call : job->calls) {
            const std::uint64_t began = world->now;
            make(call, comm, rank, job->ranks);
            world->record(Event::call, process, began, call.text());
            world->note("rank %d: %s", rank, call.text().c_str());
        }
        Case last{};  // nobody leaves before the blow has struck
        last.what = Case::What::all_reduce;
        last.count = 1;
        last.type = tuttiInt32;
        while (job->blow.what == Blow::kill) run(last, comm, rank, job->ranks), pass_time(ms);
        must(tuttiCommDestroy(comm));
        report.done = true;
    } catch (const Failed&) {
        report.error_at = world->now;
        put(report.said, tuttiGetLastError(comm));
        world->note("rank %d: %s", rank, report.said);
        tuttiResult_t state = tuttiSuccess;
        if (comm != nullptr) tuttiCommGetAsyncError(comm, &state);
        report.error = state == tuttiSuccess ? tuttiRemoteError : state;
        world->record(Event::mark, process, world->now, report.said);
        if (!job->weather.is_calm() && comm != nullptr) return tuttiCommAbort(comm) == tuttiSuccess ? 0 : 1;
        if (job->blow.what != Blow::kill || comm == nullptr) return 0;
        try {
            recover(comm, rank, report);
            tuttiCommAbort(comm);
        } catch (const Failed&) {
            put(report.wrong, std::string("while it went on: ") + tuttiGetLastError(nullptr));
        } catch (const std::exception& error) {
            put(report.wrong, error.what());
        }
    } catch (const std::exception& error) {
        put(report.wrong, error.what());
    }
    return 0;
}

/// Of a cable that was pulled: whether nobody may notice more than the delay.
bool heals(const Weather& weather) {
    return weather.cut.what == Cut::pulled && weather.cut.how_long < weather.silence_ms * ms * 3 / 4;
}

std::string judge_in_weather(const Report& report, int rank) {
    const Weather& w = job->weather;
    const std::string who = "rank " + std::to_string(rank);
    if (report.error == tuttiSuccess) return report.done ? "" : who + " did not come to the end";
    if (w.cut.what != Cut::none && (heals(w) || world->now < w.cut.at)) return who + " has an error: " + report.said;
    const std::string said = report.said;
    const auto names = [&](int r) { return said.find("rank " + std::to_string(r)) != std::string::npos; };
    if (w.cut.what != Cut::none) {
        if (!names(w.cut.a) && !names(w.cut.b)) return who + " does not say which link is cut: " + said;
        std::uint64_t heard = w.cut.at;
        for (const Report& r : board->reports) heard = std::max(heard, r.busy_until);
        heard += std::max(w.silence_ms, 4000u) * ms * 5 / 4;
        const std::uint64_t late = report.joined ? heard + soon : std::max(heard, start + init_timeout_ms * ms) + soon;
        return report.error_at <= late
                   ? ""
                   : who + " heard of it after " + std::to_string((report.error_at - w.cut.at) / ms) + " ms";
    }
    if (world->refused == 0) return who + " has an error, and everything that was asked for was had: " + said;
    const bool known = report.joined || board->reports[w.shortage.rank].joined;
    if (known && rank != w.shortage.rank && !names(w.shortage.rank))
        return who + " does not say where something was lacking: " + said;
    static constexpr const char* reasons[] = {"Too many open files", "descriptor", "memory", "thread"};
    const auto is_said = [&](const char* reason) { return said.find(reason) != std::string::npos; };
    return rank != w.shortage.rank || std::ranges::any_of(reasons, is_said)
               ? ""
               : who + " does not say what it lacks: " + said;
}

std::string judge_survivor(const Report& report, int rank) {
    const std::string who = "rank " + std::to_string(rank);
    if (report.wrong[0] != 0) return who + ": " + report.wrong;
    if (!job->weather.is_calm()) return judge_in_weather(report, rank);
    if (job->blow.what != Blow::kill) {
        if (report.error != tuttiSuccess) return who + " has an error: " + report.said;
        return report.done ? "" : who + " did not come to the end";
    }
    if (report.error == tuttiSuccess) return board->reports[0].joined ? who + " has no error" : "";
    // Of a rank that nobody knows yet it is not known either that it has died.
    const bool known = board->reports[job->blow.rank].joined || report.joined;
    std::uint64_t heard = std::max(board->struck_at, report.busy_until);
    if (!known) heard = std::max(heard, start + init_timeout_ms * ms);
    if (report.error_at > heard + soon)
        return who + " heard of it after " + std::to_string((report.error_at - board->struck_at) / ms) + " ms";
    const std::string name = "rank " + std::to_string(job->blow.rank);
    if (known && std::string(report.said).find(name) == std::string::npos)
        return who + " was not told of " + name + ": " + report.said;
    const auto suspended = [](const Report& r) { return r.suspended; };
    if (!report.joined || std::ranges::any_of(board->reports, suspended)) return "";
    if (report.named_count != 1 || report.named[0] != job->blow.rank)
        return who + " was told that " + std::to_string(report.named_count) + " ranks have failed, first rank " +
               std::to_string(report.named[0]);
    if (!report.recovered) return who + " has not gone on";
    if (report.left != job->ranks - 1) return who + " went on with " + std::to_string(report.left - 1) + " others";
    std::uint64_t all_know = 0;
    for (const Report& r : board->reports) all_know = std::max(all_know, r.error_at);
    if (report.recovered_at > all_know + recovered_in)
        return who + " went on after " + std::to_string((report.recovered_at - all_know) / ms) + " ms";
    return "";
}

std::string judge() {
    if (world->verdict != nullptr) return world->verdict;
    for (int rank = 0; rank < job->ranks; ++rank) {
        const Process& its = world->processes[static_cast<std::size_t>(rank + 1)];
        if (rank == board->struck && its.exit_code == 128 + SIGKILL) continue;
        if (its.exit_code != 0) return "rank " + std::to_string(rank) + " ended with " + std::to_string(its.exit_code);
        std::string wrong = judge_survivor(board->reports[rank], rank);
        if (!wrong.empty()) return wrong;
    }
    return "";
}

void strike(const Blow& blow) {
    if (blow.what == Blow::none || wait_until(start + blow.at)) return;
    const int process = blow.rank + 1;
    if (world->processes[static_cast<std::size_t>(process)].ended) return;
    const char* const how = blow.what == Blow::kill ? "killed" : "stopped";
    world->note("rank %d is %s", blow.rank, how);
    world->record(Event::mark, process, world->now, how);
    if (blow.what == Blow::kill) {
        board->struck_at = world->now;
        kill(process);
        board->struck = blow.rank;
        return;
    }
    stop(process);
    wait_until(start + blow.at + blow.how_long);
    world->note("rank %d goes on", blow.rank);
    resume(process);
}

}  // namespace

std::string Call::text() const {
    switch (what) {
        case collective:
            return std::string(tutti::harness::name_of(its.what)) + " of " + std::to_string(its.count);
        case ring:
            return "a group of messages of " + std::to_string(its.count);
        case split:
            return "split";
        case suspend:
            return "suspend and resume";
        case pause:
            return "rank " + std::to_string(who) + " is busy for " + std::to_string(time / ms) + " ms";
    }
    return "";
}

std::string Job::text() const {
    std::string all = std::to_string(ranks) + " ranks over " + transport + "; ";
    if (blow.what == Blow::none) all += "nothing befalls them";
    if (blow.what == Blow::kill) all += "rank " + std::to_string(blow.rank) + " is killed";
    if (blow.what == Blow::stop)
        all += "rank " + std::to_string(blow.rank) + " is stopped for " + std::to_string(blow.how_long / ms) + " ms";
    if (const std::string more = weather.text(); !more.empty()) all += "; " + more;
    return all + "; " + std::to_string(calls.size()) + " calls";
}

std::string Less::text() const {
    std::string all, calls;
    if (ranks != 0) all += " --ranks " + std::to_string(ranks);
    for (const std::size_t call : without) calls += (calls.empty() ? "" : ",") + std::to_string(call);
    if (!calls.empty()) all += " --without " + calls;
    return all + (blow ? "" : " --without-blow") + (weather ? "" : " --without-weather");
}

Job make_job(std::uint64_t seed, const Less& less) {
    std::mt19937_64 random(seed);
    const auto draw = [&](std::uint64_t below) { return random() % below; };
    const auto any_time = [&](std::uint64_t longest) {  // as many short ones as long ones
        std::uint64_t time = longest;
        for (auto halves = draw(14); halves > 0; --halves) time /= 2;
        return time / 2 + draw(time / 2 + 1);
    };
    Job made{};
    made.seed = seed;
    made.ranks = 2 + static_cast<int>(draw(4));
    if (less.ranks != 0) made.ranks = less.ranks;
    made.transport = draw(2) == 0 ? "shm" : "tcp";
    const auto count = 1 + draw(8);
    for (std::uint64_t i = 0; i < count; ++i) {
        Call call{};
        const auto kind = draw(16);
        call.what = kind == 0   ? Call::split
                    : kind == 1 ? Call::suspend
                    : kind < 4  ? Call::pause
                    : kind < 6  ? Call::ring
                                : Call::collective;
        call.its = drawn_case(random, made.ranks);
        call.time = any_time(2 * s);
        call.who = static_cast<int>(draw(static_cast<std::uint64_t>(made.ranks)));
        made.calls.push_back(call);
    }
    made.blow.what = static_cast<Blow::What>(draw(3));
    made.blow.rank = static_cast<int>(draw(static_cast<std::uint64_t>(made.ranks)));
    made.blow.at = any_time(400 * ms);
    made.blow.how_long = any_time(8 * s);
    made.weather = make_weather(seed, made.ranks, made.transport);
    if (!less.weather) made.weather = {};
    if (!made.weather.is_calm() || !less.blow) made.blow.what = Blow::none;
    for (auto call = less.without.rbegin(); call != less.without.rend(); ++call)
        if (*call < made.calls.size()) made.calls.erase(made.calls.begin() + static_cast<std::ptrdiff_t>(*call));
    return made;
}

Outcome run_job(const Job& what, bool draw) {
    job = &what;
    board =
        static_cast<Board*>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    board->struck = -1;
    create(what.seed);
    world->end = start + 300 * s;
    world->most_switches = 2'000'000;
    static constexpr unsigned rates[] = {0, 4, 32};
    world->preempt_one_in = rates[world->draw(3)];
    world->weather = what.weather;
    if (what.weather.is_calm() && world->draw(4) == 0) world->stretch = 1000;
    if (what.weather.network) fork_servant(carry);
    for (int rank = 0; rank < what.ranks; ++rank) fork_process(take_part);
    strike(what.blow);
    wait_until(never);
    Outcome outcome{"", "", "", world->trace, world->switches, world->now - start};
    outcome.wrong = judge();
    if (draw || !outcome.wrong.empty())
        outcome.picture = picture_of(std::span(world->events.data(), world->event_count), what.ranks,
                                     "seed " + std::to_string(what.seed) + ": " + what.text(), outcome.wrong);
    outcome.notes.assign(world->notes.data(), world->noted);
    destroy();
    munmap(board, sizeof(Board));
    return outcome;
}

}  // namespace sim
