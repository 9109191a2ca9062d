#include "base/config.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sstream>

#include "base/result.hpp"

namespace tutti {
namespace {

constexpr Variable table[] = {
    {"TUTTI_TIMEOUT_MS", "600000", "How long one operation may wait for its peers, in milliseconds."},
    {"TUTTI_INIT_TIMEOUT_MS", "60000", "How long a communicator waits for all ranks to arrive, in milliseconds."},
    {"TUTTI_SILENCE_MS", "60000",
     "How long a host, or the network to it, may be silent before its ranks count as dead, in milliseconds."},
    {"TUTTI_CHECK", "0",
     "1: compare every collective's arguments among ranks before it moves data; 0: while it moves. Between GPUs calls "
     "then wait for each other, so a thread with several ranks calls in groups; without p2p it has no effect."},
    {"TUTTI_VERIFY", "0",
     "1: prove each built-in program when a communicator first uses it, and not only in the tests; that takes long "
     "among "
     "many ranks."},
    {"TUTTI_REPRODUCIBLE", "0",
     "1: sums have the same bits whatever the algorithm, transport, placement and message sizes, for n ranks."},
    {"TUTTI_ALGO", "",
     "Algorithms to choose from: `ring,tree`, or `^ring` for all others, or by collective: "
     "`all_reduce:direct;*:^flat`; `direct+ring` is a hierarchy: inside hosts, and across."},
    {"TUTTI_CHANNELS", "0", "On how many channels large data goes, 1 to 8, on GPUs at most; 0: by the cost model."},
    {"TUTTI_LANES", "0", "Deprecated: TUTTI_CHANNELS by its old name, until version 0.2."},
    {"TUTTI_GPU_SMALL", "1", "0: collectives of small messages run in the kernel of all others."},
    {"TUTTI_LAUNCH_ORDER_IMPLICIT", "0",
     "1: what the communicators of a process run on a GPU, one rank of each, follows in the order of its launches."},
    {"TUTTI_THREADS", "1",
     "How many threads of a rank on a CPU share its large collectives, 1 to 8; the least of all ranks counts."},
    {"TUTTI_TUNING", "",
     "What `tutti-tune` has measured: a file; none: nothing; unset: the one of the cache directory."},
    {"TUTTI_PROGRAMS", "", "Files with algorithms of your own, separated by ':'; docs/programs.md is their manual."},
    {"TUTTI_TRANSPORT", "", "The only transport to use: local, shm, verbs, tcp or plugin; p2p among ranks on GPUs."},
    {"TUTTI_DEBUG", "WARN", "What is printed: NONE, WARN, INFO or TRACE, in letters of any case."},
    {"TUTTI_DEBUG_FILE", "", "Where it is printed instead of stderr; %h is the host and %p the process."},
    {"TUTTI_SOCKET_IFNAME", "",
     "Interfaces to meet on and to send data over: a list of prefixes; ^ before it excludes, = demands exact names."},
    {"TUTTI_NET_PLUGIN", "",
     "A network plugin of NCCL's to reach other hosts by: a path, or x for libnccl-net-x.so, or several with commas; "
     "none: none."},
    {"TUTTI_SOCKETS", "0",
     "How many TCP connections carry the data between two ranks, 1 to 16; 0: two, or four on long paths."},
    {"TUTTI_ROUND_TRIP_US", "-1",
     "How long a round trip to other hosts takes, in microseconds; from 2000 on the path is long, and messages between "
     "hosts are larger. The longest that a rank says counts; -1: each says what it has measured."},
    {"TUTTI_ENCRYPT", "0",
     "1: data that travels over TCP is encrypted. mac: it is in the clear, but bears a MAC, so that nobody changes it "
     "unseen, at a third of the cost. Of two ranks the stricter one decides."},
    {"TUTTI_IB_HCA", "",
     "InfiniBand and RoCE adapters to use: prefixes of names, each with an optional :port; ^ before the list excludes, "
     "= demands exact names."},
    {"TUTTI_IB_GID_INDEX", "-1",
     "Which entry of a RoCE port's table of addresses to use; -1: as docs/cluster.md says."},
    {"TUTTI_IB_TC", "0",
     "Traffic class of what goes over InfiniBand and RoCE, 0 to 255; on RoCE, the DSCP times 4 (and the ECN bits)."},
    {"TUTTI_IB_SL", "0", "Service level of what goes over InfiniBand and RoCE, 0 to 15."},
    {"TUTTI_IB_PKEY", "0", "Which entry of a port's table of partition keys to use."},
    {"TUTTI_IB_TIMEOUT", "-1",
     "How long an adapter waits for an acknowledgement: n from 1 to 22 for 4.096 us * 2^n; -1: by TUTTI_SILENCE_MS, 17 "
     "at most."},
    {"TUTTI_IB_RETRY_CNT", "6", "How often an adapter repeats what is not acknowledged before it gives up, 0 to 7."},
    {"TUTTI_IB_QPS_PER_CONNECTION", "1",
     "How many queue pairs carry the data of two ranks by each port, so that a network with several paths has several "
     "flows to spread; 1 to 8, and at most 8 on all ports together."},
    {"TUTTI_IB_PCI_RELAXED_ORDERING", "1",
     "0: adapters keep to the order of writes on PCIe; 1: they need not, where adapter and kernel can do that."},
    {"TUTTI_NET_GDR", "1",
     "0: network adapters keep off GPU memory, and messages of GPUs go through pinned host memory."},
    {"TUTTI_HOSTID", "",
     "Any text: ranks with the same one are on one host, and share memory; unset: as the system says."},
    {"TUTTI_SECRET", "", "64 hex digits that let ranks in when a launcher, not a unique id, brings them together."},
    {"TUTTI_SPIN_US", "-1", "How long a wait spins before it yields, in microseconds; -1: chosen by ranks per core."},
    {"TUTTI_FAULT", "", "Faults for tests, as seed:kind=one_in[,kind=one_in]: delay, tear, drop."},
    {"NCCL_DEBUG", "", "For want of TUTTI_DEBUG: VERSION, WARN, INFO, ABORT or TRACE."},
    {"NCCL_DEBUG_FILE", "", "For want of TUTTI_DEBUG_FILE."},
    {"NCCL_SOCKET_IFNAME", "", "For want of TUTTI_SOCKET_IFNAME."},
    {"NCCL_IB_HCA", "", "For want of TUTTI_IB_HCA."},
    {"NCCL_IB_GID_INDEX", "", "For want of TUTTI_IB_GID_INDEX."},
    {"NCCL_IB_TC", "", "For want of TUTTI_IB_TC."},
    {"NCCL_IB_SL", "", "For want of TUTTI_IB_SL."},
    {"NCCL_IB_PKEY", "", "For want of TUTTI_IB_PKEY."},
    {"NCCL_IB_TIMEOUT", "", "For want of TUTTI_IB_TIMEOUT."},
    {"NCCL_IB_RETRY_CNT", "", "For want of TUTTI_IB_RETRY_CNT."},
    {"NCCL_IB_QPS_PER_CONNECTION", "", "For want of TUTTI_IB_QPS_PER_CONNECTION; what is above 8 is taken as 8."},
    {"NCCL_IB_PCI_RELAXED_ORDERING", "", "For want of TUTTI_IB_PCI_RELAXED_ORDERING; 2 is its 1."},
    {"NCCL_IB_DISABLE", "0", "1: InfiniBand and RoCE are not used."},
    {"NCCL_NET_GDR_LEVEL", "", "For want of TUTTI_NET_GDR: LOC or 0 is its 0, all other levels are its 1."},
    {"NCCL_NET_GDR_READ", "1", "0: network adapters write GPU memory, but do not read what is sent from there."},
    {"NCCL_NET_PLUGIN", "", "For want of TUTTI_NET_PLUGIN; one that does not serve is then a warning, not an error."},
    {"NCCL_ALGO", "", "For want of TUTTI_ALGO, in NCCL's words: Ring, Tree, PAT; others have no counterpart here."},
    {"NCCL_COMM_ID", "", "`host:port`: unique ids lead there, so that every process may make its own."},
    {"NCCL_COMM_BLOCKING", "1", "0: communicators are made in the background where config.blocking does not say."},
    {"NCCL_HOSTID", "", "For want of TUTTI_HOSTID."},
    {"NCCL_LAUNCH_ORDER_IMPLICIT", "", "For want of TUTTI_LAUNCH_ORDER_IMPLICIT."},
    {"XDG_CACHE_HOME", "",
     "The user's cache directory, where tutti-tune keeps what it has measured, and PyTorch's backend what it has "
     "compiled; unset: $HOME/.cache."},
    {"HOME", "", "The user's directory, for want of XDG_CACHE_HOME."},
    {"RANK", "", "torchrun, tutti-run: this rank's number."},
    {"WORLD_SIZE", "", "torchrun, tutti-run: the number of ranks."},
    {"CUDA_DEVICE_MAX_CONNECTIONS", "8",
     "CUDA's: hardware queues of a GPU for the streams of a process, 1 to 32. More ranks than queues that are threads "
     "of "
     "one process on one GPU are warned of."},
    {"LOCAL_RANK", "", "torchrun, tutti-run: this rank's number on its host."},
    {"LOCAL_WORLD_SIZE", "", "torchrun, tutti-run: the number of ranks on this host."},
    {"MASTER_ADDR", "", "torchrun, tutti-run: the host where rank 0 runs."},
    {"MASTER_PORT", "", "torchrun, tutti-run: a free port there."},
    {"TORCHELASTIC_USE_AGENT_STORE", "",
     "torchrun: True if it listens on MASTER_PORT itself; ranks then meet on the port after it."},
    {"TORCHELASTIC_RESTART_COUNT", "", "torchrun: tells a restarted job from the one before."},
    {"OMPI_COMM_WORLD_RANK", "", "Open MPI's RANK."},
    {"OMPI_COMM_WORLD_SIZE", "", "Open MPI's WORLD_SIZE."},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "", "Open MPI's LOCAL_RANK."},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "", "Open MPI's LOCAL_WORLD_SIZE."},
    {"PMIX_NAMESPACE", "", "Open MPI's, PRRTE's and Slurm's name of the job, the rendezvous on one host."},
    {"PMIX_RANK", "", "PMIx: this rank's number; with PMIX_NAMESPACE, there is a server that brings ranks together."},
    {"PMI_RANK", "", "MPICH's RANK."},
    {"PMI_SIZE", "", "MPICH's WORLD_SIZE."},
    {"MPI_LOCALRANKID", "", "MPICH's LOCAL_RANK."},
    {"MPI_LOCALNRANKS", "", "MPICH's LOCAL_WORLD_SIZE."},
    {"PMI_FD", "", "MPICH's connection to its launcher; tells jobs of one user apart."},
    {"SLURM_PROCID", "", "Slurm's RANK."},
    {"SLURM_NTASKS", "", "Slurm's WORLD_SIZE."},
    {"SLURM_LOCALID", "", "Slurm's LOCAL_RANK."},
    {"SLURM_NNODES", "", "Slurm's number of hosts."},
    {"SLURM_STEP_NUM_NODES", "", "Slurm's number of hosts of this step; beats SLURM_NNODES."},
    {"SLURM_JOB_ID", "", "Slurm's job."},
    {"SLURM_STEP_ID", "", "Slurm's step within the job."},
};

