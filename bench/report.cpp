#include "report.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <numeric>

#include "json_report.hpp"

namespace perf {

std::string fitted(double value, int width) {
    int digits = 0;
    for (double power = 1; value >= power && digits < 20; power *= 10) ++digits;
    const char* format = digits < width - 2   ? "%*.2f"
                         : digits < width - 1 ? "%*.1f"
                         : digits < width + 1 ? "%*.0f"
                         : width >= 7         ? "%*.1e"
                                              : "%*.0e";
    char text[64];
    std::snprintf(text, sizeof text, format, width, value);
    return text;
}

IterationTimes summary_of(std::vector<double> times) {
    if (times.empty()) return {};
    std::sort(times.begin(), times.end());
    const double n = static_cast<double>(times.size());
    const double mean = std::accumulate(times.begin(), times.end(), 0.0) / n;
    double squares = 0;
    for (const double time : times) squares += (time - mean) * (time - mean);
    const auto p99 = static_cast<std::size_t>(std::ceil(0.99 * n)) - 1;
    return {times.front(), times.back(), times[p99], mean > 0 ? 100 * std::sqrt(squares / n) / mean : 0};
}

Report::Report(const Options& options, const char* program, bool prints)
    : options_(options), program_(program), prints_(prints) {
    if (prints && !options.json.empty()) json_ = std::make_unique<JsonReport>(options);
}

Report::~Report() = default;

void Report::header(const std::vector<Device>& devices, const Library* rival, const std::string& refusal) {
    if (rival && refusal.empty()) rival_ = rival->name;
    if (!prints_) return;
    const Options& o = options_;
    int version = 0;
    tuttiGetVersion(&version);
    const bool factor = o.step_factor > 1;
    std::printf("# tutti version %d.%d.%d\n", version / 10000, version / 100 % 100, version % 100);
    std::printf("# Collective test starting: %s\n", program_.c_str());
    std::printf(
        "# nThread %d nGpus %d minBytes %zu maxBytes %zu step: %zu(%s) warmup iters: %d iters: %d agg iters: %d "
        "validation: %d graph: %d unalign: %d\n",
        o.threads, o.ranks_per_thread, o.min_bytes, o.max_bytes, factor ? o.step_factor : o.step_bytes,
        factor ? "factor" : "bytes", o.warmup, o.iterations, o.aggregate, o.checks, o.graphs, o.unalign);
    if (!o.algorithm.empty()) std::printf("# Algorithm: %s\n", o.algorithm.c_str());
    if (o.blocking) std::printf("# Blocking Enabled: wait for completion and barrier after each collective \n");
    if (o.parallel_init) std::printf("# Parallel Init Enabled: threads initialise concurrently \n");
    for (const std::string& note : o.notes) std::printf("# note: %s\n", note.c_str());
    std::printf("#\n# Using devices\n");
    for (const Device& d : devices)
        std::printf("#  Rank %2d Group %2d Pid %6d on %10s device %2d [%s] %s\n", d.rank, 0, d.pid, d.host.c_str(),
                    d.core, o.on_gpu(d.rank) ? "cuda" : "cpu", d.info.c_str());
    if (rival)
        std::printf("# Race against %s %d.%d.%d, %s\n", rival->name.c_str(), rival->version / 10000,
                    rival->version / 100 % 100, rival->version % 100, rival->path.c_str());
    if (!rival_.empty()) std::printf("# Columns r.*: of %s; ratio: its time over ours\n", rival_.c_str());
    if (!refusal.empty()) std::printf("# It refuses these ranks, so there is no race: %s\n", refusal.c_str());
    print_column_heads();
    if (json_) json_->config(options_, version, devices);
    if (json_ && rival) json_->rival(*rival, refusal);
}

void Report::print_column_heads() const {
    const Options& o = options_;
    const char* time = o.cpu_time ? "cputime" : "time";
    const char* iterations[] = {"", "", ""};
    if (o.per_iteration) {
        iterations[0] = "                                 ";
        iterations[1] = "    i_min    i_max    i_p99   i_cv";
        iterations[2] = "     (us)     (us)     (us)    (%)";
    }
    if (!rival_.empty()) {
        iterations[0] = "                                 ";
        iterations[1] = "    r.time  r.busbw  r.wrong  ratio";
        iterations[2] = "      (us)   (GB/s)                ";
    }
    const int stamp = o.timestamps ? 19 : 0;
    const char* error = o.error ? "     error" : "";
    std::printf("#\n# %10s  %12s  %8s  %6s  %6s           out-of-place        %s%*s               in-place          \n",
                "", "", "", "", "", iterations[0], o.error ? 10 : 0, "");
    std::printf("# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
    for (int half = 0; half < 2; ++half)
        std::printf("  %7s  %6s  %6s  %6s%s%s", time, "algbw", "busbw", "#wrong", iterations[1], error);
    std::printf(" %*s\n", stamp, o.timestamps ? "timestamp" : "");
    std::printf("# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
    for (int half = 0; half < 2; ++half)
        std::printf("  %7s  %6s  %6s  %6s%s%s", "(us)", "(GB/s)", "(GB/s)", "", iterations[2],
                    o.error ? "   vs fp64" : "");
    std::printf(" %*s\n", stamp, o.timestamps ? "%Y-%m-%d %H:%M:%S" : "");
}

void Report::begin(const RowHead& row) {
    if (!prints_) return;
    std::printf("%12zu  %12zu  %8s  %6s  %6d", row.bytes, row.count, name_of(row.type), name_of(row.op), row.root);
    std::fflush(stdout);
    if (json_) json_->begin(row);
}

/// The other library's columns; ratio: its time over ours.
void Report::rival_half(const Measurement* ours, const Measurement* rival) {
    if (rival_.empty()) return;
    if (!rival) {
        if (prints_) std::printf("   %7s  %7s  %7s %6s", "N/A", "N/A", "N/A", "N/A");
        return;
    }
    if (rival->wrong.value_or(0) > 0) ++wrong_halves_;
    const double ratio = ours->microseconds > 0 ? rival->microseconds / ours->microseconds : 0;
    if (ratio > 0) ratios_.push_back(ratio);
    if (!prints_) return;
    std::printf("   %7s  %7s", fitted(rival->microseconds, 7).c_str(), fitted(rival->bus_bandwidth, 7).c_str());
    if (rival->wrong)
        std::printf("  %7g", *rival->wrong);
    else
        std::printf("      N/A");
    std::printf(" %6.2f", ratio);
}

void Report::half(const Measurement* m, bool in_place, const Measurement* rival) {
    if (m) {
        ++halves_;
        bandwidth_ += m->bus_bandwidth;
        if (m->wrong.value_or(0) > 0) ++wrong_halves_;
    }
    if (!prints_) return rival_half(m, rival);
    if (json_) json_->half(m, in_place, options_.cpu_time, rival);
    if (!m) {
        std::printf("  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
        if (options_.per_iteration) std::printf("  %7s  %7s  %7s %6s", "N/A", "N/A", "N/A", "N/A");
        if (options_.error) std::printf("  %8s", "N/A");
        return rival_half(m, rival);
    }
    std::printf("  %7s  %6s  %6s", fitted(m->microseconds, 7).c_str(), fitted(m->algorithm_bandwidth, 6).c_str(),
                fitted(m->bus_bandwidth, 6).c_str());
    if (m->wrong)
        std::printf("  %6g", *m->wrong);
    else
        std::printf("     N/A");
    if (const auto& i = m->iterations)
        std::printf("  %7s  %7s  %7s %6s", fitted(i->min, 7).c_str(), fitted(i->max, 7).c_str(),
                    fitted(i->p99, 7).c_str(), fitted(i->variation, 6).c_str());
    if (m->error) std::printf("  %8.1e", *m->error);
    rival_half(m, rival);
}

void Report::end_of_row() {
    if (!prints_) return;
    if (options_.timestamps) {
        char text[32];
        const std::time_t now = std::time(nullptr);
        std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", std::localtime(&now));
        std::printf("%21s", text);
    }
    std::printf("\n");
    std::fflush(stdout);
    if (json_) json_->end_of_row();
}

bool Report::too_slow() const {
    return options_.min_bandwidth >= 0 && mean_bandwidth() < 0.9 * options_.min_bandwidth;
}

void Report::footer() {
    if (!prints_) return;
    const char* speed = options_.min_bandwidth < 0 ? "" : too_slow() ? "FAILED" : "OK";
    std::printf("# %-20s : %ld %s\n", "Out of bounds values", wrong_halves_, wrong_halves_ ? "FAILED" : "OK");
    std::printf("# %-20s : %g %s\n", "Avg bus bandwidth", mean_bandwidth(), speed);
    if (!ratios_.empty()) {
        double logs = 0;
        for (const double ratio : ratios_) logs += std::log(ratio);
        const auto [least, most] = std::minmax_element(ratios_.begin(), ratios_.end());
        std::printf("# %-20s : %.2f in the geometric mean, %.2f to %.2f\n", (rival_ + "'s time over ours").c_str(),
                    std::exp(logs / static_cast<double>(ratios_.size())), *least, *most);
    }
    std::printf("#\n# Collective test concluded: %s\n#\n", program_.c_str());
    if (json_) json_->footer(wrong_halves_, mean_bandwidth(), options_.min_bandwidth < 0 ? nullptr : speed);
}

void Report::memory(const std::string& text) {
    if (prints_) std::printf("# %-20s : %s\n", "Memory usage", text.c_str());
}

void Report::copies(std::size_t bytes, double bandwidth) {
    if (!prints_) return;
    std::printf("# Copies of %zu bytes inside rank 0's memory: %.1f GB/s, read plus written\n", bytes, bandwidth);
    if (json_) json_->copies(bytes, bandwidth);
}

void Report::failed(const std::string& reason) {
    if (json_) json_->failed(reason);
}

ExitCode Report::exit_code() const {
    return wrong_halves_ || too_slow() ? exit_wrong : exit_ok;
}

}  // namespace perf
