#include "transport/net/link.hpp"

#include <algorithm>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "transport/numbering.hpp"

namespace tutti::net {
namespace {

constexpr std::chrono::milliseconds first_pause{10}, longest_pause{1000};  // before another way is tried
// An endpoint that fails takes the sockets with it. What it says is to be told before the peer tells that they were
// closed.
constexpr std::chrono::milliseconds head_start{150};
// A peer that leaves while sockets are still made may close those before its farewell is here.
constexpr std::chrono::milliseconds time_for_farewell{150};

constexpr const char* choose_alike = "TUTTI_TRANSPORT, or config.transport, must be the same on all ranks";

}  // namespace

Ends::Ends(const Session& session, std::shared_ptr<Arena> mine, Rank peer)
    : mine_(std::move(mine)),
      inbox_(Arena::make(1, false)),
      wake_up_(mine_->page().wake_up),
      self_(session.rank()),
      peer_(peer),
      peer_name_(session.name(peer)) {}

Channel& Ends::open(int number) {
    Channel& channel = channels_[static_cast<std::size_t>(number)];
    if (channel.arrivals) return channel;
    channel.open(number, mine_->wire(peer_, number, &wake_up_), inbox_->wire(0, number, &wake_up_));
    if (slots_ != nullptr) channel.place(*slots_);
    open_.push_back(&channel);
    return channel;
}

Wire Ends::outlet(int channel) {
    return open(channel).out;
}

Wire Ends::inlet(int channel) {
    return open(channel).in;
}

bool Ends::wants(int number, int count) const {
    const auto n = static_cast<std::size_t>(number);
    if (bye_ || lost_) return false;
    if (streams_.empty()) return true;
    return streams_.size() == static_cast<std::size_t>(count) && streams_[n] == nullptr;
}

void Ends::attach(int number, int count, std::unique_ptr<tcp::Stream> stream) {
    streams_.resize(static_cast<std::size_t>(count));
    addresses_ = stream->describe();
    streams_[static_cast<std::size_t>(number)] = std::move(stream);
}

void Ends::use(Net* net, const DeviceSlots* slots) {
    used_ = true;
    net_ = net;
    slots_ = slots;
    for (Channel* const channel : open_)  // no message has come: those of a net wait for introduce()
        if (slots != nullptr) channel->place(*slots);
    if (net == nullptr && offered_ > 0) lose(text("it goes by %s, this rank by tcp; %s", offer_in_.net, choose_alike));
}

NetEndpoint* Ends::introduce(std::chrono::milliseconds silence_limit) {
    silence_limit_ = silence_limit;
    if (net_ == nullptr || endpoint_ || lost_ || bye_ || first_socket() == nullptr) return nullptr;
    try {
        const LinkMemory memory{*mine_, *inbox_, slots_};
        endpoint_ = attempt_ == 0 ? net_->open(self_, peer_, memory, silence_limit)
                                  : net_->detour(self_, peer_, memory, silence_limit, broken_);
        if (!endpoint_ && Clock::now() - failing_since_ > silence_limit_)
            fail(tuttiRemoteError, "no other port is active");
        if (!endpoint_) return next_try_ = Clock::now() + first_pause, nullptr;
        const std::vector<std::byte> bytes = endpoint_->offer();
        TUTTI_ASSERT(bytes.size() <= offer_bytes);
        net_->name().copy(offer_.net, sizeof offer_.net - 1);
        std::ranges::copy(bytes, offer_.bytes);
        offer_.attempt = attempt_;
        for (std::size_t channel = 0; channel < channels_.size(); ++channel)
            offer_.received[channel] = channels_[channel].received;
        offer_due_ = offsetof(Offer, bytes) + bytes.size();
    } catch (...) {
        lose(caught().what());
    }
    return endpoint_.get();
}

/// The other end's offer is there.
void Ends::meet() {
    offer_in_.net[sizeof offer_in_.net - 1] = 0;
    if (net_->name() != offer_in_.net)
        return lose(
            text("it goes by %s, this rank by %s; %s", offer_in_.net, std::string(net_->name()).c_str(), choose_alike));
    if (offer_in_.attempt != attempt_ || !resume())
        return lose("what it says of its connections can't be: it does not keep to the protocol");
    met_ = met_due_ = true;
    endpoint_->meet(std::span(offer_in_.bytes, std::exchange(offered_, 0) - offsetof(Offer, bytes)));
    log(Level::info, "rank %d: messages with %s", self_, describe().c_str());
}

/// See Channel::resume().
bool Ends::resume() {
    for (std::size_t number = 0; number < channels_.size(); ++number) {
        Channel& channel = channels_[number];
        const std::uint32_t got = offer_in_.received[number];
        const bool anew = !channel.arrivals || attempt_ == 0;
        if (anew ? got != 0 && got != first_message : !channel.resume(got)) return false;
    }
    return true;
}

/// The endpoint is of no use any more; both ends try another one. False if they have tried for as long as a host may be
/// silent, and nothing came through.
bool Ends::leave_endpoint(unsigned attempt, const std::string& why) {
    const Deadline now = Clock::now();
    if (!failing_ || now - failed_at_ > silence_limit_) failing_since_ = now, pause_ = {};
    failing_ = true;
    failed_at_ = now;
    if (now - failing_since_ > silence_limit_ || first_socket() == nullptr) return false;
    next_try_ = now + pause_;
    pause_ = std::clamp(2 * pause_, first_pause, longest_pause);
    log(Level::warn, "rank %d: %s: %s; looking for another way", self_, describe().c_str(), why.c_str());
    addresses_ = where();
    why_again_ = why;
    attempt_ = attempt;
    broken_ |= endpoint_->broken();
    endpoint_->abandon();
    endpoint_.reset();
    met_ = known_ = met_due_ = false;
    offer_due_ = 0;
    return true;
}

bool Ends::has_sockets() const {
    return std::ranges::any_of(streams_, [](const auto& stream) { return stream != nullptr; });
}

tcp::Stream* Ends::first_socket() const {
    return streams_.empty() || lost_ ? nullptr : streams_[0].get();
}

Endpoint* Ends::endpoint_of(const Channel& channel) const {
    if (lost_) return nullptr;
    if (net_ != nullptr) return met_ && known_ ? endpoint_.get() : nullptr;
    return streams_.empty() ? nullptr : streams_[static_cast<std::size_t>(channel.number) % streams_.size()].get();
}

/// Which ends, for error texts.
std::string Ends::where() const {
    return endpoint_ ? std::string(net_->name()) + ", " + endpoint_->describe() : addresses_;
}

std::string Ends::describe() const {
    return peer_name_ + ", by " +
           (streams_.empty() ? "TCP, not connected yet"
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
    if (offer_due_ > 0 && socket != nullptr && socket->has_room())
        send(What::offer, &offer_, std::exchange(offer_due_, 0));
    if (met_due_ && endpoint_ && endpoint_->trouble().empty() && socket != nullptr && socket->has_room()) {
        send(What::met, nullptr, 0);
        met_due_ = false;
    }
    if (board_due_ && socket != nullptr && socket->has_room()) {
        send(What::board, &board_, sizeof board_);
        board_due_ = false;
    }
}

bool Ends::send_channels() {
    bool moved = false;
    for (Channel* const channel : open_)
        if (Endpoint* const endpoint = channel->stirs() ? endpoint_of(*channel) : nullptr)
            moved |= channel->send(*endpoint, endpoint_.get());
    return moved;
}

bool Ends::push() {
    const bool queued = send_channels();
    if (!endpoint_ || !met_ || lost_) return queued;
    const bool sent = endpoint_->send();
    return endpoint_->trouble().empty() ? queued || sent : move();
}

bool Ends::move() {
    bool moved = send_channels();  // before looking at what has come: for this somebody waits
    if (lost_socket_ && !bye_ && Clock::now() - *lost_socket_ > time_for_farewell) lose(why_, time_for_farewell);
    for (const auto& stream : streams_)
        if (stream && !stream->idle()) moved |= stream->receive(*this);
    if (endpoint_ && offered_ > 0 && offer_in_.attempt > attempt_ && !lost_ &&
        !leave_endpoint(offer_in_.attempt, "the peer can't go on with it"))
        lose("its connections fail again and again");
    if (endpoint_ && offered_ > 0 && !met_ && !lost_) meet();
    if (endpoint_ && met_ && !lost_) {
        at_endpoint_ = true;
        moved |= endpoint_->receive(*this);
        at_endpoint_ = false;
    }
    if (offer_due_ > 0 || met_due_ || board_due_) send_rare();
    if (endpoint_ && met_ && !lost_) {
        moved |= endpoint_->send();
        if (!endpoint_->trouble().empty()) {
            if (bye_)
                part();
            else if (!known_ || !leave_endpoint(attempt_ + 1, endpoint_->trouble()))
                lose(endpoint_->trouble(), head_start);
        }
    }
    for (auto& stream : streams_) {
        if (!stream || stream->idle()) continue;
        if (!stream->is_empty()) moved |= stream->send();
        if (stream->trouble().empty()) continue;
        addresses_ = stream->describe();
        if (!bye_) {
            lose(stream->trouble());
        } else {  // what is still on its way on the others is to arrive
            stream.reset();
            part();
        }
    }
    return moved;
}

/// The peer has gone in peace, and nothing of it is on its way but what the sockets that are left may bring.
void Ends::part() {
    at_endpoint_ = true;
    while (met_ && endpoint_->receive(*this)) {
    }
    at_endpoint_ = false;
    endpoint_.reset();
    met_ = false;
    if (!has_sockets()) page().leaving.store(1, std::memory_order_release);
}

void Ends::heard(int number, std::uint32_t events) {
    const auto n = static_cast<std::size_t>(number);
    if (n < streams_.size() && streams_[n]) streams_[n]->heard(events);
}

void Ends::listen_for_silence() {
    for (const auto& stream : streams_)
        if (stream) stream->listen_for_silence();
}

void Ends::lose(const std::string& why, std::chrono::milliseconds ago) {
    if (lost_) return;
    lost_ = Clock::now() - ago;
    why_ = why;
    if (failing_ && why != why_again_) why_ += "; before that: " + why_again_;
    addresses_ = where();
    if (endpoint_) endpoint_->abandon();
    endpoint_.reset();
    for (auto& stream : streams_) stream.reset();
}

void Ends::lose_socket(const std::string& why) {
    if (lost_ || lost_socket_) return;
    if (!has_sockets()) return lose(why);
    lost_socket_ = Clock::now();
    why_ = why;
}

std::string Ends::what_is_lost() const {
    if (bye_) return "";
    if (addresses_.empty()) return text("rank %d can't connect to %s: %s", self_, peer_name_.c_str(), why_.c_str());
    return text("rank %d lost its connection with %s (%s): %s", self_, peer_name_.c_str(), addresses_.c_str(),
                why_.c_str());
}

void Ends::settle() {
    for (Channel* const channel : open_) channel->settle = channel->owes();
}

void Ends::tell_board(const RankPage& mine) {
    const std::uint64_t sequence = mine.sequence.load(std::memory_order_acquire);
    if (sequence == board_told_ || board_due_) return;
    board_.sequence = board_told_ = sequence;
    for (int i = 0; i < board_entries; ++i) board_.calls[i] = mine.board[i].get();
    board_due_ = true;
}

bool Ends::knows(const std::byte* memory, std::size_t bytes) {
    return endpoint_ && met_ && known_ && !lost_ && endpoint_->knows(memory, bytes);
}

void Ends::withdraw() {
    for (const Channel* const channel : open_)
        if (later(channel->spotted, channel->received)) return lose("this rank has given up");
}

void Ends::say_bye() {
    const auto say = [&](Endpoint* endpoint) {
        if (endpoint == nullptr) return;
        if (endpoint->has_room()) endpoint->queue(channels_[0].header(What::bye), nullptr);
        endpoint->send();
    };
    if (met_ && known_) say(endpoint_.get());
    for (const auto& stream : streams_) say(stream.get());
}

bool Ends::pending() const {
    if (lost_) return false;
    for (const auto& stream : streams_)
        if (stream && !stream->is_empty()) return true;
    if (attempt_ > 0 && !met_ && !bye_) return true;  // on a detour
    if (endpoint_ && met_ && !endpoint_->is_empty()) return true;
    return std::ranges::any_of(open_, &Channel::has_message);
}

bool Ends::arriving() {
    return !lost_ && !streams_.empty() && page().leaving.load(std::memory_order_relaxed) == 0;
}

bool Ends::owes() const {
    return !lost_ && std::ranges::any_of(open_, &Channel::owes);
}

std::byte* Ends::begin(const Header& h, const char*& why) {
    Channel& channel = open(h.channel);
    const bool is_message = h.what == What::message || h.what == What::landed;
    if (is_message || h.what == What::credit || h.what == What::posted_receive) {
        if (net_ != nullptr && !at_endpoint_) {
            why = "it goes by tcp, and this rank does not: TUTTI_TRANSPORT must be the same on all ranks";
            return nullptr;
        }
        if (!channel.can_have_finished(h.credit)) {
            why = "it has finished with more messages than it was sent";
            return nullptr;
        }
        channel.out.fifo->released.store(h.credit, std::memory_order_release);
        failing_ = false;
    }
    if (h.what == What::board) return reinterpret_cast<std::byte*>(&board_in_);
    if (h.what == What::offer) {
        if (offered_ == 0 && !(used_ && net_ == nullptr)) return reinterpret_cast<std::byte*>(&offer_in_);
        why = used_ && net_ == nullptr ? "this rank goes by tcp, and it does not: TUTTI_TRANSPORT must be the same on "
                                         "all ranks"
                                       : "it has offered another connection twice";
        return nullptr;
    }
    if (!at_endpoint_ && (h.what == What::posted_receive || h.what == What::landed)) {
        why = "it speaks of memory that sockets do not reach";
        return nullptr;
    }
    if (h.what == What::posted_receive) return reinterpret_cast<std::byte*>(&spot_in_);
    if (!is_message) return nothing_;
    if (!channel.arrivals->ready(h.in_slot == 1)) {
        why = "it has sent more messages than there is room for";
        return nullptr;
    }
    if (h.what == What::landed) {
        const PostedReceive& posted_receive = channel.in.fifo->posted_receives[channel.received % fifo_depth];
        if (posted_receive.turn.load(std::memory_order_acquire) == channel.received + 1 &&
            posted_receive.bytes == h.bytes)
            return reinterpret_cast<std::byte*>(posted_receive.where.offset);
        why = "it has written a message to memory that it was not given";
        return nullptr;
    }
    if (h.in_slot == 1 && h.bytes > channel.in.stride) {
        why = "it has sent a message that is longer than a slot";
        return nullptr;
    }
    return h.in_slot == 1 ? channel.in_slot() : channel.arrivals->cell().payload;
}

void Ends::finish(const Header& h) {
    Channel& channel = channels_[h.channel];
    switch (h.what) {
        case What::message:
        case What::landed: {
            const Kind kind = h.what == What::landed ? Kind::landed : h.in_slot == 1 ? Kind::slot : Kind::inlined;
            if (kind != Kind::inlined) channel.arrivals->cell().set_row(h.row);
            channel.arrivals->begin(h.call);  // and not mappable, whatever it was: no buffer is, on another host
            ++channel.received;
            if (later(channel.received, channel.spotted)) channel.spotted = channel.received;
            if (h.awaited == 1) channel.awaited = channel.received;
            channel.arrivals->commit(kind, h.bytes, h.signature);
            if (h.call.collective != Collective::send) note_call(h.call);
            return;
        }
        case What::posted_receive:
            if (later(spot_in_.turn, channel.taken)) channel.spots[(spot_in_.turn - 1) % fifo_depth] = spot_in_;
            return;
        case What::board:
            return read_board();
        case What::offer:
            offered_ = h.bytes;
            return;
        case What::met:
            known_ = true;
            return;
        case What::bye:
            bye_ = true;
            if (at_endpoint_) page().leaving.store(1, std::memory_order_release);
            return;
        case What::credit:
            return;
    }
}

/// What the page of a peer whose memory can't be seen says.
void Ends::note_call(const Call& call) {
    page().board[call.sequence % board_entries].set(call);
    page().sequence.store(std::uint64_t{call.sequence} + 1, std::memory_order_release);
}

void Ends::read_board() {
    for (int i = 0; i < board_entries; ++i) page().board[i].set(board_in_.calls[i]);
    page().sequence.store(board_in_.sequence, std::memory_order_release);
}

}  // namespace tutti::net
