// The link of a worker and a server: a communicator of the two for each direction, so that the slowness or death of a
// pair concerns nobody else, and answers never wait behind requests.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "dp/ps/table.hpp"
#include "dp/ranks.hpp"

namespace tutti::dp::ps {

/// What travels ahead of data. Fits into one cell of a FIFO.
struct Header {
    enum class Kind : std::uint32_t {
        push,       // the gradient follows
        pull,       //
        push_pull,  // the gradient follows
        fetch,      // values and states are asked for
        store,      // values and states follow
        clock,      //
        leave,      // the worker's last message
        beat,       // either way: the sender is alive
        values,     // an answer: values follow; number: the pull's staleness
        snapshot,   // an answer to fetch: values and states follow
        stored,     // an answer to store: they are there
        refusal,    // an answer: `code`, a Text follows; only the request has failed
        failure,    // the server has failed: `code`, a Text follows
        bye         // the server's last message to a worker that leaves
    };
    Kind kind;
    std::uint32_t part = 0;
    std::uint64_t ticket = 0;
    long long number = 0;
    double rate = 0;
    double unscale = 1;  // what the gradient is to be multiplied by
    std::int32_t code = 0;
};

struct Text {
    char words[480] = "";
};

/// An error that threads keep for each other. Copies share nothing: those of an Error would share its text.
struct Failure {
    tuttiResult_t code;
    std::string words;
    static Failure of(const Error& error) { return {error.code(), error.what()}; }
    Error error() const { return {code, words}; }
};

/// One end of a link. Owns its two communicators. `worker` and `server` are numbers, as in Settings.
struct Link {
    int worker = -1, server = -1;
    tuttiComm_t up = nullptr, down = nullptr;  // requests; answers

    Link() = default;
    Link(Link&& other) noexcept;
    ~Link();  // waits until what was sent has been read, unless it was aborted
    /// Ends both directions: whoever waits in them returns with an error. Any thread, any number of times.
    void abort() noexcept;

  private:
    std::atomic<bool> aborted_{false};
};

/// In a link's communicators the worker is rank 0 and the server rank 1. Throw what the communicator throws.
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

/// This rank's ends. A rank that serves and works has both ends of the link with itself.
struct Links {
    std::vector<Link> as_worker;  // by server
    std::vector<Link> as_server;  // by worker
};

/// Collective.
Links make_links(const Ranks& ranks, const Settings& settings);

/// In which round each of these pairs of ranks meets, so that no rank is in two of a round.
std::vector<std::size_t> rounds_of(const std::vector<std::pair<int, int>>& pairs, int ranks);

}  // namespace tutti::dp::ps
