#include "bootstrap/connection.hpp"

#include <poll.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstring>

#include "base/caught.hpp"
#include "base/result.hpp"

namespace tutti::bootstrap {
namespace {

// How long an unauthenticated peer has to prove that it has the secret; the connecting end waits longer than that.
constexpr std::chrono::milliseconds authentication_limit{2000}, dial_limit{5000};
constexpr int farewell_tries = 50;  // of at most a millisecond each
constexpr const char* other_secret = "does not have this job's secret";
constexpr const char* other_version = "speaks another version of Tutti's protocol";

}  // namespace

Connection::Connection(Service& service, ConnectionUser& user, Fd fd, const Address& address, bool initiator,
                       const Secret& secret, std::uint64_t tag)
    : service_(service),
      user_(&user),
      fd_(std::move(fd)),
      address_(address),
      handshake_(secret, tag, initiator),
      silence_(silence_limit()) {
    if (!address.is_local()) silence_.prepare(fd_.get());
}

std::shared_ptr<Connection> Connection::start(std::shared_ptr<Connection> made, std::uint32_t events,
                                              std::chrono::milliseconds limit) {
    struct Closing {  // the service would keep the connection alive without its user
        Connection* connection;
        ~Closing() {
            if (connection != nullptr) connection->close();
        }
    } closing{made.get()};
    if (!made->service_.watch(made->fd_.get(), events, made)) return nullptr;
    made->limit_ = made->service_.after(limit, [weak = std::weak_ptr<Connection>(made)] {
        const auto c = weak.lock();
        if (!c || c->is_closed()) return;
        c->limit_.reset();
        if (c->state_ == State::connecting)
            return c->lose({ETIMEDOUT, false, "it did not answer in time", false, false, true});
        c->lose(Loss{0, false, "it did not prove itself in time", c->handshake_.is_initiator()});
    });
    if (!made->address_.is_local()) made->listen_for_silence();
    closing.connection = nullptr;
    return made;
}

std::shared_ptr<Connection> Connection::dial(Service& service, ConnectionUser& user, const Address& address,
                                             const Secret& secret, std::uint64_t tag, std::chrono::milliseconds limit) {
    Fd fd = connect_to(address);
    if (!fd) return nullptr;
    std::shared_ptr<Connection> made(new Connection(service, user, std::move(fd), address, true, secret, tag));
    return start(std::move(made), EPOLLIN | EPOLLOUT, limit.count() > 0 ? limit : dial_limit);
}

std::shared_ptr<Connection> Connection::answer(Service& service, ConnectionUser& user, Fd fd, const Address& listener,
                                               const Secret& secret, std::uint64_t tag) {
    std::shared_ptr<Connection> made(new Connection(service, user, std::move(fd), listener, false, secret, tag));
    made->state_ = State::hello;
    return start(std::move(made), EPOLLIN, authentication_limit);
}

Connection::~Connection() {
    close();
}

bool Connection::may_heal(const Loss& loss) const {
    // Not EPIPE: the peer had closed the connection before. ENOTCONN: the kernel has reported the cause before.
    const bool reset = loss.error == ECONNRESET || loss.error == ECONNABORTED || loss.error == ENOTCONN;
    return reset && !address_.is_local();
}

void Connection::close() {
    if (is_closed()) return;
    if (state_ == State::open) flush();
    // The last message is mostly a farewell, without which the peer takes this end for a death.
    for (int tries = 0; state_ == State::open && waits_to_write_ && tries < farewell_tries; ++tries) {
        pollfd room{fd_.get(), POLLOUT, 0};
        poll(&room, 1, 1);
        flush();
    }
    if (limit_) service_.cancel(*limit_);
    limit_.reset();
    state_ = State::closed;
    service_.unwatch(fd_.get());
    fd_.reset();
    outgoing_.clear();
}

Detached Connection::detach() {
    flush();
    if (!is_open() || !outgoing_.empty()) return close(), Detached{};
    const View rest = incoming_.rest();
    Detached d{{}, Bytes(rest.begin(), rest.end()), handshake_.outgoing_key(), handshake_.incoming_key()};
    service_.unwatch(fd_.get());
    d.fd = std::move(fd_);
    if (limit_) service_.cancel(*limit_);
    limit_.reset();
    state_ = State::closed;
    return d;
}

void Connection::lose_errno(int error) {
    Loss loss{error, false, error == ETIMEDOUT ? silence_in_words : std::strerror(error)};
    loss.ended = error == ECONNRESET || error == EPIPE;
    // If the network has reported an error (ICMP), the kernel returns that instead of the time-out.
    loss.silent =
        error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == EHOSTDOWN || error == ENETDOWN;
    lose(loss);
}

void Connection::listen_for_silence() {
    service_.after(silence_.interval(), [weak = weak_from_this()] {
        const auto c = weak.lock();
        if (!c || c->is_closed()) return;
        if (c->silence_.lasts(c->fd_.get())) return c->lose_errno(ETIMEDOUT);
        c->attempt([&] { c->listen_for_silence(); });
    });
}

void Connection::lose(const Loss& loss) {
    if (is_closed()) return;
    const auto self = shared_from_this();
    outgoing_.clear();
    close();
    try {
        user_->closed(*this, loss);
    } catch (...) {  // the user could not handle the loss
        const Error error = caught();
        shielded("a connection is lost", [&] { user_->failed(*this, error); });
    }
}

void Connection::failed(const Error& error) {
    if (is_closed()) return;
    const auto self = shared_from_this();
    if (is_open() && recognised_) shielded("a connection is lost", [&] { user_->failed(*this, error); });
    lose(error.what());
}

void Connection::attempt(Errand work) {
    try {
        work();
    } catch (...) {
        failed(caught());
    }
}

void Connection::recognise() {
    recognised_ = true;
    if (limit_) service_.cancel(*limit_);
    limit_.reset();
}

void Connection::ready(std::uint32_t events) {
    if (is_closed()) return;
    if (state_ == State::connecting) return finish_connecting();
    if (events & EPOLLOUT) flush();
    if (!is_closed() && (events & (EPOLLIN | EPOLLHUP | EPOLLERR))) receive();
}

void Connection::finish_connecting() {
    int trouble = 0;
    socklen_t size = sizeof trouble;
    getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &trouble, &size);
    if (trouble != 0) return lose_errno(trouble);
    if (address_.is_local() && !peer_is_this_user(fd_.get())) return lose("it belongs to another user");
    state_ = State::hello;
    waits_to_write_ = true;
    enqueue(handshake_.hello());
    flush();
}

