#include "rank.hpp"

#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <sstream>
#include <thread>

#include "board.hpp"
#include "differences.hpp"
#include "heap.hpp"
#include "left.hpp"
#include "steps/steps.hpp"
#include "transport/numbering.hpp"
#include "tutti/tutti.h"

namespace sim {
namespace {

using tutti::steps::Failure;
using tutti::steps::must;
using tutti::steps::Steps;
using tutti::steps::Wrong;

constexpr std::size_t most_bytes = std::size_t{128} << 10;  // of a rank's row

void pass_time(std::uint64_t ns) {
    timespec how_long{static_cast<time_t>(ns / s), static_cast<long>(ns % s)};
    nanosleep(&how_long, nullptr);
}

template <std::size_t size>
void put(char (&where)[size], const std::string& what) {
    std::strncpy(where, what.c_str(), size - 1);
}

/// The rank is no part of the job any more, by its own doing.
struct Gone {};
/// The rank has revoked its communicator.
struct Revoked {};

class Rank {
  public:
    explicit Rank(int number) : me_(number), report_(board->reports[number]) {}
    ~Rank() {
        if (helper_.joinable()) helper_.join();
    }

    void run() {
        for (;;) {
            try {
                if (!connected_) connect(), ++next_;
                for (; next_ < static_cast<int>(job->calls.size()); ++next_)
                    perform(job->calls[static_cast<std::size_t>(next_)]);
                return finish();
            } catch (const Gone&) {
                return leave();
            } catch (const Revoked&) {
                connected_ = false;
                lost_ = true;
                add_event(Told::revoked);
            } catch (const Failure& failure) {
                connected_ = false;
                lost_ = true;
                if (helper_.joinable()) helper_.join();
                if (aborted_) return leave();
                tell(failure);
                if (!job->weather.is_calm()) return leave();
            }
        }
    }

  private:
    /// A communicator, and which ranks of the world it has.
    struct Group {
        tuttiComm_t comm = nullptr;
        std::vector<int> members;
        std::unique_ptr<Steps> steps;
    };

    Group& now() { return groups_.back(); }
    tuttiComm_t comm() { return now().comm; }
    bool is_member(int rank) { return std::ranges::count(now().members, rank) > 0; }

    // ---- how a rank gets its communicator

    void connect() {
        const bool first = report_.way == Report::absent;
        if (first && me_ >= job->ranks) return join_by_growing();
        if (first) {
            report_.present_at = world->now;
            return meet();
        }
        if (!job->rejoins && !groups_.empty()) return shrink_to_the_living();
        while (!groups_.empty()) give_up_first();
        ++rendezvous_;
        meet();
    }

    /// All that are left, at a place of their own.
    void meet() {
        const auto is_open_without_me = [this] {
            const Rendezvous& m = board->rendezvous[rendezvous_];
            return m.open && std::ranges::count(m.members, m.members + m.count, me_) == 0;
        };
        while (is_open_without_me()) ++rendezvous_;
        Rendezvous& place = board->rendezvous[rendezvous_];
        report_.seen = rendezvous_;
        report_.way = Report::rendezvous;
        while (!place.open) {
            if (may_open()) {
                tuttiUniqueId id;
                must(tuttiGetUniqueId(&id), "tuttiGetUniqueId");
                std::memcpy(place.id, &id, sizeof id);
                place.opener = me_;
                place.open = true;
            } else {
                if (!job->rejoins && rendezvous_ > 0 && somebody_has_joined()) throw Gone{};
                pass_time(ms);
            }
        }
        const auto members = std::vector<int>(place.members, place.members + place.count);
        const auto mine = std::ranges::find(members, me_) - members.begin();
        tuttiUniqueId id;
        std::memcpy(&id, place.id, sizeof id);
        if (rendezvous_ == 0 && me_ == job->late) be_busy(job->late_by);
        report_.meets_since = world->now;
        const tuttiConfig_t config = options();
        tuttiComm_t made = nullptr;
        allocates_for_library = true;
        const tuttiResult_t result = tuttiCommInitRankConfig(&made, place.count, id, static_cast<int>(mine), &config);
        allocates_for_library = false;
        must(result, "tuttiCommInitRankConfig");
        begin(made, members);
    }

    /// Then those that have will not come here.
    static bool somebody_has_joined() {
        return std::ranges::any_of(board->reports, [](const Report& r) { return r.way == Report::joined; });
    }

