#include "plan/tuning.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/config.hpp"
#include "base/files.hpp"
#include "base/json_tree.hpp"
#include "base/log.hpp"
#include "base/os.hpp"
#include "base/result.hpp"

namespace tutti {
namespace {

constexpr int format_version = 1;
constexpr int most_ranks = 1 << 20;
constexpr std::size_t most_file_bytes = 64 << 20;
// Of a measurement. Far more than anybody measures, and so little that the tuner can compute with it.
constexpr std::int64_t most_bytes = std::int64_t{1} << 40;
constexpr double most_microseconds = 1e12;

/// Reads fields that a file must have, and throws if one is missing or wrong.
struct Fields {
    const std::string& file;

    const Json& of(const Json& object, std::string_view name) const {
        if (const Json* const field = object.find(name)) return *field;
        fail_at(file, object.line, text("an object with the field '%s' was expected", name.data()));
    }

    const Json& of(const Json& object, std::string_view name, Json::Kind kind, const char* what) const {
        const Json& field = of(object, name);
        if (field.kind != kind) fail_at(file, field.line, text("'%s': %s was expected", name.data(), what));
        return field;
    }

    static bool positive(const Json& value) {
        const bool number = value.kind == Json::Kind::whole || value.kind == Json::Kind::fraction;
        return number && value.fraction > 0 && value.fraction <= most_microseconds;
    }

    double microseconds(const Json& object, std::string_view name) const {
        const Json& field = of(object, name);
        if (!positive(field))
            fail_at(file, field.line, text("'%s': a number above 0, and 1e12 at most, was expected", name.data()));
        return field.fraction;
    }

    Tuning::Point point(const Json& value) const {
        const bool pair = value.kind == Json::Kind::array && value.items.size() == 2;
        const bool bytes = pair && value.items[0].kind == Json::Kind::whole && value.items[0].number >= 0 &&
                           value.items[0].number <= most_bytes;
        if (!bytes || !positive(value.items[1]))
            fail_at(file, value.line,
                    "[bytes, microseconds] was expected, a whole number up to 2^40 and one above 0 up to 1e12");
        return {static_cast<std::size_t>(value.items[0].number), value.items[1].fraction};
    }
};

std::optional<Collective> collective_named(const std::string& name) {
    for (int c = 0; c < collectives; ++c)
        if (name_of(static_cast<Collective>(c)) == name) return static_cast<Collective>(c);
    return std::nullopt;
}

/// The shortest text that reads back equal.
std::string shortest(double number) {
    char digits[32];
    return {digits, std::to_chars(digits, std::end(digits), number).ptr};
}

std::string processor() {
    if (access("/proc/cpuinfo", R_OK) != 0) return "unknown processor";
    std::istringstream info(read_file("/proc/cpuinfo"));
    info.exceptions(std::ios::badbit);  // a lack of memory must throw, not look like another machine
    for (std::string line; std::getline(info, line);)
        if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(':') + 2));
    return "unknown processor";
}

/// How many bits are set in a number of hexadecimal digits and commas.
int threads_in(const std::string& map) {
    int threads = 0;
    for (const char c : map)
        if (std::isxdigit(static_cast<unsigned char>(c)) != 0)
            threads += std::popcount(static_cast<unsigned>(std::stoi(std::string(1, c), nullptr, 16)));
    return threads;
}

}  // namespace

Caches Caches::here() {
    Caches all;
    std::size_t largest = 0;
    std::string sharing;  // the file that tells which hardware threads share one of the largest
    for (int index = 0;; ++index) {
        const std::string folder = text("/sys/devices/system/cpu/cpu0/cache/index%d/", index);
        const std::string level = line_of(folder + "level"), size = line_of(folder + "size");
        if (level.empty()) break;
        std::size_t kib = 0;
        const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), kib);
        if (error != std::errc() || kib == 0 || kib > UINT32_MAX || std::string_view(end) != "K") continue;
        if (level == "2") all.of_core = kib << 10;
        if (kib << 10 <= largest) continue;
        all.largest = largest = kib << 10;
        sharing = folder + "shared_cpu_map";
    }
    const int threads = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    if (const int together = threads_in(line_of(sharing)); together > 0) all.number = std::max(1, threads / together);
    return all;
}

std::size_t Caches::share(int ranks) const {
    return largest / static_cast<std::size_t>((ranks + number - 1) / number);
}

std::string machine_name() {
    return text("%s, %ld cores, %zu KiB cache", processor().c_str(), sysconf(_SC_NPROCESSORS_ONLN),
                Caches::here().largest / 1024);
}

void Tuning::add(Collective collective, const std::string& algorithm, const std::string& transport, int ranks,
                 Point point) {
    Curve& curve = curves_[{collective, algorithm, transport, ranks}];
    const auto at = std::ranges::lower_bound(curve, point.bytes, {}, &Point::bytes);
    if (at != curve.end() && at->bytes == point.bytes)
        *at = point;
    else
        curve.insert(at, point);
}

const Tuning::Curve* Tuning::find(Collective collective, std::string_view algorithm, std::string_view transport,
                                  int ranks) const {
    const auto found = curves_.find({collective, std::string(algorithm), std::string(transport), ranks});
    return found == curves_.end() ? nullptr : &found->second;
}

const Tuning::Path* Tuning::path(std::string_view transport) const {
    const auto found = paths_.find(transport);
    return found == paths_.end() ? nullptr : &found->second;
}

std::uint64_t Tuning::hash() const {
    return empty() ? 0 : fnv(escaped(machine_name()) + curves_to_json());
}

