#include "bootstrap/neighbours.hpp"

#include <algorithm>

namespace tutti::bootstrap {

Address Neighbours::listen_locally(const Secret& secret, Rank self) {
    std::array<std::byte, 16> name;
    random_bytes(name.data(), name.size());
    local_ = Listener::open(service_, user_, Address::local(name), secret, static_cast<std::uint64_t>(self));
    return local_->address();
}

Address Neighbours::listen_remotely(const Address& here, const Secret& secret, Rank self) {
    remote_ = Listener::open(service_, user_, here, secret, static_cast<std::uint64_t>(self));
    return remote_->address();
}

void Neighbours::stop_listening_remotely() {
    if (remote_) remote_->close();
    remote_.reset();
}

void Neighbours::on_starved(const std::function<void()>& starved) {
    for (const auto& listener : {local_, remote_})
        if (listener) listener->starved = starved;
}

Connection* Neighbours::dial(const Address& address, std::uint64_t tag, Role role, Rank peer, const Secret& secret,
                             std::chrono::milliseconds limit) {
    all_.reserve(all_.size() + 1);  // so that push_back() below can't fail once the connection is made
    const std::shared_ptr<Connection> c = Connection::dial(service_, user_, address, secret, tag, limit);
    if (role == Role::directory) directory_ = c;
    if (role == Role::parent) parent_ = c;
    if (!c) return nullptr;
    c->role = role;
    c->peer = peer;
    all_.push_back(c);
    return c.get();
}

void Neighbours::drop(Connection& connection) {
    if (directory_.get() == &connection) directory_.reset();
    if (parent_.get() == &connection) parent_.reset();
    std::erase_if(all_, [&](const auto& c) { return c.get() == &connection; });
}

void Neighbours::close() {
    for (const auto& c : all_) c->close();
    all_.clear();
    directory_.reset();
    parent_.reset();
    if (local_) local_->close();
    local_.reset();
    stop_listening_remotely();
}

Connection* Neighbours::any(Rank peer) const {
    for (const auto& c : all_)
        if (c->peer == peer && c->role != Role::directory) return c.get();
    return nullptr;
}

bool Neighbours::in_tree(Rank peer) const {
    return std::ranges::any_of(all_, [&](const auto& c) { return c->peer == peer && is_tree(*c); });
}

Connection* Neighbours::pair(Rank peer) const {
    for (const auto& c : all_)
        if (c->peer == peer && c->role != Role::directory && c->address().is_local()) return c.get();
    return nullptr;
}

Connection* Neighbours::welcomed(Rank peer) const {
    for (const auto& c : all_)
        if (c->peer == peer && c->role != Role::directory && c->is_open() && c->welcome) return c.get();
    return nullptr;
}

void Neighbours::pass_on(const Message& message, Rank from) {
    const Bytes frame = encode(message);
    for (const auto& c : all_)
        if (c->peer != from && is_tree(*c)) c->send(frame);
}

void Neighbours::flush() {
    for (const auto& c : all_) c->flush();
}

}  // namespace tutti::bootstrap
