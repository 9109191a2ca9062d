// Runs a job: makes its world and its ranks, and strikes.
#include <sys/mman.h>

#include <algorithm>
#include <span>
#include <vector>

#include "board.hpp"
#include "judge.hpp"
#include "picture.hpp"
#include "rank.hpp"

namespace sim {

Board* board = nullptr;
const Job* job = nullptr;

void Board::add_cause(Cause::What what, int rank) {
    if (cause_count < static_cast<int>(std::size(causes))) causes[cause_count++] = {what, rank, world->now};
}

bool Board::is_cause(int rank) const {
    return std::any_of(causes, causes + cause_count, [rank](const Cause& c) { return c.rank == rank; });
}

std::uint64_t Board::gone_at(int rank) const {
    for (int i = 0; i < cause_count; ++i)
        if (causes[i].rank == rank && causes[i].what == Cause::killed) return causes[i].at;
    return never;
}

namespace {

constexpr std::uint64_t doom_lasts = 500 * ms;  // for so long it may come

struct Strike {
    enum What { kill, stop, resume } what;
    int rank;
    std::uint64_t at;
};

void strike(const Strike& blow) {
    const int process = blow.rank + 1;
    if (world->processes[static_cast<std::size_t>(process)].ended) return;
    static constexpr const char* texts[] = {"is killed", "is stopped", "goes on"};
    world->note("rank %d %s", blow.rank, texts[blow.what]);
    world->record(Event::mark, process, world->now, texts[blow.what]);
    if (blow.what == Strike::stop) return stop(process);
    if (blow.what == Strike::resume) return resume(process);
    if (board->reports[blow.rank].way != Report::left && board->reports[blow.rank].way != Report::done)
        board->add_cause(Cause::killed, blow.rank);
    kill(process);
}

/// By what a process sends: in that process.
void note_doom(int process) {
    const Process& its = world->processes[static_cast<std::size_t>(process)];
    const int rank = process - 1;
    Report& report = board->reports[rank];
    const bool killed = its.doom.how_long == 0;
    const char* const what = killed ? "is killed as it sends" : "is stopped as it sends";
    world->note("rank %d %s", rank, what);
    world->record(Event::mark, process, world->now, what);
    if (!killed) {
        const int n = report.busy++;
        report.busy_from[n] = world->now;
        report.busy_until[n] = world->now + its.doom.how_long;
    } else if (report.way != Report::left && report.way != Report::done) {
        board->add_cause(Cause::killed, rank);
    }
}

void strike_all() {
    std::vector<Strike> strikes;
    std::uint64_t last_doom = 0;
    for (const Blow& blow : job->blows) {
        const std::uint64_t at = start + blow.at;
        if (blow.sends > 0) {
            world->processes[static_cast<std::size_t>(blow.rank + 1)].doom = {
                at, blow.sends, blow.what == Blow::stop ? blow.how_long : 0};
            last_doom = std::max(last_doom, at + doom_lasts);
            continue;
        }
        strikes.push_back({blow.what == Blow::kill ? Strike::kill : Strike::stop, blow.rank, at});
        if (blow.what == Blow::stop) strikes.push_back({Strike::resume, blow.rank, at + blow.how_long});
    }
    std::ranges::stable_sort(strikes, {}, &Strike::at);
    for (const Strike& one : strikes) {
        if (wait_until(one.at)) return;
        strike(one);
    }
    if (last_doom != 0 && wait_until(last_doom)) return;
    for (Process& p : world->processes) p.doom.sends = 0;
    board->all_struck = true;
}

}  // namespace

Outcome run_job(const Job& what, bool draw) {
    job = &what;
    board =
        static_cast<Board*>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    create(what.seed);
    world->end = start + 600 * s;
    world->most_switches = 4'000'000;
    static constexpr unsigned rates[] = {0, 4, 32};
    world->preempt_one_in = rates[world->draw(3)];
    world->weather = what.weather;
    // A rank that has left, or calls something else, sends no wake-up: the others check after a sleep of limited time.
    const bool all_ring = std::ranges::none_of(what.calls, [](const Call& c) {
        return c.what == Call::leave || c.what == Call::shrink || c.what == Call::differ;
    });
    if (what.weather.is_calm() && all_ring && world->draw(4) == 0) world->stretch = 1000;
    if (what.wakes) world->stretch = 50, world->preempt_one_in = 4;  // before silence is looked for, which rings
    world->socket_buffer = what.socket_buffer;
    on_doom = note_doom;
    if (what.weather.network) fork_servant(carry);
    const int all = what.ranks + what.newcomers;
    for (int rank = 0; rank < all; ++rank) fork_process(take_part);
    strike_all();
    wait_until(never);
    Outcome outcome{"", "", "", world->trace, world->switches, world->now - start};
    outcome.wrong = judge();
    if (draw || !outcome.wrong.empty())
        outcome.picture = picture_of(std::span(world->events.data(), world->event_count), all,
                                     "seed " + std::to_string(what.seed) + ": " + what.text(), outcome.wrong);
    outcome.notes.assign(world->notes.data(), world->noted);
    destroy();
    munmap(board, sizeof(Board));
    return outcome;
}

}  // namespace sim
