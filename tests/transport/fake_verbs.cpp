#include "fake_verbs.hpp"

#include <arpa/inet.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "harness/dma_buf.hpp"

namespace tutti::harness {
namespace {

// One lock for all adapters: also what happens between the threads of both ends.
std::mutex mutex;
std::uint32_t last_key = 100, last_pair = 10;
int until_cut = 0;  // 0: to be drawn
FakeVerbsTally tally;

struct Queue : ibv_cq {
    std::deque<ibv_wc> completions;
    bool armed = false;
};
/// A send request that outlives post_send().
struct Posted {
    ibv_send_wr request;
    ibv_sge piece;
    std::vector<std::byte> in_request;
};
struct Pair : ibv_qp {
    ibv_qp_state now = IBV_QPS_RESET;
    std::uint32_t peer = 0;
    unsigned inline_bytes = 0, requests = 0, most_requests = 0;
    unsigned untold = 0;  // requests that have ended without a completion
    std::deque<std::uint64_t> receives;
    FakeConnection told = {};
    unsigned access = 0;         // what the peer may do
    std::deque<Posted> on_wire;  // FakeVerbs::apart: not carried out yet
};
struct Region : ibv_mr {
    std::byte* gpu = nullptr;  // where the adapter sees it, if it is a GPU's
    int access = 0;
    std::size_t written = 0, read = 0;  // bytes, by peers
    std::size_t fetched = 0;            // bytes, from peers
};
std::map<std::uint32_t, Region*> regions;

/// A write to a GPU that has not arrived yet.
struct Late {
    std::uint32_t key;
    std::byte* to;
    std::vector<std::byte> body;
};
std::deque<Late> under_way;
std::map<std::uint32_t, Pair*> pairs;

std::vector<ibv_context*> contexts;
std::deque<std::pair<ibv_context*, ibv_async_event>> untold;
ibv_device devices[8];
ibv_device* listed[9];

Queue* queue_of(ibv_cq* cq) {
    return static_cast<Queue*>(cq);
}

void put(ibv_cq* cq, const ibv_wc& completion) {
    Queue* const queue = queue_of(cq);
    queue->completions.push_back(completion);
    if (!queue->armed) return;
    queue->armed = false;
    const std::uint64_t one = 1;
    if (write(queue->channel->fd, &one, sizeof one) < 0) std::abort();
}

int poll_cq(ibv_cq* cq, int most, ibv_wc* out) {
    const std::lock_guard lock(mutex);
    int count = 0;
    for (auto& here = queue_of(cq)->completions; count < most && !here.empty(); here.pop_front()) {
        out[count] = here.front();
        if (Pair* pair = pairs.contains(out[count].qp_num) ? pairs[out[count].qp_num] : nullptr;
            pair != nullptr && out[count].opcode != IBV_WC_RECV_RDMA_WITH_IMM)
            pair->requests -= static_cast<unsigned>(out[count].vendor_err);
        ++count;
    }
    return count;
}

int req_notify_cq(ibv_cq* cq, int) {
    const std::lock_guard lock(mutex);
    queue_of(cq)->armed = true;
    return 0;
}

int post_recv(ibv_qp* qp, ibv_recv_wr* request, ibv_recv_wr**) {
    const std::lock_guard lock(mutex);
    for (; request != nullptr; request = request->next) static_cast<Pair*>(qp)->receives.push_back(request->wr_id);
    return 0;
}

bool lets_peers_write(const Region& region) {
    return (region.access & IBV_ACCESS_REMOTE_WRITE) != 0;
}

bool holds(const Region& region, const void* memory, std::size_t bytes) {
    const auto *const begin = static_cast<const std::byte*>(region.addr), *const at =
                                                                              static_cast<const std::byte*>(memory);
    return at >= begin && at + bytes <= begin + region.length;
}

/// The region of that key, if it holds all of this.
Region* find_region(std::uint32_t key, std::uint64_t address, std::size_t bytes) {
    const auto found = regions.find(key);
    if (found == regions.end()) return nullptr;
    const auto begin = reinterpret_cast<std::uintptr_t>(found->second->addr);
    return address >= begin && address + bytes <= begin + found->second->length ? found->second : nullptr;
}

/// Where the adapter finds what kernels and hosts see at that address.
std::byte* at(const Region* region, std::uint64_t address) {
    if (region == nullptr || region->gpu == nullptr) return reinterpret_cast<std::byte*>(address);
    return region->gpu + (address - reinterpret_cast<std::uintptr_t>(region->addr));
}

void move(const ibv_sge& piece, const Region* from, const ibv_send_wr& request, Region* to) {
    to->written += piece.length;
    const std::byte* const body = at(from, piece.addr);
    std::byte* const place = at(to, request.wr.rdma.remote_addr);
    if (to->gpu != nullptr && fake_verbs().late)
        under_way.push_back({to->rkey, place, {body, body + piece.length}});
    else
        std::memcpy(place, body, piece.length);
    if (request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) return;
    ++(from != nullptr && from->gpu != nullptr ? tally.sent_from_gpu : tally.sent_from_host);
    ++(to->gpu != nullptr ? tally.sent_to_gpu : tally.sent_to_host);
}

/// The connection ends for that queue pair, which is told so by a receive that is given back.
void break_off(Pair& pair) {
    pair.now = IBV_QPS_ERR;
    if (pair.receives.empty()) return;
    ibv_wc completion{};
    completion.wr_id = pair.receives.front();
    completion.status = IBV_WC_WR_FLUSH_ERR;
    completion.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    completion.qp_num = pair.qp_num;
    pair.receives.pop_front();
    put(pair.recv_cq, completion);
}

/// Whether this write, or read, is the one at which a connection breaks. Not always the same of each new connection's:
/// then no message might ever come through.
bool cuts_now() {
    static std::minstd_rand random;
    const int most = 2 * std::max<int>(fake_verbs().cut_every, 1) - 1;
    if (until_cut <= 0 || until_cut > most) until_cut = std::uniform_int_distribution(1, most)(random);
    return --until_cut == 0;
}

/// What a write comes to.
ibv_wc_status carry_out(Pair& from, const ibv_send_wr& request) {
    const ibv_sge& piece = request.sg_list[0];
    const bool in_request = (request.send_flags & IBV_SEND_INLINE) != 0;
    Region* const own = in_request ? nullptr : find_region(piece.lkey, piece.addr, piece.length);
    const bool is_own = own != nullptr && own->context == from.context;
    if (in_request ? piece.length > from.inline_bytes : !is_own) return IBV_WC_LOC_PROT_ERR;
    const bool immediate = request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
    const bool reads = request.opcode == IBV_WR_RDMA_READ;
    if (reads && (in_request || (own->access & IBV_ACCESS_LOCAL_WRITE) == 0)) return IBV_WC_LOC_PROT_ERR;
    if (immediate && --fake_verbs().frames < 0) return IBV_WC_RETRY_EXC_ERR;
    const auto found = pairs.find(from.peer);
    if (from.now == IBV_QPS_ERR) return IBV_WC_RETRY_EXC_ERR;
    if ((immediate || reads) && fake_verbs().cuts > 0 && cuts_now()) {
        --fake_verbs().cuts;
        from.now = IBV_QPS_ERR;
        if (found != pairs.end()) found->second->now = IBV_QPS_ERR;
        return IBV_WC_RETRY_EXC_ERR;
    }
    if (found == pairs.end() || found->second->now < IBV_QPS_RTR || found->second->now == IBV_QPS_ERR)
        return IBV_WC_RETRY_EXC_ERR;
    Pair& to = *found->second;
    Region* const theirs = find_region(request.wr.rdma.rkey, request.wr.rdma.remote_addr, piece.length);
    const unsigned needed = reads ? IBV_ACCESS_REMOTE_READ : IBV_ACCESS_REMOTE_WRITE;
    if (theirs == nullptr || theirs->context != to.context || (static_cast<unsigned>(theirs->access) & needed) == 0 ||
        (to.access & needed) == 0) {
        ++tally.refused;
        from.now = IBV_QPS_ERR;
        break_off(to);
        return IBV_WC_REM_ACCESS_ERR;
    }
    if (reads) {
        std::memcpy(at(own, piece.addr), at(theirs, request.wr.rdma.remote_addr), piece.length);
        theirs->read += piece.length;
        own->fetched += piece.length;
        return IBV_WC_SUCCESS;
    }
    move(piece, own, request, theirs);
    if (!immediate) return IBV_WC_SUCCESS;
    if (const auto adapter = from.context->device - devices; adapter < 2) ++tally.writes[adapter];
    if (to.receives.empty()) return IBV_WC_RNR_RETRY_EXC_ERR;
    ibv_wc completion{};
    completion.wr_id = to.receives.front();
    completion.opcode = IBV_WC_RECV_RDMA_WITH_IMM;
    completion.imm_data = fake_verbs().misplace ? htonl(77) : request.imm_data;
    completion.qp_num = to.qp_num;
    to.receives.pop_front();
    put(to.recv_cq, completion);
    return IBV_WC_SUCCESS;
}

/// Carries out the next request of a connection. False if that ends by it.
bool perform(Pair& pair, const ibv_send_wr& request) {
    ++pair.untold;
    const ibv_wc_status status = carry_out(pair, request);
    if (status == IBV_WC_SUCCESS && !(request.send_flags & IBV_SEND_SIGNALED)) return true;
    ibv_wc completion{};
    completion.wr_id = request.wr_id;
    completion.status = status;
    completion.opcode = IBV_WC_RDMA_WRITE;
    completion.qp_num = pair.qp_num;
    completion.vendor_err = std::exchange(pair.untold, 0U);
    put(pair.send_cq, completion);
    return status == IBV_WC_SUCCESS;
}

bool is_read(const Posted& posted) {
    return posted.request.opcode == IBV_WR_RDMA_READ;
}

/// One request of any connection that has some. False if there is none.
bool advance_wire() {
    static std::minstd_rand random;
    std::vector<Pair*> busy;
    for (const auto& [number, pair] : pairs)
        if (!pair->on_wire.empty() && !(fake_verbs().reads_wait && is_read(pair->on_wire.front())))
            busy.push_back(pair);
    if (busy.empty()) return false;
    Pair& pair = *busy[random() % busy.size()];
    Posted next = std::move(pair.on_wire.front());
    pair.on_wire.pop_front();
    if (!next.in_request.empty()) next.piece.addr = reinterpret_cast<std::uintptr_t>(next.in_request.data());
    next.request.sg_list = &next.piece;
    if (!perform(pair, next.request)) pair.on_wire.clear();
    return true;
}

/// Adapters read what they send when they send it, and what lies in the request at once.
void put_on_wire(Pair& pair, const ibv_send_wr& request) {
    static auto& work = *new std::condition_variable;  // the thread waits there to the end
    static const bool started = [] {
        std::thread([] {
            for (;; std::this_thread::yield()) {
                std::unique_lock lock(mutex);
                while (!advance_wire()) work.wait(lock);
            }
        }).detach();
        return true;
    }();
    static_cast<void>(started);
    const ibv_sge& piece = request.sg_list[0];
    pair.on_wire.push_back({request, piece, {}});
    const auto* const body = reinterpret_cast<const std::byte*>(piece.addr);
    if ((request.send_flags & IBV_SEND_INLINE) != 0) pair.on_wire.back().in_request.assign(body, body + piece.length);
    work.notify_one();
}

int post_send(ibv_qp* qp, ibv_send_wr* request, ibv_send_wr**) {
    const std::lock_guard lock(mutex);
    Pair& pair = *static_cast<Pair*>(qp);
    if (pair.now != IBV_QPS_RTS && pair.now != IBV_QPS_ERR) return EINVAL;
    for (; request != nullptr; request = request->next) {
        if (++pair.requests > pair.most_requests) return ENOMEM;
        if (fake_verbs().apart || !pair.on_wire.empty())
            put_on_wire(pair, *request);
        else if (!perform(pair, *request))
            break;
    }
    return 0;
}

ibv_device** get_device_list(int* count) {
    *count = fake_verbs().adapters;
    for (int i = 0; i < *count; ++i) {
        ("fake" + std::to_string(i)).copy(devices[i].name, sizeof devices[i].name - 1);
        const std::string directory = fake_verbs().sys.empty() ? "" : fake_verbs().sys + "/" + devices[i].name;
        directory.copy(devices[i].ibdev_path, sizeof devices[i].ibdev_path - 1);
        devices[i].ibdev_path[std::min(directory.size(), sizeof devices[i].ibdev_path - 1)] = 0;
        listed[i] = &devices[i];
    }
    return listed;
}

ibv_context* open_device(ibv_device* device) {
    auto* const context = new ibv_context{};
    context->device = device;
    context->async_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC | EFD_SEMAPHORE);
    context->ops.poll_cq = poll_cq;
    context->ops.req_notify_cq = req_notify_cq;
    context->ops.post_send = post_send;
    context->ops.post_recv = post_recv;
    const std::lock_guard lock(mutex);
    contexts.push_back(context);
    return context;
}

int close_device(ibv_context* context) {
    const std::lock_guard lock(mutex);
    std::erase(contexts, context);
    std::erase_if(untold, [&](const auto& told) { return told.first == context; });
    close(context->async_fd);
    delete context;
    return 0;
}

int get_async_event(ibv_context* context, ibv_async_event* event) {
    const std::lock_guard lock(mutex);
    std::uint64_t count;
    if (read(context->async_fd, &count, sizeof count) < 0) return -1;
    const auto found = std::ranges::find(untold, context, &std::pair<ibv_context*, ibv_async_event>::first);
    *event = found->second;
    untold.erase(found);
    return 0;
}

int query_device(ibv_context*, ibv_device_attr* limits) {
    *limits = {};
    limits->phys_port_cnt = 1;
    limits->max_qp = fake_verbs().pairs;
    limits->max_qp_wr = 64;
    limits->max_cq = 100;
    limits->max_cqe = 10000;
    return 0;
}

int query_port(ibv_context* context, std::uint8_t, _compat_ibv_port_attr* out) {
    ibv_port_attr port{};
    port.state = fake_verbs().state;
    port.active_mtu = IBV_MTU_1024;
    port.gid_tbl_len = 3;
    port.pkey_tbl_len = 3;
    port.active_speed = 32;
    port.active_width =
        static_cast<std::uint8_t>(fake_verbs().lanes[static_cast<std::size_t>(context->device - devices)]);
    port.lid = 5;
    std::memcpy(static_cast<void*>(out), &port, offsetof(ibv_port_attr, link_layer));
    return 0;
}

int query_gid_ex(ibv_context*, std::uint32_t, std::uint32_t index, ibv_gid_entry* entry, std::uint32_t, std::size_t) {
    static constexpr std::uint8_t local[16] = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1},
                                  ipv4[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 1, 2, 3};
    if (index == 2) return ENODATA;
    std::memcpy(entry->gid.raw, index == 0 ? local : ipv4, 16);
    if (index == 1) entry->gid.raw[15] = fake_verbs().address;
    entry->gid_type = fake_verbs().infiniband ? IBV_GID_TYPE_IB : IBV_GID_TYPE_ROCE_V2;
    return 0;
}

