// A rank of a job with parameter servers: it has a Server, a Client, or both.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "dp/ps/client.hpp"
#include "dp/ps/server.hpp"

namespace tutti::dp::ps {

/// Owned by a tuttiPs_t handle or an OnArrival. Any number of threads at once, except leave() and the destructor.
class Node {
  public:
    struct Request {
        Settings settings;
        std::vector<Key> keys;
        std::optional<Error> refusal;            // if set, Create throws it on all ranks
        const char* function = "tuttiPsCreate";  // for error texts
        const char* item = "key";                // for error texts
        /// What must be equal on all ranks, as for Ranks::agree_on(). Empty: the settings and the keys.
        std::vector<std::string> texts;
        /// Sets values and states where servers update, in place of rank 0's initial values. server: this rank's,
        /// before it starts; nullptr if it is none. Collective.
        std::function<void(const Settings& settings, const Table& table, Server* server)> fill{};
    };
    /// Joins `ranks` over comm, unless one rank refuses. Then all ranks throw.
    static void join(Ranks& ranks, tuttiComm_t comm, const Request& request);
    /// Collective. comm is used only in the constructor. If one rank refuses, all ranks throw.
    Node(Request request, tuttiComm_t comm);

    /// This rank as a worker. Throws tuttiInvalidUsage if it only serves, and tuttiInvalidArgument if there is no such
    /// key.
    Client& client(const char* function);
    Client& client(const char* function, std::size_t key);
    void serve();
    /// As tuttiPsDestroy. Throws the first error.
    void leave();
    void abort();
    tuttiPsStatistics_t statistics() const;
    /// Calls body(PartPlace, Snapshot) for each part of a key, in order.
    template <class Body>
    void each_part(std::size_t key, Body body) const {
        for (const std::size_t part : table_.keys[key].parts)
            body(table_.parts[part], Snapshot(settings_, table_.parts[part]));
    }
    bool works() const { return client_ != nullptr; }

    // For a move to other ranks, in this order. Then only statistics(), leave() and these functions may be called.
    /// Ends this rank as a worker: all of its pushes to servers on these ranks will have arrived; servers on others are
    /// given up. Does not throw.
    void stop_working(std::span<const int> ranks);
    /// Ends this rank as a server: applies what has arrived, and hangs up on everybody.
    void stop_serving();
    int rank() const { return rank_; }
    const Table& table() const { return table_; }
    bool keeps(std::size_t part) const { return server_ && server_->keeps(part); }
    void read(std::size_t part, std::byte* snapshot) const { server_->read(part, snapshot); }
    std::size_t state_bytes() const { return server_ ? server_->state_bytes() : 0; }

  private:
    void spread_initial_values(const Ranks& ranks, Backend* callers);

    Settings settings_;
    Table table_;
    int rank_ = 0;
    std::unique_ptr<Server> server_;  // nullptr if this rank does not serve
    std::unique_ptr<Client> client_;  // nullptr if this rank does not work
};

}  // namespace tutti::dp::ps
