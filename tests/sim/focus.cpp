// Jobs that are after one thing: what seldom happens elsewhere happens in most of them, and nothing else does.
#include "focus.hpp"

#include <random>

namespace sim {
namespace {

class Focus {
  public:
    Focus(Job& job, std::uint64_t seed) : job_(job), random_(seed * 2 + 3) {}

    void set(std::uint64_t which) {
        job_.environment.clear();
        job_.newcomers = 0;
        job_.rejoins = false;
        job_.calls.clear();
        job_.blows.clear();
        job_.weather = {};
        job_.transport = "shm";
        switch (which) {
            case 0:
                return given_up();
            case 1:
                return rounds();
            case 2:
                return joins();
            case 3:
                return recoveries();
            case 4:
                return handshakes();
            case 5:
                return sockets();
            case 6:
                return silence();
            case 8:
                return servers();
            default:
                return heap();
        }
    }

  private:
    std::uint64_t draw(std::uint64_t below) { return random_() % below; }
    template <class T, std::size_t n>
    T one_of(const T (&all)[n]) {
        return all[draw(n)];
    }
    int some_rank(int first) { return first + static_cast<int>(draw(static_cast<std::uint64_t>(job_.ranks - first))); }
    void ranks(int least, int most) {
        job_.ranks = least + static_cast<int>(draw(static_cast<std::uint64_t>(most - least + 1)));
    }
    template <std::size_t n>
    void call(std::size_t count, const char* const (&kinds)[n]) {
        for (; count > 0; --count) {
            Call call{};
            call.what = Call::step;
            call.kind = one_of(kinds);
            call.salt = draw(1000);
            job_.calls.push_back(call);
        }
    }
    void algorithm() {
        static constexpr const char* all[] = {"", "", "TUTTI_ALGO=ring", "TUTTI_ALGO=direct", "TUTTI_ALGO=tree"};
        job_.environment = one_of(all);
    }

    /// A rank is stopped in the midst of messages by reference, and of the others one dies: the third gives up, and the
    /// first wakes up to what it had sent.
    void given_up() {
        job_.focus = "memory that was given up";
        ranks(3, 4);
        algorithm();
        call(6, {"rounds"});
        Blow stop{}, kill{};
        stop.what = Blow::stop;
        stop.rank = some_rank(0);
        stop.at = 5 * ms + draw(60 * ms);
        stop.how_long = 5 * ms + draw(60 * ms);
        kill.what = Blow::kill;
        kill.rank = (stop.rank + 1 + static_cast<int>(draw(2))) % job_.ranks;
        kill.at = stop.at + draw(stop.how_long);
        job_.blows = {stop, kill};
    }

    void rounds() {
        job_.focus = "many messages of one length";
        ranks(2, 5);
        algorithm();
        call(4, {"rounds"});
    }

    /// Rank 0 comes late to its own rendezvous, and one of the other ranks dies; or one dies while suspended ranks meet
    /// again, and the others are told of it while they call.
    void joins() {
        job_.focus = "deaths while ranks join";
        ranks(3, 5);
        job_.transport = draw(2) == 0 ? "shm" : "tcp";
        Blow kill{};
        kill.what = Blow::kill;
        if (draw(2) == 0) {
            job_.rejoins = true;
            ranks(4, 5);  // so that the news of a death and the answer of where ranks meet come in any order
            if (draw(4) != 0) job_.transport = "tcp";
            call(4, {"suspend"});
            kill.rank = some_rank(0);
            kill.at = 2 * ms + draw(10 * ms);
            kill.sends = 1 + static_cast<unsigned>(draw(40));
            job_.blows = {kill};
            return;
        }
        job_.late = 0;
        job_.late_by = (300 + draw(1000)) * ms;
        call(2, {"collectives"});
        kill.rank = some_rank(1);
        kill.at = 150 * ms + draw(job_.late_by - 150 * ms);
        if (draw(2) == 0) {
            kill.at = job_.late_by;  // when rank 0 comes
            kill.sends = 1 + static_cast<unsigned>(draw(6));
        }
        job_.blows = {kill};
    }

    /// While ranks agree on who is left, those that lead them die.
    void recoveries() {
        job_.focus = "deaths in recoveries";
        ranks(4, 5);
        call(4, {"collectives", "pairs", "groups"});
        Blow first{};
        first.what = Blow::kill;
        first.rank = job_.ranks - 1;
        first.at = 5 * ms + draw(40 * ms);
        job_.blows = {first};
        const int leaders = draw(4) == 0 ? 2 : 1;
        for (int leader = 0; leader < leaders; ++leader) {
            Blow blow = first;
            blow.rank = leader;
            blow.sends = 1 + static_cast<unsigned>(draw(2) == 0 ? draw(12) : 8 + draw(24));
            job_.blows.push_back(blow);
        }
    }

