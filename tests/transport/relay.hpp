// What lies between two ranks that are joined by TCP, for tests: it carries their connections on, and resets or holds
// them up as the test says.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "bootstrap/address.hpp"

namespace tutti::harness {

class Relay {
  public:
    /// lasts: after how many bytes, of both directions together, connection number n (from 0 on) is reset, for both
    /// ends; 0: at once. Called on the relay's thread.
    explicit Relay(std::function<std::size_t(int number)> lasts);
    ~Relay();
    static constexpr std::size_t for_good = ~std::size_t{0};

    /// Of the rank that calls.
    const bootstrap::Address& address() const { return address_; }
    /// Before anybody calls.
    void lead_to(const bootstrap::Address& target) { target_ = target; }
    /// Those that are there end now.
    void reset_all() { resets_asked_ = true; }
    /// Nothing passes: neither bytes nor new connections.
    void hold(bool held) { held_ = held; }
    /// Nobody listens there any more.
    void close_port() { closed_ = true; }
    int calls() const { return calls_; }
    int resets() const { return resets_; }

  private:
    struct Pipe {
        Fd ends[2];
        std::vector<char> unsent[2];    // to that end
        std::size_t left;               // bytes until it is reset
        bool over[2] = {false, false};  // nothing more comes from that end
    };
    void run();
    void accept();
    bool carry(Pipe& pipe, int from);
    void reset(Pipe& pipe);

    const std::function<std::size_t(int)> lasts_;
    Fd listening_;
    bootstrap::Address address_, target_;
    std::vector<std::unique_ptr<Pipe>> pipes_;
    std::atomic<bool> over_{false}, resets_asked_{false}, held_{false}, closed_{false};
    std::atomic<int> calls_{0}, resets_{0};
    std::thread thread_;
};

}  // namespace tutti::harness
