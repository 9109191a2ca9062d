#include "transport/verbs/endpoint.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "base/caught.hpp"
#include "base/result.hpp"
#include "transport/verbs/trouble.hpp"

namespace tutti::verbs {
namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t version = 4;
constexpr unsigned wanted_requests = 256;
constexpr std::uint64_t is_receive = std::uint64_t{1} << 63;  // marks a receive in wr_id
constexpr std::uint64_t is_read = std::uint64_t{1} << 62;     // marks a read of a peer's memory in wr_id
constexpr std::uint8_t receiver_retries = 6;                  // rnr_retry; 7 would mean without end
// The longest wait for an acknowledgement that is chosen here: 4.096 us * 2^17 = 0.5 s, about 4 s with all retries.
// Packets lost in a network are soon replaced. A port, cable or switch that is down for longer costs a new connection
// each time (Ends::leave_endpoint), until the silence limit of the host has passed.
constexpr std::uint8_t longest_timeout = 17;
constexpr milliseconds longest_down{4000};   // of this end's port, before the connection is given up
constexpr milliseconds linger_at_most{200};  // in the destructor

/// The queue pair's timeout: n, for 4.096 us * 2^n until a packet is sent again. Where the user has chosen none, the
/// largest n with which all tries end within the silence limit, but at least 10 and at most longest_timeout.
std::uint8_t timeout_of(const Delivery& delivery, milliseconds silence_limit) {
    if (delivery.timeout > 0) return delivery.timeout;
    const double each_us = static_cast<double>(silence_limit.count()) * 1000 / (delivery.retries + 1);
    std::uint8_t n = 10;
    while (n < longest_timeout && 4.096 * (1 << (n + 1)) <= each_us) ++n;
    return n;
}

template <class T>
std::uint64_t address_of(const T* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer);
}

}  // namespace

Endpoint::Endpoint(const Port& port, int lane, std::shared_ptr<LinkSlots> slots, milliseconds silence_limit)
    : port_(port),
      library_(port.device->library()),
      silence_limit_(silence_limit),
      ring_(*port.device),
      slots_(std::move(slots)),
      window_(std::min(wanted_requests, static_cast<unsigned>(port.device->limits().max_qp_wr))),
      completions_(port, static_cast<int>(window_.most() + ring_frames)),
      pair_(nullptr, library_.destroy_qp) {
    make_queue_pair(port_.device->limits());
    const ibv_port_attr attributes = port_.device->query(port_.number);
    std::uint32_t sequence;
    random_bytes(&sequence, sizeof sequence);
    mine_offer_.version = version;
    mine_offer_.queue_pair = pair_->qp_num;
    mine_offer_.sequence = sequence & 0xffffff;
    mine_offer_.lid = attributes.lid;
    mine_offer_.infiniband = port_.gid.kind == Gid::Kind::infiniband;
    mine_offer_.mtu = static_cast<std::uint8_t>(attributes.active_mtu);
    mine_offer_.gid = port_.gid.bytes;
    mine_offer_.ring = address_of(ring_.in(0));
    mine_offer_.slots = address_of(slots_->in().base);
    mine_offer_.ring_key = ring_.in_key();
    mine_offer_.slots_key = slots_->key();
    mine_offer_.channel_stride = static_cast<std::uint32_t>(slots_->in().channel_stride);
    mine_offer_.slot_stride = static_cast<std::uint32_t>(slots_->in().stride);
    mine_offer_.rail = static_cast<std::uint16_t>(port_.rail);
    mine_offer_.lane = static_cast<std::uint8_t>(lane);
    mine_offer_.distance = static_cast<std::uint8_t>(port_.distance);
    mine_offer_.pkey = port_.pkey;
    (port_.text() + " (" + port_.gid.text() + ")").copy(mine_offer_.port, sizeof mine_offer_.port - 1);
}

