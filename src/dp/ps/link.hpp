// The link between a worker and a server. It has a communicator of these two ranks for each direction. So a slow or
// dead rank affects only its own links, and answers never wait behind requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "dp/ps/table.hpp"
#include "dp/ranks.hpp"

namespace tutti::dp::ps {

/// Precedes the data of every message. Fits into one cell of a FIFO.
struct Header {
    enum class Kind : std::uint32_t {
        push,       // the gradient follows
        pull,       //
        push_pull,  // the gradient follows
        fetch,      // asks for values and states
        store,      // values and states follow
        clock,      //
        leave,      // the worker's last message
        beat,       // in both directions: the sender is alive
        values,     // the answer to a pull: values follow; number: the pull's staleness
        snapshot,   // the answer to fetch: values and states follow
        stored,     // the answer to store: the values and states are in place
        refusal,    // an answer: this request alone has failed; `code`, and a Text follows
        failure,    // the server has failed; `code`, and a Text follows
        bye         // the server's last message to a worker that leaves
    };
    Kind kind;
    std::uint32_t part = 0;
    std::uint64_t ticket = 0;  // the worker's request, returned in the answer
    long long number = 0;
    double rate = 0;        // learning rate
    double unscale = 1;     // the server multiplies the gradient by this
    std::int32_t code = 0;  // a tuttiResult_t
};

/// An error text, cut to this length.
struct Text {
    char words[480] = "";
};

/// An error that one thread keeps for another. Copies share no memory, as copies of an Error would share its text.
struct Failure {
    tuttiResult_t code;
    std::string words;
    static Failure of(const Error& error) { return {error.code(), error.what()}; }
    Error error() const { return {code, words}; }
};

/// One end of a link. Owns its two communicators. One thread at a time in each direction.
struct Link {
    int worker = -1, server = -1;              // numbers, as in Settings
    tuttiComm_t up = nullptr, down = nullptr;  // for requests; for answers

    Link() = default;
    Link(Link&& other) noexcept;
    ~Link();  // unless aborted, waits until the peer has read everything that was sent
    /// Aborts both communicators: threads that wait in them return with an error. Any thread, any number of times.
    void abort() noexcept;

  private:
    std::atomic<bool> aborted_{false};
};

/// Blocking messages between the ends of a link. In its communicators the worker is rank 0 and the server rank 1. They
/// throw the communicator's error.
void send(tuttiComm_t comm, int peer, const void* data, std::size_t bytes);
void receive(tuttiComm_t comm, int peer, void* data, std::size_t bytes);
template <class T>
void send(tuttiComm_t comm, int peer, const T& message) {
    send(comm, peer, &message, sizeof message);
}
template <class T>
T receive(tuttiComm_t comm, int peer) {
    T message;
    receive(comm, peer, &message, sizeof message);
    return message;
}
inline constexpr int to_worker = 0, to_server = 1;

/// This rank's ends of all links. A rank that serves and works has both ends of the link to itself.
struct Links {
    std::vector<Link> as_worker;  // by server
    std::vector<Link> as_server;  // by worker
};

/// Connects every worker with every server. Collective.
Links make_links(const Ranks& ranks, const Settings& settings);

/// Assigns a round to each pair of ranks, so that no rank is in two pairs of the same round.
std::vector<std::size_t> rounds_of(const std::vector<std::pair<int, int>>& pairs, int ranks);

}  // namespace tutti::dp::ps
