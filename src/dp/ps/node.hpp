// A rank of a group of parameter servers and workers: it serves, works, or both.
#pragma once

#include <memory>
#include <optional>

#include "dp/ps/client.hpp"
#include "dp/ps/server.hpp"

namespace tutti::dp::ps {

class Node {
  public:
    struct Request {
        Settings settings;
        std::vector<Key> keys;
        std::optional<Error> refusal;  // why this rank can't take part
        bool on_cpus = false;          // ranks on GPUs are refused
        const char* function = "tuttiPsCreate";
        const char* item = "key";
        std::vector<std::string> texts;  // what ranks have to have in common besides, as Ranks::agree_on
    };
    /// Collective. comm is not used any more afterwards.
    Node(Request request, tuttiComm_t comm);

    /// Throws tuttiInvalidUsage if this rank does not work; the number of a key that there is not:
    /// tuttiInvalidArgument.
    Client& client(const char* function);
    Client& client(const char* function, std::size_t key);
    void serve();
    /// As tuttiPsDestroy; may throw what went wrong.
    void leave();
    void abort();
    tuttiPsStatistics_t statistics() const;
    /// body(place, its Snapshot) for each part of a key, in their order.
    template <class Body>
    void each_part(std::size_t key, Body body) const {
        for (const std::size_t part : table_.keys[key].parts)
            body(table_.parts[part], Snapshot(settings_, table_.parts[part]));
    }
    bool works() const { return client_ != nullptr; }
    std::size_t state_bytes() const { return server_ ? server_->state_bytes() : 0; }

  private:
    void spread_initial_values(const Ranks& ranks);

    Settings settings_;
    Table table_;
    int rank_ = 0;
    std::unique_ptr<Server> server_;  // nullptr: this rank does not serve
    std::unique_ptr<Client> client_;  // nullptr: it does not work
};

}  // namespace tutti::dp::ps
