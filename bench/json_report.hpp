// The report as a JSON file with the fields of nccl-tests' version 3. The file is created at once, so that a bad name
// is known before hours of measuring, and written when the run ends, well or badly.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>

#include "report.hpp"

namespace perf {

class JsonReport {
  public:
    /// Never overwrites: takes the first free name of FILE, FILE.0, FILE.1, ... and says which.
    explicit JsonReport(const Options& options);
    ~JsonReport();

    void config(const Options& options, int version, const std::vector<Device>& devices);
    void begin(const RowHead& row);
    void rival(const Library& library, const std::string& refusal);
    void half(const Measurement* measured, bool in_place, bool cpu_time, const Measurement* rival);
    void end_of_row();
    void copies(std::size_t bytes, double bandwidth);
    void footer(long wrong, double bandwidth, const char* verdict);
    void failed(const std::string& reason);

  private:
    void write();

    std::FILE* file_ = nullptr;
    nlohmann::ordered_json document_;
    nlohmann::ordered_json row_;
};

}  // namespace perf
