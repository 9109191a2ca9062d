#include "dp/trace.hpp"

#include "base/files.hpp"
#include "base/json_tree.hpp"
#include "base/result.hpp"

namespace tutti::dp {
namespace {

constexpr std::size_t most_events = 1'000'000;

}  // namespace

void Trace::add(Track track, std::string name, Deadline begin, Deadline end) {
    using Us = std::chrono::duration<double, std::micro>;
    std::lock_guard lock(mutex_);
    if (events_.size() < most_events)
        events_.push_back({track, std::move(name), Us(begin - start_).count(), Us(end - begin).count()});
}

void Trace::write(const std::string& path, int rank) const {
    std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    for (const auto& [track, name] : {std::pair{Track::caller, "training"}, std::pair{Track::layer, "communication"},
                                      std::pair{Track::gathers, "gathers apart"}})
        out += text("{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}},\n", rank,
                    static_cast<int>(track), name);
    out += text("{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"rank %d\"}}", rank, rank);
    std::lock_guard lock(mutex_);
    for (const Event& e : events_)
        out += text(",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":", rank,
                    static_cast<int>(e.track), e.begin_us, e.duration_us) +
               escaped(e.name) + "}";
    out += "\n]}\n";
    replace_file(path, {out.data(), out.size()});
}

}  // namespace tutti::dp