int query_pkey(ibv_context*, std::uint8_t, int index, __be16* key) {
    *key = htons(index == 0 ? 0xffff : index == 1 ? static_cast<std::uint16_t>(fake_verbs().pkey) : 0);
    return index < 3 ? 0 : ENODATA;
}

/// As ibv_reg_mr requires: remote write access needs local write access.
bool makes_sense(int access) {
    return (access & IBV_ACCESS_REMOTE_WRITE) == 0 || (access & IBV_ACCESS_LOCAL_WRITE) != 0;
}

ibv_mr* reg_mr(ibv_pd* domain, void* memory, std::size_t bytes, std::uint64_t, unsigned flags) {
    const int access = static_cast<int>(flags);
    const std::lock_guard lock(mutex);
    if (!makes_sense(access) || --fake_verbs().registrations < 0) {
        errno = makes_sense(access) ? ENOMEM : EINVAL;
        return nullptr;
    }
    const std::uint32_t key = ++last_key;
    return regions[key] = new Region{{domain->context, domain, memory, bytes, 0, key, key}, nullptr, access};
}

ibv_mr* reg_dmabuf_mr(ibv_pd* domain, std::uint64_t offset, std::size_t bytes, std::uint64_t address, int fd,
                      int access) {
    const std::lock_guard lock(mutex);
    const bool refused = !makes_sense(access) || --fake_verbs().gpu_registrations < 0;
    std::byte* const there = refused ? nullptr : map_dma_buf(fd, offset, bytes);
    if (there == nullptr) {
        errno = refused ? EOPNOTSUPP : EINVAL;
        return nullptr;
    }
    const std::uint32_t key = ++last_key;
    return regions[key] = new Region{
               {domain->context, domain, reinterpret_cast<void*>(address), bytes, 0, key, key}, there, access};
}

