#include "transport/net/link.hpp"

#include <algorithm>
#include <utility>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/result.hpp"

namespace tutti::net {
namespace {

// When an endpoint fails the sockets close as well. The endpoint's reason has to win over the peer's, which only sees
// closed sockets, so this rank counts its loss as earlier.
constexpr std::chrono::milliseconds head_start{150};

// The least silence that counts. TCP sends a lost packet again after 0.2 s, and after twice as long each time.
constexpr std::chrono::milliseconds least_patience{1000};

constexpr const char* choose_alike = "TUTTI_TRANSPORT, or config.transport, must be the same on all ranks";

}  // namespace

Ends::Ends(const Session& session, std::shared_ptr<Arena> mine, Rank peer)
    : self_(session.rank()),
      peer_name_(session.name(peer)),
      direct_(mine->awaited(), peer),
      channels_(mine, peer),
      puts_(*mine, peer),
      healing_(session.rank() < peer),
      boards_(channels_.page()) {
    channels_[one_sided_channel].direct = &direct_;
    channels_[one_sided_channel].early = &early_, channels_[answer_channel].early = &early_answers_;
}

bool Ends::wants(int number, int count, std::uint32_t round) const {
    return !end_.in_peace && !end_.lost && healing_.wants(round) &&
           (round > healing_.round() || sockets_.want(number, count));
}

void Ends::attach(int number, int count, std::unique_ptr<tcp::Stream> stream, std::uint32_t round) {
    if (round > healing_.round() && !healing_.is_torn() && !tear("it makes its connections anew"))
        return lose("its connections break again and again");
    end_.addresses = stream->describe();
    if (healing_.begin(round)) {
        const Received mine = channels_.received();
        Header h = channels_[0].header(What::resume);
        h.bytes = sizeof mine;
        stream->queue(h, reinterpret_cast<const std::byte*>(&mine), true);
    }
    sockets_.attach(number, count, std::move(stream));
}

/// A socket has broken: closes all sockets, so that new ones are made. ago: how long the peer has been silent. False if
/// that has gone on for as long as a host may be silent, and nothing has come through.
bool Ends::tear(const std::string& why, Clock::duration ago) {
    if (end_.lost_socket || !healing_.tear(Clock::now(), why, ago)) return false;
    log(Level::info, "rank %d: %s: %s; connecting again", self_, describe().c_str(), why.c_str());
    end_.addresses = where();
    sockets_.close();
    if (net_ == nullptr) channels_.forget_early();
    boards_.forget();
    puts_.forget();
    introduction_.repeat(endpoint_ != nullptr);
    return true;
}

/// Goes on over new sockets from what the peer has received.
void Ends::resume(const Received& theirs) {
    if (net_ == nullptr && !channels_.resume(theirs, false))
        return lose("what it says it has got can't be: it does not keep to the protocol");
    const auto [took, first] = healing_.resume(theirs, Clock::now());
    log(first ? Level::warn : Level::info, "rank %d: %s: connected again after %lld ms, and nothing is lost: %s", self_,
        describe().c_str(), static_cast<long long>(took.count()), healing_.why().c_str());
}

bool Ends::missed(int number, int count, std::uint32_t round, const std::string& why, bool hopeless) {
    if (!wants(number, count, round)) return false;
    healing_.missed(why);
    if (!hopeless || sockets_.any()) return true;
    lose(healing_.why());
    return false;
}

void Ends::listen_for_silence() {
    if (healing_.is_over(Clock::now())) return lose(healing_.why());
    const Clock::duration silent = sockets_.listen_for_silence();
    // Only one of several network paths may be cut.
    const Clock::duration patience = std::max(healing_.limit() / 4, least_patience);
    if (end_.in_peace || end_.lost || silent <= patience) return;
    if (heals_silence() || healing_.is_too_silent(silent)) broke(bootstrap::silence_in_words, heals_silence(), silent);
}

bool Ends::heals_silence() const {
    return sockets_.several() && healing_.may_find_another_way(Clock::now());
}

/// A socket has failed. heals: new ones may work. silent: how long the peer had been silent on it.
void Ends::broke(const std::string& why, bool heals, Clock::duration silent) {
    healing_.broke(why);
    if (!heals || !tear(why, silent)) lose(why);
}

void Ends::use(Net* net, const DeviceSlots* slots) {
    used_ = true;
    net_ = net;
    channels_.place(slots);  // no message has come yet: the peer's endpoint waits for introduce()
    if (net == nullptr) channels_.serve_posts();
    if (net == nullptr && introduction_.has_offer())
        lose(text("it goes by %s, this rank by tcp; %s", introduction_.theirs().net, choose_alike));
}

NetEndpoint* Ends::introduce(std::chrono::milliseconds silence_limit, const Whereabouts& here) {
    failover_.set_limit(silence_limit);
    if (net_ == nullptr || endpoint_ || end_.lost || end_.in_peace || first_socket() == nullptr) return nullptr;
    try {
        LinkMemory memory = channels_.memory();
        memory.here = &here;
        const unsigned attempt = failover_.attempt();
        endpoint_ = attempt == 0 ? net_->open(self_, peer(), memory, silence_limit)
                                 : net_->detour(self_, peer(), memory, silence_limit, failover_.broken());
        if (!endpoint_ && !failover_.postpone(Clock::now())) fail(tuttiRemoteError, "no other port is active");
        if (!endpoint_) return nullptr;
        introduction_.offer(net_->name(), attempt, endpoint_->offer()).received = channels_.received();
    } catch (...) {
        lose(caught().what());
    }
    return endpoint_.get();
}

/// Accepts the peer's offer, or loses the link if it does not fit.
void Ends::meet() {
    const Offer& offer = introduction_.theirs();
    if (net_->name() != offer.net)
        return lose(
            text("it goes by %s, this rank by %s; %s", offer.net, std::string(net_->name()).c_str(), choose_alike));
    const unsigned attempt = failover_.attempt();
    if (offer.attempt != attempt || !channels_.resume(offer.received, attempt == 0))
        return lose("what it says of its connections can't be: it does not keep to the protocol");
    failover_.resume(offer.received);
    endpoint_->meet(introduction_.meet());
    log(Level::info, "rank %d: messages with %s", self_, describe().c_str());
}

/// The endpoint has failed: destroys it, and both ends try another one. False if that has gone on for as long as a host
/// may be silent, and nothing has come through.
bool Ends::leave_endpoint(unsigned attempt, const std::string& why) {
    if (!failover_.failed(Clock::now()) || (first_socket() == nullptr && healing_.is_whole())) return false;
    log(Level::warn, "rank %d: %s: %s; looking for another way", self_, describe().c_str(), why.c_str());
    end_.addresses = where();
    failover_.next(attempt, why, endpoint_->broken());
    endpoint_->abandon();
    endpoint_.reset();
    channels_.forget_early(), puts_.forget_windows(), direct_.forget();
    introduction_.restart();
    return true;
}

Endpoint* Ends::endpoint_of(Channel& channel) const {
    if (end_.lost) return nullptr;
    if (net_ != nullptr) return by_endpoint() ? endpoint_.get() : nullptr;
    return healing_.is_whole() ? sockets_.of(channel, healing_.round() > 0) : nullptr;
}

/// The addresses of both ends, for error texts.
std::string Ends::where() const {
    return endpoint_ ? std::string(net_->name()) + ", " + endpoint_->describe() : end_.addresses;
}

std::string Ends::describe() const {
    return peer_name_ + ", by " +
           (!sockets_.ever() ? "TCP, not connected yet"
            : endpoint_      ? where()
                             : "TCP, " + where());
}

/// Sends rare frames, which always go by the first socket.
void Ends::send_rare() {
    tcp::Stream* const socket = first_socket();
    const auto send = [&](What what, const void* body, std::size_t bytes) {
        Header h = channels_[0].header(what);
        h.bytes = static_cast<std::uint32_t>(bytes);
        h.signature = failover_.attempt();
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
    if (puts_.due() && ready()) send(What::refused, &puts_.tell(), sizeof(Refusal));
}

bool Ends::send_channel(Channel& channel) {
    Endpoint* const endpoint = channel.stirs() ? endpoint_of(channel) : nullptr;
    const bool by_any = net_ == nullptr && channel.early != nullptr;
    return endpoint != nullptr &&
           channel.send(*endpoint, endpoint_.get(), by_any ? sockets_.present() : std::vector<Endpoint*>());
}

bool Ends::send_channels() {
    bool moved = false;
    for (Channel* const channel : channels_.in_use()) moved |= send_channel(*channel);
    return moved;
}

bool Ends::push() {
    const bool queued = send_channels();
    if (net_ == nullptr) return sockets_.send() || queued;
    if (!endpoint_ || !introduction_.met() || end_.lost) return queued;
    const bool sent = endpoint_->send();
    return endpoint_->trouble().empty() ? queued || sent : move();
}

bool Ends::glance() {
    if (!endpoint_ || end_.lost) return move();
    bool moved = send_channels();
    moved |= receive_by_endpoint();
    moved |= answer();
    moved |= endpoint_->send();
    return endpoint_->trouble().empty() ? moved : moved | move();
}

bool Ends::move() {
    bool moved = send_channels();  // first, since a peer waits for these
    if (end_.lost_socket && !end_.in_peace && Clock::now() - *end_.lost_socket > time_for_farewell)
        lose(end_.why, time_for_farewell);
    moved |= sockets_.receive(*this);
    if (end_.given_up && !end_.in_peace) lose("it has given the connection up", -head_start);  // and knows why
    if (const auto theirs = healing_.take_theirs()) resume(*theirs);
    if (endpoint_) moved |= look_at_endpoint();
    moved |= answer();
    if (puts_.broken()) lose("it puts, gets or answers what can't be right: it does not keep to the protocol");
    if (bad_window_) lose("it names a window that can't be: it does not keep to the protocol");
    if (introduction_.pending() || boards_.due() || puts_.due()) send_rare();
    if (endpoint_) moved |= send_by_endpoint();
    return moved | send_by_sockets();
}

/// Accepts the peer's offer; before that, leaves an endpoint that the peer has given up. Then receives.
bool Ends::look_at_endpoint() {
    const bool has_offer = introduction_.has_offer() && !end_.lost;
    const unsigned offered = introduction_.theirs().attempt;
    if (has_offer && offered > failover_.attempt() && !leave_endpoint(offered, "the peer can't go on with it"))
        lose("its connections fail again and again");
    if (has_offer && (offered < failover_.attempt() || (offered == failover_.attempt() && introduction_.met())))
        introduction_.ignore();  // it was repeated over a new socket
    else if (endpoint_ && has_offer && !introduction_.met())
        meet();
    return endpoint_ && introduction_.met() && receive_by_endpoint();
}

bool Ends::receive_by_endpoint() {
    at_endpoint_ = true;
    const bool moved = endpoint_->receive(*this);
    at_endpoint_ = false;
    return moved;
}

bool Ends::send_by_endpoint() {
    if (!introduction_.met() || end_.lost) return false;
    const bool moved = endpoint_->send();
    if (endpoint_->trouble().empty()) return moved;
    const bool may_go_on = (introduction_.known() || failover_.attempt() > 0) && !endpoint_->is_hopeless();
    if (end_.in_peace)
        part();
    else if (!may_go_on || !leave_endpoint(failover_.attempt() + 1, endpoint_->trouble()))
        lose(endpoint_->trouble(), head_start);
    return moved;
}

bool Ends::send_by_sockets() {
    bool moved = false;
    for (const auto& stream : sockets_.all()) {
        if (!stream || stream->idle()) continue;
        if (!stream->is_empty()) moved |= stream->send();
        if (stream->trouble().empty()) continue;
        end_.addresses = stream->describe();
        if (end_.in_peace) {  // the others stay open for what is still on its way
            sockets_.drop(*stream);
            part();
            continue;
        }
        const std::string why = stream->trouble();
        const bool silent = stream->by_silence(), heals = stream->has_ended() && (!silent || heals_silence());
        broke(why, heals, silent ? healing_.limit() : Clock::duration{});
    }
    return moved;
}

/// The peer has said bye: receives the rest from the endpoint and destroys it. The peer has left once all sockets are
/// closed, too.
void Ends::part() {
    while (introduction_.met() && receive_by_endpoint()) {
    }
    endpoint_.reset();
    introduction_.part();
    if (!sockets_.any()) page().leaving.store(1, std::memory_order_release);
}

void Ends::lose(const std::string& why, std::chrono::milliseconds ago) {
    if (end_.lost) return;
    end_.lost = Clock::now() - ago;
    end_.why = healing_.all_of(failover_.all_of(why), Clock::now());
    end_.addresses = where();
    for (const auto& stream : sockets_.all()) {
        if (!stream || !stream->trouble().empty() || !stream->has_room()) continue;
        stream->queue(channels_[0].header(What::lost), nullptr);
        stream->send();
    }
    if (endpoint_) endpoint_->abandon();
    endpoint_.reset();
    sockets_.close();
}

void Ends::lose_socket(const std::string& why) {
    if (end_.lost || end_.lost_socket) return;
    if (!sockets_.any()) return lose(why);
    end_.lost_socket = Clock::now();
    end_.why = why;
}

std::string Ends::what_is_lost() const {
    if (end_.in_peace) return "";
    if (end_.addresses.empty())
        return text("rank %d can't connect to %s: %s", self_, peer_name_.c_str(), end_.why.c_str());
    return text("rank %d lost its connection with %s (%s): %s", self_, peer_name_.c_str(), end_.addresses.c_str(),
                end_.why.c_str());
}

bool Ends::knows(const std::byte* memory, std::size_t bytes) {
    return endpoint_ && by_endpoint() && !end_.lost && endpoint_->knows(memory, bytes);
}

void Ends::withdraw() {
    if (channels_.withdraw()) lose("this rank has given up");
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
    if (end_.lost) return false;
    if (sockets_.has_unsent()) return true;
    if (failover_.attempt() > 0 && !introduction_.met() && !end_.in_peace) return true;  // on a detour
    if (!healing_.is_whole() && !end_.in_peace) return true;
    if (endpoint_ && introduction_.met() && !endpoint_->is_empty()) return true;
    return puts_.is_answering() || channels_.has_message();
}

bool Ends::arriving() {
    return !end_.lost && sockets_.ever() && page().leaving.load(std::memory_order_relaxed) == 0;
}

bool Ends::owes() const {
    return !end_.lost && channels_.owes();
}

std::byte* Ends::begin(const Header& h, const char*& why) {
    if (h.what >= What::board) return begin_rare(h, why);
    Channel& channel = channels_.open(h.channel);
    if (net_ != nullptr && !at_endpoint_) {
        why = "it goes by tcp, and this rank does not: TUTTI_TRANSPORT must be the same on all ranks";
        return nullptr;
    }
    const std::uint32_t before = channel.out.fifo->released.load(std::memory_order_relaxed);
    if (!channel.acknowledge(h.credit)) {
        why = "it has finished with more messages than it was sent";
        return nullptr;
    }
    if (h.credit != before) comes_through();
    if (!at_endpoint_ && (h.what == What::posted_receive || h.what == What::landed || h.what == What::window)) {
        why = "it speaks of memory that sockets do not reach";
        return nullptr;
    }
    return channel.begin(h, why);
}

/// A message or a new credit has arrived. Frames that are repeated over every new connection do not count.
void Ends::comes_through() {
    failover_.works();
    healing_.works();
}

/// Frames that belong to no channel.
std::byte* Ends::begin_rare(const Header& h, const char*& why) {
    if (h.what == What::board) return boards_.place();
    if (h.what == What::refused) return puts_.place();
    if (h.what == What::resume) {
        why = "it resumes what has not broken";
        return healing_.place();
    }
    if (h.what != What::offer) return &no_body;
    why = "this rank goes by tcp, and it does not: TUTTI_TRANSPORT must be the same on all ranks";
    return used_ && net_ == nullptr ? nullptr : introduction_.place();
}

void Ends::finish(const Header& h) {
    switch (h.what) {
        case What::message:
        case What::landed:
            comes_through();
            channels_[h.channel].finish(h);
            if (h.channel == one_sided_channel)
                return puts_.take(channels_[one_sided_channel].in, channels_.open(answer_channel).out);
            if (h.channel == answer_channel) return puts_.take_answers(channels_[answer_channel].in);
            if (h.call.collective != Collective::send) boards_.note(h.call);
            return;
        case What::posted_receive:
        case What::credit:
            return channels_[h.channel].finish(h);
        case What::window:
            return void(bad_window_ |= !direct_.arrived());  // move() loses the link: the endpoint is still receiving
        case What::board:
            return boards_.arrived();
        case What::refused:
            return puts_.arrived();
        case What::offer:
            return introduction_.arrived(h.bytes);
        case What::met:
            if (h.signature == failover_.attempt()) introduction_.understood();
            return;
        case What::bye:
            end_.in_peace = true;
            if (at_endpoint_) page().leaving.store(1, std::memory_order_release);
            return;
        case What::resume:
            healing_.arrived();
            return;
        case What::lost:
            end_.given_up = true;
            return;
    }
}

}  // namespace tutti::net