void Endpoint::make_queue_pair(const ibv_device_attr& limits) {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = completions_.queue();
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {window_.most(), ring_frames, 1, 1, sizeof(Frame)};
    pair_.reset(library_.create_qp(port_.device->domain(), &wanted));
    if (!pair_ && errno == EINVAL) {  // not every adapter takes so much data in a request
        wanted.cap = {window_.most(), ring_frames, 1, 1, 0};
        pair_.reset(library_.create_qp(port_.device->domain(), &wanted));
    }
    if (!pair_)
        fail_errno("%s makes no queue pair (it has %d; `rdma resource` shows who holds them)", port_.text().c_str(),
                   limits.max_qp);
    port_.device->forget(pair_.get());
    const bool same_address = port_.addresses_at == port_.device->new_addresses();
    news_ = port_.device->news() - (same_address ? 0 : 1);
    inlines_ = wanted.cap.max_inline_data >= sizeof(Frame);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = port_.number;
    attributes.pkey_index = port_.pkey_index;
    attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    modify(attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS, "prepared");
    if (!post_receives(ring_frames)) fail(tuttiSystemError, "%s", trouble().c_str());
}

Endpoint::~Endpoint() {
    if (met_ && !bye_ && trouble().empty()) shielded("leaving an adapter", [&] { linger(); });
}

/// Waits, for linger_at_most, until the bye and all frames before it have arrived: destroying the queue pair would drop
/// them.
void Endpoint::linger() {
    class Nobody : public net::Recipient {
        std::byte* begin(const net::Header& h, const char*&) override {
            return h.in_slot == 1 || h.what == net::What::landed ? nullptr : nothing_;
        }
        void finish(const net::Header&) override {}
        std::byte nothing_[inline_bytes];
    } nobody;
    const Deadline limit = Clock::now() + linger_at_most;
    while (window_.awaits() && !bye_ && trouble().empty() && Clock::now() < limit) receive(nobody);
}

void Endpoint::modify(ibv_qp_attr& attributes, int mask, const char* to) {
    const int error = library_.modify_qp(pair_.get(), &attributes, mask);
    if (error != 0)
        fail(tuttiSystemError, "the queue pair on %s can't be %s: %s", port_.text().c_str(), to, std::strerror(error));
}

std::vector<std::byte> Endpoint::offer() {
    const auto bytes = std::as_bytes(std::span(&mine_offer_, 1));
    return {bytes.begin(), bytes.end()};
}

void Endpoint::meet(std::span<const std::byte> offer) {
    Offer one;
    if (offer.size() != sizeof one) return void(lose("it has offered something that no version offers"));
    std::memcpy(&one, offer.data(), sizeof one);
    meet(one);
}

void Endpoint::meet(const Offer& offer) {
    peer_offer_ = offer;
    peer_offer_.port[sizeof peer_offer_.port - 1] = 0;
    for (char& c : peer_offer_.port)  // error texts show it on terminals
        if (c != 0 && (c < ' ' || c == 127)) c = '?';
    if (peer_offer_.version != version) return void(lose("it speaks another version: use the same Tutti on all ranks"));
    if (peer_offer_.infiniband != mine_offer_.infiniband)
        return void(lose("one of both is InfiniBand, the other RoCE; TUTTI_IB_HCA chooses adapters"));
    if (!share_partition(peer_offer_.pkey, mine_offer_.pkey))
        return void(
            lose(text("%s has the partition key 0x%04x, and %s 0x%04x, so no packet would get through: "
                      "TUTTI_IB_PKEY chooses the entry of a port's table",
                      mine_offer_.port, mine_offer_.pkey, peer_offer_.port, peer_offer_.pkey)));
    try {
        connect(peer_offer_);
        met_ = true;
    } catch (...) {
        lose(caught().what());
    }
}

