#include "job.hpp"

#include <algorithm>
#include <random>

#include "board.hpp"
#include "focus.hpp"

namespace sim {
namespace {

class Maker {
  public:
    explicit Maker(std::uint64_t seed) : random_(seed) {}

    Job make(std::uint64_t seed, const Less& less) {
        Job job{};
        job.seed = seed;
        job.ranks = 2 + static_cast<int>(draw(4));
        if (less.ranks != 0) job.ranks = less.ranks;
        job.transport = draw(2) == 0 ? "shm" : "tcp";
        job.environment = environment(job.transport);
        job.rejoins = draw(4) == 0;
        job.keeps = draw(2) == 0;
        random_.discard(2);  // what earlier jobs drew here: seeds that are known stay as they are
        const bool trouble = draw(3) == 0;
        const auto count = 1 + draw(8);
        for (std::uint64_t i = 0; i < count; ++i) job.calls.push_back(call(job, trouble && draw(4) == 0));
        job.blows = blows(job.ranks);
        if (less.weather) job.weather = make_weather(seed, job.ranks, job.transport);
        if (!job.weather.is_calm()) be_quiet(job);
        focus(job);
        job.first_message = first_message(seed);
        if (!less.weather) job.weather = {};
        if (less.ranks != 0) leave_out(job, less.ranks);
        if (!less.blow) job.blows.clear();
        for (auto call = less.without.rbegin(); call != less.without.rend(); ++call)
            if (*call < job.calls.size()) job.calls.erase(job.calls.begin() + static_cast<std::ptrdiff_t>(*call));
        // Ranks that cannot shrink meet again by a new id: suspended ones, or if only some have grown.
        const auto has = [&](auto&& what) { return std::ranges::any_of(job.calls, what); };
        if (has([](const Call& c) { return c.what == Call::grow || c.kind == "suspend"; })) job.rejoins = true;
        // A layer's communicator must outlive it.
        if (has([](const Call& c) { return c.what == Call::abort && c.time > 0; }))
            for (Call& c : job.calls)
                if (c.kind == "dp") c.kind = "collectives";
        return job;
    }

