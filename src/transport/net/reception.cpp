#include "transport/net/reception.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/caught.hpp"
#include "base/config.hpp"
#include "transport/net/engine.hpp"

namespace tutti::net {
namespace {

using namespace bootstrap;
using tcp::Cipher;

constexpr int attempts = 3;
constexpr std::chrono::milliseconds between_attempts{200};
// How long a connection that replaces a broken one may take to be made: if it gets no answer, the next call may.
constexpr std::chrono::milliseconds shortest_wait{1000}, longest_wait{5000};

/// The tag of a rank's listener in the handshake: see Handshake. Members and directories use smaller numbers.
std::uint64_t tag_of(Rank rank) {
    return std::uint64_t{1} << 33 | static_cast<std::uint64_t>(rank);
}

}  // namespace

int connections_over(int rails, int sockets) {
    return std::min((sockets + rails - 1) / rails, stripes_limit / rails) * rails;
}

Reception::Reception(std::weak_ptr<Engine> engine, Service& service, Rank self, const Secret& secret, int sockets,
                     std::chrono::milliseconds silence_limit)
    : engine_(std::move(engine)),
      service_(service),
      self_(self),
      secret_(secret),
      sockets_(sockets),
      silence_limit_(silence_limit) {}

void Reception::listen(Fd fd, const Address& address) {
    listeners_.reserve(listeners_.size() + 1);  // first, so that push_back() can't fail after adopt()
    listeners_.push_back(Listener::adopt(service_, *this, std::move(fd), address, secret_, tag_of(self_)));
}

void Reception::expect(std::optional<std::set<Rank>> callers) {
    if (!callers || !callers->empty()) return;
    for (const auto& listener : listeners_) listener->close();
    listeners_.clear();
}

/// Makes the same number of connections to each of the peer's interfaces. Routing decides which of this host's
/// interfaces they use.
void Reception::dial(Rank peer, const std::array<Address, most_rails>& addresses, bool alone) {
    if (closed_) return;
    const auto rails = static_cast<int>(std::ranges::count_if(addresses, [](const Address& a) { return bool(a); }));
    const auto count = static_cast<std::uint8_t>(alone ? 1 : connections_over(rails, sockets_));
    attempt(peer, [&] {
        wanted_[peer] = {addresses, rails, count, 0};
        dial_all(peer);
    });
}

void Reception::dial_all(Rank peer) {
    const Way way = wanted_.at(peer);
    for (std::uint8_t number = 0; number < way.count; ++number)
        dial({nullptr,
              peer,
              way.addresses[static_cast<std::size_t>(number % way.rails)],
              {self_, number, way.count, Cipher::available(), config().protection, way.round},
              1});
}

void Reception::dial_again(Rank peer, std::uint32_t round, std::chrono::milliseconds pause) {
    const auto way = wanted_.find(peer);
    if (closed_ || way == wanted_.end()) return;
    way->second.round = round;
    give_up_calls(peer);
    attempt(peer, [&] {
        service_.after(pause, [weak = weak_from_this(), peer, round] {
            const auto self = weak.lock();
            if (!self || self->closed_ || !self->is_wanted(peer, round)) return;
            self->attempt(peer, [&] { self->dial_all(peer); });
        });
    });
}

bool Reception::is_wanted(Rank peer, std::uint32_t round) const {
    const auto way = wanted_.find(peer);
    return way != wanted_.end() && way->second.round == round;
}

/// Runs work, and gives the engine what it throws, since no caller waits for it.
void Reception::attempt(Rank peer, Errand work) {
    try {
        work();
    } catch (...) {
        if (const auto engine = engine_.lock()) engine->lacking(peer, caught());
    }
}

void Reception::dial(Call call) {
    if (closed_ || !is_wanted(call.peer, call.stripe.round)) return;
    const auto limit =
        call.stripe.round == 0 ? silence_limit_ : std::clamp(silence_limit_ / 4, shortest_wait, longest_wait);
    call.connection = Connection::dial(service_, *this, call.address, secret_, tag_of(call.peer), limit);
    if (!call.connection) return lost(std::move(call), {errno, false, std::strerror(errno)});
    Connection* const key = call.connection.get();
    calls_.emplace(key, std::move(call));
}

void Reception::opened(Connection& connection) {
    const auto call = calls_.find(&connection);
    if (call == calls_.end()) {
        unidentified_.emplace(&connection, connection.shared_from_this());  // until its Stripe names the rank
        return;
    }
    connection.recognise();
    connection.send(call->second.stripe);
}

void Reception::received(Connection& connection, Message& message, Fd) {
    const auto keep = connection.shared_from_this();
    if (const auto* stripe = std::get_if<Stripe>(&message); stripe != nullptr && unidentified_.erase(&connection) > 0)
        return on_stripe(connection, *stripe);
    if (const auto* accepted = std::get_if<Accepted>(&message); accepted != nullptr && calls_.contains(&connection))
        return on_accepted(connection, *accepted);
    connection.close();
    closed(connection, {0, false, "it sent a frame that does not belong here"});
}

void Reception::on_stripe(Connection& connection, const Stripe& stripe) {
    const auto engine = engine_.lock();
    if (!engine || stripe.rank >= self_) return connection.close();
    const Protection wanted = std::max(stripe.protection, config().protection);
    const Cipher::Kind cipher = Cipher::choose(wanted, stripe.ciphers, Cipher::available());
    connection.recognise();
    connection.send(Accepted{cipher});
    Detached socket = connection.detach();
    if (socket.fd) engine->arrived(stripe.rank, stripe, std::move(socket), cipher);  // else the peer dials again
}

void Reception::on_accepted(Connection& connection, const Accepted& accepted) {
    const Call call = std::move(calls_.extract(&connection).mapped());
    const auto engine = engine_.lock();
    const auto cipher = static_cast<Cipher::Kind>(accepted.cipher);
    if (!Cipher::has(accepted.cipher) || Cipher::protection(cipher) < config().protection) {
        connection.close();
        return lost(call, {0, false,
                           "it wants a cipher that this rank does not have, or less than TUTTI_ENCRYPT demands here"});
    }
    if (!engine) return connection.close();
    Detached socket = connection.detach();
    if (!socket.fd) return lost(call, {ECONNRESET, false, "it was lost while it was made"});
    engine->arrived(call.peer, call.stripe, std::move(socket), cipher);
}

void Reception::closed(Connection& connection, const Loss& loss) {
    unidentified_.erase(&connection);
    const auto found = calls_.find(&connection);
    if (found == calls_.end()) return;
    const auto keep = connection.shared_from_this();
    Call call = std::move(calls_.extract(found).mapped());
    attempt(call.peer, [&] { lost(std::move(call), loss); });
}

void Reception::lost(Call call, const Loss& loss) {
    if (closed_ || !is_wanted(call.peer, call.stripe.round)) return;
    call.connection.reset();
    if (call.stripe.round > 0) return missed(std::move(call), loss);
    // A stopped process answers when it continues, and the operation's time-out limits that. A network may come back.
    const bool silent = loss.error == ETIMEDOUT || loss.error == EHOSTUNREACH || loss.error == EHOSTDOWN;
    const bool again = silent ? Clock::now() - call.begin < silence_limit_ : call.attempt < attempts;
    if (loss.late || (again && !loss.wrong_secret)) {
        if (!silent && !loss.late) ++call.attempt;
        service_.after(between_attempts, [weak = weak_from_this(), call] {
            if (const auto self = weak.lock()) self->attempt(call.peer, [&] { self->dial(call); });
        });
        return;
    }
    const auto engine = engine_.lock();
    if (!engine) return;
    const std::string why = "no connection to " + call.address.text() + ": " + loss.text;
    const bool lacking = loss.error == EMFILE || loss.error == ENFILE || loss.error == ENOMEM || loss.error == ENOBUFS;
    lacking ? engine->lacking(call.peer, {tuttiSystemError, why}) : engine->unreachable(call.peer, why);
}

/// A call of a round that replaces broken connections has failed. A refusal may mean that the peer's process has ended,
/// or come from something on the way for a moment, so it counts only after several attempts.
void Reception::missed(Call call, const Loss& loss) {
    const auto engine = engine_.lock();
    if (!engine) return;
    const bool refused = loss.error == ECONNREFUSED;
    const bool hopeless = loss.wrong_secret || (refused && call.attempt >= attempts);
    if (refused && !hopeless) ++call.attempt;
    const std::string why = "no connection to " + call.address.text() + ": " + loss.text;
    engine->missed(call.peer, call.stripe, why, hopeless, [weak = weak_from_this(), call] {
        const auto here = weak.lock();
        if (!here || here->closed_) return;
        here->service_.after(between_attempts, [weak, call] {
            if (const auto self = weak.lock()) self->attempt(call.peer, [&] { self->dial(call); });
        });
    });
}

void Reception::forget(Rank peer) {
    wanted_.erase(peer);
    give_up_calls(peer);
}

void Reception::give_up_calls(Rank peer) {
    std::erase_if(calls_, [&](auto& entry) {
        if (entry.second.peer != peer) return false;
        entry.second.connection->close();
        return true;
    });
}

void Reception::close() {
    closed_ = true;
    for (const auto& listener : listeners_) listener->close();
    listeners_.clear();
    for (auto& [key, call] : calls_) call.connection->close();
    for (auto& [key, connection] : unidentified_) connection->close();
    calls_.clear();
    unidentified_.clear();
}

}  // namespace tutti::net