std::uint64_t Tuning::hash_of_paths() const {
    return paths_.empty() ? 0 : fnv(paths_to_json());
}

// Written by hand: the destructor of the JSON library ends a process that is out of memory.
std::string Tuning::to_json() const {
    return text(
        "{\"format\":\"tutti-tuning\",\"version\":%d,\"machine\":%s,\"measured\":[%s],\"between_hosts\":[%s]}\n",
        format_version, escaped(machine_name()).c_str(), curves_to_json().c_str(), paths_to_json().c_str());
}

std::string Tuning::paths_to_json() const {
    std::string all;
    for (const auto& [transport, path] : paths_)
        all += text("%s{\"transport\":%s,\"latency_us\":%s,\"us_per_byte\":%s}", all.empty() ? "\n" : ",\n",
                    escaped(transport).c_str(), shortest(path.latency_us).c_str(), shortest(path.us_per_byte).c_str());
    return all;
}

std::string Tuning::curves_to_json() const {
    std::string all;
    const char* between = "\n";
    for (const auto& [key, curve] : curves_) {
        const auto& [collective, algorithm, transport, ranks] = key;
        all +=
            text("%s{\"op\":%s,\"algorithm\":%s,\"transport\":%s,\"ranks\":%d,\"microseconds\":[", between,
                 escaped(name_of(collective)).c_str(), escaped(algorithm).c_str(), escaped(transport).c_str(), ranks);
        for (const Point& p : curve)
            all += text("%s[%zu,%s]", &p == curve.data() ? "" : ",", p.bytes, shortest(p.time).c_str());
        all += "]}";
        between = ",\n";
    }
    return all;
}

Tuning Tuning::from_json(std::string_view content, const std::string& file, const std::string& machine) {
    const Fields fields{file};
    const Json root = parse_json(content, file);
    const std::string& format = fields.of(root, "format", Json::Kind::text, "a text").text;
    if (format != "tutti-tuning") fail_at(file, root.line, "it is no file of tutti-tune");
    const Json& version = fields.of(root, "version", Json::Kind::whole, "a whole number");
    if (version.number != format_version)
        fail_at(file, version.line,
                text("its format is version %lld, this is version %d", static_cast<long long>(version.number),
                     format_version));
    const Json& measured_on = fields.of(root, "machine", Json::Kind::text, "a text");
    if (measured_on.text != machine)
        fail_at(file, measured_on.line, "it was measured on another machine: " + excerpt(measured_on.text));
    Tuning tuning;
    for (const Json& entry : fields.of(root, "measured", Json::Kind::array, "a list").items) {
        const Json& op = fields.of(entry, "op", Json::Kind::text, "a text");
        const Json& ranks = fields.of(entry, "ranks", Json::Kind::whole, "a whole number");
        const auto collective = collective_named(op.text);
        if (!collective) fail_at(file, op.line, "'op': '" + excerpt(op.text) + "' is no collective");
        if (ranks.number < 1 || ranks.number > most_ranks)
            fail_at(file, ranks.line, text("'ranks': a whole number from 1 to %d was expected", most_ranks));
        const std::string& algorithm = fields.of(entry, "algorithm", Json::Kind::text, "a text").text;
        const std::string& transport = fields.of(entry, "transport", Json::Kind::text, "a text").text;
        for (const Json& point : fields.of(entry, "microseconds", Json::Kind::array, "a list").items)
            tuning.add(*collective, algorithm, transport, static_cast<int>(ranks.number), fields.point(point));
    }
    if (root.find("between_hosts") == nullptr) return tuning;  // older files have no paths
    for (const Json& entry : fields.of(root, "between_hosts", Json::Kind::array, "a list").items)
        tuning.add_path(fields.of(entry, "transport", Json::Kind::text, "a text").text,
                        {fields.microseconds(entry, "latency_us"), fields.microseconds(entry, "us_per_byte")});
    return tuning;
}

Tuning Tuning::read(const std::string& path) {
    return from_json(read_file(path, most_file_bytes), path, machine_name());
}

std::string Tuning::default_path() {
    if (config().tuning == "none") return "";
    if (!config().tuning.empty()) return config().tuning;
    if (config().cache_directory.empty()) return "";
    return config().cache_directory +
           text("/tutti/tuning-%016llx.json", static_cast<unsigned long long>(fnv(machine_name())));
}

void Tuning::write(const std::string& path) const {
    const std::filesystem::path target(path);
    std::error_code ignored;  // a failure shows below
    if (target.has_parent_path()) std::filesystem::create_directories(target.parent_path(), ignored);
    replace_file(path, to_json());
}

std::shared_ptr<const Tuning> Tuning::of_this_machine() {
    static const auto& instance = *new const std::shared_ptr<const Tuning>([] {
        auto tuning = std::make_shared<Tuning>();
        const std::string folder =
            config().cache_directory + "/tutti";  // to name the machine takes longer than to look
        if (config().tuning.empty() && access(folder.c_str(), F_OK) != 0) return tuning;
        const std::string path = default_path();
        if (path.empty()) return tuning;
        if (access(path.c_str(), F_OK) != 0) {  // no warning: tutti-tune writes it
            if (!config().tuning.empty()) log(Level::info, "TUTTI_TUNING: there is no file %s", path.c_str());
            return tuning;
        }
        try {
            *tuning = read(path);
            log(Level::info, "tuned by %s", path.c_str());
        } catch (const Error& error) {
            log(Level::warn, "%s. It is ignored; tutti-tune writes a new one", error.what());
        }
        return tuning;
    }());
    return instance;
}

}  // namespace tutti
