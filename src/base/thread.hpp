// The only place where the library starts threads.
#pragma once

#include <functional>
#include <thread>

namespace tutti {

/// Owns a thread of the library. Only start_thread() makes one. Joined on destruction.
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

/// Starts a thread that runs body(), with all signals blocked because they belong to the application. If body throws,
/// the thread logs that and ends; the process goes on. name: at most 15 characters, must outlive the thread. Throws
/// tuttiSystemError if no thread can be started.
Thread start_thread(const char* name, std::function<void()> body);

}  // namespace tutti