  private:
    /// A third of the jobs sees numbers wrap around as signed ones, another third as unsigned ones.
    static std::uint32_t first_message(std::uint64_t seed) {
        const auto before = static_cast<std::uint32_t>(17 + seed / 3 % 16);
        return seed % 3 == 0 ? 0 : (seed % 3 == 1 ? 0x8000'0000u : 0u) - before;
    }

    /// Nothing befalls ranks that are not there.
    static void leave_out(Job& job, int ranks) {
        job.ranks = ranks;
        std::erase_if(job.blows, [ranks](const Blow& b) { return b.rank >= ranks; });
        if (std::max(job.weather.cut.a, job.weather.cut.b) >= ranks) job.weather.cut.what = Cut::none;
    }

    /// Removes all other events: for jobs with cut links or shortages.
    static void be_quiet(Job& job) {
        job.blows.clear();
        job.newcomers = 0;
        for (Call& call : job.calls)
            if (call.what != Call::step && call.what != Call::pause) call.what = Call::step, call.kind = "collectives";
    }

    std::uint64_t draw(std::uint64_t below) { return random_() % below; }
    template <class T, std::size_t n>
    T one_of(const T (&all)[n]) {
        return all[draw(n)];
    }
    std::uint64_t any_time(std::uint64_t longest) {  // as many short ones as long ones
        std::uint64_t time = longest;
        for (auto halves = draw(14); halves > 0; --halves) time /= 2;
        return time / 2 + draw(time / 2 + 1);
    }

    std::string environment(const std::string& transport) {
        static constexpr const char* any[] = {"TUTTI_CHECK=1",   "TUTTI_REPRODUCIBLE=1", "TUTTI_CHANNELS=4",
                                              "TUTTI_ALGO=ring", "TUTTI_ALGO=tree",      "TUTTI_FAULT=3:delay=3"};
        static constexpr const char* tcp[] = {"TUTTI_SOCKETS=1", "TUTTI_SOCKETS=4", "TUTTI_ENCRYPT=1",
                                              "TUTTI_ENCRYPT=mac"};
        std::string all;
        if (draw(3) == 0) all += one_of(any);
        if (transport == "tcp" && draw(2) == 0) all += (all.empty() ? "" : " ") + std::string(one_of(tcp));
        return all;
    }

    Call call(Job& job, bool trouble) {
        static constexpr const char* steps[] = {"collectives", "collectives", "collectives", "pairs",
                                                "chain",       "groups",      "streams",     "split",
                                                "parts",       "dp",          "puts",        "suspend"};
        static constexpr Call::What troubles[] = {Call::abort,  Call::revoke, Call::leave,
                                                  Call::differ, Call::shrink, Call::grow};
        Call call{};
        call.what = trouble ? one_of(troubles) : draw(8) == 0 ? Call::pause : Call::step;
        call.kind = call.what == Call::step ? one_of(steps) : "";
        call.who = static_cast<int>(draw(static_cast<std::uint64_t>(job.ranks)));
        call.time = call.what == Call::pause ? any_time(2 * s) : draw(2) == 0 ? 0 : any_time(20 * ms);
        call.how = static_cast<int>(draw(7));
        call.salt = draw(1000);
        if (call.what != Call::grow) return call;
        call.how = 1 + static_cast<int>(draw(2));
        if (job.ranks + job.newcomers + call.how > most_ranks) return call.what = Call::pause, call;
        job.newcomers += call.how;
        return call;
    }

    std::vector<Blow> blows(int ranks) {
        std::vector<Blow> all;
        for (auto count = one_of({0, 1, 1, 2, 2, 3}); count > 0; --count) {
            Blow blow{};
            blow.what = draw(3) == 0 ? Blow::stop : Blow::kill;
            blow.rank = static_cast<int>(draw(static_cast<std::uint64_t>(ranks)));
            blow.at = any_time(400 * ms);
            if (!all.empty() && draw(2) == 0) blow.at = all.back().at + (draw(3) == 0 ? 0 : any_time(300 * ms));
            blow.how_long = any_time(8 * s);
            all.push_back(blow);
        }
        std::ranges::stable_sort(all, {}, &Blow::at);
        return all;
    }

    std::mt19937_64 random_;
};

std::string in_ms(std::uint64_t time) {
    return std::to_string(time / ms) + "." + std::to_string(time / (ms / 10) % 10) + " ms";
}

}  // namespace

std::string Call::text() const {
    const std::string its = "rank " + std::to_string(who) + " ";
    const std::string later = time > 0 ? " from another thread after " + in_ms(time) : "";
    switch (what) {
        case step:
            return kind;
        case pause:
            return its + "is busy for " + in_ms(time);
        case abort:
            return its + "aborts" + later;
        case revoke:
            return its + "revokes" + later;
        case leave:
            return its + (how == 1 ? "finalizes and " : "") + "leaves";
        case differ:
            return its + "calls something else (" + std::to_string(how) + ")";
        case shrink:
            return "all but rank " + std::to_string(who) + " go on";
        case grow:
            return std::to_string(how) + " join";
    }
    return "";
}

std::string Job::text() const {
    std::string all = std::to_string(ranks) + " ranks over " + transport;
    if (!focus.empty()) all = focus + ": " + all;
    if (newcomers > 0) all += ", " + std::to_string(newcomers) + " join later";
    if (!environment.empty()) all += ", " + environment;
    if (rejoins) all += "; they meet again after errors";
    if (keeps) all += "; they keep what has failed";
    if (late >= 0) all += "; rank " + std::to_string(late) + " comes " + in_ms(late_by) + " late";
    if (first_message > 0) all += "; messages are counted from " + std::to_string(first_message);
    if (wakes) all += "; they sleep until they are woken";
    if (socket_buffer > 0) all += "; sockets take " + std::to_string(socket_buffer) + " bytes";
    for (const Blow& blow : blows) {
        all += "; rank " + std::to_string(blow.rank) + " is " + (blow.what == Blow::kill ? "killed" : "stopped") +
               (blow.sends > 0 ? " at its " + std::to_string(blow.sends) + ". message from " : " at ") + in_ms(blow.at);
        if (blow.what == Blow::stop) all += " for " + in_ms(blow.how_long);
    }
    if (const std::string more = weather.text(); !more.empty()) all += "; " + more;
    all += "; calls:";
    for (std::size_t i = 0; i < calls.size(); ++i) all += (i > 0 ? ", " : " ") + calls[i].text();
    return all;
}

std::string Less::text() const {
    std::string all, calls;
    if (ranks != 0) all += " --ranks " + std::to_string(ranks);
    for (const std::size_t call : without) calls += (calls.empty() ? "" : ",") + std::to_string(call);
    if (!calls.empty()) all += " --without " + calls;
    return all + (blow ? "" : " --without-blow") + (weather ? "" : " --without-weather");
}

Job make_job(std::uint64_t seed, const Less& less) {
    return Maker(seed).make(seed, less);
}

}  // namespace sim