    /// Whether this rank is the one to open the place, and all have come. Then it says who they are.
    bool may_open() {
        std::vector<int> members;
        for (int r = 0; r < (rendezvous_ == 0 ? job->ranks : most_ranks); ++r) {
            const Report& other = board->reports[r];
            const bool here = board->gone_at(r) == never && other.way != Report::left && other.way != Report::done &&
                              (r < job->ranks || other.way != Report::absent);
            if (here && r < me_) return false;
            if (rendezvous_ > 0 && !here) continue;
            if (rendezvous_ > 0 && (other.way != Report::rendezvous || other.seen != rendezvous_)) return false;
            members.push_back(r);
        }
        Rendezvous& place = board->rendezvous[rendezvous_];
        std::ranges::copy(members, place.members);
        place.count = static_cast<int>(members.size());
        return true;
    }

    void join_by_growing() {
        const auto call = std::ranges::find_if(job->calls, [this](const Call& c) {
            return c.what == Call::grow && newcomers_of(c).front() <= me_ && me_ <= newcomers_of(c).back();
        });
        const auto number = static_cast<int>(call - job->calls.begin());
        Rendezvous& place = board->grown[number];
        // The rank that opened the rendezvous may have died since; then the remaining ranks open it again.
        const auto is_open = [&] { return place.open && board->gone_at(place.members[0]) == never; };
        while (!is_open()) {
            const auto may_come = [](const Report& r) { return r.way != Report::left && r.way != Report::done; };
            bool any = board->furthest <= number;
            for (int r = 0; any && r < most_ranks; ++r) {  // also those that have grown into it before
                const bool is_there = r < job->ranks || board->reports[r].way != Report::absent;
                if (is_there && may_come(board->reports[r]) && board->gone_at(r) == never) any = false;
            }
            if (any || board->furthest > number) throw Gone{};
            pass_time(ms);
        }
        report_.present_at = world->now;
        report_.way = Report::present;
        next_ = number;
        rendezvous_ = place.rendezvous;
        const std::vector<int> members(place.members, place.members + place.count);
        tuttiUniqueId id;
        std::memcpy(&id, place.id, sizeof id);
        const tuttiConfig_t config = options();
        tuttiComm_t made = nullptr;
        const auto mine = static_cast<int>(std::ranges::find(members, me_) - members.begin());
        must(tuttiCommGrow(nullptr, place.count, &id, mine, &made, &config), "tuttiCommGrow");
        begin(made, members);
    }

    static std::vector<int> newcomers_of(const Call& call) {
        int first = job->ranks;
        for (const Call& before : job->calls) {
            if (&before == &call) break;
            if (before.what == Call::grow) first += before.how;
        }
        std::vector<int> all(static_cast<std::size_t>(call.how));
        std::iota(all.begin(), all.end(), first);
        return all;
    }

    void shrink_to_the_living() {
        tuttiComm_t rest = nullptr;
        must(tuttiCommShrink(comm(), nullptr, 0, &rest, nullptr, TUTTI_SHRINK_ABORT), "tuttiCommShrink");
        begin(rest, {});
        if (!job->keeps)
            while (groups_.size() > 1) give_up_first();
    }

    /// Goes on with a communicator, where all do. members: empty if they are to tell.
    void begin(tuttiComm_t made, std::vector<int> members) {
        int rank = -1, ranks = 0;
        must(tuttiCommUserRank(made, &rank), "tuttiCommUserRank");
        must(tuttiCommCount(made, &ranks), "tuttiCommCount");
        const std::vector<int> before = groups_.empty() ? std::vector<int>() : now().members;
        groups_.push_back({made, {}, nullptr});
        std::vector<int> told(static_cast<std::size_t>(ranks), -1);
        allocates_for_library = true;
        const tuttiResult_t gathered = tuttiAllGather(&me_, told.data(), 1, tuttiInt32, made, nullptr);
        allocates_for_library = false;
        must(gathered, "tuttiAllGather");
        if (!members.empty() && members != told) throw Wrong("other ranks have joined than were to");
        if (told[static_cast<std::size_t>(rank)] != me_ || !std::ranges::is_sorted(told))
            throw Wrong("ranks are in another order");
        // Where ranks name others to be left out, each by its own list, they may part.
        const auto names_some = [](const Call& c) { return c.what == Call::shrink; };
        const bool may_part = std::ranges::any_of(job->calls, names_some);
        if (members.empty() && !may_part)
            for (const int r : before)
                if (std::ranges::count(told, r) == 0 && !board->is_cause(r))
                    throw Wrong("rank " + std::to_string(r) + " is left out, and nothing has befallen it");
        now().members = told;
        const int mine[] = {next_, groups_made_ + 1};
        int agreed[2];
        must(tuttiAllReduce(mine, agreed, 2, tuttiInt32, tuttiMax, made, nullptr), "tuttiAllReduce");
        next_ = agreed[0];
        groups_made_ = agreed[1];
        const std::uint64_t seed = job->seed * 64 + static_cast<std::uint64_t>(groups_made_);
        now().steps = std::make_unique<Steps>(tutti::steps::World{made, rank, ranks}, seed, most_bytes);
        world->note("rank %d is rank %d of %d", me_, rank, ranks);
        if (groups_made_ > 1) {
            Told& news = add_event(std::exchange(lost_, false) ? Told::recovered : Told::renewed);
            for (const int r : told) news.members |= 1u << r;
        }
        report_.way = Report::joined;
        report_.has_joined = true;
        connected_ = true;
    }

