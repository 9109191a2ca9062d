#include "base/thread.hpp"

#include <pthread.h>

#include <csignal>
#include <system_error>

#include "base/caught.hpp"
#include "base/result.hpp"

namespace tutti {
namespace {

/// Blocks all signals in the calling thread while it lives. A new thread inherits that.
class BlockedSignals {
  public:
    BlockedSignals() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    BlockedSignals(const BlockedSignals&) = delete;

  private:
    sigset_t before_;
};

}  // namespace

Thread start_thread(const char* name, std::function<void()> body) {
    const BlockedSignals blocked;
    try {
        std::jthread thread([name, body = std::move(body)] { shielded(name, body); });
        pthread_setname_np(thread.native_handle(), name);
        return Thread(std::move(thread));
    } catch (const std::system_error& error) {
        fail(tuttiSystemError, "the thread %s could not be started: %s", name, error.what());
    }
}

}  // namespace tutti
