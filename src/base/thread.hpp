// The only place where the library starts threads.
#pragma once

#include <functional>
#include <thread>

namespace tutti {

/// A thread of the library, which only start_thread() makes. Joined on destruction.
class Thread {
  public:
    Thread() = default;
    void join() { thread_.join(); }
    bool joinable() const { return thread_.joinable(); }
    void detach() { thread_.detach(); }
    std::thread::id id() const { return thread_.get_id(); }

  private:
    explicit Thread(std::jthread thread) : thread_(std::move(thread)) {}
    friend Thread start_thread(const char* name, std::function<void()> body);
    std::jthread thread_;
};

/// Starts a thread that runs body(). It blocks all signals, because they are the application's. What
/// body throws ends the thread with a line in the log; it never ends the process. name: at most 15 characters.
/// Throws tuttiSystemError if no thread can be started.
Thread start_thread(const char* name, std::function<void()> body);

}  // namespace tutti
