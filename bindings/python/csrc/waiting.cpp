#include "waiting.hpp"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

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
std::atomic<void (*)(int)> python_handler{nullptr};  // what ours calls first

// A forked child's is the thread that has forked.
pthread_t main_thread() {
    static pthread_t id;
    static int of = -1;
    if (of != forks()) {
        id = nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
        of = forks();
    }
    return id;
}

void on_interrupt(int number) {
    python_handler.load(std::memory_order_relaxed)(number);
    interrupts.fetch_add(1, std::memory_order_relaxed);
    sem_post(&woken);
}

// Whether Ctrl-C ends the program: Python will raise KeyboardInterrupt, or asyncio.run() cancels what it runs, as soon
// as the wait is over. A handler of the program's own may go on with the wait.
bool raises() {
    const nb::module_ signals = nb::module_::import_("signal");
    const nb::object handler = signals.attr("getsignal")(SIGINT);
    if (handler.is(signals.attr("default_int_handler"))) return true;
    const nb::object method = nb::getattr(handler, "func", nb::none());  // of functools.partial
    return nb::getattr(method, "__qualname__", nb::none()).equal(nb::str("Runner._on_sigint"));
}

// signal.signal(), which asyncio.run() calls, too, has put Python's handler back.
void handle_again() {
    struct sigaction now {};
    if (sigaction(SIGINT, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0) return;
    if (now.sa_handler != python_handler.load(std::memory_order_relaxed)) return;
    now.sa_handler = on_interrupt;
    sigaction(SIGINT, &now, nullptr);
}

// With the GIL, so the main thread cannot leave its wait meanwhile, nor learn of the signal.
void end_waits() {
    if (!waits || wait.seen == interrupts.load() || !raises()) return;
    for (size_t i = 0; i < wait.count; ++i) wait.comms[i]->interrupt();
}

void watch() {
    for (;;) {
        timespec next{};
        clock_gettime(CLOCK_REALTIME, &next);
        next.tv_nsec += 250'000'000;
        if (next.tv_nsec >= 1'000'000'000) next = {next.tv_sec + 1, next.tv_nsec - 1'000'000'000};
        if (sem_timedwait(&woken, &next) != 0) {
            handle_again();
            continue;
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

// Starts the thread that watches. A forked child has none of its parent's threads, so it starts one of its own.
void begin_to_watch() {
    static int watching = -1;  // forks() of the process whose thread it is
    if (watching == forks()) return;
    waits = false;  // true if another thread has forked during a wait of the parent's main thread
    sem_init(&woken, 0, 0);
    std::thread(watch).detach();
    watching = forks();
}

}  // namespace

void raise_interrupt() {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    throw nb::python_error();
}

bool Interruptible::is_main() {
    return pthread_equal(pthread_self(), main_thread()) != 0;
}

void Interruptible::enter(Communicator* const* comms, size_t count) {
    const uint64_t seen = interrupts.load(std::memory_order_relaxed);
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    wait = {comms, count, seen};  // behind what a handler of the program's may have waited for
    waits = true;
    entered_ = true;
}

void Interruptible::leave() {
    waits = false;
}

void listen_for_interrupts() {
    struct sigaction now {};
    if (!Interruptible::is_main() || sigaction(SIGINT, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0) return;
    if (now.sa_handler == on_interrupt) return begin_to_watch();  // a forked child has the handler
    if (now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN || !raises()) return;
    python_handler.store(now.sa_handler, std::memory_order_relaxed);
    begin_to_watch();
    now.sa_handler = on_interrupt;
    sigaction(SIGINT, &now, nullptr);
}

Signals::Signals() : seen_(interrupts.load(std::memory_order_relaxed)) {}

void Signals::look() {
    if (!main_) return;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    const uint64_t now = interrupts.load(std::memory_order_relaxed);
    if (std::exchange(seen_, now) != now && raises()) raise_interrupt();
}

void Naps::nap() {
    timespec time{0, next_us_ * 1000};
    next_us_ = std::min(next_us_ * 2, 2000L);
    {
        const nb::gil_scoped_release free;
        nanosleep(&time, nullptr);
    }
    signals_.look();
}

int forks() {
    static const int registered = pthread_atfork(nullptr, nullptr, [] { forked.fetch_add(1); });
    static_cast<void>(registered);
    return forked.load(std::memory_order_relaxed);
}

}  // namespace tutti::python