void Endpoint::connect(const Offer& peer) {
    const auto mtu = std::clamp<int>(std::min(peer.mtu, mine_offer_.mtu), IBV_MTU_256, IBV_MTU_4096);
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = static_cast<ibv_mtu>(mtu);
    a.dest_qp_num = peer.queue_pair;
    a.rq_psn = peer.sequence;
    a.max_dest_rd_atomic = 1;
    a.min_rnr_timer = 12;
    a.ah_attr.port_num = port_.number;
    a.ah_attr.sl = port_.delivery.service_level;
    a.ah_attr.dlid = peer.lid;
    // The address is the LID within an InfiniBand subnet, and the GID over RoCE and to other subnets.
    const bool same_subnet = std::equal(peer.gid.begin(), peer.gid.begin() + 8, port_.gid.bytes.begin());
    a.ah_attr.is_global = mine_offer_.infiniband == 0 || !same_subnet;
    a.ah_attr.grh.hop_limit = 64;
    a.ah_attr.grh.traffic_class = port_.delivery.traffic_class;
    a.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(port_.gid.index);
    std::memcpy(a.ah_attr.grh.dgid.raw, peer.gid.data(), peer.gid.size());
    modify(a,
           IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
               IBV_QP_MIN_RNR_TIMER,
           text("connected with %s", peer_offer_.port).c_str());
    a = {};
    a.qp_state = IBV_QPS_RTS;
    a.sq_psn = mine_offer_.sequence;
    a.timeout = timeout_of(port_.delivery, silence_limit_);
    a.retry_cnt = port_.delivery.retries;
    a.rnr_retry = receiver_retries;
    a.max_rd_atomic = 1;
    modify(
        a,
        IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC,
        "opened for sending");
}

bool Endpoint::post_receives(unsigned count) {
    std::array<ibv_recv_wr, ring_frames> requests;  // without buffers: a write with immediate names its own address
    for (unsigned i = 0; i < count; ++i)
        requests[i] = {is_receive, i + 1 < count ? &requests[i + 1] : nullptr, nullptr, 0};
    ibv_recv_wr* bad = nullptr;
    const int error = pair_->context->ops.post_recv(pair_.get(), requests.data(), &bad);
    return error == 0 || lose(text("%s takes no receive requests: %s", port_.text().c_str(), std::strerror(error)));
}

/// Data to send, or where to read data to, with their local key. They lie in the channel's slots, or in registered
/// memory. nullopt, with trouble(), if the adapter does not know them.
std::optional<ibv_sge> Endpoint::local(int channel, std::span<const std::byte> data, Access access) {
    ibv_sge piece{address_of(data.data()), static_cast<std::uint32_t>(data.size()), 0};
    const SlotTable slots = slots_->out(channel);
    if (data.data() >= slots.base && data.data() < slots.base + slot_depth * slots.stride) {
        try {
            piece.lkey = slots_->region(channel).lkey;
        } catch (...) {
            return lose(caught().what()), std::nullopt;
        }
    } else if (const auto keys = port_.device->registrations().of(data.data(), data.size(), access)) {
        piece.lkey = keys->local;
    } else {
        return lose("the memory of a message, or of a get, was freed before its end"), std::nullopt;
    }
    return piece;
}

bool Endpoint::knows(const std::byte* memory, std::size_t bytes) {
    return port_.device->registrations().of(memory, bytes, Access::local_reads).has_value();
}

net::RemoteMemory Endpoint::expose(int, std::byte* memory, std::size_t bytes) {
    const auto keys = port_.device->registrations().of(memory, bytes, Access::remote_writes);
    if (!keys) return {};  // 0 bytes: no message is put there
    return {address_of(memory), static_cast<std::uint32_t>(bytes), keys->remote};
}

Frame& Endpoint::next_frame(const net::Header& header) {
    TUTTI_ASSERT(has_room() && header.fits());
    Frame& frame = ring_.out(sent_);
    frame.header = header;
    frame.place = 0;
    return frame;
}

void Endpoint::queue(const net::Header& header, const std::byte* body, bool) {
    if (header.in_slot == 1) return put(header, body, body, nullptr);
    Frame& frame = next_frame(header);
    TUTTI_ASSERT(header.bytes <= sizeof frame.body);
    if (header.bytes > 0) std::memcpy(frame.body, body, header.bytes);
    post(frame, sizeof frame - sizeof frame.body + header.bytes, {});
}

