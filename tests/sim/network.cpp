// A network for one machine: every TCP connection goes by this process, which lets bytes pass when their time has come.
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "world.hpp"

namespace sim {

int Network::listener_at(std::uint16_t at) const {
    for (std::size_t i = listener_count; i-- > 0;)
        if (listeners[i].port == at) return listeners[i].process;
    return 0;
}
void Network::add_listener(std::uint16_t at, int its) {
    forget_listener(at);
    if (listener_count < listeners.size()) listeners[listener_count++] = {at, its};
}
void Network::forget_listener(std::uint16_t at) {
    for (std::size_t i = listener_count; i-- > 0;)
        if (listeners[i].port == at) listeners[i] = listeners[--listener_count];
}
void Network::forget_process(int its) {
    for (std::size_t i = listener_count; i-- > 0;)
        if (listeners[i].process == its) listeners[i] = listeners[--listener_count];
}
Network::Connection& Network::add(std::uint16_t from_port, std::uint16_t to_listener, int from, int to) {
    Connection& c = connections[connection_count++ % connections.size()];
    c = {};
    c.port = from_port;
    c.listener = to_listener;
    c.from = from;
    c.to = to;
    return c;
}

namespace {

/// Ten bytes, which begin with a zero.
sockaddr_un named(char kind, std::size_t number) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "%c%08zu", kind, number);
    return name;
}

}  // namespace

sockaddr_un Network::gate() {
    return named('g', 0);
}
sockaddr_un Network::listener(std::uint16_t at) {
    return named('d', at);
}
sockaddr_un Network::caller(const Connection& c, const Network& network) {
    return named('c', static_cast<std::size_t>(&c - network.connections.data()));
}
Network::Connection* Network::number(const sockaddr_un& name) {
    const char kind = name.sun_path[1];
    const auto index = static_cast<std::size_t>(std::strtoul(std::string(name.sun_path + 2, 8).c_str(), nullptr, 10));
    return (kind == 'c' || kind == 's') && index < connections.size() ? &connections[index] : nullptr;
}

namespace {

bool concerns(const Cut& cut, int from, int to) {
    return (cut.a + 1 == from && cut.b + 1 == to) || (cut.a + 1 == to && cut.b + 1 == from);
}
/// Whether packets get lost between the two, in one direction at least.
bool is_cut(int from, int to) {
    const Cut& cut = world->weather.cut;
    return cut.what == Cut::pulled && world->now >= cut.at && world->now < cut.end() && concerns(cut, from, to);
}

}  // namespace

bool holds(int from, int to) {
    return is_cut(from, to) && (!world->weather.cut.one_way || from == world->weather.cut.a + 1);
}
bool cuts_off(int from, int to) {
    return is_cut(from, to);
}

namespace {

constexpr std::size_t most_queued = 256 * 1024;

struct Chunk {
    std::vector<char> bytes;
    std::size_t sent;
    std::uint64_t due;
    enum Kind { data, end, reset } kind;
};

/// One end of a connection, and what has come from there.
struct Side {
    int fd = -1;
    bool readable = false, writable = true, over = false, told = false;  // over: nothing more comes from there
    std::deque<Chunk> queue;
    std::size_t queued = 0;
    std::uint64_t last_due = 0;

    void push(Chunk::Kind kind, const char* bytes, std::size_t size) {
        const Weather& w = world->weather;
        last_due = std::max(last_due, world->now + w.latency + (w.jitter > 0 ? world->draw(w.jitter) : 0));
        queue.push_back({{bytes, bytes + size}, 0, last_due, kind});
        queued += size;
    }
};

constexpr socklen_t name_size = sizeof(sa_family_t) + 10;

int made_socket(const sockaddr_un& name) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (bind(fd, reinterpret_cast<const sockaddr*>(&name), name_size) != 0) std::perror("sim: bind"), std::abort();
    return fd;
}

/// A connection that goes by this process.
struct Pipe {
    Network::Connection* its;
    Side sides[2];  // 0: the caller's
    std::uint64_t dial_at, pause = 1000 * ms;
    bool dialled = false, was_reset = false;

    int process(int side) const { return side == 0 ? its->from : its->to; }
    bool is_over() const { return sides[0].fd < 0 && sides[1].fd < 0 && dialled; }

    void end(int side, int error) {
        if (sides[side].fd < 0) return;
        its->error[side] = error;
        world->note("rank %d: the connection with rank %d has ended: %s", process(side) - 1, process(1 - side) - 1,
                    std::strerror(error));
        close(sides[side].fd);
        sides[side].fd = -1;
        sides[side].over = true;
    }
    void give_up() {
        end(0, ECONNRESET);
        end(1, ECONNRESET);
        dialled = true;
    }
    void dial(int epoll, std::size_t number);
    bool read(int side);
    void refuse(int side);
    bool deliver(int side);
    void look_at_weather();
    std::uint64_t next() const;
};

