// Faults of a job other than kills and stops: those of the network between ranks, and shortages of resources.
#pragma once

#include <sys/un.h>

#include <array>
#include <cstdint>
#include <string>

namespace sim {

constexpr std::uint64_t ms = 1'000'000;  // times are in nanoseconds

/// A fault of the TCP link between two ranks.
struct Cut {
    enum What {
        none,
        pulled,  // nothing passes, without any notice
        reset    // connections are reset on both sides, once; new ones can be made
    } what;
    int a, b;
    bool one_way;      // pulled: what b sends still arrives
    bool unreachable;  // pulled: connecting fails with an error; else it gets no answer
    std::uint64_t at, how_long;
    std::uint64_t end() const { return at + how_long; }
};

/// A shortage on one rank: how_many requests fail, from the nth on.
struct Shortage {
    enum What { nothing, descriptors, memory, threads, heap } what;
    int rank;
    unsigned nth, how_many;
};

struct Weather {
    bool network;  // TCP goes through the network of network.cpp
    bool apart;    // each rank is on a host of its own
    std::uint64_t latency, jitter;
    unsigned silence_ms;
    Cut cut;
    Shortage shortage;
    bool is_calm() const { return cut.what == Cut::none && shortage.what == Shortage::nothing; }
    std::string text() const;
};

/// Drawn independently of the rest of the job, which stays the same without it.
Weather make_weather(std::uint64_t seed, int ranks, const std::string& transport);

/// The TCP connections of the world. They go over Unix sockets, directly or through the process of network.cpp, with
/// abstract names that identify them.
struct Network {
    int process;  // of network.cpp; 0 if there is none
    struct Listener {
        std::uint16_t port;
        int process;
    };
    struct Connection {
        std::uint16_t port, listener;        // the caller's, the listener's
        int from, to;                        // processes
        std::uint64_t asked[2];              // by end (0: the caller): since when data is unacknowledged; 0 if none is
        std::uint64_t idle[2], interval[2];  // keep-alive: time before the first probe, between probes; 0: off
        std::uint64_t patience(int end) const { return idle[end] + 3 * interval[end]; }
        int error[2];                     // the error that an end gets instead of an end of file; 0 if none
        std::uint64_t filler, called_at;  // bytes that block the caller; since when
    };
    std::array<Listener, 128> listeners;
    std::array<Connection, 1024> connections;
    std::size_t listener_count, connection_count;
    std::uint16_t ports;  // handed out so far

    std::uint16_t new_port() { return static_cast<std::uint16_t>(20'000 + ports++ % 40'000); }
    int listener_at(std::uint16_t port) const;  // its process; 0 if there is none
    void add_listener(std::uint16_t port, int process);
    void forget_listener(std::uint16_t port);
    void forget_process(int process);
    Connection& add(std::uint16_t port, std::uint16_t listener, int from, int to);
    Connection* number(const sockaddr_un& caller);  // the connection that the caller's name identifies

    static sockaddr_un gate();  // where network.cpp listens
    static sockaddr_un listener(std::uint16_t port);
    static sockaddr_un caller(const Connection& connection, const Network& network);
};

/// holds(): true if data from one process to the other is held up now. cuts_off(): true if connecting is impossible,
/// too.
bool holds(int from, int to);
bool cuts_off(int from, int to);

/// The main function of the process that carries all traffic (fork_servant).
int carry(int process);

}  // namespace sim
