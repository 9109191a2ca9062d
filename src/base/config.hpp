// Every environment variable that Tutti reads, in one table. This is the only getenv of the library. A test checks
// docs/environment.md against the table.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

struct Variable {
    const char* name;
    const char* fallback;  // the value when it is unset, as text
    const char* meaning;   // one sentence for the manual
};

/// The table, in the manual's order.
std::span<const Variable> variables();

/// How data over TCP is protected, weakest first. mac: sent in the clear with a MAC, so that changes are detected.
enum class Protection : std::uint8_t { none, mac, encrypted };

/// The settings as read from the environment. variables() has the meaning of each.
struct Config {
    int timeout_ms;
    int init_timeout_ms;
    int silence_ms;  // after which a host counts as dead
    bool check;
    bool verify;
    bool reproducible;
    std::string algorithm;
    std::string programs;
    std::string transport;
    std::string debug;
    std::string debug_file;
    std::string socket_ifname;
    std::string net_plugin;    // as in NCCL_NET_PLUGIN; empty if none
    bool net_plugin_demanded;  // true if init fails when no plugin can be used
    int sockets;               // TCP connections between two ranks; 0: by path length
    int round_trip_us;         // to other hosts; -1: measured
    Protection protection;
    std::string ib_hca;
    int ib_gid_index;  // -1: automatic
    int ib_traffic_class, ib_service_level;
    int ib_pkey_index;
    int ib_timeout;  // n: an adapter waits 4.096 us * 2^n for an acknowledgement; -1: automatic
    int ib_retry_count;
    int ib_qps_per_connection;
    bool ib_relaxed_ordering;
    bool ib;                      // false: InfiniBand and RoCE are not used
    bool gdr;                     // network adapters may access GPU memory
    bool gdr_reads;               // they may also read it; otherwise only write
    std::string host_id;          // empty: derived from the system, see host_id() in os.hpp
    int channels;                 // for large data, on GPUs at most; 0: by the cost model
    int threads;                  // of a rank on a CPU that share its large calls
    int gpu_queues;               // hardware queues that a process has on a GPU
    bool gpu_small;               // small messages have a kernel of their own
    bool gpu_virtual;             // memory of tuttiMemAllocDevice is virtual memory
    bool gpu_multicast;           // windows of virtual memory have addresses of multicast
    bool zero_cta;                // copy engines run what they can
    bool launch_order_implicit;   // kernels of all communicators run in launch order
    std::string tuning;           // a file's name or "none"; empty: the cache directory's
    std::string cache_directory;  // the user's; empty if there is none
    int spin_us;                  // -1: depends on whether ranks outnumber cores
    std::string comm_id;          // host:port of unique ids; empty: the process that makes them
    bool blocking;
    std::string fault;  // seeded faults for tests, see docs/environment.md
};

/// The settings of this process, read on the first call and then kept. Any thread. Throws Error(tuttiInvalidUsage) that
/// names the variable if a value is invalid.
const Config& config();

/// Reads the environment now. Throws as config() does.
Config read_config();

/// The value in effect for a variable of the table, for display. Secrets are returned as "". nullopt if the table has
/// no such variable.
std::optional<std::string> setting(std::string_view name);

/// Names of NCCL_* variables that are set but not in the table, so that they have no effect.
std::vector<std::string> unheeded();

/// The value of a variable; nullopt if it is unset or empty. The name must be in the table.
std::optional<std::string> environment(const char* name);

}  // namespace tutti
