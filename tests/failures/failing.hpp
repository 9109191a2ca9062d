// Failures of what a process asks the system for, where and when a test wants them. The functions of the C library that
// can fail are replaced in the test program (failing.cpp); an executable's functions come before those of shared
// libraries, so the C++ library's allocations fail as well. What the library under test took while it was watched and
// has not given back is known, with the place where it took it.
#pragma once

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace tutti::failing {

/// What fails, and how. From `interrupted` on they are no failures: the caller must go on as if nothing had happened.
enum class Kind {
    memory,       // malloc and its relatives, thus operator new: ENOMEM
    descriptors,  // socket, accept4, open, dup, memfd_create, eventfd, epoll_create1, timerfd_create: EMFILE; a
                  // descriptor that a message brings is lost
    maps,         // mmap, mremap: ENOMEM; ftruncate, fallocate of shared memory: ENOSPC
    threads,      // pthread_create: EAGAIN
    sockets,      // bind, listen, connect, setsockopt, epoll_ctl that adds: ENOBUFS, ENOMEM
    connections,  // sends and receives on sockets: ECONNRESET
    files,        // write, fsync, rename of files: ENOSPC, EIO
    interrupted,  // waits, sends and receives: EINTR; a futex that wakes for nothing
    in_pieces,    // a send or receive of at most one byte
    full,         // a send for which there is no room, or no memory in the kernel: EAGAIN, ENOBUFS
    unfenced,     // membarrier: EPERM
    kinds
};
constexpr bool must_not_matter(Kind kind) {
    return kind >= Kind::interrupted;
}
const char* name_of(Kind kind);

enum class When {
    never,       // only watch
    new_place,   // the first call from a place (a call stack) from which none has failed since forget_places()
    once,        // call number n, from 0
    from_then,   // call number n and all after it
    every_other  // all calls but about every n-th
};

/// From now on, until disarm(): calls of threads that are not the test's. Threads are the library's unless they say.
/// depth: how many callers, from the one of malloc on, tell one place from another.
constexpr int most_frames = 20;
void arm(Kind kind, When when, long n = 0, int depth = most_frames);

struct Outcome {
    long calls = 0;   // that could have failed
    long failed = 0;  // that have
};
Outcome disarm();
/// The first one that has failed, one function a line.
std::string where();
void forget_places();

/// What the calling thread does is the test's own, for as long as one of these lives.
class OfTheTest {
  public:
    OfTheTest();
    ~OfTheTest();
    OfTheTest(const OfTheTest&) = delete;

  private:
    bool before_;
};
/// And this is the library's again.
class OfTheLibrary {
  public:
    OfTheLibrary();
    ~OfTheLibrary();
    OfTheLibrary(const OfTheLibrary&) = delete;

  private:
    bool before_;
};

/// Memory, descriptors and maps that were taken while armed and not given back. Of places from which something stays
/// although nothing has failed (caches, lists that grow) nothing is told: call stays_known() after such a run.
std::vector<std::string> what_stays();
bool nothing_stays();
void stays_known();
void forget_what_stays();

/// Lets the clock of this process jump; timers that are due then go off.
void let_time_pass(std::chrono::milliseconds time);

/// As long as one of these lives, the clock jumps whenever all threads sleep: what waits for a time does not take any.
class FastClock {
  public:
    FastClock();
    ~FastClock();
    FastClock(const FastClock&) = delete;

  private:
    std::atomic<bool> over_{false};
    std::thread thread_;
};

/// If the test is not over after so many seconds, the process ends, after every thread has said where it is. 0: off.
void watch(int seconds);

}  // namespace tutti::failing