void Endpoint::put(const net::Header& header, const std::byte* body, const std::byte* slot,
                   const net::RemoteMemory* to) {
    Frame& frame = next_frame(header);
    const SlotTable from = slots_->out(header.channel);
    const std::size_t number = static_cast<std::size_t>(slot - from.base) / from.stride;
    TUTTI_ASSERT(slot >= from.base && number < slot_depth);
    if (to == nullptr && header.bytes > peer_offer_.slot_stride)
        return void(lose(text("its slots have %u bytes, a message %u", peer_offer_.slot_stride, header.bytes)));
    const std::optional<ibv_sge> piece = local(header.channel, {body, header.bytes}, Access::local_reads);
    if (!piece) return;
    frame.place = to != nullptr
                      ? to->address
                      : std::uint64_t{header.channel} * peer_offer_.channel_stride + number * peer_offer_.slot_stride;
    post(frame, sizeof frame - sizeof frame.body,
         {*piece, to != nullptr ? to->address : peer_offer_.slots + frame.place,
          to != nullptr ? to->key : peer_offer_.slots_key});
}

void Endpoint::write_to(const net::Header& header, const std::byte* body, std::span<const std::byte> data,
                        const net::RemoteMemory& to) {
    Frame& frame = next_frame(header);
    TUTTI_ASSERT(header.bytes <= sizeof frame.body);
    std::memcpy(frame.body, body, header.bytes);
    const std::optional<ibv_sge> piece = local(header.channel, data, Access::local_reads);
    if (piece) post(frame, sizeof frame - sizeof frame.body + header.bytes, {*piece, to.address, to.key});
}

bool Endpoint::reads_to(int, const std::byte* memory, std::size_t bytes) {
    return port_.device->registrations().of(memory, bytes, Access::local_writes).has_value();
}

void Endpoint::read_from(int channel, std::span<std::byte> to, const net::RemoteMemory& from) {
    std::optional<ibv_sge> piece = local(channel, to, Access::local_writes);
    if (!piece || !trouble().empty()) return;
    ibv_send_wr request{};
    request.wr_id = is_read | window_.post(1, true);
    request.sg_list = &*piece;
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_READ;
    request.send_flags = IBV_SEND_SIGNALED;
    request.wr.rdma = {from.address, from.key};
    ibv_send_wr* bad = nullptr;
    const int error = pair_->context->ops.post_send(pair_.get(), &request, &bad);
    if (error != 0) return void(lose(text("%s reads nothing: %s", port_.text().c_str(), std::strerror(error))));
    window_.posted(1);
}

/// Posts the body's write, if there is one, and then the frame's. bytes: of the frame.
void Endpoint::post(Frame& frame, std::size_t bytes, const Body& body) {
    if (!trouble().empty()) return;
    ibv_sge pieces[requests_per_frame];
    ibv_send_wr requests[requests_per_frame];  // not cleared: `add` sets all fields that these opcodes use
    unsigned count = 0;
    const auto add = [&](ibv_wr_opcode opcode, ibv_sge piece, std::uint64_t to, std::uint32_t key) {
        pieces[count] = piece;
        ibv_send_wr& r = requests[count];
        r.wr_id = 0;
        r.next = nullptr;
        r.send_flags = 0;
        r.sg_list = &pieces[count];
        r.num_sge = 1;
        r.opcode = opcode;
        r.wr.rdma = {to, key};
        if (count > 0) requests[count - 1].next = &r;
        ++count;
    };
    if (body.from.length > 0) add(IBV_WR_RDMA_WRITE, body.from, body.to, body.key);
    add(IBV_WR_RDMA_WRITE_WITH_IMM, {address_of(&frame), static_cast<std::uint32_t>(bytes), ring_.out_key()},
        peer_offer_.ring + Ring::offset(sent_), peer_offer_.ring_key);
    ibv_send_wr& last = requests[count - 1];
    last.imm_data = htonl(sent_);
    last.wr_id = window_.post(count, frame.header.what == net::What::bye);
    if (last.wr_id != 0) last.send_flags |= IBV_SEND_SIGNALED;
    if (inlines_) last.send_flags |= IBV_SEND_INLINE;
    ibv_send_wr* bad = nullptr;
    const int error = pair_->context->ops.post_send(pair_.get(), requests, &bad);
    if (error != 0) return void(lose(text("%s sends nothing: %s", port_.text().c_str(), std::strerror(error))));
    window_.posted(count);
    ++sent_;
}

