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

#include "weather.hpp"

namespace sim {

inline constexpr int most_threads = 512, most_processes = 16;
inline constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();  // a time
inline constexpr std::uint64_t io = 1;  // a key: of who waits for descriptors

struct Thread {
    enum State : std::uint32_t { none, ready, waiting, ended } state;
    std::atomic<std::uint32_t> baton;  // 1: it may run
    std::uint64_t key, deadline;       // waiting: what wakes it, and when it wakes in any case
    std::uint64_t looked;              // of io: Process::transfers when it looked
    bool timed_out;
    bool stretched;  // waiting: its time-out is World::stretch times what it asked for
    int process;
};

/// What is to happen to a process when it has sent so often since `from`.
struct Doom {
    std::uint64_t from;
    unsigned sends;          // 0: nothing, any more
    std::uint64_t how_long;  // it is stopped; 0: it is killed
};

struct Process {
    int pid;
    bool stopped, leaving, ended;
    std::uint64_t resumes_at;  // stopped: by itself; 0: when resume() says so
    Doom doom;
    std::uint64_t transfers;  // that may have made its descriptors ready
    int exit_code;            // ended: as of a shell, 128 + signal
};

/// For pictures: what a process did, or what befell it.
struct Event {
    enum What { call, wait, mark, message } what;
    int process, other;  // message: to whom
    std::uint64_t begin, end;
    char text[80];
};

struct World {
    std::uint64_t seed, random, noise, now, switches, trace;
    unsigned preempt_one_in;           // looks at the clock, locks, fences; 0: none
    unsigned stretch;                  // how much longer ranks sleep: only a wake-up then ends that; 1: no longer
    unsigned socket_buffer;            // bytes that a socket of TCP takes; 0: what the kernel gives
    bool crammed;                      // somebody could not send all: whoever makes room tells everybody
    std::uint32_t tag;                 // of this world's addresses
    std::uint64_t most_switches, end;  // beyond which it is taken for hung
    const char* verdict;               // why it can't go on; nullptr: it can
    std::array<Thread, most_threads> threads;
    int thread_count;  // the others have never been
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
    std::uint8_t draw_noise();  // what the kernel's random numbers are here
    void note(const char* format, ...) __attribute__((format(printf, 2, 3)));
    /// From `begin` until now.
    void record(Event::What what, int process, std::uint64_t begin, const std::string& text, int other = 0);
};

/// The world that this process is in; nullptr: none. The thread that calls create() is the first one, of process 0: the
/// controller, which alone may fork processes, stop and kill them.
extern World* world;
void create(std::uint64_t seed);
void destroy();

/// Forks a process that runs body, once it gets the baton, and ends with its result as exit code.
int fork_process(int (*body)(int process));
/// One that nobody waits for: it goes on until destroy(). Returns when it waits for others.
void fork_servant(int (*body)(int process));
void stop(int process);
void resume(int process);
void kill(int process);
/// As a process's doom strikes, before it does. In that process.
extern void (*on_doom)(int process);
/// Until then, or until all processes but the controller have ended, which is what it returns.
bool wait_until(std::uint64_t deadline);

/// For interpose.cpp. Whether the calling thread belongs to a world.
bool inside();
/// Gives the baton to somebody, who may be the caller.
void pass_on();
/// Waits to be woken by its key, or for the deadline: false.
bool wait_for(std::uint64_t key, std::uint64_t deadline, bool stretched = false);
void wake(std::uint64_t key, int how_many);
/// The calling thread has sent something.
void has_sent();
/// Bytes, connections: descriptors of that process may be ready; of all of them.
void transferred_to(int process);
void transferred_to_all();

/// Whether what the calling thread allocates is the library's, and may lack (Shortage::heap). Threads that the library
/// makes allocate for nobody else.
extern thread_local bool allocates_for_library;

/// A thread of this process, before it is made; what it does first; what it does last.
int add_thread();
void begin_thread(int number);
void end_thread();
int this_thread();
int this_process();

}  // namespace sim