// Reads once per wake-up; epoll reports again if there is more.
void Connection::receive() {
    // Descriptors are taken only from authenticated peers.
    const ssize_t got = incoming_.read(fd_, address_.is_local() && is_open());
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got < 0) return lose_errno(errno);
    if (got == 0 && refused_ != 0) return lose_errno(refused_);
    if (got == 0) {
        const bool initiator = handshake_.is_initiator();
        const bool proving = state_ == State::hello && initiator;
        const Loss loss{0, false, proving ? "it hung up before proving itself" : "it hung up", false, true};
        // A caller checks this end's proof before it sends its own.
        return lose(state_ == State::proof && !initiator ? turned_away(loss, other_secret) : loss);
    }
    digest();
}

/// The loss, as that of a caller which was not let in.
Loss Connection::turned_away(Loss loss, const char* why) const {
    loss.caller = peer_address(fd_);
    loss.turned_away = why;
    return loss;
}

void Connection::digest() {
    const auto self = shared_from_this();
    while (!is_closed()) {
        if (is_open()) {
            if (!digest_frame(incoming_.rest())) break;
        } else if (const std::size_t taken = digest_handshake(incoming_.rest()); taken > 0) {
            incoming_.use(taken);
        } else {
            break;
        }
    }
    incoming_.compact();
}

