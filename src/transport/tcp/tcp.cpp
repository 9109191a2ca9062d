// Ranks that a network joins: see link.hpp for what travels, engine.hpp for who moves it.
#include "base/result.hpp"
#include "transport/tcp/engine.hpp"
#include "transport/transport.hpp"

namespace tutti {
namespace tcp {
namespace {

class TcpLink : public Link {
  public:
    TcpLink(std::shared_ptr<Engine> engine, Rank peer) : engine_(std::move(engine)), ends_(engine_->connect(peer)) {}
    ~TcpLink() override { engine_->disconnect(ends_); }

    Wire outlet(int lane) override {
        const std::lock_guard lock(engine_->mutex());
        return ends_.outlet(lane);
    }
    Wire inlet(int lane) override {
        const std::lock_guard lock(engine_->mutex());
        return ends_.inlet(lane);
    }
    bool refer(const void*, std::size_t, Reference&) override { return false; }
    std::byte* see(Reference, std::size_t) override {
        fail(tuttiInternalError, "a message by reference from rank %d, which is on another host", ends_.peer());
    }
    RankPage* page() override { return &ends_.page(); }
    std::string describe() override {
        const std::lock_guard lock(engine_->mutex());
        return ends_.describe();
    }

  private:
    const std::shared_ptr<Engine> engine_;
    Ends& ends_;  // the engine's
};

class TcpTransport : public Transport {
  public:
    std::string_view name() const override { return "tcp"; }
    bool reaches(const Card& self, const Card& peer) const override {
        return static_cast<bool>(self.door) && static_cast<bool>(peer.door);
    }
    Line cost() const override { return {12.0, 1.0 / 2.5e3}; }
    Sees sees() const override { return Sees::nothing; }
    bool needs_engine() const override { return true; }

    std::unique_ptr<Link> connect(const Neighbourhood& from, Rank peer, Deadline) const override {
        auto engine = std::dynamic_pointer_cast<Engine>(from.engine);
        if (!engine) fail(tuttiInternalError, "rank %d has no engine for tcp", from.self());
        return std::make_unique<TcpLink>(std::move(engine), peer);
    }
};

}  // namespace
}  // namespace tcp

const Transport& tcp_transport() {
    static const tcp::TcpTransport instance;
    return instance;
}

std::shared_ptr<Engine> open_engine(const bootstrap::Address& address) {
    return std::make_shared<tcp::Engine>(address);
}

}  // namespace tutti
