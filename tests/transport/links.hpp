// Two ranks joined by a transport under test, both in this process; shm all the same maps everything twice.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <unistd.h>

#include <atomic>
#include <thread>

#include "bootstrap/auth.hpp"
#include "bootstrap/service.hpp"
#include "transport/faulty.hpp"
#include "transport/transport.hpp"

namespace tutti::harness {

/// A session without a network: descriptors go through a map.
class MapSession : public Session {
  public:
    using Offers = std::map<std::pair<Rank, std::uint64_t>, int>;
    MapSession(Rank rank, std::shared_ptr<Offers> offers) : rank_(rank), offers_(std::move(offers)) {}
    Rank rank() const override { return rank_; }
    int ranks() const override { return 2; }
    std::vector<std::byte> info(Rank) const override { return {}; }
    bootstrap::Secret secret(std::string_view purpose) const override { return bootstrap::Secret().derive(purpose); }
    void offer(std::uint64_t key, const Fd& fd) override { (*offers_)[{rank_, key}] = fd.get(); }
    void withdraw(std::uint64_t key) override { offers_->erase({rank_, key}); }
    Fd fetch(Rank peer, std::uint64_t key, Deadline) override {
        const auto found = offers_->find({peer, key});
        if (found == offers_->end()) fail(tuttiRemoteError, "nothing under that key");
        return Fd(dup(found->second));
    }
    void on_fault(std::function<void(const Fault&)>) override {}
    void raise(const Fault&) override {}
    std::optional<Fault> fault() const override { return std::nullopt; }
    void leave() override {}
    bool has_left(Rank) const override { return false; }
    void rest() override {}
    bool is_here(Rank) const override { return true; }
    std::uint64_t process(Rank) const override { return process_id(); }
    std::optional<Fault> fault_behind(Rank, Deadline) override { return std::nullopt; }
    std::vector<Rank> dead() const override { return {}; }
    std::vector<std::vector<std::byte>> exchange(std::uint64_t, std::span<const std::byte>, Deadline) override {
        return {};
    }
    Agreed agree(const std::vector<Rank>&, bool, Deadline) override { return {}; }

  private:
    Rank rank_;
    std::shared_ptr<Offers> offers_;
};

/// Does what waiting ranks do: drives their engines.
class Waiting {
  public:
    void start(std::shared_ptr<Engine> a, std::shared_ptr<Engine> b) {
        thread_ = std::thread([this, a, b] {
            while (!over_) {
                const bool moved = a->poll(), too = b->poll();
                if (!moved && !too) std::this_thread::sleep_for(std::chrono::microseconds(20));
            }
        });
    }
    void stop() {
        over_ = true;
        if (thread_.joinable()) thread_.join();
    }
    ~Waiting() { stop(); }

  private:
    std::atomic<bool> over_{false};
    std::thread thread_;
};

struct LinkedPair {
    std::shared_ptr<Arena> arenas[2];
    Neighbourhood at[2];
    std::unique_ptr<Link> link[2];     // link[r] is rank r's to the other one
    std::unique_ptr<Waiting> waiting;  // of transports with engines
};

/// drive: somebody waits on both ranks. connect: their links are made. timeout: of operations. way: by which
/// address the lower rank calls the other one.
inline LinkedPair join(const Transport& transport, const FaultPlan& faults = {}, bool drive = true, bool connect = true,
                       std::chrono::milliseconds timeout = std::chrono::seconds(20),
                       const std::function<bootstrap::Address(const bootstrap::Address&)>& way = {}) {
    LinkedPair pair;
    const bool has_engine = transport.needs_engine();
    auto offers = std::make_shared<MapSession::Offers>();
    for (auto& arena : pair.arenas) arena = Arena::make(2, true);
    for (Rank r = 0; r < 2; ++r) {
        Neighbourhood& n = pair.at[r];
        n.session = std::make_shared<MapSession>(r, offers);
        n.arena = pair.arenas[r];
        n.session->offer(n.arena->key(), n.arena->fd());
        if (has_engine) n.engine = open_engine({{bootstrap::Address::loopback()}});
    }
    for (Rank reader = 0; reader < 2; ++reader)
        for (Rank r = 0; r < 2; ++r) {
            EndpointInfo info{host_id(), process_id(), pair.arenas[r]->key(), getpid(), TUTTI_VERSION_CODE};
            if (has_engine) info.addresses = pair.at[r].engine->addresses();
            info.fabrics = fabrics_here(transport.name());
            if (has_engine && way && reader == 0 && r == 1) info.addresses[0] = way(info.addresses[0]);
            pair.at[reader].infos.push_back(info);
        }
    if (has_engine) {
        for (Neighbourhood& n : pair.at) n.engine->start(n, timeout);
        if (drive) {
            pair.waiting = std::make_unique<Waiting>();
            pair.waiting->start(pair.at[0].engine, pair.at[1].engine);
        }
    }
    for (Rank r = 0; r < 2 && connect; ++r) {
        pair.link[r] = transport.connect(pair.at[r], 1 - r, Clock::now() + std::chrono::seconds(5));
        if (faults.any()) pair.link[r] = faulty(std::move(pair.link[r]), faults, static_cast<std::uint64_t>(r));
    }
    return pair;
}

}  // namespace tutti::harness