    /// Ranks are stopped while they prove to each other who they are, for longer than an unauthenticated peer is borne.
    void handshakes() {
        job_.focus = "stops while connections are made";
        ranks(3, 5);
        call(3, {"collectives", "pairs", "groups"});
        Blow stop{};
        stop.what = Blow::stop;
        stop.rank = some_rank(1);
        stop.sends = 1 + static_cast<unsigned>(draw(16));
        stop.how_long = 1500 * ms + draw(4000 * ms);
        job_.blows = {stop};
    }

    void sockets() {
        job_.focus = "sockets that take little, and ranks that sleep until they are woken";
        job_.transport = "tcp";
        ranks(3, 4);
        static constexpr unsigned buffers[] = {0, 4096, 16384};
        job_.socket_buffer = one_of(buffers);
        job_.wakes = true;
        for (int i = 0; i < 3; ++i) {
            call(1, {"rounds", "pairs", "chain", "groups", "collectives"});
            // A rank that waits has called nothing for a while, hears from some of the others first, and falls asleep.
            for (int rank = 0; rank < job_.ranks; ++rank) {
                Call pause{};
                pause.what = Call::pause;
                pause.who = rank;
                pause.time = (6 + draw(30)) * ms;
                job_.calls.push_back(pause);
            }
        }
        call(1, {"collectives"});
    }

    void silence() {
        job_.focus = "a cable that is pulled for good";
        job_.transport = "tcp";
        job_.environment = "TUTTI_SOCKETS=1";  // those that are idle hear of it by the kernel's probes
        ranks(2, 4);
        call(12, {"rounds", "pairs", "collectives"});
        Weather& w = job_.weather;
        w.network = true;
        w.silence_ms = 4000;
        w.latency = 20'000;
        w.jitter = draw(2) * ms;
        w.cut.what = Cut::pulled;
        w.cut.a = some_rank(0);
        w.cut.b = (w.cut.a + 1) % job_.ranks;
        w.cut.at = 1005 * ms + draw(60 * ms);
        w.cut.how_long = 1'000'000 * ms;
    }

    /// A rank gets no memory, once or several times in a row: while it joins and makes connections, and on its threads
    /// after.
    void heap() {
        job_.focus = "no memory";
        ranks(2, 4);
        job_.transport = draw(2) == 0 ? "shm" : "tcp";
        call(3, {"collectives", "pairs", "groups", "split", "suspend"});
        job_.rejoins = true;
        Shortage& lack = job_.weather.shortage;
        lack.what = Shortage::heap;
        lack.rank = some_rank(0);
        lack.nth = static_cast<unsigned>(draw(std::uint64_t{16} << draw(8)));
        lack.how_many = draw(2) == 0 ? 1 : 1 + static_cast<unsigned>(draw(std::uint64_t{2} << draw(10)));
    }

    /// Workers and servers are slow, stopped, killed, or far away.
    void servers() {
        job_.focus = "parameter servers";
        ranks(2, 5);
        job_.transport = draw(2) == 0 ? "shm" : "tcp";
        job_.rejoins = draw(4) == 0;
        call(3, {"servers", "arrivals"});
        if (job_.transport == "tcp" && draw(2) == 0) {
            job_.weather.network = true;
            job_.weather.latency = 20'000 + draw(200'000);
            job_.weather.jitter = draw(2) * ms;
            return;
        }
        for (auto blows = draw(3); blows > 0; --blows) {
            Blow blow{};
            blow.what = draw(2) == 0 ? Blow::stop : Blow::kill;
            blow.rank = some_rank(0);
            blow.at = (job_.blows.empty() ? 0 : job_.blows.back().at) + draw(80 * ms);
            blow.sends = blow.what == Blow::kill && draw(2) == 0 ? 1 + static_cast<unsigned>(draw(60)) : 0;
            blow.how_long = draw(2000 * ms);
            job_.blows.push_back(blow);
        }
    }

    Job& job_;
    std::mt19937_64 random_;
};

}  // namespace

void focus(Job& job) {
    if (job.seed % 4 == 3) Focus(job, job.seed).set(job.seed / 4 % 7);
    if (job.seed % 16 == 5) Focus(job, job.seed).set(7);
    if (job.seed % 16 == 9) Focus(job, job.seed).set(8);
}

}  // namespace sim
