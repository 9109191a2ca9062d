// What befalls a job besides kills and stops: the network between its ranks, and what can't be had.
#pragma once

#include <sys/un.h>

#include <array>
#include <cstdint>
#include <string>

namespace sim {

constexpr std::uint64_t ms = 1'000'000;  // times are in nanoseconds

/// Of the link between two ranks, over TCP.
struct Cut {
    enum What {
        none,
        pulled,  // nothing passes, nor does anybody say so
        reset    // connections end on both sides, once; new ones can be made
    } what;
    int a, b;
    bool one_way;      // pulled: what b sends still arrives
    bool unreachable;  // pulled: who calls is told that there is no way; else nothing at all
    std::uint64_t at, how_long;
    std::uint64_t end() const { return at + how_long; }
};

/// Of one rank, from the nth time that it asks.
struct Shortage {
    enum What { nothing, descriptors, memory, threads, heap } what;
    int rank;
    unsigned nth, how_many;
};

struct Weather {
    bool network;  // what goes by TCP goes by the network of network.cpp
    bool apart;    // each rank is on a host of its own
    std::uint64_t latency, jitter;
    unsigned silence_ms;
    Cut cut;
    Shortage shortage;
    bool is_calm() const { return cut.what == Cut::none && shortage.what == Shortage::nothing; }
    std::string text() const;
};

/// Drawn apart from all else, so that a job stays the same without it.
Weather make_weather(std::uint64_t seed, int ranks, const std::string& transport);

/// What the world knows of TCP connections. They go over Unix sockets, straight or by the process of network.cpp, whose
/// abstract names say which they are.
struct Network {
    int process;  // that carries what goes by it; 0: there is none
    struct Listener {
        std::uint16_t port;
        int process;
    };
    struct Connection {
        std::uint16_t port, listener;  // the caller's, the listener's
        int from, to;                  // processes
        std::uint64_t asked[2];  // since when what that end (0: the caller) has sent is not acknowledged; 0: all is
        std::uint64_t idle[2], interval[2];  // of keep-alive probes: before the first one, and between them; 0: none
        std::uint64_t patience(int end) const { return idle[end] + 3 * interval[end]; }
        int error[2];                     // what that end finds where it would find the connection ended; 0: just that
        std::uint64_t filler, called_at;  // bytes that keep the caller from going on; since when
    };
    std::array<Listener, 128> listeners;
    std::array<Connection, 1024> connections;
    std::size_t listener_count, connection_count;
    std::uint16_t ports;  // given so far

    std::uint16_t new_port() { return static_cast<std::uint16_t>(20'000 + ports++ % 40'000); }
    int listener_at(std::uint16_t port) const;  // its process; 0: nobody's
    void add_listener(std::uint16_t port, int process);
    void forget_listener(std::uint16_t port);
    void forget_process(int process);
    Connection& add(std::uint16_t port, std::uint16_t listener, int from, int to);
    Connection* number(const sockaddr_un& caller);  // which one the caller's name says

    static sockaddr_un gate();  // where network.cpp listens
    static sockaddr_un listener(std::uint16_t port);
    static sockaddr_un caller(const Connection& connection, const Network& network);
};

/// Whether what goes from one process to the other is held up now; calls: whether it can't be called either.
bool holds(int from, int to);
bool cuts_off(int from, int to);

/// The process that carries everything (fork_servant).
int carry(int process);

}  // namespace sim
