// What `tutti-tune` has measured on a machine and on the paths from it to other hosts, and the file that keeps it: JSON
// in the user's cache directory, one file for each kind of machine, replaced atomically. Nothing depends on it; a file
// that can't be read is ignored with a warning.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/types.hpp"

namespace tutti {

/// Plain data. Once shared (of_this_machine()) it does not change, and any thread may read it.
class Tuning {
  public:
    struct Point {
        std::size_t bytes;
        double time;  // in microseconds

        friend bool operator==(const Point&, const Point&) = default;
    };
    /// Measured times of one algorithm, by ascending bytes.
    using Curve = std::vector<Point>;

    /// The path between two hosts, as the slowest pair of ranks measured it.
    struct Path {
        double latency_us;   // one way, 8 bytes
        double us_per_byte;  // large messages, while both sides send and receive

        friend bool operator==(const Path&, const Path&) = default;
    };

    /// Adds a measurement, or replaces that of the same size.
    void add(Collective collective, const std::string& algorithm, const std::string& transport, int ranks, Point point);
    /// transport: as in Platform::transport, which tells long paths from short ones.
    void add_path(const std::string& transport, Path path) { paths_.insert_or_assign(transport, path); }

    /// The curve; nullptr if it was not measured.
    const Curve* find(Collective collective, std::string_view algorithm, std::string_view transport, int ranks) const;

    /// The path; nullptr if it was not measured.
    const Path* path(std::string_view transport) const;

    /// Whether there are no curves; paths do not count.
    bool empty() const { return curves_.empty(); }

    /// A hash of all curves; 0 if there are none.
    std::uint64_t hash() const;
    /// A hash of all paths; 0 if there are none. It leaves out the machine, so hosts that measured themselves apart can
    /// agree.
    std::uint64_t hash_of_paths() const;

    std::string to_json() const;
    /// Parses such a file. file: its name, for error texts. machine: the kind of machine that it must come from. Throws
    /// tuttiInvalidUsage, "file:line: ...", if it is no JSON, of another version, from another machine, or has a value
    /// out of range.
    static Tuning from_json(std::string_view json, const std::string& file, const std::string& machine);

    /// The file of default_path(), read once; empty if there is none, or it can't be read.
    static std::shared_ptr<const Tuning> of_this_machine();

    /// The file that TUTTI_TUNING names, else one named after machine_name() in the user's cache directory. Empty if
    /// TUTTI_TUNING=none or there is no such directory.
    static std::string default_path();

    /// Replaces the file atomically, and makes its directory. Throws tuttiSystemError.
    void write(const std::string& path) const;
    /// Reads a file with from_json() for this machine. Throws tuttiSystemError if it can't be read.
    static Tuning read(const std::string& path);

  private:
    std::string curves_to_json() const;
    std::string paths_to_json() const;

    using Key = std::tuple<Collective, std::string, std::string, int>;
    std::map<Key, Curve> curves_;
    std::map<std::string, Path, std::less<>> paths_;  // by transport
};

/// The kind of this machine: processor, cores, cache. Measurements from another kind mean nothing here.
std::string machine_name();

/// A machine's caches; as they are set here where the system does not say.
struct Caches {
    std::size_t largest = 32 << 20;  // bytes
    int number = 1;                  // of caches of that size
    std::size_t of_core = 1 << 20;   // bytes that a core has for itself (L2)

    /// This machine's. Reads a dozen of the kernel's files. (The processor itself may report more than a virtual
    /// machine has.)
    static Caches here();

    /// Bytes that a rank has of the largest ones if `ranks` ranks are spread over them evenly.
    std::size_t share(int ranks) const;
};

}  // namespace tutti
