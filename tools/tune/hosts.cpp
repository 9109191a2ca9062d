#include "tune/hosts.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <limits>
#include <stdexcept>

#include "base/config.hpp"
#include "base/files.hpp"
#include "base/os.hpp"
#include "base/result.hpp"
#include "plan/platform.hpp"
#include "transport/transport.hpp"
#include "tune/pairs.hpp"
#include "tutti/tutti.h"

namespace tune {
namespace {

using namespace tutti;
using Clock = std::chrono::steady_clock;

constexpr int turns = 5;
constexpr std::size_t large = 4 << 20;  // bytes

void check(tuttiResult_t result) {
    if (result != tuttiSuccess) throw std::runtime_error(tuttiGetLastError(nullptr));
}

/// A rank as the others have to know it.
struct Place {
    EndpointInfo info;
    char name[64];  // of its host
};

Place place_here() {
    Place here{};
    here.info.host = host_id();
    here.info.addresses[0] = bootstrap::Address::loopback();  // that it has one is all that is asked
    here.info.fabrics = fabrics_here("");
    gethostname(here.name, sizeof here.name - 1);
    return here;
}

/// What all ranks of a communicator have, by rank.
template <class T>
std::vector<T> gathered(const std::vector<T>& mine, int ranks, tuttiComm_t comm) {
    std::vector<T> all(mine.size() * static_cast<std::size_t>(ranks));
    check(tuttiAllGather(mine.data(), all.data(), mine.size() * sizeof(T), tuttiUint8, comm, nullptr));
    return all;
}

double microseconds_of(int calls, const std::function<void()>& call) {
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) call();
    return std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / calls;
}

struct Measured {
    Tuning::Path path;
    double round_trip;  // the shortest, in microseconds: a busy host makes a path no longer
};

/// The two ranks of a pair, each on its host. The lower one has the clock.
class Pair {
  public:
    Pair(int self, int peer, double seconds, tuttiComm_t comm)
        : leads_(self < peer), peer_(peer), seconds_(seconds), comm_(comm), out_(large), in_(large) {}

    Measured measure() {
        double shortest = std::numeric_limits<double>::max();
        const double there_and_back =
            median([&] { shortest = std::min(shortest, microseconds_of(1, [this] { ping(); })); });
        const double exchange = median([this] {
            check(tuttiGroupStart());
            check(tuttiSend(out_.data(), large, tuttiUint8, peer_, comm_, nullptr));
            check(tuttiRecv(in_.data(), large, tuttiUint8, peer_, comm_, nullptr));
            check(tuttiGroupEnd());
        });
        return {{there_and_back / 2, exchange / static_cast<double>(large)}, shortest};
    }

  private:
    void ping() {
        if (leads_) check(tuttiSend(out_.data(), 8, tuttiUint8, peer_, comm_, nullptr));
        check(tuttiRecv(in_.data(), 8, tuttiUint8, peer_, comm_, nullptr));
        if (!leads_) check(tuttiSend(out_.data(), 8, tuttiUint8, peer_, comm_, nullptr));
    }

    /// Of several turns, after two that connect and warm up.
    double median(const std::function<void()>& call) {
        microseconds_of(2, call);
        int calls = static_cast<int>(std::clamp(seconds_ * 1e6 / turns / microseconds_of(2, call), 1.0, 20000.0));
        check(leads_ ? tuttiSend(&calls, 1, tuttiInt32, peer_, comm_, nullptr)
                     : tuttiRecv(&calls, 1, tuttiInt32, peer_, comm_, nullptr));
        std::vector<double> times;
        for (int turn = 0; turn < turns; ++turn) times.push_back(microseconds_of(calls, call));
        std::ranges::sort(times);
        return times[times.size() / 2];
    }

    const bool leads_;
    const int peer_;
    const double seconds_;
    const tuttiComm_t comm_;
    std::vector<unsigned char> out_, in_;
};

/// All ranks of the job; the first of each host, its leader, measures for it.
class Job {
  public:
    explicit Job(const Options& options) : options_(options) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.blocking = 1;  // whatever NCCL_COMM_BLOCKING says
        check(tuttiCommInitEnv(&whole_, &config));
        int ranks = 0;
        check(tuttiCommUserRank(whole_, &rank_));
        check(tuttiCommCount(whole_, &ranks));
        for (const Place& place : gathered(std::vector{place_here()}, ranks, whole_)) {
            const auto same = [&](const Place& leader) { return leader.info.host == place.info.host; };
            const auto at = std::ranges::find_if(leaders_, same);
            if (static_cast<int>(places_++) == rank_)
                host_ = static_cast<int>(at - leaders_.begin()), leads_ = at == leaders_.end();
            if (at == leaders_.end()) leaders_.push_back(place);
        }
        if (hosts() < 2)
            throw std::runtime_error(
                "--hosts: all ranks are on one host. Start tutti-tune as ranks of several hosts, "
                "as docs/cluster.md says of programs");
    }
    ~Job() { tuttiCommDestroy(whole_); }
    Job(const Job&) = delete;
    Job& operator=(const Job&) = delete;