void watch(int epoll, int fd, std::uint64_t data) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
    event.data.u64 = data;
    epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

void Pipe::dial(int epoll, std::size_t number) {
    if (dialled || world->now < dial_at) return;
    if (is_cut(process(0), process(1))) {  // the kernel calls again after 1, 3, 7, ... s
        dial_at += pause *= 2;
        return;
    }
    dialled = true;
    char filler[1 << 16];
    while (its->filler > 0) {
        const ssize_t got =
            recv(sides[0].fd, filler, std::min<std::uint64_t>(sizeof filler, its->filler), MSG_DONTWAIT);
        if (got <= 0) return give_up();
        its->filler -= static_cast<std::uint64_t>(got);
    }
    transferred_to(process(0));
    sides[1].fd = made_socket(named('s', static_cast<std::size_t>(its - world->network.connections.data())));
    const sockaddr_un to = Network::listener(its->listener);
    if (connect(sides[1].fd, reinterpret_cast<const sockaddr*>(&to), name_size) != 0) return give_up();
    watch(epoll, sides[1].fd, number * 2 + 1);
}

bool Pipe::read(int number) {
    Side& from = sides[number];
    char buffer[1 << 16];
    bool moved = false;
    while (dialled && from.fd >= 0 && from.readable && !from.over && from.queued < most_queued) {
        const std::size_t most = world->draw(8) == 0 ? 1 + world->draw(200) : sizeof buffer;
        const ssize_t got = recv(from.fd, buffer, most, MSG_DONTWAIT);
        if (got < 0 && errno == EAGAIN) {
            from.readable = false;
            break;
        }
        moved = true;
        from.over = got <= 0;
        if (is_cut(process(0), process(1)) && its->asked[number] == 0) its->asked[number] = world->now;
        from.push(got > 0    ? Chunk::data
                  : got == 0 ? Chunk::end
                             : Chunk::reset,
                  buffer, got > 0 ? static_cast<std::size_t>(got) : 0);
    }
    return moved;
}

/// The other end is closed: its kernel answers with a reset, which comes behind all that was sent from there.
void Pipe::refuse(int number) {
    Side &from = sides[number], &closed = sides[1 - number];
    closed.readable = true;
    read(1 - number);
    from.queue.clear();
    from.queued = 0;
    from.over = true;
    closed.push(Chunk::reset, nullptr, 0);
}

bool Pipe::deliver(int number) {
    Side &from = sides[number], &to = sides[1 - number];
    if (!is_cut(process(0), process(1))) its->asked[number] = 0;
    if (holds(process(number), process(1 - number))) {
        if (!from.queue.empty() && its->asked[number] == 0) its->asked[number] = world->now;
        return false;
    }
    bool moved = false;
    while (!from.queue.empty() && from.queue.front().due <= world->now && to.fd >= 0 && to.writable) {
        Chunk& c = from.queue.front();
        if (c.kind == Chunk::reset) {
            give_up();
            return true;
        }
        if (c.kind == Chunk::data) {
            const ssize_t sent =
                send(to.fd, c.bytes.data() + c.sent, c.bytes.size() - c.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent < 0 && errno == EAGAIN) {
                to.writable = false;
                break;
            }
            if (sent < 0) {
                refuse(number);
                return true;
            }
            c.sent += static_cast<std::size_t>(sent);
            from.queued -= static_cast<std::size_t>(sent);
            if (c.sent < c.bytes.size()) continue;
            world->record(Event::message, process(number), c.due, std::to_string(c.bytes.size()) + " bytes",
                          process(1 - number));
        } else {
            shutdown(to.fd, SHUT_WR);
            from.told = true;
        }
        from.queue.pop_front();
        moved = true;
    }
    if (sides[0].told && sides[1].told) close(sides[0].fd), close(sides[1].fd), sides[0].fd = sides[1].fd = -1;
    return moved;
}

/// Connections that are reset, and keep-alive probes that nobody answers.
void Pipe::look_at_weather() {
    const Cut& cut = world->weather.cut;
    if (cut.what == Cut::reset && !was_reset && world->now >= cut.at && concerns(cut, its->from, its->to)) {
        was_reset = true;
        if (world->now < cut.at + ms) give_up();
    }
    if (!is_cut(its->from, its->to)) {
        if (dialled && (sides[0].fd < 0) != (sides[1].fd < 0)) give_up();  // one end knows of no connection any more
        return;
    }
    for (const int number : {0, 1}) {
        Side& side = sides[number];
        if (side.fd < 0 || its->asked[number] != 0 || its->patience(number) == 0) continue;
        if (world->now < cut.at + its->patience(number)) continue;
        end(number, ETIMEDOUT);
    }
}

