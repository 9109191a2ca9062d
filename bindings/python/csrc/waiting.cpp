#include "waiting.hpp"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "communicator.hpp"

namespace tutti::python {

namespace {

struct Wait {
    Communicator* const* comms;
    size_t count;
    uint64_t seen;  // interrupts that Python has been told of before
};

Wait wait;                            // the main thread's, under the GIL
bool waits = false;                   // under the GIL
std::atomic<uint64_t> interrupts{0};  // counted by the handler
std::atomic<int> forked{0};
sem_t woken;
struct sigaction python_handler;  // what ours calls first

pthread_t main_thread() {
    static const auto id =
        nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
    return id;
}

void on_interrupt(int number) {
    python_handler.sa_handler(number);
    interrupts.fetch_add(1, std::memory_order_relaxed);
    sem_post(&woken);
}

// Whether Python will raise KeyboardInterrupt. A handler of the program's own may go on with the wait.
bool raises() {
    const nb::module_ signals = nb::module_::import_("signal");
    return signals.attr("getsignal")(SIGINT).is(signals.attr("default_int_handler"));
}

// With the GIL, so the main thread cannot leave its wait meanwhile, nor learn of the signal.
void end_waits() {
    if (!waits || wait.seen == interrupts.load() || !raises()) return;
    for (size_t i = 0; i < wait.count; ++i) wait.comms[i]->interrupt();
}

void watch() {
    for (;;) {
        while (sem_wait(&woken) != 0) {
        }
        if (!Py_IsInitialized()) return;
        const PyGILState_STATE state = PyGILState_Ensure();
        try {
            end_waits();
        } catch (nb::python_error& error) {
            error.discard_as_unraisable("tutti: Ctrl-C");
        }
        PyGILState_Release(state);
    }
}

}  // namespace

bool Interruptible::is_main() {
    return pthread_equal(pthread_self(), main_thread()) != 0;
}

void Interruptible::enter(Communicator* const* comms, size_t count) {
    wait = {comms, count, interrupts.load(std::memory_order_relaxed)};
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    waits = true;
    entered_ = true;
}

void Interruptible::leave() {
    waits = false;
}

void listen_for_interrupts() {
    struct sigaction now {};
    if (!Interruptible::is_main() || sigaction(SIGINT, nullptr, &now) != 0 || now.sa_handler == on_interrupt) return;
    if ((now.sa_flags & SA_SIGINFO) != 0 || now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN || !raises()) return;
    static const bool watching = [] {
        sem_init(&woken, 0, 0);
        std::thread(watch).detach();
        return true;
    }();
    static_cast<void>(watching);
    python_handler = now;
    now.sa_handler = on_interrupt;
    sigaction(SIGINT, &now, nullptr);
}

void Naps::nap() {
    timespec time{0, next_us_ * 1000};
    next_us_ = std::min(next_us_ * 2, 2000L);
    {
        const nb::gil_scoped_release free;
        nanosleep(&time, nullptr);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

int forks() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { forked.fetch_add(1); });
    static_cast<void>(registered);
    return forked.load(std::memory_order_relaxed);
}

}  // namespace tutti::python
