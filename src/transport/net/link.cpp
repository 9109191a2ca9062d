#include "transport/net/link.hpp"

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/result.hpp"

namespace tutti::net {
namespace {

// An endpoint that fails takes the sockets with it. What it says is to be told before the peer tells that they were
// closed.
constexpr std::chrono::milliseconds head_start{150};
// A peer that leaves while sockets are still made may close those before its farewell is here.
constexpr std::chrono::milliseconds time_for_farewell{150};

constexpr const char* choose_alike = "TUTTI_TRANSPORT, or config.transport, must be the same on all ranks";

}  // namespace

Ends::Ends(const Session& session, std::shared_ptr<Arena> mine, Rank peer)
    : self_(session.rank()),
      peer_name_(session.name(peer)),
      channels_(std::move(mine), peer),
      boards_(channels_.page()) {}

bool Ends::wants(int number, int count) const {
    return !bye_ && !lost_ && sockets_.want(number, count);
}

void Ends::attach(int number, int count, std::unique_ptr<tcp::Stream> stream) {
    addresses_ = stream->describe();
    sockets_.attach(number, count, std::move(stream));
}

void Ends::use(Net* net, const DeviceSlots* slots) {
    used_ = true;
    net_ = net;
    channels_.place(slots);  // no message has come: those of a net wait for introduce()
    if (net == nullptr && introduction_.has_offer())
        lose(text("it goes by %s, this rank by tcp; %s", introduction_.theirs().net, choose_alike));
}

NetEndpoint* Ends::introduce(std::chrono::milliseconds silence_limit) {
    failover_.set_limit(silence_limit);
    if (net_ == nullptr || endpoint_ || lost_ || bye_ || first_socket() == nullptr) return nullptr;
    try {
        const LinkMemory memory = channels_.memory();
        const unsigned attempt = failover_.attempt();
        endpoint_ = attempt == 0 ? net_->open(self_, peer(), memory, silence_limit)
                                 : net_->detour(self_, peer(), memory, silence_limit, failover_.broken());
        if (!endpoint_ && !failover_.postpone(Clock::now())) fail(tuttiRemoteError, "no other port is active");
        if (!endpoint_) return nullptr;
        channels_.count_received(introduction_.offer(net_->name(), attempt, endpoint_->offer()));
    } catch (...) {
        lose(caught().what());
    }
    return endpoint_.get();
}

/// The other end's offer is there.
void Ends::meet() {
    const Offer& offer = introduction_.theirs();
    if (net_->name() != offer.net)
        return lose(
            text("it goes by %s, this rank by %s; %s", offer.net, std::string(net_->name()).c_str(), choose_alike));
    const unsigned attempt = failover_.attempt();
    if (offer.attempt != attempt || !channels_.resume(offer, attempt == 0))
        return lose("what it says of its connections can't be: it does not keep to the protocol");
    endpoint_->meet(introduction_.meet());
    log(Level::info, "rank %d: messages with %s", self_, describe().c_str());
}

/// The endpoint is of no use any more; both ends try another one. False if they have tried for as long as a host may be
/// silent, and nothing came through.
bool Ends::leave_endpoint(unsigned attempt, const std::string& why) {
    if (!failover_.failed(Clock::now()) || first_socket() == nullptr) return false;
    log(Level::warn, "rank %d: %s: %s; looking for another way", self_, describe().c_str(), why.c_str());
    addresses_ = where();
    failover_.next(attempt, why, endpoint_->broken());
    endpoint_->abandon();
    endpoint_.reset();
    introduction_.restart();
    return true;
}

Endpoint* Ends::endpoint_of(const Channel& channel) const {
    if (lost_) return nullptr;
    if (net_ != nullptr) return by_endpoint() ? endpoint_.get() : nullptr;
    return sockets_.of_channel(channel.number);
}

/// Which ends, for error texts.
std::string Ends::where() const {
    return endpoint_ ? std::string(net_->name()) + ", " + endpoint_->describe() : addresses_;
}

std::string Ends::describe() const {
    return peer_name_ + ", by " +
           (!sockets_.ever() ? "TCP, not connected yet"
            : endpoint_      ? where()
                             : "TCP, " + where());
}

/// What goes by the first socket, whatever else there is.
void Ends::send_rare() {
    tcp::Stream* const socket = first_socket();
    const auto send = [&](What what, const void* body, std::size_t bytes) {
        Header h = channels_[0].header(what);
        h.bytes = static_cast<std::uint32_t>(bytes);
        socket->queue(h, static_cast<const std::byte*>(body), true);
    };
    const auto ready = [&] { return socket != nullptr && socket->has_room(); };
    if (introduction_.offer_due() && ready()) {
        const std::span<const std::byte> offer = introduction_.take_offer();
        send(What::offer, offer.data(), offer.size());
    }
    if (introduction_.met_due() && endpoint_ && endpoint_->trouble().empty() && ready()) {
        send(What::met, nullptr, 0);
        introduction_.take_met();
    }
    if (boards_.due() && ready()) send(What::board, &boards_.take(), sizeof(Board));
}

bool Ends::send_channels() {
    bool moved = false;
    for (Channel* const channel : channels_.in_use())
        if (Endpoint* const endpoint = channel->stirs() ? endpoint_of(*channel) : nullptr)
            moved |= channel->send(*endpoint, endpoint_.get());
    return moved;
}

bool Ends::push() {
    const bool queued = send_channels();
    if (!endpoint_ || !introduction_.met() || lost_) return queued;
    const bool sent = endpoint_->send();
    return endpoint_->trouble().empty() ? queued || sent : move();
}

bool Ends::move() {
    bool moved = send_channels();  // before looking at what has come: for this somebody waits
    if (lost_socket_ && !bye_ && Clock::now() - *lost_socket_ > time_for_farewell) lose(why_, time_for_farewell);
    moved |= sockets_.receive(*this);
    if (endpoint_) moved |= look_at_endpoint();
    if (introduction_.pending() || boards_.due()) send_rare();
    if (endpoint_) moved |= send_by_endpoint();
    return moved | send_by_sockets();
}

/// Meets the other end, or leaves this one for what the peer offers; receives.
bool Ends::look_at_endpoint() {
    const bool has_offer = introduction_.has_offer() && !lost_;
    const unsigned offered = introduction_.theirs().attempt;
    if (has_offer && offered > failover_.attempt() && !leave_endpoint(offered, "the peer can't go on with it"))
        lose("its connections fail again and again");
    if (endpoint_ && has_offer && !introduction_.met()) meet();
    return endpoint_ && introduction_.met() && receive_by_endpoint();
}

bool Ends::receive_by_endpoint() {
    at_endpoint_ = true;
    const bool moved = endpoint_->receive(*this);
    at_endpoint_ = false;
    return moved;
}

bool Ends::send_by_endpoint() {
    if (!introduction_.met() || lost_) return false;
    const bool moved = endpoint_->send();
    if (endpoint_->trouble().empty()) return moved;
    if (bye_)
        part();
    else if (!introduction_.known() || !leave_endpoint(failover_.attempt() + 1, endpoint_->trouble()))
        lose(endpoint_->trouble(), head_start);
    return moved;
}

bool Ends::send_by_sockets() {
    bool moved = false;
    for (const auto& stream : sockets_.all()) {
        if (!stream || stream->idle()) continue;
        if (!stream->is_empty()) moved |= stream->send();
        if (stream->trouble().empty()) continue;
        addresses_ = stream->describe();
        if (!bye_) {
            lose(stream->trouble());
        } else {  // what is still on its way on the others is to arrive
            sockets_.drop(*stream);
            part();
        }
    }
    return moved;
}

/// The peer has gone in peace, and nothing of it is on its way but what the sockets that are left may bring.
void Ends::part() {
    while (introduction_.met() && receive_by_endpoint()) {
    }
    endpoint_.reset();
    introduction_.part();
    if (!sockets_.any()) page().leaving.store(1, std::memory_order_release);
}

void Ends::lose(const std::string& why, std::chrono::milliseconds ago) {
    if (lost_) return;
    lost_ = Clock::now() - ago;
    why_ = failover_.all_of(why);
    addresses_ = where();
    if (endpoint_) endpoint_->abandon();
    endpoint_.reset();
    sockets_.close();
}

void Ends::lose_socket(const std::string& why) {
    if (lost_ || lost_socket_) return;
    if (!sockets_.any()) return lose(why);
    lost_socket_ = Clock::now();
    why_ = why;
}

std::string Ends::what_is_lost() const {
    if (bye_) return "";
    if (addresses_.empty()) return text("rank %d can't connect to %s: %s", self_, peer_name_.c_str(), why_.c_str());
    return text("rank %d lost its connection with %s (%s): %s", self_, peer_name_.c_str(), addresses_.c_str(),
                why_.c_str());
}

bool Ends::knows(const std::byte* memory, std::size_t bytes) {
    return endpoint_ && by_endpoint() && !lost_ && endpoint_->knows(memory, bytes);
}

void Ends::withdraw() {
    if (channels_.lent()) lose("this rank has given up");
}

void Ends::say_bye() {
    const auto say = [&](Endpoint* endpoint) {
        if (endpoint == nullptr) return;
        if (endpoint->has_room()) endpoint->queue(channels_[0].header(What::bye), nullptr);
        endpoint->send();
    };
    if (by_endpoint()) say(endpoint_.get());
    for (const auto& stream : sockets_.all()) say(stream.get());
}

bool Ends::pending() const {
    if (lost_) return false;
    if (sockets_.has_unsent()) return true;
    if (failover_.attempt() > 0 && !introduction_.met() && !bye_) return true;  // on a detour
    if (endpoint_ && introduction_.met() && !endpoint_->is_empty()) return true;
    return channels_.has_message();
}

bool Ends::arriving() {
    return !lost_ && sockets_.ever() && page().leaving.load(std::memory_order_relaxed) == 0;
}

bool Ends::owes() const {
    return !lost_ && channels_.owes();
}

std::byte* Ends::begin(const Header& h, const char*& why) {
    Channel& channel = channels_.open(h.channel);
    if (h.what == What::board) return boards_.place();
    if (h.what == What::offer) {
        const bool by_tcp = used_ && net_ == nullptr;
        std::byte* const place = by_tcp ? nullptr : introduction_.place();
        why = by_tcp ? "this rank goes by tcp, and it does not: TUTTI_TRANSPORT must be the same on all ranks"
                     : "it has offered another connection twice";
        return place;
    }
    if (h.what == What::met || h.what == What::bye) return &no_body;
    if (net_ != nullptr && !at_endpoint_) {
        why = "it goes by tcp, and this rank does not: TUTTI_TRANSPORT must be the same on all ranks";
        return nullptr;
    }
    if (!channel.acknowledge(h.credit)) {
        why = "it has finished with more messages than it was sent";
        return nullptr;
    }
    failover_.works();
    if (!at_endpoint_ && (h.what == What::posted_receive || h.what == What::landed)) {
        why = "it speaks of memory that sockets do not reach";
        return nullptr;
    }
    return channel.begin(h, why);
}

void Ends::finish(const Header& h) {
    switch (h.what) {
        case What::message:
        case What::landed:
            channels_[h.channel].finish(h);
            if (h.call.collective != Collective::send) boards_.note(h.call);
            return;
        case What::posted_receive:
        case What::credit:
            return channels_[h.channel].finish(h);
        case What::board:
            return boards_.arrived();
        case What::offer:
            return introduction_.arrived(h.bytes);
        case What::met:
            return introduction_.understood();
        case What::bye:
            bye_ = true;
            if (at_endpoint_) page().leaving.store(1, std::memory_order_release);
            return;
    }
}

}  // namespace tutti::net
