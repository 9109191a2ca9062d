// Waits for other ranks: without the GIL, and ended by Ctrl-C.
#pragma once
#include <nanobind/nanobind.h>
#include <tutti/tutti.h>

#include <cstddef>
#include <cstdint>
#include <ctime>

namespace tutti::python {

namespace nb = nanobind;

class Communicator;

/// While it lives, Ctrl-C revokes these communicators if the calling thread is the main one, which ends the library's
/// waits on them. Made and destroyed with the GIL held; in between the caller releases it. Throws what a signal that
/// has come before raises. comms must outlive it.
class Interruptible {
  public:
    Interruptible(Communicator* const* comms, size_t count) {
        if (is_main()) enter(comms, count);
    }
    ~Interruptible() {
        if (entered_) leave();
    }
    Interruptible(const Interruptible&) = delete;
    Interruptible& operator=(const Interruptible&) = delete;

    static bool is_main();

  private:
    void enter(Communicator* const* comms, size_t count);
    static void leave();

    bool entered_ = false;
};

/// Begins to listen for Ctrl-C, in the main thread if Python's own handler is there; else does nothing.
void listen_for_interrupts();

/// Throws KeyboardInterrupt.
[[noreturn]] void raise_interrupt();

/// A wait of Python's own, which looks for signals now and then.
class Signals {
  public:
    Signals();
    /// In the main thread: throws what a signal has raised since then, KeyboardInterrupt if that is asyncio's to raise.
    void look();

  private:
    const bool main_ = Interruptible::is_main();
    uint64_t seen_;
};

/// Sleeps without the GIL, longer each time; then looks for signals.
class Naps {
  public:
    void nap();

  private:
    Signals signals_;
    long next_us_ = 20;
};

/// How many times this process was forked from the one that loaded the module.
int forks();

}  // namespace tutti::python