int read_int(const char* name, int low, int high) {
    std::optional<std::string> value = environment(name);
    const char* chosen = nullptr;
    if (value) {
        chosen = value->c_str();
    } else {
        for (const Variable& v : table)
            if (std::strcmp(v.name, name) == 0) chosen = v.fallback;
    }
    char* end = nullptr;
    const long number = std::strtol(chosen, &end, 10);
    if (end == chosen || *end != '\0' || number < low || number > high)
        fail(tuttiInvalidUsage, "environment variable %s is '%s'; a whole number from %d to %d was expected", name,
             chosen, low, high);
    return static_cast<int>(number);
}

/// Reads the variable, or NCCL's, with its own limits, if only that one is set.
int read_int(const char* name, int low, int high, const char* nccls, int nccls_low, int nccls_high) {
    return environment(name) || !environment(nccls) ? read_int(name, low, high)
                                                    : read_int(nccls, nccls_low, nccls_high);
}

std::string read_text(const char* name, const char* other = nullptr) {
    const std::optional<std::string> value = environment(name);
    return value || other == nullptr ? value.value_or("") : environment(other).value_or("");
}

Protection read_protection() {
    const std::string word = environment("TUTTI_ENCRYPT").value_or("0");
    if (word == "0") return Protection::none;
    if (word == "1") return Protection::encrypted;
    if (word == "mac") return Protection::mac;
    fail(tuttiInvalidUsage, "environment variable TUTTI_ENCRYPT is '%s'; 0, 1 or mac was expected", word.c_str());
}

