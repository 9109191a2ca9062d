#include "judge.hpp"

#include <signal.h>

#include <algorithm>
#include <span>

#include "board.hpp"
#include "tutti/tutti.h"

namespace sim {
namespace {

constexpr std::uint64_t soon = 1500 * ms;  // an error comes to everybody
constexpr std::uint64_t recovered_in = 1500 * ms;

std::string in_ms(std::uint64_t from, std::uint64_t to) {
    return std::to_string((to - from) / ms) + " ms";
}

std::span<const Cause> causes() {
    return {board->causes, static_cast<std::size_t>(board->cause_count)};
}
std::span<const Told> events_of(const Report& report) {
    return {report.events, static_cast<std::size_t>(report.event_count)};
}

/// When who was to hear of something at `at` did nothing else any more: neither it nor the others.
std::uint64_t free_again(std::uint64_t at) {
    for (bool later = true; later;) {
        later = false;
        const auto look = [&](std::uint64_t from, std::uint64_t until) {
            if (from > at + soon || until <= at) return;
            at = until;
            later = true;
        };
        for (const Report& r : board->reports)
            for (int i = 0; i < r.busy; ++i) look(r.busy_from[i], r.busy_until[i]);
        for (const Blow& blow : job->blows)
            if (blow.what == Blow::stop) look(start + blow.at, start + blow.at + blow.how_long);
    }
    return at;
}

/// Whether all others know of a rank, so that they can hear of its end.
bool is_known(const Cause& cause) {
    const Report& its = board->reports[cause.rank];
    return its.way == Report::joined || its.way == Report::left || its.way == Report::done;
}

/// Whether the rank that the call names had an error itself, in another communicator: a rank that fails in a part gives
/// up the parent as well, and the other way round. A member of only one of the two is told of that rank first.
bool is_passed_on(const Told& told) {
    if (told.named_there < 0) return false;
    return std::ranges::any_of(events_of(board->reports[told.named_there]), [&](const Told& e) {
        return e.what == Told::error && e.at <= told.told_at && e.there != told.there;
    });
}

/// Whether a rank that was killed while ranks joined had said there that it had come, so that the others are told at
/// once. It had if it had time for that, and the rank that had opened the place was there.
bool had_come(const Cause& cause) {
    const Report& its = board->reports[cause.rank];
    const Rendezvous& place = board->rendezvous[0];
    const auto stops = [](const Blow& b) { return b.what == Blow::stop; };
    return cause.what == Cause::killed && its.way == Report::rendezvous && its.seen == 0 && place.open &&
           board->gone_at(place.members[0]) == never && its.meets_since != 0 &&
           cause.at >= its.meets_since + 100 * ms && std::ranges::none_of(job->blows, stops);
}

/// Judges the rank that an error names.
std::string judge_names(const Told& event, int rank) {
    const auto any = [](auto&& what) { return std::ranges::any_of(causes(), what); };
    if (!any([&](const Cause& c) { return c.at <= event.at; })) return "has an error, and nothing has befallen anybody";
    const bool differ = any([&](const Cause& c) { return c.what == Cause::differed && c.at <= event.at; });
    const auto innocent = [&](int r) {
        return r >= 0 && !differ && !any([&](const Cause& c) { return c.rank == r && c.at <= event.told_at; });
    };
    // A death is heard of at all communicators at once, so where the dead rank was it is named, and nobody else.
    const auto died_there = [&](const Cause& c) {
        return c.what == Cause::killed && c.at <= event.at && (event.there == 0 || (event.there >> c.rank & 1) != 0);
    };
    const bool passed_on = is_passed_on(event) && !any(died_there);
    if (innocent(event.named_there) && !passed_on)
        return "is told of rank " + std::to_string(event.named_there) + " by its call";
    for (int i = 0; i < event.named_count; ++i)
        if (innocent(event.named[i])) return "is told that rank " + std::to_string(event.named[i]) + " has failed";
    const bool own = any([&](const Cause& c) { return c.what == Cause::revoked && c.rank == rank; });
    if (event.named_count == 0 && event.named_there != -2 && !own) return "is told of nobody";
    return "";
}

/// Whether a survivor has heard of what has befallen another rank, and in time.
std::string judge_hearing(const Report& report, const Cause& cause) {
    if (report.present_at > cause.at || cause.what == Cause::excluded) return "";
    std::uint64_t limit = free_again(cause.at) + soon;
    if ((!is_known(cause) && !had_come(cause)) || cause.what == Cause::could_not_join)
        limit = free_again(limit + init_timeout_ms * ms) + soon;
    const auto all = events_of(report);
    const auto next = std::ranges::find_if(all, [&](const Told& e) { return e.at >= cause.at; });
    if (next != all.begin()) {
        const Told& before = *(next - 1);
        const bool recovers = before.what == Told::error || before.what == Told::revoked;
        // A rank in another recovery learns of the death there; a rank that has gone on without the dead one need not.
        if (recovers || (before.members >> cause.rank & 1) == 0) return "";
    }
    if (next == all.end()) return "has no error";
    // A newcomer knows only the id of its rendezvous. If the rank that was to open the rendezvous has failed before, no
    // rank can tell the newcomer.
    const bool newcomer = &report - board->reports >= job->ranks;
    if (newcomer && std::string_view(next->said).find("could not reach the place where") != std::string_view::npos)
        limit = free_again(limit + init_timeout_ms * ms) + soon;
    if (next->at > limit) return "hears of it after " + in_ms(cause.at, next->at);
    return "";
}

/// Judges the end of a recovery: whether it came soon after the last event to recover from.
std::string judge_recovery(const Told& event) {
    std::uint64_t last = 0;
    bool unknown = false;
    for (const Cause& c : causes())
        if (c.at <= event.at) last = std::max(last, c.at), unknown |= !is_known(c) || c.what == Cause::could_not_join;
    for (const Report& r : board->reports)
        for (const Told& e : events_of(r))
            if (e.what != Told::recovered && e.what != Told::renewed && e.at <= event.at) last = std::max(last, e.at);
    std::uint64_t limit = free_again(last) + recovered_in;
    if (unknown) limit = free_again(limit + init_timeout_ms * ms) + recovered_in;
    return event.at > limit ? "goes on after " + in_ms(last, event.at) : "";
}

/// Whether nobody may notice more than the delay: of a cable that was pulled, or of connections that were reset.
bool heals(const Weather& weather) {
    if (weather.cut.what == Cut::reset) return true;
    return weather.cut.what == Cut::pulled && weather.cut.how_long < weather.silence_ms * ms * 3 / 4;
}

/// Where memory is lacking: empty if a rank's first error came soon after the first one of any rank. Ranks wait for one
/// that comes late to the first rendezvous, and for one that lacked something before it registered, unless the
/// rendezvous is in its process.
std::string judge_delay(const Told& told) {
    std::uint64_t first = told.at;
    for (const Report& r : board->reports)
        if (r.event_count > 0) first = std::min(first, r.events[0].at);
    const int lacking = job->weather.shortage.rank;
    std::uint64_t limit = std::max(free_again(first), world->refused_at) + soon;  // without memory it can't tell
    if (!board->reports[lacking].has_joined && board->rendezvous[0].opener != lacking) limit += init_timeout_ms * ms;
    return told.at <= limit ? "" : "hears of it after " + in_ms(first, told.at) + ": " + told.said;
}

/// Judges an error in a job with cut links or shortages.
std::string judge_in_weather(const Report& report, const Told& told, int rank) {
    const Weather& w = job->weather;
    const std::string said = told.said;
    if (w.cut.what != Cut::none && (heals(w) || world->now < w.cut.at)) return "has an error: " + said;
    // In a part, ranks have other numbers.
    const auto names = [&](int r) {
        if (told.there != 0 ? told.named_there == r : said.find("rank " + std::to_string(r)) != std::string::npos)
            return true;
        return is_passed_on(told);
    };
    if (w.cut.what != Cut::none) {
        // If the calls' time-out is no longer than the limit of silence, a call may end by it, and names the rank
        // that it waits for. That ends its communicator, and the others are then told of its rank.
        const auto by_itself = [&](const Told& e) {
            return e.what == Told::error && e.at <= told.at && e.code == tuttiTimeout &&
                   static_cast<int>(w.silence_ms) >= timeout_ms;
        };
        const auto is_named = [&](const Report& r) { return names(static_cast<int>(&r - board->reports)); };
        const bool by_other = std::ranges::any_of(board->reports, [&](const Report& r) {
            return is_named(r) && std::ranges::any_of(events_of(r), by_itself);
        });
        if (!by_itself(told) && !by_other && !names(w.cut.a) && !names(w.cut.b))
            return "does not say which link is cut: " + said;
        std::uint64_t heard = w.cut.at;
        for (const Report& r : board->reports)
            for (int i = 0; i < r.busy; ++i) heard = std::max(heard, r.busy_until[i]);
        // A call that still succeeds does not end one that cannot: each call starts its own wait.
        for (const Report& r : board->reports)
            if (r.event_count > 0 && r.events[0].what == Told::error && r.events[0].at <= told.at)
                heard = std::max(heard, r.events[0].since);
        heard += std::max(w.silence_ms, 4000u) * ms * 5 / 4;
        // Ranks that meet for a part wait for each other as all do in the beginning, and the others for them.
        const auto waits_to_meet = [&](const Told& e) {
            const std::string_view its(e.said);
            return e.what == Told::error && e.at <= told.at && its.find("the ranks meet") != its.npos;
        };
        if (std::ranges::any_of(board->reports,
                                [&](const Report& r) { return std::ranges::any_of(events_of(r), waits_to_meet); }))
            heard = std::max(heard, w.cut.at + init_timeout_ms * ms);
        // A connection that was not proven yet says nothing of its host: it is called once more (docs/cluster.md).
        if (said.find("can't connect") != std::string::npos) heard += w.silence_ms * ms;
        const std::uint64_t late =
            report.has_joined ? heard + soon : std::max(heard, start + init_timeout_ms * ms) + soon;
        return told.at <= late ? "" : "heard of it after " + in_ms(w.cut.at, told.at);
    }
    if (world->refused == 0) return "has an error, and everything that was asked for was had: " + said;
    if (w.shortage.what == Shortage::heap)
        if (std::string late = judge_delay(told); !late.empty()) return late;
    const bool known = report.has_joined || board->reports[w.shortage.rank].has_joined;
    static constexpr const char* reasons[] = {"Too many open files", "descriptor", "memory", "thread"};
    const auto is_said = [&](const char* reason) { return said.find(reason) != std::string::npos; };
    // Which has other numbers.
    const bool in_a_part =
        said.starts_with("tuttiCommSplit") || said.starts_with("tuttiDp") || said.starts_with("tuttiPs");
    if (known && rank != w.shortage.rank && !names(w.shortage.rank) && !in_a_part && !is_said("rendezvous") &&
        !is_said("were to meet"))
        return "does not say where something was lacking: " + said;
    return rank != w.shortage.rank || std::ranges::any_of(reasons, is_said) ? ""
                                                                            : "does not say what it lacks: " + said;
}

std::string judge_rank(int rank) {
    const Report& report = board->reports[rank];
    if (report.wrong[0] != 0) return report.wrong;
    if (!job->weather.is_calm() && report.event_count > 0) return judge_in_weather(report, report.events[0], rank);
    for (const Told& event : events_of(report))
        if (event.what == Told::recovered) {
            if (std::string wrong = judge_recovery(event); !wrong.empty()) return wrong;
        } else if (event.what == Told::error) {
            if (const std::string wrong = judge_names(event, rank); !wrong.empty()) return wrong + ": " + event.said;
        }
    if (report.way == Report::left || report.way == Report::absent) return "";
    if (report.way != Report::done) return "did not come to the end";
    for (const Cause& cause : causes())
        if (cause.rank != rank)
            if (std::string wrong = judge_hearing(report, cause); !wrong.empty())
                return wrong + " (rank " + std::to_string(cause.rank) + ")";
    return "";
}

}  // namespace

std::string judge() {
    if (world->verdict != nullptr) {  // often because a rank has ended, for which the others wait
        for (int rank = 0; rank < most_ranks; ++rank)
            if (const char* const wrong = board->reports[rank].wrong; wrong[0] != 0)
                return "rank " + std::to_string(rank) + " " + wrong + "; then " + world->verdict;
        return world->verdict;
    }
    for (int rank = 0; rank < job->ranks + job->newcomers; ++rank) {
        const Process& its = world->processes[static_cast<std::size_t>(rank + 1)];
        const bool killed =
            std::ranges::any_of(job->blows, [&](const Blow& b) { return b.what == Blow::kill && b.rank == rank; });
        std::string wrong;
        if (its.exit_code == 128 + SIGKILL && killed) continue;
        if (its.exit_code != 0)
            wrong = "ended with " + std::to_string(its.exit_code);
        else
            wrong = judge_rank(rank);
        if (!wrong.empty()) return "rank " + std::to_string(rank) + " " + wrong;
    }
    return "";
}

}  // namespace sim
