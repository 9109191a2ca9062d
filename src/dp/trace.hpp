// A time line of what the layer and its caller did, for Perfetto.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "base/caught.hpp"
#include "base/os.hpp"

namespace tutti::dp {

/// Owned by the Engine. Any thread; mutex_ guards events_.
class Trace {
  public:
    enum class Track { caller = 1, layer = 2, gathers = 3 };  // gathers: with config.separateGathers
    /// Drops events after the first million.
    void add(Track track, std::string name, Deadline begin, Deadline end);
    /// Writes all events in the format of Chrome's traces. Throws tuttiSystemError that names the file.
    void write(const std::string& path, int rank) const;

  private:
    struct Event {
        Track track;
        std::string name;
        double begin_us, duration_us;
    };
    const Deadline start_ = Clock::now();
    mutable std::mutex mutex_;
    std::vector<Event> events_;
};

/// Adds an event from its construction to its destruction. trace: nullptr to do nothing.
class Span {
  public:
    Span(Trace* trace, Trace::Track track, const char* name)
        : trace_(trace), track_(track), name_(name), begin_(trace != nullptr ? Clock::now() : Deadline{}) {}
    ~Span() {
        if (trace_ != nullptr) shielded("tracing", [&] { trace_->add(track_, name_, begin_, Clock::now()); });
    }
    Span(const Span&) = delete;

  private:
    Trace* trace_;
    Trace::Track track_;
    const char* name_;
    Deadline begin_;
};

}  // namespace tutti::dp