std::vector<std::string> split(const std::string& text, char at) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
    return parts;
}

/// NCCL_ALGO in TUTTI_ALGO's words: "Ring,tree", "^NVLS", "allreduce:tree;broadcast:ring". Names without a
/// counterpart are dropped, and so is a part of which no name is left.
std::string algorithms_of_nccl(std::string theirs) {
    const std::map<std::string, std::string> collectives{{"allreduce", "all_reduce"},
                                                         {"allgather", "all_gather"},
                                                         {"reducescatter", "reduce_scatter"},
                                                         {"broadcast", "broadcast"},
                                                         {"reduce", "reduce"}};
    const std::map<std::string, std::string> algorithms{{"ring", "ring"}, {"tree", "tree,double_tree"}, {"pat", "pat"}};
    std::ranges::transform(theirs, theirs.begin(), [](unsigned char c) { return std::tolower(c); });
    std::string ours;
    for (std::string part : split(theirs, ';')) {
        std::string collective = "*", names;
        if (const std::size_t colon = part.find(':'); colon != std::string::npos) {
            const auto known = collectives.find(part.substr(0, colon));
            if (known == collectives.end()) continue;
            collective = known->second;
            part.erase(0, colon + 1);
        }
        const bool excludes = part.starts_with('^');
        for (const std::string& name : split(part.substr(excludes ? 1 : 0), ','))
            if (const auto known = algorithms.find(name); known != algorithms.end())
                names += (names.empty() ? "" : ",") + known->second;
        if (!names.empty()) ours += (ours.empty() ? "" : ";") + collective + (excludes ? ":^" : ":") + names;
    }
    return ours;
}

}  // namespace

