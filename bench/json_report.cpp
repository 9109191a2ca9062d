#include "json_report.hpp"

#include <cerrno>
#include <cstring>
#include <ctime>

#include "world.hpp"

namespace perf {

namespace {

using Json = nlohmann::ordered_json;

std::string now() {
    char text[32];
    const std::time_t time = std::time(nullptr);
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", std::localtime(&time));
    return text;
}

}  // namespace

JsonReport::JsonReport(const Options& options) {
    std::string path = options.json;
    for (int number = 0; !(file_ = std::fopen(path.c_str(), "wx")); ++number) {
        if (errno != EEXIST || number > 9999)
            fail(exit_usage, "--output_file: cannot write '" + path + "': " + std::strerror(errno));
        path = options.json + "." + std::to_string(number);
    }
    std::printf("# Writing JSON output to %s\n", path.c_str());
    document_ = {{"version", 3}, {"start_time", now()}, {"args", options.arguments}, {"env", reported_environment()}};
}

JsonReport::~JsonReport() {
    write();
}

void JsonReport::config(const Options& o, int version, const std::vector<Device>& devices) {
    document_["tutti_version"] = version;
    Json config = {{"nthreads", o.threads},
                   {"ngpus", o.ranks_per_thread},
                   {"minimum_bytes", o.min_bytes},
                   {"maximum_bytes", o.max_bytes}};
    if (o.step_factor > 1)
        config["step_factor"] = o.step_factor;
    else
        config["step_bytes"] = o.step_bytes;
    config["warmup_iters"] = o.warmup;
    config["iterations"] = o.iterations;
    config["aggregated_iterations"] = o.aggregate;
    config["validation"] = o.checks;
    config["graph"] = o.graphs;
    config["unalign"] = o.unalign;
    config["blocking_collectives"] = o.blocking;
    config["parallel_init"] = o.parallel_init;
    config["memory"] = o.windows ? "windows" : o.registered ? "registered" : o.mapped ? "mapped" : "private";
    config["algorithm"] = o.algorithm;
    config["transport"] = o.transport;
    config["devices"] = Json::array();
    for (const Device& d : devices)
        config["devices"].push_back({{"rank", d.rank},
                                     {"group", 0},
                                     {"pid", d.pid},
                                     {"hostname", d.host},
                                     {"device", d.core},
                                     {"device_hex", o.on_gpu(d.rank) ? "cuda" : "cpu"},
                                     {"device_info", d.info}});
    document_["config"] = config;
    document_["results"] = Json::array();
}

void JsonReport::begin(const RowHead& row) {
    row_ = {{"size", row.bytes},
            {"count", row.count},
            {"type", name_of(row.type)},
            {"redop", name_of(row.op)},
            {"root", std::to_string(row.root)}};
}

void JsonReport::rival(const Library& library, const std::string& refusal) {
    document_["vs"] = {{"library", library.name},
                       {"path", library.path},
                       {"version", library.version},
                       {"refused", refusal.empty() ? Json() : Json(refusal)}};
}

void JsonReport::half(const Measurement* m, bool in_place, bool cpu_time, const Measurement* rival) {
    Json& half = row_[in_place ? "in_place" : "out_of_place"];
    half = nullptr;
    if (!m) return;
    half = {{cpu_time ? "cpu_time" : "time", m->microseconds},
            {"alg_bw", m->algorithm_bandwidth},
            {"bus_bw", m->bus_bandwidth},
            {"nwrong", m->wrong ? Json(*m->wrong) : Json()}};
    if (const auto& i = m->iterations) {
        half["i_min"] = i->min;
        half["i_max"] = i->max;
        half["i_p99"] = i->p99;
        half["i_cv"] = i->variation;
    }
    if (m->error) half["error"] = *m->error;
    if (rival)
        half["vs"] = {{cpu_time ? "cpu_time" : "time", rival->microseconds},
                      {"alg_bw", rival->algorithm_bandwidth},
                      {"bus_bw", rival->bus_bandwidth},
                      {"nwrong", rival->wrong ? Json(*rival->wrong) : Json()}};
}

void JsonReport::end_of_row() {
    document_["results"].push_back(row_);
}

void JsonReport::copies(std::size_t bytes, double bandwidth) {
    document_["copies"].push_back({{"size", bytes}, {"bandwidth", bandwidth}});
}

void JsonReport::footer(long wrong, double bandwidth, const char* verdict) {
    document_["out_of_bounds"] = {{"count", wrong}, {"okay", wrong == 0}};
    Json okay = "unchecked";
    if (verdict) okay = std::strcmp(verdict, "OK") == 0;
    document_["average_bus_bandwidth"] = {{"bandwidth", bandwidth}, {"okay", okay}};
    document_["errors"] = Json::array();
}

void JsonReport::failed(const std::string& reason) {
    document_["errors"] = {reason};
    write();  // the process ends without destructors
}

void JsonReport::write() {
    if (!file_) return;
    document_["end_time"] = now();
    const std::string text = document_.dump(1) + "\n";
    if (std::fwrite(text.data(), 1, text.size(), file_) != text.size() || std::fclose(file_) != 0)
        std::fprintf(stderr, "cannot write the JSON report: %s\n", std::strerror(errno));
    file_ = nullptr;
}

}  // namespace perf
