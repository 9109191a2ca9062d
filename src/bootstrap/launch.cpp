// Reads the environment variables of torchrun, tutti-run, Open MPI, MPICH, PRRTE and Slurm, and decides where the ranks
// meet.
//
// With TUTTI_SECRET, ranks authenticate with that secret. Without it, if the launcher has a PMIx server, rank 0 makes
// an identity and the others get it from the server. Without either, all ranks must be on one host. They meet at a Unix
// socket whose name is derived from the user and the job, and the kernel tells whose process is at the other end. The
// session's secret then rests on rank 0's random share (Membership::secret()).
#include <netdb.h>
#include <sodium.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <fstream>
#include <memory>
#include <thread>

#include "base/config.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "bootstrap/frame.hpp"
#include "bootstrap/in_time.hpp"
#include "bootstrap/interfaces.hpp"
#include "bootstrap/launch.hpp"
#include "bootstrap/pmix.hpp"
#include "bootstrap/rendezvous.hpp"

namespace tutti {
namespace bootstrap {
namespace {

constexpr const char *open_mpi = "Open MPI", *slurm = "Slurm";

struct Launcher {
    const char* name;
    const char* rank;
    const char* ranks;  // nullptr if only the PMIx server says it
    const char* local_rank;
    const char* local_ranks;  // nullptr if there is no such variable
};

// In order of preference: launchers that start the program come before Slurm, since mpirun works inside Slurm's jobs.
constexpr Launcher launchers[] = {
    {"tutti-run or torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {open_mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"PMIx", "PMIX_RANK", nullptr, nullptr, nullptr},  // the server says the rest
    {slurm, "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
};

int to_number(const char* name, const std::string& value, int low, int high) {
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc{} || end != value.data() + value.size() || number < low || number > high)
        fail(tuttiInvalidUsage, "environment variable %s is '%s'; a whole number from %d to %d was expected", name,
             value.c_str(), low, high);
    return number;
}

std::optional<int> number(const char* name, int low, int high) {
    const auto value = name == nullptr ? std::nullopt : environment(name);
    if (!value) return std::nullopt;
    return to_number(name, *value, low, high);
}

int required(const char* name, const char* because, int low, int high) {
    const auto value = number(name, low, high);
    if (!value)
        fail(tuttiInvalidUsage, "environment variable %s is set, but %s is not: a launcher sets both", because, name);
    return *value;
}

/// Whether a PMIx server has started this process.
bool has_pmix() {
    return environment("PMIX_NAMESPACE") && environment("PMIX_RANK");
}

const Launcher* find_launcher() {
    for (const Launcher& l : launchers) {
        // A batch script has Slurm's variables too, but is not a rank: only srun makes steps.
        if (l.name == slurm && !environment("SLURM_STEP_ID")) continue;
        if (l.ranks == nullptr && (!has_pmix() || environment("PMIX_NAMESPACE")->starts_with("slurm."))) continue;
        if (environment(l.rank) || (l.ranks != nullptr && environment(l.ranks))) return &l;
    }
    return nullptr;
}

void read_numbers(const Launcher& l, Launch& out) {
    out.launcher = l.name;
    out.ranks = required(l.ranks, l.rank, 1, 1 << 20);
    out.rank = required(l.rank, l.ranks, 0, 1 << 20);
    if (out.rank >= out.ranks)
        fail(tuttiInvalidUsage, "environment variable %s is %d, but %s is only %d", l.rank, out.rank, l.ranks,
             out.ranks);
    out.local_ranks = number(l.local_ranks, 1, out.ranks).value_or(0);
    if (out.local_ranks == 0 && environment("SLURM_STEP_ID")) {
        const auto hosts = environment("SLURM_STEP_NUM_NODES") ? number("SLURM_STEP_NUM_NODES", 1, 1 << 20)
                                                               : number("SLURM_NNODES", 1, 1 << 20);
        if (hosts == 1) out.local_ranks = out.ranks;
    }
    const int local_limit = out.local_ranks > 0 ? out.local_ranks : out.ranks;
    out.local_rank = number(l.local_rank, 0, local_limit - 1).value_or(0);
}

/// The PMIx server, if the launcher has one. Not if torchrun or MPICH was itself started under PMIx: its ranks have
/// other numbers there. nullptr if there is none.
Pmix* pmix_for(const Launcher& l) {
    if (!has_pmix() || (l.name != slurm && l.name != open_mpi && l.ranks != nullptr)) return nullptr;
    std::string why;
    Pmix* const pmix = Pmix::connect(why);
    if (pmix == nullptr && l.ranks == nullptr)
        fail(tuttiInvalidUsage, "PMIX_RANK is set, but the server that knows the other ranks can't be asked: %s",
             why.c_str());
    if (pmix == nullptr) log(Level::info, "%s has PMIx, which is not used: %s", l.name, why.c_str());
    return pmix;
}

/// Counts the communicators that are made from the environment, including attempts that failed, but not those that were
/// refused: the caller repeats them. All ranks make them in the same order, and each has a rendezvous of its own.
std::uint64_t next_call() {
    static std::atomic<std::uint64_t> calls{0};
    return calls++;
}

}  // namespace

Identity meet_by(Pmix& pmix, const Launch& launch, std::uint64_t call) {
    Bytes mine;
    mine.reserve(TUTTI_UNIQUE_ID_BYTES);  // no copies are left behind
    std::optional<RendezvousPoint> opened;
    if (launch.rank == 0) {
        const Identity made = create_identity(launch.local_ranks == launch.ranks ? Rendezvous::one_host : 0);
        opened.emplace(made);
        append(mine, made.bytes);
    }
    const std::chrono::milliseconds timeout(config().init_timeout_ms);
    Bytes theirs = pmix.from_first(text("tutti.%llu", static_cast<unsigned long long>(call)), mine, timeout);
    sodium_memzero(mine.data(), mine.size());
    log(Level::info, "rank %d of %d: the ranks meet by %s's PMIx", launch.rank, launch.ranks, launch.launcher.c_str());
    Identity identity;
    if (theirs.size() != identity.bytes.size())
        fail(tuttiSystemError, "rank %d: what rank 0 has left with PMIx has %zu bytes, %zu were expected", launch.rank,
             theirs.size(), identity.bytes.size());
    std::ranges::copy(theirs, identity.bytes.begin());
    sodium_memzero(theirs.data(), theirs.size());
    Rendezvous::of(identity);            // or throws
    if (opened) opened->all_have_met();  // all ranks have the identity now: joining closes the rendezvous from here on
    return identity;
}

namespace {

bool is_loopback_name(const std::string& host) {
    return host == "localhost" || host.starts_with("127.") || host == "::1";
}

std::string slurm_job() {
    return "slurm " + environment("SLURM_JOB_ID").value_or("") + "." + environment("SLURM_STEP_ID").value_or("");
}

// MPICH's ranks are children of its proxy, perhaps through a shell; a process id is the same for all of them. Slurm's
// PMI-2 has MPICH's variables and no proxy.
std::string mpich_job() {
    pid_t pid = getppid();
    for (int generation = 0; generation < 16 && pid > 1; ++generation) {
        std::ifstream status("/proc/" + std::to_string(pid) + "/status");
        std::string line, name;
        pid_t parent = 0;
        while (std::getline(status, line)) {
            if (line.starts_with("Name:")) name = line;
            if (line.starts_with("PPid:")) parent = std::atoi(line.c_str() + 5);
        }
        if (name.find("pmi_proxy") != std::string::npos) return "mpich " + std::to_string(pid);
        pid = parent;
    }
    return environment("SLURM_STEP_ID") ? slurm_job() : "mpich " + std::to_string(getppid());
}

// A text that all ranks of a job have in common, and that differs between jobs of this user. Processes have numbers of
// their own on each host, so with several hosts it may be empty: the secret and the rendezvous then tell jobs apart.
std::string job_of(const Launcher& l, bool one_host) {
    const std::string launcher = l.name;
    if (launcher == slurm) return slurm_job();
    if (launcher == "MPICH") return one_host ? mpich_job() : "";
    if (launcher == open_mpi) {
        const std::string space = environment("PMIX_NAMESPACE").value_or("");
        return "openmpi " + (space.empty() && one_host ? std::to_string(getppid()) : space);
    }
    return "";  // rendezvous_point() identifies the job
}

std::string rendezvous_point() {
    return environment("MASTER_ADDR").value_or("") + ":" + environment("MASTER_PORT").value_or("") + " " +
           environment("TORCHELASTIC_RESTART_COUNT").value_or("");
}

std::optional<Secret> secret_of_job() {
    auto digits = environment("TUTTI_SECRET");
    if (!digits) return std::nullopt;
    unsigned char bytes[Secret::size];
    std::size_t size = 0;
    const bool good =
        sodium_hex2bin(bytes, sizeof bytes, digits->data(), digits->size(), nullptr, &size, nullptr) == 0 &&
        size == sizeof bytes && digits->size() == 2 * sizeof bytes;
    sodium_memzero(digits->data(), digits->size());
    // The value is not repeated here: error texts end up in logs.
    if (!good)
        fail(tuttiInvalidUsage,
             "environment variable TUTTI_SECRET has %zu characters; exactly 64 hexadecimal digits were expected, for "
             "example from `openssl rand -hex 32`",
             digits->size());
    const Secret secret(std::as_bytes(std::span(bytes)));
    sodium_memzero(bytes, sizeof bytes);
    return secret;
}

struct Addresses {
    int trouble = 0;
    std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> found{nullptr, freeaddrinfo};
};

Addresses addresses_of(const std::string& host, int flags) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_ADDRCONFIG | flags;
    Addresses out;
    // A cluster's name server may not know a host yet that has just been started.
    for (int attempt = 0; attempt < 4; ++attempt) {
        out.trouble = getaddrinfo(host.c_str(), nullptr, &hints, &found);
        if (out.trouble != EAI_AGAIN) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    if (out.trouble == 0) out.found.reset(found);
    return out;
}

Address resolve(const char* variable, const std::string& host, int port) {
    Addresses all = addresses_of(host, AI_NUMERICHOST);  // nobody has to be asked
    if (!all.found) {
        const int timeout_ms = config().init_timeout_ms;
        auto said = in_time(std::chrono::milliseconds(timeout_ms), [host] { return addresses_of(host, 0); });
        if (!said)
            fail(tuttiTimeout,
                 "environment variable %s is '%s', whose address this host's name service has not told within %d ms "
                 "(TUTTI_INIT_TIMEOUT_MS): look at /etc/resolv.conf, or give the address itself",
                 variable, host.c_str(), timeout_ms);
        all = *std::move(said);
    }
    if (!all.found)
        fail(tuttiInvalidUsage, "environment variable %s is '%s', which has no address: %s", variable, host.c_str(),
             gai_strerror(all.trouble));
    // IPv4 before IPv6, so that all ranks choose the same.
    Address address = Address::from(all.found->ai_addr);
    for (const addrinfo* i = all.found.get(); i != nullptr && address.family != Address::Family::ipv4; i = i->ai_next)
        if (i->ai_family == AF_INET) address = Address::from(i->ai_addr);
    address.port = static_cast<std::uint16_t>(port);
    return address;
}

// Many systems map their own name to the loopback, where other hosts' ranks would not find rank 0.
Address seen_from_elsewhere(const Address& address) {
    if (!address.is_loopback()) return address;
    Address outward = rendezvous_interface();
    outward.port = address.port;
    return outward;
}

Address tcp_rendezvous(Rank rank) {
    const auto host = environment("MASTER_ADDR");
    if (!host || !environment("MASTER_PORT"))
        fail(tuttiInvalidUsage,
             "the ranks are on several hosts, but %s is not set: MASTER_ADDR and MASTER_PORT say where rank 0 can be "
             "reached",
             host ? "MASTER_PORT" : "MASTER_ADDR");
    int port = *number("MASTER_PORT", 1, 65534);
    // There torchrun itself listens on MASTER_PORT, so the ranks meet at the next port.
    if (environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True") ++port;
    const Address address = resolve("MASTER_ADDR", *host, port);
    return rank == 0 ? seen_from_elsewhere(address) : address;
}

Rendezvous rendezvous_of(const Launcher& l, const Launch& launch) {
    const auto secret = secret_of_job();
    const auto host = environment("MASTER_ADDR");
    const bool one_host = launch.local_ranks == launch.ranks || launch.ranks == 1 || (host && is_loopback_name(*host));
    const std::string job = job_of(l, one_host);
    if (!secret && !one_host)
        fail(tuttiInvalidUsage,
             "the ranks are on several hosts (or %s does not say that they are on one), so they need a common secret: "
             "set TUTTI_SECRET to the same 64 hexadecimal digits on all of them, for example to what `openssl rand "
             "-hex 32` prints; or start them by what has PMIx (srun --mpi=pmix), which needs none",
             l.local_ranks ? l.local_ranks : "SLURM_NNODES");
    if (!secret && launch.ranks > 1 && job.empty() && (!host || !environment("MASTER_PORT")))
        fail(tuttiInvalidUsage,
             "environment variable %s is not set: without it and without TUTTI_SECRET, the ranks do not know where to "
             "meet",
             host ? "MASTER_PORT" : "MASTER_ADDR");
    Rendezvous m;
    m.flags = Rendezvous::rank0_opens;
    if (one_host)
        m.flags |= Rendezvous::one_host;
    else
        m.tcp = tcp_rendezvous(launch.rank);
    if (launch.ranks == 1) m.flags |= Rendezvous::alone;
    Bytes context;
    Writer w(context);
    w.number(next_call());
    if (one_host)
        w.number(static_cast<std::uint32_t>(geteuid()));  // only on one host: a user may have another uid elsewhere
    w.bytes(std::as_bytes(std::span(job)));
    w.number('\0');
    const std::string point = rendezvous_point();
    w.bytes(std::as_bytes(std::span(point)));
    m.secret = secret.value_or(Secret()).derive("tutti launcher", context);
    return m;
}

}  // namespace

void read_numbers(const Pmix::Process& place, Launch& out) {
    const auto range = [](const char* what, std::int64_t value, std::int64_t least, std::int64_t most) {
        if (value < least || value > most)
            fail(tuttiSystemError, "PMIx says that %s is %lld; %lld to %lld were expected", what,
                 static_cast<long long>(value), static_cast<long long>(least), static_cast<long long>(most));
        return static_cast<int>(value);
    };
    out.launcher = "PMIx";
    out.ranks = range("the number of ranks", place.ranks, 1, ranks_limit);
    out.rank = range("this rank", place.rank, 0, out.ranks - 1);
    out.local_ranks = range("the number of ranks on this host", place.local_ranks, 0, out.ranks);
    out.local_rank =
        range("this rank on its host", place.local_rank, 0, (out.local_ranks > 0 ? out.local_ranks : out.ranks) - 1);
}

}  // namespace bootstrap

Identity Identity::at(const std::string& place) {
    using namespace bootstrap;
    start_crypto();
    static std::atomic<std::uint64_t> calls{0};
    const std::size_t colon = place.rfind(':');
    if (colon == std::string::npos || colon == 0)
        fail(tuttiInvalidUsage, "environment variable NCCL_COMM_ID is '%s'; host:port was expected", place.c_str());
    std::string host = place.substr(0, colon);
    if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
    const int port = to_number("NCCL_COMM_ID", place.substr(colon + 1), 1, 65535);
    const auto secret = secret_of_job();
    Rendezvous m;
    m.flags = Rendezvous::rank0_opens | Rendezvous::comm_id;
    if (!secret || is_loopback_name(host))
        m.flags |= Rendezvous::one_host;
    else
        m.tcp = seen_from_elsewhere(resolve("NCCL_COMM_ID", host, port));
    Bytes context;
    Writer w(context);
    w.number(calls++);
    if (!secret) w.number(static_cast<std::uint32_t>(geteuid()));
    w.bytes(std::as_bytes(std::span(place)));
    m.secret = secret.value_or(Secret()).derive("tutti NCCL_COMM_ID", context);
    return m.identity();
}

Launch Launch::from_environment() {
    using namespace bootstrap;
    start_crypto();
    Launch launch;
    launch.launcher = "none";
    if (const Launcher* l = find_launcher()) {
        Pmix* const pmix = pmix_for(*l);
        if (l->ranks == nullptr)
            read_numbers(pmix->process(), launch);
        else
            read_numbers(*l, launch);
        if (pmix != nullptr && launch.local_ranks == 0) {
            Launch said;
            read_numbers(pmix->process(), said);
            launch.local_ranks = std::min(said.local_ranks, launch.ranks);
        }
        launch.identity = pmix != nullptr && launch.ranks > 1 && !environment("TUTTI_SECRET")
                              ? meet_by(*pmix, launch, next_call())
                              : rendezvous_of(*l, launch).identity();
        return launch;
    }
    launch.local_ranks = 1;
    Rendezvous m;
    m.flags = Rendezvous::one_host | Rendezvous::rank0_opens | Rendezvous::alone;
    m.secret = Secret::random();
    launch.identity = m.identity();
    return launch;
}

}  // namespace tutti
