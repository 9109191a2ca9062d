// The table as nccl-tests prints it, its footer, and the same as JSON.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "library.hpp"
#include "options.hpp"

namespace perf {

/// Microseconds of single iterations (-I).
struct IterationTimes {
    double min = 0, max = 0, p99 = 0, variation = 0;
};
IterationTimes summary_of(std::vector<double> microseconds);

/// One half of a row: out of place or in place.
struct Measurement {
    double microseconds = 0;
    double algorithm_bandwidth = 0;  // GB/s
    double bus_bandwidth = 0;
    std::optional<double> wrong;  // elements; nothing: not checked
    std::optional<IterationTimes> iterations;
    std::optional<double> error;
};

struct RowHead {
    std::size_t bytes;
    std::size_t count;
    tuttiDataType_t type;
    Op op;
    int root;  // -1: none
};

/// A rank as the header shows it.
struct Device {
    int rank;
    int pid;
    std::string host;
    int core;
    std::string info;
};

class JsonReport;

class Report {
  public:
    /// prints: on one process only; the others count along, so that all exit alike.
    Report(const Options& options, const char* program, bool prints);
    ~Report();

    /// rival: the library to race against, or nullptr; refusal: why it does not take part after all.
    void header(const std::vector<Device>& devices, const Library* rival, const std::string& refusal);
    void begin(const RowHead& row);
    /// nullptr: N/A. rival: the same by the other library of a race.
    void half(const Measurement* measured, bool in_place, const Measurement* rival = nullptr);
    void end_of_row();
    void footer();
    void memory(const std::string& text);
    /// How fast `bytes` are copied inside rank 0's memory, in GB/s, read plus written.
    void copies(std::size_t bytes, double bandwidth);
    void failed(const std::string& reason);

    ExitCode exit_code() const;

  private:
    void print_column_heads() const;
    void rival_half(const Measurement* ours, const Measurement* rival);
    double mean_bandwidth() const { return halves_ ? bandwidth_ / halves_ : 0; }
    bool too_slow() const;

    const Options& options_;
    std::string program_;
    bool prints_;
    std::unique_ptr<JsonReport> json_;
    long wrong_halves_ = 0;
    double bandwidth_ = 0;
    long halves_ = 0;
    std::string rival_;  // its name; empty: no race
    std::vector<double> ratios_;
};

/// A number in `width` characters with as many decimals as fit, two at most.
std::string fitted(double value, int width);

}  // namespace perf