int dereg_mr(ibv_mr* its) {
    const std::lock_guard lock(mutex);
    auto* const region = static_cast<Region*>(its);
    std::erase_if(under_way, [&](const Late& write) { return write.key == region->rkey; });
    if (region->gpu != nullptr) munmap(region->gpu, region->length);
    regions.erase(region->lkey);
    delete region;
    return 0;
}

ibv_cq* create_cq(ibv_context* context, int, void*, ibv_comp_channel* channel, int) {
    auto* const queue = new Queue;
    queue->context = context;
    queue->channel = channel;
    return queue;
}

ibv_qp* create_qp(ibv_pd* domain, ibv_qp_init_attr* wanted) {
    const std::lock_guard lock(mutex);
    if (wanted->cap.max_inline_data > fake_verbs().inline_bytes || --fake_verbs().pairs < 0) {
        errno = fake_verbs().pairs < 0 ? ENOMEM : EINVAL;
        return nullptr;
    }
    auto* const pair = new Pair;
    pair->context = domain->context;
    pair->qp_num = ++last_pair;
    pair->told.adapter = static_cast<int>(domain->context->device - devices);
    pair->send_cq = wanted->send_cq;
    pair->recv_cq = wanted->recv_cq;
    pair->inline_bytes = wanted->cap.max_inline_data;
    pair->most_requests = wanted->cap.max_send_wr;
    return pairs[pair->qp_num] = pair;
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
    const std::lock_guard lock(mutex);
    Pair& pair = *static_cast<Pair*>(qp);
    if (attributes->qp_state == IBV_QPS_RTR && fake_verbs().refusals > 0) return --fake_verbs().refusals, ETIMEDOUT;
    if ((mask & IBV_QP_ACCESS_FLAGS) != 0) pair.access = attributes->qp_access_flags;
    if ((mask & IBV_QP_PKEY_INDEX) != 0) pair.told.pkey_index = attributes->pkey_index;
    if ((mask & IBV_QP_AV) != 0) {
        pair.told.service_level = attributes->ah_attr.sl;
        pair.told.traffic_class = attributes->ah_attr.grh.traffic_class;
    }
    if ((mask & IBV_QP_TIMEOUT) != 0) pair.told.timeout = attributes->timeout;
    if ((mask & IBV_QP_RETRY_CNT) != 0) pair.told.retries = attributes->retry_cnt;
    if (attributes->qp_state == IBV_QPS_RTR) pair.peer = attributes->dest_qp_num;
    pair.now = attributes->qp_state;
    return 0;
}