bool Endpoint::poll() {
    flushed_ = false;
    const Completions::Found found = completions_.look();
    if (found == Completions::Found::some) return true;
    if (found == Completions::Found::error) return lose(port_.text() + " does not say what has completed");
    if (port_.device->news() != news_ && !check_health()) return false;
    // Adapters give up packets that are not acknowledged, but soft-RoCE retries without end what it could not send.
    if (port_.device->is_down_for(port_.number, std::min(silence_limit_, longest_down)))
        return lose(port_.text() + " is down");
    return false;
}

/// Checks whether the adapter's new events concern this connection. False, with trouble(), if it can't go on.
bool Endpoint::check_health() {
    news_ = port_.device->news();
    if (const std::string why = port_.device->why_useless(pair_.get(), completions_.queue()); !why.empty())
        return lose(why);
    if (port_.addresses_at == port_.device->new_addresses()) return true;
    const bool same_lid = mine_offer_.infiniband == 0 || port_.device->query(port_.number).lid == mine_offer_.lid;
    if (same_lid && port_.has_its_address()) return true;
    return lose(port_.text() + " has another address than " + port_.gid.text() + " now");
}

bool Endpoint::receive(net::Recipient& to) {
    bool moved = false;
    for (unsigned budget = ring_frames; budget > 0 && trouble().empty(); --budget) {
        if (completions_.empty() && !poll()) break;
        moved = true;
        if (!complete(completions_.take(), to)) break;
        if (completions_.empty() && completions_.that_was_all()) break;
    }
    return moved;
}

bool Endpoint::complete(const ibv_wc& completion, net::Recipient& to) {
    if (completion.status != IBV_WC_SUCCESS) {
        const ibv_port_attr now = port_.device->query(port_.number);
        const std::string port = port_.text();
        const std::string first =
            now.state == IBV_PORT_ACTIVE ? "" : text("%s is %s: ", port.c_str(), name_of(now.state));
        return lose(first + explain(completion.status, port));
    }
    if ((completion.wr_id & is_receive) == 0) {
        has_read_ |= (completion.wr_id & is_read) != 0;
        window_.completed(static_cast<unsigned>(completion.wr_id));
        return true;
    }
    return arrived(ntohl(completion.imm_data), to);
}

/// Takes frame `number` from the ring, and passes it on; its body lies in its place already. False, with trouble(), if
/// the frame is wrong.
bool Endpoint::arrived(std::uint32_t number, net::Recipient& to) {
    if (number != received_) return lose("its frames have come out of order: it does not keep to the protocol");
    ++received_;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    Frame frame;  // a copy, which the peer can't change after it was checked
    std::memcpy(&frame, ring_.in(number), sizeof frame);
    const net::Header& h = frame.header;
    if (++unposted_ >= repost_at && !post_receives(std::exchange(unposted_, 0))) return false;
    const char* why = "it has sent a frame that no version of the protocol has";
    const bool elsewhere = h.in_slot == 1 || h.what == net::What::landed;
    if (h.what == net::What::bye) bye_ = true;
    std::byte* const place = h.fits() && (elsewhere || h.bytes <= sizeof frame.body) ? to.begin(h, why) : nullptr;
    if (place == nullptr) return lose(why);
    const std::byte* const base = h.in_slot == 1 ? slots_->in().base : nullptr;
    if (!elsewhere)
        std::memcpy(place, frame.body, h.bytes);
    else if (address_of(place) != address_of(base) + frame.place)
        return lose("it has written a message to where another one belongs: it does not keep to the protocol");
    if (h.in_slot == 1 && !flush()) return false;
    to.finish(h);
    return true;
}

/// Makes the messages in GPU slots that this batch of completions stands for visible to kernels; once for each batch.
/// False, with trouble(), if that fails.
bool Endpoint::flush() {
    if (!slots_->in_on_device() || std::exchange(flushed_, true)) return true;
    try {
        slots_->flush();
        return true;
    } catch (...) {
        return lose_for_good(caught().what());
    }
}

bool Endpoint::arm() {
    if (!completions_.arm()) lose(port_.text() + " does not tell when something arrives");
    const bool nothing = completions_.empty() && !poll();
    return nothing && (!met_ || trouble().empty());  // before it has met, its link does not look at trouble
}

std::string Endpoint::describe() const {
    return std::string(mine_offer_.port) + " to " + (met_ ? peer_offer_.port : "its peer");
}

}  // namespace tutti::verbs
