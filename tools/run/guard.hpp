// A process that ends the ranks' process groups if tutti-run itself is killed and can't. PR_SET_PDEATHSIG alone would
// leave what the ranks have started.
#pragma once

#include <sys/types.h>

namespace run {

class Guard {
  public:
    void start();

    /// In a rank: only tutti-run keeps the guard waiting.
    void forget() const;

    /// Group `pid` has begun, or ended (as -pid).
    void note(pid_t pid) const;

    void stop() const;

  private:
    pid_t pid_ = -1;
    int to_guard_ = -1;
};

}  // namespace run