int destroy_qp(ibv_qp* qp) {
    const std::lock_guard lock(mutex);
    pairs.erase(qp->qp_num);
    delete static_cast<Pair*>(qp);
    return 0;
}

ibv_comp_channel* create_comp_channel(ibv_context* context) {
    return new ibv_comp_channel{context, eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC), 0};
}

int get_cq_event(ibv_comp_channel* channel, ibv_cq**, void**) {
    std::uint64_t event;
    return read(channel->fd, &event, sizeof event) < 0 ? -1 : 0;
}

verbs::Library make_library() {
    verbs::Library l{};
    l.get_device_list = get_device_list;
    l.free_device_list = [](ibv_device**) {};
    l.get_device_name = [](ibv_device* device) -> const char* { return device->name; };
    l.open_device = open_device;
    l.close_device = close_device;
    l.query_device = query_device;
    l.query_port = query_port;
    l.query_gid_ex = query_gid_ex;
    l.query_pkey = query_pkey;
    l.get_async_event = get_async_event;
    l.ack_async_event = [](ibv_async_event*) {};
    l.event_type_str = [](ibv_event_type) { return "an event"; };
    l.alloc_pd = [](ibv_context* context) { return new ibv_pd{context, 0}; };
    l.dealloc_pd = [](ibv_pd* domain) { return delete domain, 0; };
    l.reg_mr = reg_mr;
    l.reg_dmabuf_mr = reg_dmabuf_mr;
    l.dereg_mr = dereg_mr;
    l.create_comp_channel = create_comp_channel;
    l.destroy_comp_channel = [](ibv_comp_channel* channel) {
        close(channel->fd);
        delete channel;
        return 0;
    };
    l.create_cq = create_cq;
    l.destroy_cq = [](ibv_cq* queue) { return delete static_cast<Queue*>(queue), 0; };
    l.get_cq_event = get_cq_event;
    l.ack_cq_events = [](ibv_cq*, unsigned) {};
    l.create_qp = create_qp;
    l.modify_qp = modify_qp;
    l.destroy_qp = destroy_qp;
    return l;
}

}  // namespace

