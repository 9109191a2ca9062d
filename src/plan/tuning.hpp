// What `tutti-tune` has measured on a machine, and on the paths from it to other hosts, and where that is kept: a JSON
// file in the user's cache directory, one for each kind of machine, replaced at once or not at all. Nothing needs it.
// What can't be read is ignored, with a warning.
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

class Tuning {
  public:
    struct Point {
        std::size_t bytes;
        double time;  // in microseconds

        friend bool operator==(const Point&, const Point&) = default;
    };
    /// Measured times of one algorithm, by ascending bytes.
    using Curve = std::vector<Point>;

    /// What the slowest pair of ranks on two hosts takes.
    struct Path {
        double latency_us;   // of 8 bytes, one way
        double us_per_byte;  // of large messages, while both send and receive

        friend bool operator==(const Path&, const Path&) = default;
    };

    void add(Collective collective, const std::string& algorithm, const std::string& transport, int ranks, Point point);
    /// transport: as Platform::transport has it, which tells long paths from short ones.
    void add_path(const std::string& transport, Path path) { paths_.insert_or_assign(transport, path); }
    /// What was measured on this machine alone.
    void forget_curves() { curves_.clear(); }

    /// nullptr: it was not measured.
    const Curve* find(Collective collective, std::string_view algorithm, std::string_view transport, int ranks) const;

    /// nullptr: it was not measured.
    const Path* path(std::string_view transport) const;

    /// Paths aside, as hash().
    bool empty() const { return curves_.empty(); }

    /// Of all curves; 0 if there is none.
    std::uint64_t hash() const;
    /// Of all paths; 0 if there is none. Hosts that have measured themselves apart may have the same.
    std::uint64_t hash_of_paths() const;

    std::string to_json() const;
    /// file: for error texts. Throws tuttiInvalidUsage, "file:line: ...": no JSON, another version, measured on
    /// another machine than that, a value out of range.
    static Tuning from_json(std::string_view json, const std::string& file, const std::string& machine);

    /// What TUTTI_TUNING names, read once; empty if there is no such file, or none that can be read.
    static std::shared_ptr<const Tuning> of_this_machine();

    /// TUTTI_TUNING, or a name made of machine() in the user's cache directory. Empty: TUTTI_TUNING=none, or no home.
    static std::string default_path();

    /// Replaces the file in one step; makes its directory. Throws tuttiSystemError.
    void write(const std::string& path) const;
    /// As from_json() for this machine; tuttiSystemError if it can't be read.
    static Tuning read(const std::string& path);

  private:
    std::string curves_to_json() const;
    std::string paths_to_json() const;

    using Key = std::tuple<Collective, std::string, std::string, int>;
    std::map<Key, Curve> curves_;
    std::map<std::string, Path, std::less<>> paths_;  // by transport
};

/// This kind of machine: processor, cores, caches, version of the file's format. What was measured on another says
/// nothing.
std::string machine_name();

/// Bytes of the largest cache; 32 MiB where the system does not say.
std::size_t largest_cache();

/// Bytes of the cache that a core has for itself (L2); 1 MiB where the system does not say.
std::size_t core_cache();

}  // namespace tutti