    /// Those that were asked for; else all that join every pair of hosts.
    std::vector<std::string> transports() const {
        if (!options_.transports.empty()) return options_.transports;
        std::vector<std::string> names;
        for (const Transport* const transport : net_transports()) {
            bool joins = true;
            for (const Place& a : leaders_)
                for (const Place& b : leaders_) joins = joins && transport->reaches(a.info, b.info);
            if (joins) names.emplace_back(transport->name());
        }
        return names;
    }

    void measure(const std::string& transport, Tuning& tuning) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.transport = transport.c_str();
        config.blocking = 1;
        tuttiComm_t comm = nullptr;
        check(tuttiCommSplit(whole_, leads_ ? 0 : TUTTI_SPLIT_NOCOLOR, host_, &comm, &config));
        std::vector<Measured> mine(leaders_.size(), Measured{});
        for (int round = 0; round < rounds_of(hosts()); ++round) {
            const int peer = leads_ ? partner_of(host_, round, hosts()) : -1;
            if (peer >= 0) mine[static_cast<std::size_t>(peer)] = Pair(host_, peer, options_.seconds, comm).measure();
            check(tuttiBarrier(whole_, nullptr));
            if (rank_ == 0 && !options_.quiet)
                std::fprintf(stderr, "\r%s, round %d of %d  ", transport.c_str(), round + 1, rounds_of(hosts()));
        }
        if (rank_ == 0 && !options_.quiet) std::fprintf(stderr, "\n");
        if (!leads_) return;
        take(transport, gathered(mine, hosts(), comm), tuning);
        check(tuttiCommDestroy(comm));
    }

    bool leads() const { return leads_; }
    void meet() { check(tuttiBarrier(whole_, nullptr)); }
    int rank() const { return rank_; }
    int hosts() const { return static_cast<int>(leaders_.size()); }

  private:
    /// The slowest pair counts: a collective ends with it.
    void take(const std::string& transport, const std::vector<Measured>& all, Tuning& tuning) const {
        Tuning::Path worst{0, 0};
        double round_trip = 0;
        for (std::size_t a = 0; a < leaders_.size(); ++a)
            for (std::size_t b = a + 1; b < leaders_.size(); ++b) {
                const auto& [path, shortest] = all[a * leaders_.size() + b];  // the lower one's clock
                round_trip = std::max(round_trip, shortest);
                worst = {std::max(worst.latency_us, path.latency_us), std::max(worst.us_per_byte, path.us_per_byte)};
                if (rank_ == 0)
                    std::printf("%-8s %-24s %-24s %10.2f us %10.4f GB/s\n", transport.c_str(), leaders_[a].name,
                                leaders_[b].name, path.latency_us, 1e-3 / path.us_per_byte);
            }
        if (config().round_trip_us >= 0) round_trip = static_cast<double>(config().round_trip_us);
        const bool is_long = round_trip >= static_cast<double>(long_path.count());
        tuning.add_path(transport + (is_long ? far_suffix : ""), worst);
    }

    const Options& options_;
    tuttiComm_t whole_ = nullptr;
    int rank_ = 0, host_ = 0;
    std::size_t places_ = 0;
    bool leads_ = false;
    std::vector<Place> leaders_;  // by host, as the ranks count them
};

}  // namespace

Tuning known_in(const std::string& path) {
    if (!file_exists(path)) return {};
    try {
        return Tuning::read(path);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "tutti-tune: %s. A new file takes its place\n", error.what());
        return {};
    }
}

void measure_paths(const Options& options) {
    Job job(options);
    Tuning tuning = job.leads() ? known_in(options.out) : Tuning{};
    for (const std::string& transport : job.transports()) job.measure(transport, tuning);
    if (job.leads()) tuning.write(options.out);
    job.meet();
    if (job.rank() == 0) std::printf("wrote %s on each of %d hosts\n", options.out.c_str(), job.hosts());
}

}  // namespace tune