FakeVerbs& fake_verbs() {
    static FakeVerbs instance;
    return instance;
}

bool peers_can_write(const void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex);
    return std::ranges::any_of(
        regions, [&](const auto& r) { return lets_peers_write(*r.second) && holds(*r.second, memory, bytes); });
}

std::size_t written_by_peers(const void* memory) {
    const std::lock_guard lock(mutex);
    std::size_t all = 0;
    for (const auto& [key, region] : regions)
        if (holds(*region, memory, 1)) all += region->written;
    return all;
}

std::size_t read_by_peers(const void* memory) {
    const std::lock_guard lock(mutex);
    std::size_t all = 0;
    for (const auto& [key, region] : regions)
        if (holds(*region, memory, 1)) all += region->read;
    return all;
}

std::size_t read_from_peers(const void* memory) {
    const std::lock_guard lock(mutex);
    std::size_t all = 0;
    for (const auto& [key, region] : regions)
        if (holds(*region, memory, 1)) all += region->fetched;
    return all;
}

std::size_t reads_under_way() {
    const std::lock_guard lock(mutex);
    std::size_t all = 0;
    for (const auto& [number, pair] : pairs)
        all += static_cast<std::size_t>(std::ranges::count_if(pair->on_wire, is_read));
    return all;
}