// Returns how many bytes were used up; 0 if more are needed, or the connection was lost.
std::size_t Connection::digest_handshake(View bytes) {
    const bool initiator = handshake_.is_initiator();
    const std::size_t expected =
        (state_ == State::hello ? hello_size : 0) + (state_ == State::proof || initiator ? proof_size : 0);
    if (state_ == State::hello && bytes.size() >= hello_size && !handshake_.read_hello(bytes.first(hello_size))) {
        Loss loss{0, false, "it does not speak this version of Tutti's protocol: use the same Tutti on all ranks"};
        if (!initiator && Handshake::is_of_some_version(bytes)) {
            enqueue(handshake_.hello());  // so that the peer knows why it is not let in
            flush();
            loss = turned_away(loss, other_version);
        }
        return lose(loss), 0;
    }
    if (bytes.size() < expected) return 0;
    if (state_ == State::hello && !initiator) {
        state_ = State::proof;
        enqueue(handshake_.hello());
        enqueue(handshake_.proof());
        flush();
        return expected;
    }
    if (!handshake_.check_proof(bytes.subspan(expected - proof_size, proof_size))) {
        const Loss loss{0, true, "it has another secret"};
        return lose(initiator ? loss : turned_away(loss, other_secret)), 0;
    }
    sealing_ = handshake_.outgoing();
    opening_ = handshake_.incoming();
    if (initiator) enqueue(handshake_.proof());
    state_ = State::open;
    user_->opened(*this);
    return expected;
}

// Returns false if more bytes are needed, or the connection was lost.
bool Connection::digest_frame(View bytes) {
    Frame frame;
    const Split split = split_frame(bytes, frame);
    if (split == Split::incomplete) return false;
    if (split == Split::bad) return lose("it sent a frame that no version of the protocol has"), false;
    if (!opening_.opens(frame.sealed, frame.seal)) return lose("it sent a frame whose seal is broken"), false;
    std::optional<Message> message = parse(frame.kind, frame.payload);
    if (!message) return lose("it sent a malformed frame"), false;
    Fd descriptor;
    if (const Give* give = std::get_if<Give>(&*message); give != nullptr && give->granted)
        descriptor = incoming_.take_descriptor();
    incoming_.use(frame.size());  // before received(), which may detach
    user_->received(*this, *message, std::move(descriptor));
    return true;
}

void Connection::send(const Message& message, std::shared_ptr<Fd> descriptor) {
    if (is_open()) send(encode(message), std::move(descriptor));
}

void Connection::send(Bytes frame, std::shared_ptr<Fd> descriptor) {
    if (!is_open()) return;
    const auto before = sealing_;
    try {
        const auto seal = sealing_.next(frame);
        append(frame, seal);
        enqueue(frame, std::move(descriptor));
    } catch (...) {
        sealing_ = before;  // a frame that was not sent uses no number
        throw;
    }
}

void Connection::enqueue(View bytes, std::shared_ptr<Fd> descriptor) {
    if (!flush_asked_ && !waits_to_write_) {  // before add(): if this throws, nothing must be queued
        service_.flush_later(shared_from_this());
        flush_asked_ = true;
    }
    outgoing_.add(bytes, std::move(descriptor));
}

void Connection::flush() {
    flush_asked_ = false;
    if (is_closed() || state_ == State::connecting) return;
    outgoing_.write(fd_);  // errors are left to receive(), which first reads what came before
    const bool wait = !outgoing_.empty() && (errno == EAGAIN || errno == ENOBUFS);
    if (!outgoing_.empty() && !wait && refused_ == 0) refused_ = errno;
    if (wait != waits_to_write_) service_.change(fd_.get(), wait ? EPOLLIN | EPOLLOUT : EPOLLIN);
    waits_to_write_ = wait;
}

}  // namespace tutti::bootstrap