std::uint64_t Pipe::next() const {
    std::uint64_t next = dialled ? never : dial_at;
    const Cut& cut = world->weather.cut;
    const auto later = [&](std::uint64_t when) {
        if (when > world->now) next = std::min(next, when);
    };
    if (cut.what != Cut::none) later(cut.at);
    if (cut.what == Cut::pulled) later(cut.end());
    for (const int number : {0, 1}) {
        const Side& side = sides[number];
        if (cut.what == Cut::pulled && side.fd >= 0 && its->patience(number) != 0 && its->asked[number] == 0)
            later(cut.at + its->patience(number));
        if (holds(process(number), process(1 - number))) continue;
        if (!side.queue.empty() && sides[1 - number].writable && sides[1 - number].fd >= 0)
            next = std::min(next, side.queue.front().due);
    }
    return next;
}

class Endpoint {
  public:
    Endpoint() : epoll_(epoll_create1(EPOLL_CLOEXEC)) {
        listener_ = made_socket(Network::gate());
        if (listen(listener_, 4096) != 0) std::perror("sim: listen"), std::abort();
        watch(epoll_, listener_, ~std::uint64_t{0});
        world->network.process = this_process();
    }

    [[noreturn]] void run() {
        const std::uint64_t& transfers = world->processes[static_cast<std::size_t>(this_process())].transfers;
        for (;;) {
            const std::uint64_t looked = transfers;
            look();
            tell_of_weather();
            bool moved = false;
            std::uint64_t next = never;
            for (std::size_t i = 0; i < pipes_.size(); ++i) {
                Pipe& p = *pipes_[i];
                if (p.is_over()) continue;
                p.look_at_weather();
                p.dial(epoll_, i);
                for (const int side : {0, 1}) moved |= p.read(side), moved |= p.deliver(side);
                if (!p.is_over()) next = std::min(next, p.next());
            }
            // Others may have run meanwhile: what they sent to a pipe that was looked at before is still to be read.
            if (!moved && next > world->now && transfers == looked) wait_for(io, next);
        }
    }

  private:
    void look() {
        epoll_event events[64];
        for (int count = 64; count == 64;) {
            count = epoll_wait(epoll_, events, 64, 0);
            for (int i = 0; i < count; ++i) {
                if (events[i].data.u64 == ~std::uint64_t{0}) {
                    accept_all();
                    continue;
                }
                Side& side = pipes_[events[i].data.u64 / 2]->sides[events[i].data.u64 % 2];
                if ((events[i].events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) side.readable = true;
                if ((events[i].events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0) side.writable = true;
            }
        }
    }

    void tell_of_weather() {
        const Cut& cut = world->weather.cut;
        const auto tell = [&](bool& told, std::uint64_t when, const char* what) {
            if (told || cut.what == Cut::none || world->now < when) return;
            told = true;
            world->note("the link between ranks %d and %d %s", cut.a, cut.b, what);
            for (const int end : {cut.a, cut.b})
                world->record(Event::mark, end + 1, world->now, std::string("link ") + what);
        };
        tell(told_of_cut_, cut.at, cut.what == Cut::reset ? "is reset" : "is cut");
        if (cut.what == Cut::pulled) tell(told_of_end_, cut.end(), "is whole again");
    }

    void accept_all() {
        for (;;) {
            sockaddr_un caller{};
            socklen_t size = sizeof caller;
            const int fd =
                accept4(listener_, reinterpret_cast<sockaddr*>(&caller), &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (fd < 0) return;
            Network::Connection* const its = world->network.number(caller);
            if (its == nullptr) {
                close(fd);
                continue;
            }
            auto pipe = std::make_unique<Pipe>();
            pipe->its = its;
            pipe->sides[0].fd = fd;
            const bool filled = its->filler > 0;
            pipe->dial_at = filled ? its->called_at + pipe->pause : world->now + world->weather.latency;
            watch(epoll_, fd, pipes_.size() * 2);
            pipes_.push_back(std::move(pipe));
        }
    }

    int epoll_, listener_ = -1;
    bool told_of_cut_ = false, told_of_end_ = false;
    std::vector<std::unique_ptr<Pipe>> pipes_;
};

}  // namespace

int carry(int) {
    Endpoint().run();
}

}  // namespace sim