    static tuttiConfig_t options() {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.timeoutMs = timeout_ms;
        config.initTimeoutMs = init_timeout_ms;
        return config;
    }

    // ---- how it gives one up

    void give_up_first() {
        Group group = std::move(groups_.front());
        groups_.erase(groups_.begin());
        if (group.steps && group.steps->memory().is_marked() && !group.steps->memory().untouched())
            throw Wrong("a buffer was written after its call had ended");
        if (group.steps) group.steps->clean_up(), group.steps->memory().mark();
        if (group.comm != aborted_comm_) must(tuttiCommAbort(group.comm), "tuttiCommAbort");
        pass_time(10'000);
        if (group.steps && !group.steps->memory().untouched())
            throw Wrong("a buffer was written after its communicator was given up");
    }

    void leave() {
        if (helper_.joinable()) helper_.join();
        while (!groups_.empty()) give_up_first();
        report_.way = Report::left;
    }

    void finish() {
        board->furthest = most_calls_of_a_job;
        for (;;) {
            const int ready = board->all_struck && !(helper_.joinable() && !helped_) ? 1 : 0;
            int all = 0;
            must(tuttiAllReduce(&ready, &all, 1, tuttiInt32, tuttiMin, comm(), nullptr), "tuttiAllReduce");
            if (all == 1) break;
            pass_time(ms);
        }
        if (helper_.joinable()) helper_.join();
        now().steps->clean_up();
        const tuttiComm_t last = std::exchange(now().comm, nullptr);
        now().steps->memory().reset();
        groups_.pop_back();
        must(tuttiCommDestroy(last), "tuttiCommDestroy");
        while (!groups_.empty()) give_up_first();
        report_.way = Report::done;
    }

    // ---- what it does

    void perform(const Call& call) {
        const std::uint64_t began = world->now;
        board->furthest = std::max(board->furthest, next_);
        const bool here = is_member(call.who), mine = call.who == me_;
        switch (call.what) {
            case Call::step:
                now().steps->run_only(call.salt * 64 + static_cast<std::uint64_t>(next_), call.kind);
                break;
            case Call::pause:
                if (mine) be_busy(call.time);
                break;
            case Call::abort:
            case Call::revoke:
                if (mine) end(call);
                break;
            case Call::leave:
                if (!mine) break;
                if (call.how == 1) must(tuttiCommFinalize(comm()), "tuttiCommFinalize");
                go(Cause::left);
            case Call::differ:
                if (!here || now().members.size() < 2) break;
                if (mine) board->add_cause(Cause::differed, me_);
                call_differently(call.how, mine, comm());
                break;
            case Call::shrink:
                if (here && now().members.size() > 1) shrink_without(call.who);
                break;
            case Call::grow:
                grow(call);
        }
        world->record(Event::call, me_ + 1, began, call.text());
        world->note("rank %d: %s", me_, call.text().c_str());
    }

    /// Leaves the job.
    [[noreturn]] void go(Cause::What how) {
        if (helper_.joinable()) helper_.join();
        if (aborted_) throw Gone{};
        now().steps->clean_up();
        board->add_cause(how, me_);
        must(tuttiCommDestroy(std::exchange(now().comm, nullptr)), "tuttiCommDestroy");
        groups_.pop_back();
        throw Gone{};
    }

    void be_busy(std::uint64_t time) {
        const int n = report_.busy++;
        report_.busy_from[n] = world->now;
        report_.busy_until[n] = world->now + time;
        pass_time(time);
        report_.busy_until[n] = world->now;
    }

    /// Aborts or revokes.
    void end(const Call& call) {
        if (helper_.joinable() || next_ > 1000) return;
        const auto work = [this, &call] {
            struct Over {  // only then: nobody may end the job while it is about to fail
                bool& over;
                ~Over() { over = true; }
            } over{helped_};
            const tuttiComm_t which = groups_.empty() ? nullptr : comm();
            if (which == nullptr) return;
            board->add_cause(call.what == Call::abort ? Cause::aborted : Cause::revoked, me_);
            aborted_ = call.what == Call::abort;
            revoked_ = !aborted_;
            if (aborted_) aborted_comm_ = which;
            const tuttiResult_t result =
                call.what == Call::abort ? tuttiCommAbort(which) : tuttiCommRevoke(which, TUTTI_REVOKE_DEFAULT);
            if (result != tuttiSuccess)
                put(report_.wrong, std::string("from another thread: ") + tuttiGetLastError(nullptr));
        };
        if (call.time == 0) {
            now().steps->clean_up();
            work();
            if (aborted_) throw Gone{};
            throw Revoked{};
        }
        helped_ = false;
        helper_ = std::thread([work, time = call.time] {
            allocates_for_library = false;
            pass_time(time);
            work();
        });
    }

    void shrink_without(int who) {
        if (who == me_) go(Cause::excluded);
        const int excluded = static_cast<int>(std::ranges::find(now().members, who) - now().members.begin());
        tuttiComm_t rest = nullptr;
        must(tuttiCommShrink(comm(), &excluded, 1, &rest, nullptr, TUTTI_SHRINK_DEFAULT), "tuttiCommShrink");
        begin(rest, {});
    }

    void grow(const Call& call) {
        Rendezvous& place = board->grown[next_];
        unsigned us = 0;
        for (const int r : now().members) us |= 1u << r;
        if (place.claimed != 0 && (place.claimed & us) == 0) return;  // ranks have parted: the others came here first
        place.claimed = us;
        const std::vector<int> newcomers = newcomers_of(call);
        if (now().members.front() == me_) {
            tuttiUniqueId id;
            must(tuttiCommGetUniqueId(comm(), &id), "tuttiCommGetUniqueId");
            std::memcpy(place.id, &id, sizeof id);
            place.count = 0;
            for (const int r : now().members) place.members[place.count++] = r;
            for (const int r : newcomers) place.members[place.count++] = r;
            place.rendezvous = rendezvous_;
            place.open = true;
        }
        tuttiComm_t larger = nullptr;
        std::vector<int> members = now().members;
        members.insert(members.end(), newcomers.begin(), newcomers.end());
        must(tuttiCommGrow(comm(), static_cast<int>(members.size()), nullptr, -1, &larger, nullptr), "tuttiCommGrow");
        begin(larger, members);
    }

    // ---- what it is told

    Told& add_event(Told::What what) {
        if (report_.event_count == most_events) throw Wrong("there is one error after the other");
        Told& event = report_.events[report_.event_count++];
        event.at = event.told_at = world->now;
        event.what = what;
        event.call = next_;
        return event;
    }

    /// Members of the communicator in use that were killed while they had it.
    std::vector<int> dead_here() const {
        const auto in_use = [](const Report& report) {
            unsigned members = 0;
            for (const Told& e : std::span(report.events, static_cast<std::size_t>(report.event_count)))
                if (e.what == Told::recovered || e.what == Told::renewed) members = e.members;
            return members;
        };
        std::vector<int> dead;
        for (const Cause& c : std::span(board->causes, static_cast<std::size_t>(board->cause_count))) {
            const Report& its = board->reports[c.rank];
            if (c.what == Cause::killed && its.way == Report::joined && in_use(its) == in_use(report_) &&
                std::ranges::count(groups_.back().members, c.rank) > 0)
                dead.push_back(c.rank);
        }
        return dead;
    }

    /// All of them are named, also those that have died since the first one; but for those that have died with the
    /// parent of all in the tree, who would have told of them.
    void await_names(const Told& event) {
        const auto stops = [](const Blow& b) { return b.what == Blow::stop; };
        if (groups_.empty() || revoked_ || std::ranges::any_of(job->blows, stops)) return;
        std::vector<int> dead = dead_here();
        if (std::ranges::count(dead, now().members.front()) > 0) dead = {now().members.front()};
        for (const std::uint64_t limit = world->now + 1 * s;; pass_time(200'000)) {
            int ranks[most_ranks], count = 0;
            must(tuttiCommGetFailedRanks(comm(), ranks, most_ranks, &count), "tuttiCommGetFailedRanks");
            const auto named = [&](int r) {
                return std::ranges::any_of(std::span(ranks, static_cast<std::size_t>(count)), [&](int failed) {
                    return now().members[static_cast<std::size_t>(failed)] == r;
                });
            };
            const auto unnamed = std::ranges::find_if_not(dead, named);
            if (unnamed == dead.end()) return;
            if (world->now >= limit)
                throw Wrong("is not told that rank " + std::to_string(*unnamed) + " has died, but: " + event.said);
        }
    }

    void tell(const Failure& failure) {
        Told& event = add_event(Told::error);
        event.at = static_cast<std::uint64_t>(failure.at_ns);
        event.code = failure.code;
        event.since = report_.succeeded_at;
        event.named_there = -2;
        put(event.said, failure.call + ": " + failure.what());
        world->note("rank %d: %s", me_, event.said);
        world->record(Event::mark, me_ + 1, world->now, event.said);
        const auto in_world = [this](int r) {
            const auto at = static_cast<std::size_t>(r);
            return r < 0 ? r : at < now().members.size() ? now().members[at] : -2;
        };
        Steps* const steps = groups_.empty() ? nullptr : now().steps.get();
        if (steps != nullptr) event.named_there = in_world(steps->named_there());
        if (steps != nullptr)
            for (const int r : steps->members_there()) event.there |= 1u << in_world(r);
        if (!job->weather.is_calm()) return;  // and that is all
        if (groups_.empty()) {
            if (report_.way == Report::rendezvous || report_.way == Report::present)
                board->add_cause(Cause::could_not_join, me_);
            return;
        }
        const bool marked = steps != nullptr && !steps->works_on();
        if (marked) steps->memory().mark();
        for (const std::uint64_t limit = world->now + 1 * s; world->now < limit;) {
            int ranks[most_ranks];
            must(tuttiCommGetFailedRanks(comm(), ranks, most_ranks, &event.named_count), "tuttiCommGetFailedRanks");
            for (int i = 0; i < event.named_count; ++i) event.named[i] = in_world(ranks[i]);
            event.told_at = world->now;
            if (event.named_count > 0 || revoked_) break;
            pass_time(200'000);
        }
        await_names(event);
        if (marked && !steps->memory().untouched())
            throw Wrong("a buffer was written after its call had returned an error");
        if (steps == nullptr) return;
        steps->clean_up();
        steps->memory().mark();
    }

    int me_;
    Report& report_;
    std::vector<Group> groups_;  // the last one is in use
    bool connected_ = false, lost_ = false;
    int rendezvous_ = 0, next_ = -1, groups_made_ = 0;
    std::thread helper_;
    bool helped_ = false, aborted_ = false, revoked_ = false;
    tuttiComm_t aborted_comm_ = nullptr;
};

}  // namespace

int take_part(int process) {
    Report& report = board->reports[process - 1];
    tutti::steps::after_success = [] { board->reports[this_process() - 1].succeeded_at = world->now; };
    tutti::first_message = job->first_message;
    setenv("TUTTI_TUNING", "none", 1);
    setenv("TUTTI_TRANSPORT", job->transport.c_str(), 1);
    if (job->weather.silence_ms != 0) setenv("TUTTI_SILENCE_MS", std::to_string(job->weather.silence_ms).c_str(), 1);
    if (job->weather.apart) setenv("TUTTI_HOSTID", std::to_string(process).c_str(), 1);
    std::istringstream settings(job->environment);
    for (std::string one; settings >> one;)
        setenv(one.substr(0, one.find('=')).c_str(), one.c_str() + one.find('=') + 1, 1);
    const Left before;
    track_heap(job->places);
    try {
        Rank(process - 1).run();
        pass_time(20 * s);  // what stays open for late-comers
        // A connection whose other end can't say any more that it has closed it stays until it was silent for so long.
        if (job->weather.cut.what == Cut::pulled) pass_time(job->weather.silence_ms * ms * 5 / 4);
        put(report.wrong, report.wrong[0] != 0 ? report.wrong : Left().since(before));
        const std::string heap = heap_left();
        if (report.wrong[0] == 0 && !heap.empty()) put(report.wrong, "it leaves" + heap);
    } catch (const Failure& failure) {
        put(report.wrong, "while it went on: " + failure.call + ": " + failure.what());
    } catch (const std::exception& error) {
        put(report.wrong, error.what());
    }
    return 0;
}

}  // namespace sim
