#include "transport/net/reception.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/caught.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "transport/net/engine.hpp"

namespace tutti::net {
namespace {

using namespace bootstrap;
using tcp::Cipher;

constexpr int attempts = 3;
constexpr std::chrono::milliseconds pause{200};

/// Which listener of the job this is about: see Handshake. Members and directories use numbers below.
std::uint64_t tag_of(Rank rank) {
    return std::uint64_t{1} << 33 | static_cast<std::uint64_t>(rank);
}

}  // namespace

int connections_over(int rails, int sockets) {
    return std::min((sockets + rails - 1) / rails, stripes_limit / rails) * rails;
}

Reception::Reception(std::weak_ptr<Engine> engine, Service& service, Rank self, int ranks, const Secret& secret,
                     std::chrono::milliseconds silence_limit)
    : engine_(std::move(engine)),
      service_(service),
      self_(self),
      ranks_(ranks),
      secret_(secret),
      silence_limit_(silence_limit) {}

void Reception::listen(Fd fd, const Address& address) {
    listeners_.push_back(Listener::adopt(service_, *this, std::move(fd), address, secret_, tag_of(self_)));
}

void Reception::expect(std::optional<std::set<Rank>> callers) {
    callers_ = std::move(callers);
    close_if_complete();
}

void Reception::close_if_complete() {
    if (!callers_ || !callers_->empty()) return;
    for (const auto& listener : listeners_) listener->close();
    listeners_.clear();
}

/// As many connections to each of the peer's interfaces; the network says which of this host's they leave by. Where
/// messages go by a better network, one is enough.
void Reception::dial(Rank peer, const std::array<Address, most_rails>& addresses, bool alone) {
    if (closed_) return;
    const auto rails = static_cast<int>(std::ranges::count_if(addresses, [](const Address& a) { return bool(a); }));
    const auto count = static_cast<std::uint8_t>(alone ? 1 : connections_over(rails, config().sockets));
    attempt(peer, [&] {
        wanted_.insert(peer);
        for (std::uint8_t number = 0; number < count; ++number)
            dial({nullptr,
                  peer,
                  addresses[static_cast<std::size_t>(number % rails)],
                  {self_, number, count, Cipher::available(), config().encrypt},
                  1});
    });
}

/// What comes of it if this process can't, the engine is told: nobody waits for the work itself.
void Reception::attempt(Rank peer, Errand work) {
    try {
        work();
    } catch (...) {
        if (const auto engine = engine_.lock()) engine->lacking(peer, caught());
    }
}

void Reception::dial(Call call) {
    if (closed_ || !wanted_.contains(call.peer)) return;
    call.connection = Connection::dial(service_, *this, call.address, secret_, tag_of(call.peer), silence_limit_);
    if (!call.connection) return lost(std::move(call), {errno, false, std::strerror(errno)});
    Connection* const key = call.connection.get();
    calls_.emplace(key, std::move(call));
}

void Reception::opened(Connection& connection) {
    const auto call = calls_.find(&connection);
    if (call == calls_.end()) {
        unidentified_.emplace(&connection, connection.shared_from_this());  // it has to say who it is
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
    if (!engine || stripe.rank >= ranks_ || stripe.rank == self_) return connection.close();
    const bool encrypts = stripe.encrypt || config().encrypt;
    const Cipher::Kind cipher = encrypts ? Cipher::choose(stripe.ciphers, Cipher::available()) : Cipher::none;
    connection.recognise();
    connection.send(Accepted{cipher});
    engine->arrived(stripe.rank, stripe, connection.detach(), cipher);
    std::bitset<stripes_limit>& connected = connected_[stripe.rank];
    connected.set(stripe.number);
    if (!callers_ || connected.count() < stripe.count) return;
    callers_->erase(stripe.rank);
    close_if_complete();
}

void Reception::on_accepted(Connection& connection, const Accepted& accepted) {
    const Call call = std::move(calls_.extract(&connection).mapped());
    const auto engine = engine_.lock();
    const auto cipher = static_cast<Cipher::Kind>(accepted.cipher);
    const bool known = cipher == Cipher::none || (cipher == Cipher::xchacha || cipher == Cipher::aes);
    if (!known || (accepted.cipher & ~Cipher::available()) != 0 || (config().encrypt && cipher == Cipher::none)) {
        connection.close();
        return lost(call, {0, false, "it wants a cipher that this rank does not have"});
    }
    if (!engine) return connection.close();
    engine->arrived(call.peer, call.stripe, connection.detach(), cipher);
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
    if (closed_ || !wanted_.contains(call.peer)) return;
    call.connection.reset();
    // A peer whose process is stopped answers when it goes on; how long that may take, the operation says. A network
    // may come back.
    const bool silent = loss.error == ETIMEDOUT || loss.error == EHOSTUNREACH || loss.error == EHOSTDOWN;
    const bool again = silent ? Clock::now() - call.begin < silence_limit_ : call.attempt < attempts;
    if (loss.late || (again && !loss.wrong_secret)) {
        if (!silent && !loss.late) ++call.attempt;
        service_.after(pause, [weak = weak_from_this(), call] {
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

void Reception::forget(Rank peer) {
    wanted_.erase(peer);
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
