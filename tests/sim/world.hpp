// A deterministic world of processes, driven by a seed. Of all their threads one runs at a time. Whenever it waits,
// wakes another one or reads the clock, the seed decides which runs next. Time passes only when no thread can run.
// Processes, memory, sockets and deaths are real. Only the C library's functions that wait are replaced
// (interpose.cpp), so the library under test is exactly the one that ships.
//
// The world lies in memory that all its processes share. Only the running thread, which has the baton, accesses it, so
// it needs no lock.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <limits>
#include <string>

#include "weather.hpp"

namespace sim {

inline constexpr int most_threads = 512, most_processes = 16;
inline constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();  // a time
inline constexpr std::uint64_t io = 1;  // the key of threads that wait for descriptors

struct Thread {
    enum State : std::uint32_t { none, ready, waiting, ended } state;
    std::atomic<std::uint32_t> baton;  // 1: the thread may run
    std::uint64_t key, deadline;       // waiting: the key that wakes it; its time-out
    std::uint64_t looked;              // key io: Process::transfers when it last polled
    bool timed_out;
    bool stretched;  // waiting: its time-out was multiplied by World::stretch
    int process;
};

/// A kill or stop of a process at its nth send after `from`.
struct Doom {
    std::uint64_t from;
    unsigned sends;          // sends left; 0: no doom
    std::uint64_t how_long;  // of a stop; 0: the process is killed
};

struct Process {
    int pid;
    bool stopped, leaving, ended;
    std::uint64_t resumes_at;  // stopped: when; 0: at resume()
    Doom doom;
    std::uint64_t transfers;  // how many may have made its descriptors ready
    int exit_code;            // ended: as in a shell, 128 + signal
};

/// For pictures: what a process did, or what happened to it.
struct Event {
    enum What { call, wait, mark, message } what;
    int process, other;  // other: the receiver of a message
    std::uint64_t begin, end;
    char text[80];
};

struct World {
    std::uint64_t seed, random, noise, now, switches, trace;
    unsigned preempt_one_in;           // at clock reads, locks, fences; 0: never
    unsigned stretch;                  // factor of ranks' sleeps, so that only wake-ups end them; 1: none
    unsigned socket_buffer;            // bytes of a TCP socket's buffer; 0: the kernel's default
    bool crammed;                      // a send was incomplete: the next receive wakes all threads of key io
    std::uint32_t tag;                 // part of this world's addresses
    std::uint64_t most_switches, end;  // limits, beyond which the world counts as hung
    const char* verdict;               // why the world can't go on; nullptr if it can
    std::array<Thread, most_threads> threads;
    int thread_count;  // those after have never existed
    std::array<Process, most_processes> processes;
    std::size_t noted, event_count;
    std::array<char, 1 << 18> notes;  // lines: what happened, with times
    std::array<Event, 8192> events;
    Weather weather;
    Network network;
    unsigned asked_for, refused;  // of what the weather has a shortage
    std::uint64_t refused_at;     // when it was last refused

    std::uint64_t draw();
    std::uint64_t draw(std::uint64_t below) { return draw() % below; }
    std::uint8_t draw_noise();  // replaces the kernel's random numbers
    void note(const char* format, ...) __attribute__((format(printf, 2, 3)));
    /// Records an event from `begin` until now.
    void record(Event::What what, int process, std::uint64_t begin, const std::string& text, int other = 0);
};

/// The world of this process; nullptr if none. The thread that calls create() is the first thread, of process 0, the
/// controller. Only the controller may fork, stop and kill processes.
extern World* world;
void create(std::uint64_t seed);
void destroy();

/// Forks a process that runs body() once it gets the baton, and exits with its result.
int fork_process(int (*body)(int process));
/// The same for a process that runs until destroy() and does not count for wait_until(). Returns when it first waits.
void fork_servant(int (*body)(int process));
void stop(int process);
void resume(int process);
void kill(int process);
/// Called in a process just before its doom strikes.
extern void (*on_doom)(int process);
/// Waits until the deadline, or until all other processes have ended. Returns true in the latter case.
bool wait_until(std::uint64_t deadline);

/// The functions below are for interpose.cpp. inside(): true if the calling thread belongs to a world.
bool inside();
/// Passes the baton to some thread, which may be the caller.
void pass_on();
/// Waits until wake() is called for the key. False if the deadline came first.
bool wait_for(std::uint64_t key, std::uint64_t deadline, bool stretched = false);
void wake(std::uint64_t key, int how_many);
/// The calling thread has sent something.
void has_sent();
/// Bytes or connections were transferred: descriptors of that process, or of all processes, may be ready.
void transferred_to(int process);
void transferred_to_all();

/// True while allocations of the calling thread are the library's, so that they may fail (Shortage::heap). Set in all
/// threads that the library makes.
extern thread_local bool allocates_for_library;

/// Called for each thread of this process: before it is created; first in the thread; last in the thread.
int add_thread();
void begin_thread(int number);
void end_thread();
int this_thread();
int this_process();

}  // namespace sim
