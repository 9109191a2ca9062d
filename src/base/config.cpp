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
     "1: compare every collective's arguments among ranks before data moves; 0: while it moves. Between GPUs, calls "
     "then wait for each other, so a thread that drives several ranks must group its calls. On GPUs without p2p it "
     "has no effect."},
    {"TUTTI_VERIFY", "0",
     "1: also prove each built-in program when a communicator first uses it. This takes long among many ranks."},
    {"TUTTI_REPRODUCIBLE", "0",
     "1: for a given number of ranks, sums have the same bits whatever the algorithm, transport, placement and "
     "message sizes."},
    {"TUTTI_ALGO", "",
     "Algorithms to choose from: `ring,tree`, or `^ring` for all others, or by collective: "
     "`all_reduce:direct;*:^flat`. `direct+ring` is a hierarchy: direct inside hosts, ring across them. `nvls` is "
     "used where a list names it, and can (docs/tuning.md)."},
    {"TUTTI_CHANNELS", "0",
     "Number of channels for large calls, 1 to 8; on GPUs an upper limit. 0: chosen by the cost model."},
    {"TUTTI_LANES", "0", "Deprecated name of TUTTI_CHANNELS, until version 0.2."},
    {"TUTTI_GPU_SMALL", "1", "0: small collectives on GPUs use the general kernel, not the one for small messages."},
    {"TUTTI_GPU_VIRTUAL", "0",
     "1: memory of tuttiMemAllocDevice and ncclMemAlloc on GPUs is virtual memory. Windows of it have addresses for "
     "the kernels of users, as NCCL's interface for kernels needs them (docs/nccl.md). Large calls whose buffers lie "
     "in it go through slots between GPUs of a process."},
    {"TUTTI_GPU_MULTICAST", "1",
     "0: windows of virtual memory have no addresses of multicast (NVLink SHARP), also where GPUs and driver could."},
    {"TUTTI_CTA_POLICY", "0",
     "2: on GPUs that reach each other, copy engines run all-gathers and all-to-alls whose buffers lie in windows of "
     "TUTTI_WIN_COLL_SYMMETRIC (docs/performance-gpu.md), if all ranks ask for it. 0, 1: kernels do."},
    {"TUTTI_LAUNCH_ORDER_IMPLICIT", "0",
     "1: work of this process's communicators on one GPU runs in the order in which it was launched. Applies to "
     "communicators of which one rank of the process is on that GPU."},
    {"TUTTI_THREADS", "1",
     "Number of threads per CPU rank that share its large collectives, 1 to 8. The smallest number of any rank "
     "counts."},
    {"TUTTI_TUNING", "",
     "File of measurements by `tutti-tune`; none: no file; unset: the file in the cache directory."},
    {"TUTTI_PROGRAMS", "", "Files with algorithms of your own, separated by ':'; see docs/programs.md."},
    {"TUTTI_TRANSPORT", "", "The only transport to use: local, shm, verbs, tcp or plugin; p2p among ranks on GPUs."},
    {"TUTTI_DEBUG", "WARN", "Log level: NONE, WARN, INFO or TRACE, in upper or lower case."},
    {"TUTTI_DEBUG_FILE", "",
     "File to log to instead of stderr; %h is replaced by the host name and %p by the process id."},
    {"TUTTI_SOCKET_IFNAME", "",
     "Network interfaces for the rendezvous and for data: a list of prefixes. ^ before the list excludes them; = "
     "demands exact names."},
    {"TUTTI_NET_PLUGIN", "",
     "NCCL network plugin for reaching other hosts: a path, or x for libnccl-net-x.so, or several with commas; none: "
     "no plugin."},
    {"TUTTI_SOCKETS", "0",
     "Number of TCP connections for data between two ranks, 1 to 16. 0: two, or four on long paths."},
    {"TUTTI_ROUND_TRIP_US", "-1",
     "Round-trip time to other hosts, in microseconds. From 2000 on the path counts as long, and messages between "
     "hosts are larger. The largest value of any rank counts. -1: as measured."},
    {"TUTTI_ENCRYPT", "0",
     "1: data over TCP is encrypted. mac: it is sent in the clear with a MAC, so that no change goes unnoticed, at a "
     "third of the cost. The stricter setting of two ranks applies."},
    {"TUTTI_IB_HCA", "",
     "InfiniBand and RoCE adapters to use: prefixes of names, each with an optional :port. ^ before the list "
     "excludes them; = demands exact names."},
    {"TUTTI_IB_GID_INDEX", "-1", "Index into the GID table of a RoCE port; -1: chosen as docs/cluster.md says."},
    {"TUTTI_IB_TC", "0",
     "Traffic class for InfiniBand and RoCE, 0 to 255; on RoCE, the DSCP times 4 (plus the ECN bits)."},
    {"TUTTI_IB_SL", "0", "Service level for InfiniBand and RoCE, 0 to 15."},
    {"TUTTI_IB_PKEY", "0", "Index into the partition key table of a port."},
    {"TUTTI_IB_TIMEOUT", "-1",
     "How long an adapter waits for an acknowledgement: n from 1 to 22 for 4.096 us * 2^n; -1: derived from "
     "TUTTI_SILENCE_MS, 17 at most."},
    {"TUTTI_IB_RETRY_CNT", "6", "How often an adapter resends an unacknowledged message before it gives up, 0 to 7."},
    {"TUTTI_IB_QPS_PER_CONNECTION", "1",
     "Number of queue pairs for data between two ranks on each port, 1 to 8, and at most 8 on all ports together. "
     "More give a network with several paths several flows to spread."},
    {"TUTTI_IB_PCI_RELAXED_ORDERING", "1",
     "1: adapters may reorder writes on PCIe, if adapter and kernel support it; 0: they may not."},
    {"TUTTI_NET_GDR", "1",
     "0: network adapters do not access GPU memory; messages of GPUs go through pinned host memory."},
    {"TUTTI_HOSTID", "",
     "Any text: ranks with the same text are on one host and share memory. Unset: as the system says."},
    {"TUTTI_SECRET", "",
     "64 hex digits: the common secret of ranks that meet through a launcher, without a unique id."},
    {"TUTTI_SPIN_US", "-1", "How long a wait spins before it yields, in microseconds; -1: chosen by ranks per core."},
    {"TUTTI_FAULT", "", "Injected faults for tests, as seed:kind=one_in[,kind=one_in]; kinds: delay, tear, drop."},
    {"NCCL_DEBUG", "", "As TUTTI_DEBUG: INFO and TRACE as there; VERSION, WARN, ABORT and others are WARN."},
    {"NCCL_DEBUG_FILE", "", "As TUTTI_DEBUG_FILE."},
    {"NCCL_SOCKET_IFNAME", "", "As TUTTI_SOCKET_IFNAME."},
    {"NCCL_IB_HCA", "", "As TUTTI_IB_HCA."},
    {"NCCL_IB_GID_INDEX", "", "As TUTTI_IB_GID_INDEX."},
    {"NCCL_IB_TC", "", "As TUTTI_IB_TC."},
    {"NCCL_IB_SL", "", "As TUTTI_IB_SL."},
    {"NCCL_IB_PKEY", "", "As TUTTI_IB_PKEY."},
    {"NCCL_IB_TIMEOUT", "", "As TUTTI_IB_TIMEOUT, from 1."},
    {"NCCL_IB_RETRY_CNT", "", "As TUTTI_IB_RETRY_CNT."},
    {"NCCL_IB_QPS_PER_CONNECTION", "", "As TUTTI_IB_QPS_PER_CONNECTION; more than 8 counts as 8."},
    {"NCCL_IB_PCI_RELAXED_ORDERING", "", "As TUTTI_IB_PCI_RELAXED_ORDERING; 2 counts as 1."},
    {"NCCL_IB_DISABLE", "0", "1: InfiniBand and RoCE are not used."},
    {"NCCL_NET_GDR_LEVEL", "", "As TUTTI_NET_GDR: LOC or 0 means 0, all other levels mean 1."},
    {"NCCL_NET_GDR_READ", "1", "0: network adapters write GPU memory, but do not read from it."},
    {"NCCL_NET_PLUGIN", "", "As TUTTI_NET_PLUGIN; a plugin that cannot be used is then a warning, not an error."},
    {"NCCL_ALGO", "", "As TUTTI_ALGO, in NCCL's words: Ring, Tree, PAT and NVLS; other names are dropped."},
    {"NCCL_COMM_ID", "", "`host:port`: the rendezvous of all unique ids, so that every process may make its own id."},
    {"NCCL_COMM_BLOCKING", "1", "0: communicators are made in the background unless config.blocking is set."},
    {"NCCL_CTA_POLICY", "", "As TUTTI_CTA_POLICY, or in words: DEFAULT, EFFICIENCY, ZERO, several with |."},
    {"NCCL_HOSTID", "", "As TUTTI_HOSTID."},
    {"NCCL_NVLS_ENABLE", "", "As TUTTI_GPU_MULTICAST; 2 counts as 1."},
    {"NCCL_LAUNCH_ORDER_IMPLICIT", "", "As TUTTI_LAUNCH_ORDER_IMPLICIT."},
    {"XDG_CACHE_HOME", "",
     "The user's cache directory, for the results of tutti-tune and the code that PyTorch's backend compiles; unset: "
     "$HOME/.cache."},
    {"HOME", "", "The user's home directory, used if XDG_CACHE_HOME is unset."},
    {"CUDA_DEVICE_MAX_CONNECTIONS", "8",
     "CUDA: hardware queues of a GPU for the streams of a process, 1 to 32. Tutti warns if as many ranks of one "
     "process, or more, share a GPU."},
    {"RANK", "", "torchrun, tutti-run: this rank's number."},
    {"WORLD_SIZE", "", "torchrun, tutti-run: the number of ranks."},
    {"LOCAL_RANK", "", "torchrun, tutti-run: this rank's number on its host."},
    {"LOCAL_WORLD_SIZE", "", "torchrun, tutti-run: the number of ranks on this host."},
    {"MASTER_ADDR", "", "torchrun, tutti-run: the host where rank 0 runs."},
    {"MASTER_PORT", "", "torchrun, tutti-run: a free port on that host."},
    {"TORCHELASTIC_USE_AGENT_STORE", "",
     "torchrun: True if torchrun itself listens on MASTER_PORT; ranks then meet on the next port."},
    {"TORCHELASTIC_RESTART_COUNT", "", "torchrun: tells a restarted job from the one before."},
    {"OMPI_COMM_WORLD_RANK", "", "Open MPI's RANK."},
    {"OMPI_COMM_WORLD_SIZE", "", "Open MPI's WORLD_SIZE."},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "", "Open MPI's LOCAL_RANK."},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "", "Open MPI's LOCAL_WORLD_SIZE."},
    {"PMIX_NAMESPACE", "", "The job's name under Open MPI, PRRTE and Slurm; the rendezvous on one host."},
    {"PMIX_RANK", "",
     "PMIx: this rank's number. With PMIX_NAMESPACE, it says that a PMIx server brings the ranks together."},
    {"PMI_RANK", "", "MPICH's RANK."},
    {"PMI_SIZE", "", "MPICH's WORLD_SIZE."},
    {"MPI_LOCALRANKID", "", "MPICH's LOCAL_RANK."},
    {"MPI_LOCALNRANKS", "", "MPICH's LOCAL_WORLD_SIZE."},
    {"SLURM_PROCID", "", "Slurm's RANK."},
    {"SLURM_NTASKS", "", "Slurm's WORLD_SIZE."},
    {"SLURM_LOCALID", "", "Slurm's LOCAL_RANK."},
    {"SLURM_NNODES", "", "Slurm's number of hosts of the job."},
    {"SLURM_STEP_NUM_NODES", "", "Slurm's number of hosts of the step; overrides SLURM_NNODES."},
    {"SLURM_JOB_ID", "", "Slurm's job number."},
    {"SLURM_STEP_ID", "", "Slurm's number of the step in the job."},
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

/// Whether TUTTI_CTA_POLICY or, if that is not set, NCCL_CTA_POLICY asks for copy engines.
bool read_zero_cta() {
    if (environment("TUTTI_CTA_POLICY")) return read_int("TUTTI_CTA_POLICY", 0, 2) == 2;
    const std::string theirs = read_text("NCCL_CTA_POLICY");
    return theirs == "2" || theirs == "3" || theirs.find("ZERO") != std::string::npos;
}

std::vector<std::string> split(const std::string& text, char at) {
    std::vector<std::string> parts;
    std::istringstream stream(text);
    stream.exceptions(std::ios::badbit);  // else a lack of memory would pass for the end of the list
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
    const std::map<std::string, std::string> algorithms{
        {"ring", "ring"}, {"tree", "tree,double_tree"}, {"pat", "pat"}, {"nvls", "nvls"}};
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
    c.gpu_virtual = read_int("TUTTI_GPU_VIRTUAL", 0, 1) == 1;
    c.gpu_multicast = read_int("TUTTI_GPU_MULTICAST", 0, 1, "NCCL_NVLS_ENABLE", 0, 2) != 0;
    c.zero_cta = read_zero_cta();
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