std::vector<FakeConnection> fake_connections() {
    const std::lock_guard lock(mutex);
    std::vector<FakeConnection> all;
    for (const auto& [number, pair] : pairs)
        if (pair->now == IBV_QPS_RTS) all.push_back(pair->told);
    return all;
}

bool relaxed(const void* memory) {
    const std::lock_guard lock(mutex);
    const auto its = [&](const auto& r) { return holds(*r.second, memory, 1); };
    return std::ranges::any_of(regions, its) && std::ranges::all_of(regions, [&](const auto& r) {
               return !its(r) || (r.second->access & IBV_ACCESS_RELAXED_ORDERING) != 0;
           });
}

std::uint32_t key_to(const void* memory) {
    const std::lock_guard lock(mutex);
    const auto found = std::ranges::find_if(regions, [&](const auto& r) { return holds(*r.second, memory, 1); });
    return found == regions.end() ? 0 : found->first;
}

void tell(ibv_event_type what, int adapter) {
    const std::lock_guard lock(mutex);
    const std::uint64_t one = 1;
    const auto put = [&](ibv_context* context, const ibv_async_event& event) {
        untold.emplace_back(context, event);
        if (write(context->async_fd, &one, sizeof one) < 0) std::abort();
    };
    for (ibv_context* context : contexts) {
        if (adapter >= 0 && context->device != &devices[adapter]) continue;
        ibv_async_event event{};
        event.event_type = what;
        event.element.port_num = 1;
        const bool of_pairs =
            what == IBV_EVENT_QP_FATAL || what == IBV_EVENT_QP_REQ_ERR || what == IBV_EVENT_QP_ACCESS_ERR;
        if (!of_pairs && what != IBV_EVENT_CQ_ERR) {
            put(context, event);
            continue;
        }
        for (const auto& [number, pair] : pairs) {
            if (pair->context != context) continue;
            if (of_pairs)
                event.element.qp = pair;
            else
                event.element.cq = pair->send_cq;
            put(context, event);
        }
    }
}

FakeVerbsTally fake_verbs_tally() {
    const std::lock_guard lock(mutex);
    tally.registered = regions.size();
    return tally;
}

void land() {
    const std::lock_guard lock(mutex);
    for (; !under_way.empty(); under_way.pop_front())
        std::memcpy(under_way.front().to, under_way.front().body.data(), under_way.front().body.size());
}

const verbs::Library* fake_library() {
    static const verbs::Library library = make_library();
    return &library;
}

const verbs::Library* old_fake_library() {
    static const verbs::Library library = [] {
        verbs::Library old = make_library();
        old.reg_dmabuf_mr = nullptr;
        return old;
    }();
    return &library;
}

}  // namespace tutti::harness
