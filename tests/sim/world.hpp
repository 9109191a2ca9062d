// A world of processes that a seed drives: of all their threads one runs at a time, and the seed says which, whenever
// one waits, wakes another or looks at the clock. Time passes only when nobody can run. The processes are real and so
// are their memory, sockets and deaths; what the C library offers to wait with is replaced (interpose.cpp), so that the
// library under test is what ships, to the bit.
//
// The world lies in memory that all its processes share. Whoever runs has the baton, and only he touches it: it needs
// no lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <string>

namespace sim {

inline constexpr int most_threads = 128, most_processes = 16;
inline constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();  // a time
inline constexpr std::uint64_t io = 1;  // a key: of who waits for descriptors

constexpr std::uint64_t ms = 1'000'000;  // times are in nanoseconds

struct Thread {
    enum State : std::uint32_t { none, ready, waiting, ended } state;
    std::atomic<std::uint32_t> baton;  // 1: it may run
    std::uint64_t key, deadline;       // waiting: what wakes it, and when it wakes in any case
    std::uint64_t looked;              // of io: World::transfers when it looked
    bool timed_out;
    int process;
};

struct Process {
    int pid;
    bool stopped, leaving, ended;
    int exit_code;  // ended: as of a shell, 128 + signal
};

struct World {
    std::uint64_t seed, random, now, transfers, switches, trace;
    unsigned preempt_one_in;           // looks at the clock; 0: none
    std::uint64_t most_switches, end;  // beyond which it is taken for hung
    const char* verdict;               // why it can't go on; nullptr: it can
    std::array<Thread, most_threads> threads;
    std::array<Process, most_processes> processes;
    std::size_t noted;
    std::array<char, 1 << 18> notes;  // lines: what happened, with times

    std::uint64_t draw();
    std::uint64_t draw(std::uint64_t below) { return draw() % below; }
    void note(const char* format, ...) __attribute__((format(printf, 2, 3)));
};

/// The world that this process is in; nullptr: none. The thread that calls create() is the first one, of process 0: the
/// controller, which alone may fork processes, stop and kill them.
extern World* world;
void create(std::uint64_t seed);
void destroy();

/// Forks a process that runs body, once it gets the baton, and ends with its result as exit code.
int fork_process(int (*body)(int process));
void stop(int process);
void resume(int process);
void kill(int process);
/// Until then, or until all processes but the controller have ended, which is what it returns.
bool wait_until(std::uint64_t deadline);

/// For interpose.cpp. Whether the calling thread belongs to a world.
bool inside();
/// Gives the baton to somebody, who may be the caller.
void pass_on();
/// Waits to be woken by its key, or for the deadline: false.
bool wait_for(std::uint64_t key, std::uint64_t deadline);
void wake(std::uint64_t key, int how_many);
void transferred();  // bytes, connections: descriptors may be ready

/// A thread of this process, before it is made; what it does first; what it does last.
int add_thread();
void begin_thread(int number);
void end_thread();
int this_thread();

}  // namespace sim
