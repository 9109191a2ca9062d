#include "world.hpp"

#include <dlfcn.h>
#include <execinfo.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <span>

namespace sim {

World* world = nullptr;
thread_local bool allocates_for_library = false;
void (*on_doom)(int process) = nullptr;

namespace {

thread_local Thread* mine = nullptr;
thread_local int my_process = 0;
Thread* first_of_process = nullptr;

/// The kernel's own: syscall() is the world's (interpose.cpp).
void raw_futex(std::atomic<std::uint32_t>& word, int what, std::uint32_t value) {
    static const auto real = reinterpret_cast<long (*)(long, ...)>(dlsym(RTLD_NEXT, "syscall"));
    const int before = errno;  // of the thread that passes the turn on
    real(SYS_futex, &word, what, value, nullptr);
    errno = before;
}

void give_baton(Thread& to) {
    to.baton.store(1, std::memory_order_release);
    raw_futex(to.baton, FUTEX_WAKE, 1);
}
void await_baton() {
    while (mine->baton.load(std::memory_order_acquire) == 0) raw_futex(mine->baton, FUTEX_WAIT, 0);
    mine->baton.store(0, std::memory_order_relaxed);
}

std::span<Thread> threads() {
    return {world->threads.data(), static_cast<std::size_t>(world->thread_count)};
}

bool may_run(const Thread& t) {
    const Process& its = world->processes[static_cast<std::size_t>(t.process)];
    if (its.stopped || its.ended) return false;
    if (t.state == Thread::ready) return true;
    return t.state == Thread::waiting && (t.deadline <= world->now || (t.key == io && t.looked != its.transfers));
}

std::uint64_t first_deadline() {
    std::uint64_t first = never;
    for (const Thread& t : threads()) {
        const Process& its = world->processes[static_cast<std::size_t>(t.process)];
        if (t.state == Thread::waiting && !its.stopped && !its.ended && t.deadline < first) first = t.deadline;
    }
    for (const Process& p : world->processes)
        if (p.stopped && !p.ended && p.resumes_at != 0) first = std::min(first, p.resumes_at);
    return first;
}

void resume_those_due() {
    for (Process& p : world->processes)
        if (p.resumes_at != 0 && p.resumes_at <= world->now) p.stopped = false, p.resumes_at = 0;
}

/// The thread that runs next; the controller if no thread can run, or the world has lasted too long.
Thread& choose() {
    Thread& controller = world->threads[0];
    if (world->verdict != nullptr) return controller;
    if (++world->switches > world->most_switches) world->verdict = "it goes on and on";
    if (world->now > world->end) world->verdict = "it lasts too long";
    for (;;) {
        resume_those_due();
        int count = 0;
        Thread* candidates[most_threads];
        for (Thread& t : threads())
            if (may_run(t)) candidates[count++] = &t;
        if (world->verdict == nullptr && count > 0) return *candidates[world->draw(static_cast<std::uint64_t>(count))];
        const std::uint64_t next = first_deadline();
        if (world->verdict == nullptr && next == never) world->verdict = "nobody can run, nor ever will";
        if (world->verdict != nullptr) return controller;
        world->now = next;
    }
}

void run_next(bool come_back) {
    Thread& next = choose();
    world->trace =
        (world->trace ^ static_cast<std::uint64_t>(&next - world->threads.data()) ^ world->now << 8) * 0x100000001b3;
    if (next.state == Thread::waiting) {
        next.timed_out = next.deadline <= world->now;
        next.state = Thread::ready;
        if (next.timed_out && next.stretched)
            world->verdict = "a wake-up was lost: a rank that sleeps would only be woken by the time-out";
    }
    if (&next == mine) return;
    give_baton(next);
    if (come_back) await_baton();
}

Thread& thread(int number) {
    return world->threads[static_cast<std::size_t>(number)];
}
Process& process(int number) {
    return world->processes[static_cast<std::size_t>(number)];
}

/// The controller: of a process that has ended, or is to.
void forget(int number) {
    Process& p = process(number);
    int status = 0;
    waitpid(p.pid, &status, 0);
    p.exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    p.ended = true;
    p.leaving = false;
    for (Thread& t : threads())
        if (t.process == number && t.state != Thread::none) t.state = Thread::ended;
    world->network.forget_process(number);
    transferred_to_all();  // its connections have ended
}

/// A process that crashes has the baton.
void crash(int signal) {
    allocates_for_library = false;
    world->note("process %d crashes", my_process);
    void* frames[40];
    backtrace_symbols_fd(frames, backtrace(frames, 40), STDERR_FILENO);
    process(my_process).leaving = true;
    give_baton(thread(0));
    ::signal(signal, SIG_DFL);
    raise(signal);
}

}  // namespace

std::uint64_t splitmix(std::uint64_t& state) {
    std::uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

std::uint64_t World::draw() {
    return splitmix(random);
}
std::uint8_t World::draw_noise() {
    return static_cast<std::uint8_t>(splitmix(noise) >> 56);
}

void World::note(const char* format, ...) {
    const auto room = [this] { return notes.size() - noted; };
    if (room() < 512) return;
    noted += static_cast<std::size_t>(
        std::snprintf(notes.data() + noted, room(), "%12.6f  ", static_cast<double>(now) * 1e-9));
    std::va_list arguments;
    va_start(arguments, format);
    const int written = std::vsnprintf(notes.data() + noted, 400, format, arguments);
    va_end(arguments);
    noted += static_cast<std::size_t>(written < 400 ? written : 399);
    notes[noted++] = '\n';
}

void World::record(Event::What what, int number, std::uint64_t begin, const std::string& text, int other) {
    if (event_count == events.size()) return;
    Event& e = events[event_count++];
    e.what = what;
    e.process = number;
    e.other = other;
    e.begin = begin;
    e.end = now;
    std::snprintf(e.text, sizeof e.text, "%s", text.c_str());
}

void create(std::uint64_t seed) {
    void* const memory =
        mmap(nullptr, sizeof(World), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::perror("sim: mmap"), std::abort();
    world = static_cast<World*>(memory);
    world->seed = world->random = world->noise = seed;
    world->now = 1000 * ms;
    world->end = never;
    world->most_switches = never;
    world->stretch = 1;
    transferred_to_all();  // none has looked yet
    world->tag = static_cast<std::uint32_t>(getpid());
    mine = &thread(0);
    mine->state = Thread::ready;
    world->thread_count = 1;
    my_process = 0;
}

void destroy() {
    for (int p = 1; p < most_processes; ++p)
        if (process(p).pid != 0) kill(p);
    munmap(world, sizeof(World));
    world = nullptr;
    mine = nullptr;
}

namespace {

int fork_one(int (*body)(int process), int number) {
    const int first = add_thread();
    thread(first).process = number;
    const pid_t controller = getpid();
    const pid_t child = ::fork();
    if (child < 0) std::perror("sim: fork"), std::abort();
    if (child > 0) {
        process(number).pid = child;
        return number;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);       // nothing is left of a job whose controller is killed
    if (getppid() != controller) _exit(1);  // it has been
    mine = first_of_process = &thread(first);
    my_process = number;
    for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::signal(signal, crash);
    await_baton();
    const int code = body(number);
    process(number).leaving = true;
    mine->state = Thread::ended;
    give_baton(thread(0));  // who waits for its end
    _exit(code);
}

}  // namespace

int fork_process(int (*body)(int process)) {
    int number = 1;
    while (process(number).pid != 0) ++number;
    return fork_one(body, number);
}
void fork_servant(int (*body)(int process)) {
    const int number = fork_one(body, most_processes - 1);
    const auto waits = [number](const Thread& t) { return t.process == number && t.state == Thread::waiting; };
    while (std::ranges::none_of(threads(), waits)) run_next(true);
}

void stop(int number) {
    process(number).stopped = true;
}
void resume(int number) {
    process(number).stopped = false;
}
void kill(int number) {
    if (process(number).ended) return;
    ::kill(process(number).pid, SIGKILL);
    forget(number);
}

bool wait_until(std::uint64_t deadline) {
    for (;;) {
        bool all_ended = true;
        for (int p = 1; p < most_processes && process(p).pid != 0; ++p) {
            if (process(p).leaving) forget(p);
            all_ended &= process(p).ended;
        }
        if (all_ended) return true;
        if (world->verdict != nullptr || world->now >= deadline) return false;
        mine->state = Thread::waiting;
        mine->key = 0;
        mine->deadline = deadline;
        run_next(true);
        mine->state = Thread::ready;
    }
}

bool inside() {
    return mine != nullptr;
}

void pass_on() {
    run_next(true);
}

bool wait_for(std::uint64_t key, std::uint64_t deadline, bool stretched) {
    mine->state = Thread::waiting;
    mine->key = key;
    mine->deadline = deadline;
    mine->stretched = stretched;
    mine->looked = process(my_process).transfers;
    mine->timed_out = false;
    const std::uint64_t begin = world->now;
    run_next(true);
    mine->stretched = false;
    if (mine == first_of_process && world->now - begin > ms) world->record(Event::wait, my_process, begin, "");
    return !mine->timed_out;
}

void wake(std::uint64_t key, int how_many) {
    for (; how_many > 0; --how_many) {
        int count = 0;
        Thread* sleepers[most_threads];
        for (Thread& t : threads())
            if (t.state == Thread::waiting && t.key == key) sleepers[count++] = &t;
        if (count == 0) return;
        sleepers[count > 1 ? world->draw(static_cast<std::uint64_t>(count)) : 0]->state = Thread::ready;
    }
}

void has_sent() {
    Process& p = process(my_process);
    if (p.doom.sends == 0 || world->now < p.doom.from || --p.doom.sends > 0) return;
    if (on_doom != nullptr) on_doom(my_process);
    if (p.doom.how_long > 0) {
        p.stopped = true;
        p.resumes_at = world->now + p.doom.how_long;
        return run_next(true);
    }
    p.leaving = true;
    give_baton(thread(0));
    ::kill(getpid(), SIGKILL);
}

void transferred_to(int number) {
    ++process(number).transfers;
}
void transferred_to_all() {
    for (int p = 0; p < most_processes; ++p) ++process(p).transfers;
}

int add_thread() {
    int number = 0;
    while (thread(number).state != Thread::none)
        if (++number == most_threads) std::fprintf(stderr, "sim: too many threads\n"), std::abort();
    world->thread_count = std::max(world->thread_count, number + 1);
    thread(number).state = Thread::ready;
    thread(number).process = my_process;
    thread(number).baton = 0;
    return number;
}

void begin_thread(int number) {
    mine = &thread(number);
    my_process = mine->process;
    sigset_t all;
    sigfillset(&all);  // the library's threads block signals, and a crash would then end the process without crash()
    pthread_sigmask(SIG_UNBLOCK, &all, nullptr);
    await_baton();
}

void end_thread() {
    mine->state = Thread::ended;
    wake(reinterpret_cast<std::uint64_t>(mine), most_threads);
    run_next(false);
    mine = nullptr;
}

int this_thread() {
    return static_cast<int>(mine - world->threads.data());
}
int this_process() {
    return my_process;
}

}  // namespace sim
