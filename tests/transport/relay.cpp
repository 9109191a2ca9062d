#include "relay.hpp"

#include <cerrno>

#include "bootstrap/socket_io.hpp"

namespace tutti::harness {

Relay::Relay(std::function<std::size_t(int)> lasts)
    : lasts_(std::move(lasts)),
      listening_(bootstrap::listen_at(bootstrap::Address::loopback())),
      address_(bootstrap::bound_address(listening_)),
      thread_([this] { run(); }) {}

Relay::~Relay() {
    over_ = true;
    thread_.join();
}

void Relay::run() {
    while (!over_) {
        if (resets_asked_.exchange(false))
            for (const auto& pipe : pipes_) reset(*pipe);
        if (closed_) listening_.reset();
        bool moved = false;
        if (!held_) {
            accept();
            for (const auto& pipe : pipes_)
                for (const int from : {0, 1}) moved |= carry(*pipe, from);
            std::erase_if(pipes_, [](const auto& pipe) { return !pipe->ends[0]; });
        }
        if (!moved) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

void Relay::accept() {
    if (!listening_) return;
    Fd caller(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!caller) return;
    auto pipe = std::make_unique<Pipe>();
    pipe->left = lasts_(calls_++);
    pipe->ends[0] = std::move(caller);
    pipe->ends[1] = bootstrap::connect_to(target_);
    if (pipe->left == 0 || !pipe->ends[1]) reset(*pipe);
    pipes_.push_back(std::move(pipe));
}

bool Relay::carry(Pipe& pipe, int from) {
    const int to = 1 - from;
    if (!pipe.ends[0]) return false;
    std::vector<char>& unsent = pipe.unsent[to];
    char buffer[1 << 15];
    if (unsent.empty() && !pipe.over[from]) {
        const ssize_t got = recv(pipe.ends[from].get(), buffer, std::min(sizeof buffer, pipe.left), MSG_DONTWAIT);
        if (got < 0 && errno != EAGAIN && errno != ENOTCONN) return reset(pipe), true;
        if (got == 0) shutdown(pipe.ends[to].get(), SHUT_WR), pipe.over[from] = true;
        if (got > 0) unsent.assign(buffer, buffer + got);
        if (got > 0 && pipe.left != for_good) pipe.left -= static_cast<std::size_t>(got);
    }
    if (pipe.over[0] && pipe.over[1] && pipe.unsent[0].empty() && pipe.unsent[1].empty()) {
        for (Fd& end : pipe.ends) end.reset();
        return true;
    }
    if (unsent.empty()) return false;
    const ssize_t sent = send(pipe.ends[to].get(), unsent.data(), unsent.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != ENOTCONN) return reset(pipe), true;
    if (sent <= 0) return false;
    unsent.erase(unsent.begin(), unsent.begin() + sent);
    if (pipe.left == 0 && unsent.empty()) reset(pipe);
    return true;
}

void Relay::reset(Pipe& pipe) {
    if (!pipe.ends[0]) return;
    ++resets_;
    const linger at_once{1, 0};
    for (Fd& end : pipe.ends) {
        if (end) setsockopt(end.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        end.reset();
    }
}

}  // namespace tutti::harness
