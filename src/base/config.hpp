// Every environment variable that Tutti reads, in one table: the only getenv of the library. docs/environment.md is
// checked against this table by a test, so the page and the code cannot drift apart.
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
    const char* fallback;  // what holds when it is unset, as text
    const char* meaning;   // one sentence for the manual
};

/// The table, in the manual's order.
std::span<const Variable> variables();

/// Of data over TCP, the weakest first. mac: in the clear, but nobody changes it unseen.
enum class Protection : std::uint8_t { none, mac, encrypted };

/// What the environment says.
struct Config {
    int timeout_ms;
    int init_timeout_ms;
    int silence_ms;  // of a host
    bool check;
    bool verify;
    bool reproducible;
    std::string algorithm;
    std::string programs;
    std::string transport;
    std::string debug;
    std::string debug_file;
    std::string socket_ifname;
    std::string net_plugin;    // as in NCCL_NET_PLUGIN; empty: none
    bool net_plugin_demanded;  // no communicator without it
    int sockets;               // between two ranks; 0: chosen by how long the path is
    int round_trip_us;         // to where ranks meet; -1: measured
    Protection protection;     // of data over TCP
    std::string ib_hca;
    int ib_gid_index;  // -1: chosen
    int ib_traffic_class, ib_service_level;
    int ib_pkey_index;
    int ib_timeout;  // of an adapter's wait for an acknowledgement, 4.096 us * 2^n; -1: chosen
    int ib_retry_count;
    int ib_qps_per_connection;
    bool ib_relaxed_ordering;
    bool ib;                      // false: not used
    bool gdr;                     // adapters may use GPU memory,
    bool gdr_reads;               // and not only write there
    std::string host_id;          // empty: what the system says
    int channels;                 // 0: chosen by size
    int threads;                  // of a rank on a CPU, which share its large calls
    int gpu_queues;               // of a process on a GPU
    bool launch_order_implicit;   // of all communicators there
    std::string tuning;           // a file's name, or "none"
    std::string cache_directory;  // the user's; empty: there is none
    int spin_us;                  // -1: chosen by whether ranks outnumber cores
    std::string comm_id;          // where unique ids lead; empty: to whoever makes them
    bool blocking;
    std::string fault;  // seeded faults for tests, see docs/environment.md
};

/// Read once, when the process makes its first communicator or id. Throws Error(tuttiInvalidUsage) that names the
/// variable if a value can't be read.
const Config& config();

/// What config() would be if it were asked first now.
Config read_config();

/// What holds of a variable of the table, for whoever asks; of secrets nothing. nullopt: there is none of that name.
std::optional<std::string> setting(std::string_view name);

/// Names of NCCL's variables that are set and mean nothing here.
std::vector<std::string> unheeded();

/// A launcher's variable (RANK, PMI_RANK, ...); nullopt when unset or empty. Only names in the table are allowed.
std::optional<std::string> environment(const char* name);

}  // namespace tutti
