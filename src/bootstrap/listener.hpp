// Lets connections in.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "bootstrap/connection.hpp"

namespace tutti::bootstrap {

/// Accepts connections for a user. The number of unauthenticated peers is bounded, and each has two seconds. When
/// descriptors run out the listener pauses instead of spinning. For the service thread alone.
class Listener : public Watcher, public std::enable_shared_from_this<Listener> {
  public:
    /// The address may have port 0; address() has the real port. Throws AddressTaken, tuttiSystemError.
    static std::shared_ptr<Listener> open(Service& service, ConnectionUser& user, const Address& address,
                                          const Secret& secret, std::uint64_t tag);
    /// The same for a socket that listens already.
    static std::shared_ptr<Listener> adopt(Service& service, ConnectionUser& user, Fd fd, const Address& address,
                                           const Secret& secret, std::uint64_t tag);
    ~Listener() override;
    const Address& address() const { return address_; }
    void close();
    /// Called when descriptors have been short for a second. May be empty.
    std::function<void()> starved;

  private:
    Listener(Service& service, ConnectionUser& user, const Secret& secret, std::uint64_t tag)
        : service_(service), user_(&user), secret_(secret), tag_(tag) {}
    void ready(std::uint32_t events) override;
    void admit(Fd fd);
    std::size_t unauthenticated();
    bool may_drop() const;
    bool drop_oldest_unauthenticated();
    Listener& fullest();
    void pause();
    void starve();

    Service& service_;
    ConnectionUser* user_;
    struct Stranger {
        std::weak_ptr<Connection> connection;
        Deadline since;
    };
    std::deque<Stranger> unauthenticated_;  // oldest first
    Secret secret_;
    std::uint64_t tag_;
    Fd fd_;
    Address address_;
    std::optional<Service::Timer> paused_;
    std::optional<Deadline> starving_since_;
};

}  // namespace tutti::bootstrap