Config read_config() {
    Config c;
    c.timeout_ms = read_int("TUTTI_TIMEOUT_MS", 1, 2'000'000'000);
    c.init_timeout_ms = read_int("TUTTI_INIT_TIMEOUT_MS", 1, 2'000'000'000);
    c.silence_ms = read_int("TUTTI_SILENCE_MS", 100, 2'000'000'000);
    c.check = read_int("TUTTI_CHECK", 0, 1) == 1;
    c.verify = read_int("TUTTI_VERIFY", 0, 1) == 1;
    c.reproducible = read_int("TUTTI_REPRODUCIBLE", 0, 1) == 1;
    c.algorithm = environment("TUTTI_ALGO") ? read_text("TUTTI_ALGO") : algorithms_of_nccl(read_text("NCCL_ALGO"));
    c.programs = read_text("TUTTI_PROGRAMS");
    c.transport = read_text("TUTTI_TRANSPORT");
    c.debug = read_text("TUTTI_DEBUG", "NCCL_DEBUG");
    std::ranges::transform(c.debug, c.debug.begin(), [](unsigned char letter) { return std::toupper(letter); });
    if (!environment("TUTTI_DEBUG") && c.debug != "INFO" && c.debug != "TRACE") c.debug = "";  // NCCL's other levels
    c.debug_file = read_text("TUTTI_DEBUG_FILE", "NCCL_DEBUG_FILE");
    c.socket_ifname = read_text("TUTTI_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME");
    c.net_plugin = read_text("TUTTI_NET_PLUGIN", "NCCL_NET_PLUGIN");
    c.net_plugin_demanded = environment("TUTTI_NET_PLUGIN").has_value();
    c.sockets = read_int("TUTTI_SOCKETS", 0, 16);
    c.round_trip_us = read_int("TUTTI_ROUND_TRIP_US", -1, 60'000'000);
    c.protection = read_protection();
    c.ib_hca = read_text("TUTTI_IB_HCA", "NCCL_IB_HCA");
    c.ib_gid_index = read_int("TUTTI_IB_GID_INDEX", -1, 255, "NCCL_IB_GID_INDEX", -1, 255);
    c.ib_traffic_class = read_int("TUTTI_IB_TC", 0, 255, "NCCL_IB_TC", 0, 255);
    c.ib_service_level = read_int("TUTTI_IB_SL", 0, 15, "NCCL_IB_SL", 0, 15);
    c.ib_pkey_index = read_int("TUTTI_IB_PKEY", 0, 65535, "NCCL_IB_PKEY", 0, 65535);
    // NCCL also takes 0 and 23 or more, which wait forever.
    c.ib_timeout = read_int("TUTTI_IB_TIMEOUT", -1, 22, "NCCL_IB_TIMEOUT", 1, 22);
    if (c.ib_timeout == 0)
        fail(tuttiInvalidUsage,
             "environment variable TUTTI_IB_TIMEOUT is '0', a wait without an end; -1 was expected, "
             "or a whole number from 1 to 22");
    c.ib_retry_count = read_int("TUTTI_IB_RETRY_CNT", 0, 7, "NCCL_IB_RETRY_CNT", 0, 7);
    c.ib_qps_per_connection =
        std::min(read_int("TUTTI_IB_QPS_PER_CONNECTION", 1, 8, "NCCL_IB_QPS_PER_CONNECTION", 1, 128), 8);
    c.ib_relaxed_ordering = read_int("TUTTI_IB_PCI_RELAXED_ORDERING", 0, 1, "NCCL_IB_PCI_RELAXED_ORDERING", 0, 2) != 0;
    c.ib = read_int("NCCL_IB_DISABLE", 0, 1) == 0;
    const std::string level = read_text("NCCL_NET_GDR_LEVEL");
    c.gdr = environment("TUTTI_NET_GDR") ? read_int("TUTTI_NET_GDR", 0, 1) == 1 : level != "LOC" && level != "0";
    c.gdr_reads = read_int("NCCL_NET_GDR_READ", 0, 1) == 1;
    c.host_id = read_text("TUTTI_HOSTID", "NCCL_HOSTID");
    c.channels = read_int(environment("TUTTI_CHANNELS") ? "TUTTI_CHANNELS" : "TUTTI_LANES", 0, 8);
    c.threads = read_int("TUTTI_THREADS", 1, 8);
    const std::string queues = read_text("CUDA_DEVICE_MAX_CONNECTIONS");  // CUDA reports errors in it
    c.gpu_queues = 8;
    std::from_chars(queues.data(), queues.data() + queues.size(), c.gpu_queues);
    c.gpu_small = read_int("TUTTI_GPU_SMALL", 0, 1) == 1;
    c.launch_order_implicit = read_int("TUTTI_LAUNCH_ORDER_IMPLICIT", 0, 1, "NCCL_LAUNCH_ORDER_IMPLICIT", 0, 1) == 1;
    c.tuning = read_text("TUTTI_TUNING");
    c.cache_directory = read_text("XDG_CACHE_HOME");
    if (c.cache_directory.empty() && environment("HOME")) c.cache_directory = read_text("HOME") + "/.cache";
    c.spin_us = read_int("TUTTI_SPIN_US", -1, 1'000'000);
    c.comm_id = read_text("NCCL_COMM_ID");
    c.blocking = read_int("NCCL_COMM_BLOCKING", 0, 1) == 1;
    c.fault = read_text("TUTTI_FAULT");
    return c;
}

std::span<const Variable> variables() {
    return table;
}

const Config& config() {
    static const auto& instance = *new const Config(read_config());
    return instance;
}

std::optional<std::string> setting(std::string_view name) {
    for (const Variable& v : table)
        if (name == v.name) return name == "TUTTI_SECRET" ? "" : environment(v.name).value_or(v.fallback);
    return std::nullopt;
}

std::vector<std::string> unheeded() {
    std::vector<std::string> names;
    for (char** variable = environ; *variable != nullptr; ++variable) {
        const std::string_view text = *variable;
        const std::string_view name = text.substr(0, text.find('='));
        if (name.starts_with("NCCL_") && std::ranges::none_of(table, [&](const Variable& v) { return name == v.name; }))
            names.emplace_back(name);
    }
    return names;
}

std::optional<std::string> environment(const char* name) {
    bool known = false;
    for (const Variable& v : table) known = known || std::strcmp(v.name, name) == 0;
    TUTTI_ASSERT(known);
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return std::string(value);
}

}  // namespace tutti
