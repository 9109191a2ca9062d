#include "comm/communicator.hpp"

#include <cstring>
#include <set>
#include <thread>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/peer_error.hpp"
#include "transport/regions.hpp"

namespace tutti {
namespace {

void set_buffers(Job& job, const Operation& o) {
    job.input = static_cast<const std::byte*>(o.input);
    job.output = static_cast<std::byte*>(o.output);
    job.rows = o.rows;
}

/// Whether peers can map both buffers.
bool can_be_mapped(const Operation& o, const Program& p) {
    const std::size_t row = o.count * size_of(o.type);
    return find_region(o.input, row * static_cast<std::size_t>(p.input_rows)) != nullptr &&
           find_region(o.output, row * static_cast<std::size_t>(p.output_rows)) != nullptr;
}

}  // namespace

/// Links a peer that kernels reach by p2p, for error texts alone: a text that says why a kernel gave up asks the peer's
/// page for its calls, and can't wait for a link then.
void Communicator::link_for_texts(Rank peer) {
    try {
        connections_.linked(peer);
    } catch (const Error& error) {
        log(Level::info, "rank %d: errors will not say what rank %d has called: %s", rank(), peer, error.what());
    }
}

/// All of them, once: for calls that are no programs.
void Communicator::link_all_for_texts() {
    for (Rank peer = 0; peer < ranks() && !links_all_for_texts_; ++peer)
        if (peer != rank()) link_for_texts(peer);
    links_all_for_texts_ = true;
}

/// Attaches the peer's channels on the GPU, so that kernels can reach it.
void Communicator::attach(Rank peer, bool pair) {
    gpu_->attach(peer, pair, [this](Rank its, int channel) {
        const Connection c = connections_.connection(its, channel);
        return GpuSide::Wires{c.link->outlet(channel), c.link->inlet(channel)};
    });
}

/// Attaches all peers before any rank launches a kernel, if ranks on GPUs are threads of one process and messages go
/// through host memory. Attaching pins and maps memory: CUDA may have that wait for kernels, which may wait for this
/// rank.
void Communicator::settle() {
    if (!gpu_ || !through_host() || !connections_.places().share_processes()) return;
    for (Rank peer = 0; peer < ranks(); ++peer)
        for (const bool pair : {false, true})
            if (peer != rank()) attach(peer, pair);
}

Executable Communicator::prepare(BoundProgram bound, bool pair) {
    if (gpu_) try {
            for (const auto& peers : {bound.to, bound.from})
                for (const auto [peer, all] : peers) {
                    link_for_texts(peer);
                    attach(peer, pair);
                }
            return {nullptr, gpu_->upload(std::move(bound), pair)};
        } catch (...) {
            if (through_host()) with_caught([&](const Error& error) { faults_.fail(error); });  // others may have begun
            throw;
        }
    const auto connect = [this, pair](BoundProgram::Peer peer, int channel, bool sends) {
        const Connection c = !peer.all ? connections_.connection(peer.rank, pair ? channel_of_pair(channel) : channel)
                             : sends   ? connections_.connection_to_all(channel)
                                       : connections_.connection_from_all(peer.rank, channel);
        if (sends && waiting_.oversubscribed) c.sender->keep_slots_hot();
        return c;
    };
    return {std::make_unique<HostExecution>(std::move(bound), connections_.page(), collective_channels, caches_,
                                            connect),
            nullptr};
}

/// Makes a plan's call what messages carry, for peers to compare with theirs. Puts collectives on the board, for peers
/// to name if they differ. signature: the plan's.
[[gnu::hot]] void Communicator::announce(bool collective, std::uint32_t signature, Call& call) {
    RankPage& page = connections_.page();
    std::uint32_t sequence = 0;
    if (collective) {
        sequence = static_cast<std::uint32_t>(page.sequence.load(std::memory_order_relaxed));
        if (!connections_.on_gpus()) signature += sequence * 0x9e3779b1u;  // graphs repeat their calls
    }
    call.number(signature == 0 ? 1 : signature, sequence);
    if (collective) {
        page.board[sequence % board_entries].set(call);
        page.sequence.store(sequence + 1, std::memory_order_release);
    }
}

gpu::Job Communicator::gpu_job(Operation o, void* stream) {
    o.symmetric = windows_.symmetric().hold(o);
    const Plan& plan = planner_->plan(o);
    gpu::Program& program = *plan.runs->uploaded;
    Call call = plan.job.call;
    announce(!o.is_pair(), call.signature, call);
    for (const auto [peer, all] : program.bound().to)  // links through host memory tell the peer what is called
        if (const Peer* const linked = connections_.find(peer))
            for (const auto& sender : linked->senders)
                if (sender) sender->begin(call);
    return gpu_->job(o, plan.job, call, program, options_.timeout, stream);
}

gpu::Meeting Communicator::gpu_meeting(const Operation& o, std::uint32_t signature) {
    link_all_for_texts();
    Call call;
    call.signature = signature;
    call.collective = o.collective;
    call.type = o.type;
    call.count = o.count;
    announce(true, signature, call);
    return gpu_->meeting(call, options_.timeout);
}

HostExecution& Communicator::start_on_host(const Operation& o) {
    TUTTI_ASSERT(o.collective == Collective::all_to_all);
    if (!on_host_) {
        const Algorithm& direct = *find_algorithm("direct");
        BoundProgram bound =
            BoundProgram::bind(direct.make({o.collective, rank(), ranks(), 0, {}}), direct.pull_safe, direct.push_safe);
        on_host_ = std::make_unique<HostExecution>(
            std::move(bound), connections_.page(), 1, caches_,
            [this](BoundProgram::Peer peer, int channel, bool) { return connections_.connection(peer.rank, channel); });
    }
    const Program& program = on_host_->program();
    TileLimits limits;
    limits.slots.message = slot_bytes_for(ranks());
    Job job{tile(o.count, 1, {program.columns, program.message_chunks}, limits)};
    job.type = job.call.type = o.type;
    job.count = job.call.count = o.count;
    job.call.collective = o.collective;
    job.call.signature = 1;
    set_buffers(job, o);
    on_host_->start(job);
    return *on_host_;
}

HostExecution& Communicator::begin(const Operation& o) {
    last_.execution = nullptr;  // planning may drop it
    if (gpu_) [[unlikely]]
        return start_on_host(o);
    const Plan& plan = planner_->plan(o);
    HostExecution& execution = *plan.runs->execution;
    Job& job = execution.take(plan.job, o.rows);
    set_buffers(job, o);
    if (plan.told != nullptr) {
        job.mappable = can_be_mapped(o, execution.program());
        planner_->learn_from(plan);
    }
    if (o.premultiply) {
        std::uint64_t& scalar = scalars_[o.queue()];
        scalar = o.immediate;
        if (o.scalar != nullptr) std::memcpy(&scalar, o.scalar, size_of(o.type));
        job.scalar = &scalar;
    }
    announce(!o.is_pair(), job.call.signature, job.call);
    execution.begin();
    if (!o.is_pair() && o.rows == nullptr && !o.premultiply && plan.told == nullptr)
        last_ = {&execution, plan.job.call.signature, o};
    return execution;
}

[[gnu::hot]] HostExecution& Communicator::begin_again(const void* input, void* output) {
    HostExecution& execution = *last_.execution;
    Job& job = execution.take_again();
    job.input = static_cast<const std::byte*>(input);
    job.output = static_cast<std::byte*>(output);
    announce(true, last_.signature, job.call);
    execution.begin();
    return execution;
}

Communicator::~Communicator() {
    shielded("leaving a communicator", [&] {
        if (!suspended_) session().leave();
        if (gpu_ && connections_.engine() != nullptr) connections_.engine()->on_loss(nullptr);
    });
    if (gpu_) gpu_->finish();  // programs, ends and the links' memory go next: no kernel may use them
    if (gpu_ && connections_.engine() != nullptr) connections_.engine()->ask(nullptr);
    log(Level::info, "rank %d of %d leaves; its connections used at most %zu KiB", rank(), ranks(), memory() / 1024);
}

void Communicator::leave() {
    const Deadline limit = Clock::now() + options_.timeout;
    // Ranks that suspend have ended all their operations. So a link that ends then is no fault: the peer is through,
    // and its farewell may have been lost with a reset connection.
    std::set<Rank> through;
    const auto drive = [&] {
        try {
            return connections_.poll();
        } catch (const PeerError& error) {  // the peer will read nothing more
            suspended_&& error.peer() >= 0 ? void(through.insert(error.peer())) : faults_.fail(error);
        } catch (...) {
            with_caught([&](const Error& error) { faults_.fail(error); });
        }
        return false;
    };
    // Drives while something() holds and there is no fault. False if the time-out comes first.
    const auto outlast = [&](const auto& something) {
        for (int looks = 0; !faults_.failed() && something(); ++looks) {
            if (Clock::now() > limit) return false;
            if (drive()) continue;
            if (looks < 1000)
                std::this_thread::yield();
            else
                std::this_thread::sleep_for(std::chrono::microseconds(500));
        }
        return true;
    };
    // A peer that sees `leaving` expects no more messages, so all must be on their way before.
    for (const auto& [peer_rank, its] : connections_.peers())
        outlast([&peer = its] { return peer.link && peer.link->pending(); });
    connections_.page().leaving.store(1, std::memory_order_release);
    connections_.arena().lent().take_all_back();
    faults_.close_parts(connections_.page().gates);
    if (gpu_) gpu_->finish();
    for (const auto& [peer_rank, its] : connections_.peers()) {
        const auto unread = [&, peer = peer_rank] {
            return !through.contains(peer) && !(suspended_ ? connections_.has_left(peer) : session().has_left(peer)) &&
                   connections_.unread(peer);
        };
        if (!connections_.all_in_process() && !outlast(unread))
            log(Level::warn, "rank %d leaves although rank %d has not read all that was sent to it", rank(), peer_rank);
    }
    // Ranks of one process can't wait for each other. It is enough for them that the system has their messages.
    const Deadline brief = Clock::now() + std::chrono::seconds(1);
    Engine* const engine = connections_.engine();
    while (engine != nullptr && engine->pending() && !faults_.failed() && Clock::now() < brief)
        if (!drive()) std::this_thread::yield();
    if (!suspended_) session().leave();
}

std::shared_ptr<Session> Communicator::suspend() {
    suspended_ = true;
    leave();
    session().rest();
    return connections_.shared_session();
}

}  // namespace tutti
