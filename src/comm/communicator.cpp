#include "comm/communicator.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/caught.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "plan/pieces.hpp"
#include "schedule/compose.hpp"
#include "schedule/to_all.hpp"
#include "schedule/verify.hpp"
#include "transport/regions.hpp"

namespace tutti {

namespace {

/// The same on all ranks: names are unique, and user algorithms of one name were compared when the ranks met.
std::uint32_t number_of(const Algorithm& algorithm) {
    std::uint32_t hash = 0x811c9dc5u;  // FNV-1a
    for (const char c : algorithm.name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
    return hash;
}

std::uint32_t mix(std::uint32_t hash, std::uint64_t value) {
    hash = (hash ^ static_cast<std::uint32_t>(value)) * 0x9e3779b1u;
    hash = (hash ^ static_cast<std::uint32_t>(value >> 32)) * 0x85ebca77u;
    return hash ^ hash >> 15;
}

/// After these every rank has had a message of every other, directly or not, so all have learned the same.
constexpr bool tells_all(Collective c) {
    return c == Collective::all_reduce || c == Collective::reduce_scatter || c == Collective::all_gather ||
           c == Collective::all_to_all;
}

/// Calls of one collective and of sizes from one power of two to the next.
constexpr std::size_t size_class(Collective c, std::size_t bytes) {
    return static_cast<std::size_t>(c) * 65 + static_cast<std::size_t>(std::bit_width(bytes));
}

/// Buffers from here on are too large to stay in the cache.
constexpr std::size_t streaming_bytes = 8 * 1024 * 1024;

/// What an operation and its tiling say of it.
Job job_of(const Operation& o, const Tiling& t) {
    Job job;
    job.input = static_cast<const std::byte*>(o.input);
    job.output = static_cast<std::byte*>(o.output);
    job.type = o.type;
    job.op = o.op;
    job.rows = o.rows;
    job.count = o.count;
    job.block = t.block;
    job.tile = t.tile;
    job.tiles = t.tiles;
    job.by_reference = t.by_reference;
    job.streaming = o.count * size_of(o.type) >= streaming_bytes;
    return job;
}

}  // namespace

/// Ranks play the parts that suit their places; who brings an own program has said who does what.
Program Communicator::make_program(const Algorithm& algorithm, const Request& request) const {
    const bool ours = find_algorithm(algorithm.name) == &algorithm && &algorithm != find_algorithm("pair");
    return reordered(algorithm.make, request, ours ? order_ : std::span<const Rank>());
}

std::unique_ptr<gpu::Program> Communicator::upload(BoundProgram bound, bool pair) {
    try {
        return gpu_->upload(std::move(bound), pair, [this](Rank peer, int channel) {
            const Connection c = connections_.connection(peer, channel);
            return GpuSide::Wires{c.link->outlet(channel), c.link->inlet(channel)};
        });
    } catch (...) {
        if (through_host()) with_caught([&](const Error& error) { faults_.fail(error); });  // the others may have begun
        throw;
    }
}

/// Kernels reach peers by p2p without a link, but who explains why one gave up asks what the peer has called, and then
/// can't wait until it is linked.
void Communicator::link_for_texts(const BoundProgram& bound) {
    for (const auto& peers : {bound.to, bound.from})
        for (const auto& peer : peers) try {
                connections_.linked(peer.rank);
            } catch (const Error& error) {
                log(Level::info, "rank %d: errors will not say what rank %d has called: %s", rank(), peer.rank,
                    error.what());
            }
}

std::vector<Program> Communicator::make_programs(Collective collective, Rank root, const Algorithm& algorithm) const {
    std::vector<Program> all;
    for (Rank r = 0; r < ranks(); ++r)
        all.push_back(make_program(algorithm, {collective, r, ranks(), root, tuner_->platform().nodes}));
    return all;
}

Communicator::Plan Communicator::make_plan(Collective collective, Rank root, const Algorithm& algorithm, bool all) {
    const bool pair = collective == Collective::send || collective == Collective::recv;
    if (config().verify && !pair) {
        const Report report = verify(make_programs(collective, root, algorithm));
        if (!report.ok) fail(tuttiInternalError, "%s", report.error.c_str());
    }
    TUTTI_ASSERT(algorithm.fifo_depth <= static_cast<int>(slot_depth));
    const auto program_of = [&](Rank r) {
        return make_program(algorithm, {collective, r, ranks(), root, tuner_->platform().nodes});
    };
    Program program = program_of(rank());
    if (all) program = to_all(program, program_of);
    BoundProgram bound = BoundProgram::bind(std::move(program), algorithm.pull_safe, algorithm.push_safe);
    if (gpu_) {
        link_for_texts(bound);
        return {collective, root, &algorithm, false, nullptr, upload(std::move(bound), pair)};
    }
    const auto connect = [this, pair](BoundProgram::Peer peer, int channel, bool sends) {
        if (peer.all)
            return sends ? connections_.connection_to_all(channel)
                         : connections_.connection_from_all(peer.rank, channel);
        return connections_.connection(peer.rank, pair ? channel_of_pair(channel) : channel);
    };
    auto execution =
        std::make_unique<HostExecution>(std::move(bound), connections_.page(), collective_channels, connect);
    return {collective, root, &algorithm, all, std::move(execution), nullptr};
}

Communicator::Plans::Entry& Communicator::plan_by(const Operation& o, const Algorithm& algorithm, bool all) {
    const bool collective = queue_of(o) == 0;
    Plans& plans = collective ? plans_ : pair_plans_;
    const std::tuple key(o.collective, o.root, &algorithm, all);
    if (Plans::Entry* known = plans.find(key)) return *known;
    Plans::Entry& plan = plans.add(key, make_plan(o.collective, o.root, algorithm, all));
    // No other collective is under way, so all others may go. On GPUs captured graphs may name any of them.
    if (collective && !gpu_)
        plans.trim(most_plans(), [&](const Plan& old) {
            for (Shape& s : shapes_)
                if (s.plan != nullptr && &s.plan->value == &old) s = {};
        });
    return plan;
}

/// Of the larger one of a rank's buffers.
std::size_t Communicator::bytes_of(const Operation& o) const {
    if (o.rows) return o.rows->known * size_of(o.type);
    return o.count * size_of(o.type) * (row_per_rank(o.collective) ? static_cast<std::size_t>(ranks()) : 1);
}

const Candidate& Communicator::candidate_for(const Operation& o) {
    return tuner_->choose(
        {o.collective, bytes_of(o), o.root, o.rows != nullptr, all_can_map(o), o.premultiply || o.average});
}

/// As far as the last call of this kind has told.
bool Communicator::all_can_map(const Operation& o) const {
    return o.rows == nullptr && mappable_[size_class(o.collective, bytes_of(o))];
}

double Communicator::expected_time(const Operation& o) {
    const double put = tuner_->platform().rates.load + tuner_->platform().rates.store;  // by bytes
    if (o.one_sided) return tuner_->platform().line.alpha_us + static_cast<double>(o.one_sided->bytes) * put;
    if (queue_of(o) == 0) return candidate_for(o).time;
    if (o.root == rank()) return 0;
    const Platform& p = tuner_->platform();
    const double byte = p.line.us_per_byte + p.rates.load + p.rates.store;
    return 2 * (p.rates.message + p.line.handling_us) + p.line.alpha_us +
           static_cast<double>(o.count * size_of(o.type)) * byte;
}

std::pair<Communicator::Plans::Entry*, Tiling> Communicator::plan_for(const Operation& o) {
    const std::size_t element = size_of(o.type);
    if (queue_of(o) != 0) {
        constexpr TileShape one_message{.sends_slices = true};
        const bool by_network =
            !connections_.on_gpus() && connections_.linked(o.root).by_network;  // kernels have one channel for it
        return {&plan_by(o, *find_algorithm("pair"), false),
                tile(o.count, element, one_message, pair_limits(bytes_of(o), by_network, tuner_->platform()))};
    }
    const Candidate& chosen = candidate_for(o);
    if (logs(Level::info) && announced_.insert(&chosen).second)
        log(Level::info, "rank %d: %s of %zu bytes: %s, tiles of %zu bytes on %d channels, %.3g us expected", rank(),
            std::string(name_of(o.collective)).c_str(), bytes_of(o), std::string(chosen.algorithm->name).c_str(),
            chosen.tiling.tile, chosen.tiling.channels, chosen.time);
    return {&plan_by(o, *chosen.algorithm, tuner_->platform().rates.to_all), chosen.tiling_of(o.count, element)};
}

int Communicator::queue_of(const Operation& o) {
    if (o.one_sided) return o.one_sided->kind == OneSided::Kind::wait ? -1 : -2 - o.one_sided->peer;
    if (o.collective == Collective::send) return 1 + 2 * o.root;
    if (o.collective == Collective::recv) return 2 + 2 * o.root;
    return 0;
}

/// In shapes_.
std::size_t Communicator::place_of(const Operation& o) {
    const std::uint64_t what = o.count << 16 ^ static_cast<std::uint64_t>(o.root) << 8 ^
                               static_cast<std::uint64_t>(o.type) << 4 ^ static_cast<std::uint64_t>(o.collective);
    return what * 0x9e3779b97f4a7c15u >> 57;
}

const Communicator::Shape& Communicator::shape_of(const Operation& o) {
    Shape& s = shapes_[place_of(o)];
    if (s.collective == o.collective && s.count == o.count && s.type == o.type && s.call_op == o.call_op &&
        s.root == o.root && !o.rows)
        return s;
    s = {};
    auto [plan, tiling] = plan_for(o);
    // What peers can fetch where it lies need not be written even once.
    if (plan->value.to_all && tiling.by_reference && (tuner_->platform().rates.references || all_can_map(o)))
        plan = &plan_by(o, *plan->value.algorithm, false);
    std::uint32_t hash = mix(static_cast<std::uint32_t>(o.type) + 1, o.rows ? o.rows->hash : o.count);
    if (o.rows) hash = ~hash;
    if (queue_of(o) == 0) {  // the two sides of a pair differ in all else
        hash = mix(hash, static_cast<std::uint64_t>(o.collective) << 40 | static_cast<std::uint64_t>(o.call_op) << 32 |
                             tiling.tile);
        hash = mix(hash, static_cast<std::uint64_t>(o.root) << 32 | number_of(*plan->value.algorithm));
    }
    hash = mix(hash, static_cast<std::uint64_t>(tiling.channels));
    const std::size_t like = o.rows ? SIZE_MAX : o.count;  // no call is like an uneven one
    s = {o.collective, o.type, o.call_op, o.root, like, plan, tiling, hash};
    return s;
}

/// What this rank now calls, for its peers to compare and, should they differ, to name.
Call Communicator::describe(const Operation& o, const Shape& shape) {
    Call call;
    call.collective = o.collective;
    call.type = o.type;
    call.op = o.call_op;
    call.algorithm = static_cast<std::uint8_t>(number_of(*shape.plan->value.algorithm));
    call.root = o.root;
    call.count = o.count;
    if (o.rows) [[unlikely]]
        call.count = o.rows->digest();
    std::uint32_t hash = shape.hash;
    if (queue_of(o) == 0) {
        call.sequence = static_cast<std::uint32_t>(connections_.page().sequence.load(std::memory_order_relaxed));
        if (!connections_.on_gpus()) hash += call.sequence * 0x9e3779b1u;  // a graph repeats its calls
    }
    call.signature = hash == 0 ? 1 : hash;
    if (queue_of(o) == 0) {
        connections_.page().board[call.sequence % board_entries].set(call);
        connections_.page().sequence.store(call.sequence + 1, std::memory_order_release);
    }
    return call;
}

gpu::Job Communicator::gpu_job(const Operation& o, void* stream) {
    const Shape& shape = shape_of(o);
    const Call call = describe(o, shape);
    for (const auto [peer, all] :
         shape.plan->value.uploaded->bound().to)  // those through host memory can tell what is called
        if (const Peer* const linked = connections_.find(peer))
            for (const auto& sender : linked->senders)
                if (sender) sender->begin(call);
    return gpu_->job(o, shape.tiling, call, *shape.plan->value.uploaded, options_.timeout, stream);
}

/// Whether peers can map the buffers of all ranks decides which algorithm is best, and no rank knows it of another
/// before the call. The call before tells: users call again and again with the same buffers.
void Communicator::learn() {
    if (lesson_.execution == nullptr) return;
    const bool known = lesson_.execution->mappable();
    lesson_.execution = nullptr;
    if (*lesson_.known == known) return;
    *lesson_.known = known;
    shapes_.fill({});
    log(Level::info, "rank %d: %s of the last call can be mapped by peers", rank(),
        known ? "the buffers of all ranks" : "not all buffers");
}

bool Communicator::peers_can_map(const Operation& o, std::size_t input_rows, std::size_t output_rows) const {
    const std::size_t row = o.count * size_of(o.type);
    return tuner_->platform().sees_regions && find_region(o.input, row * input_rows) != nullptr &&
           find_region(o.output, row * output_rows) != nullptr;
}

HostExecution& Communicator::start_on_host(const Operation& o) {
    TUTTI_ASSERT(o.collective == Collective::all_to_all);
    if (!on_host_) {
        const Algorithm& direct = *find_algorithm("direct");
        BoundProgram bound =
            BoundProgram::bind(direct.make({o.collective, rank(), ranks(), 0, {}}), direct.pull_safe, direct.push_safe);
        on_host_ = std::make_unique<HostExecution>(
            std::move(bound), connections_.page(), 1,
            [this](BoundProgram::Peer peer, int channel, bool) { return connections_.connection(peer.rank, channel); });
    }
    const Program& program = on_host_->program();
    TileLimits limits;
    limits.slots.message = slot_bytes_for(ranks());
    Job job = job_of(o, tile(o.count, 1, {program.columns, program.message_chunks}, limits));
    job.call.signature = 1;
    job.call.collective = o.collective;
    job.call.type = o.type;
    job.call.count = o.count;
    on_host_->start(job);
    return *on_host_;
}

HostExecution& Communicator::begin(const Operation& operation) {
    if (gpu_) [[unlikely]]
        return start_on_host(operation);
    if (through_host()) [[unlikely]]
        return start(as_bytes(operation));
    return start(operation);
}

HostExecution& Communicator::start(const Operation& o) {
    if (queue_of(o) == 0) learn();
    const Shape& shape = shape_of(o);
    Plan& plan = shape.plan->value;
    plans_.use(*shape.plan);
    Job job = job_of(o, shape.tiling);
    job.channels = std::min(shape.tiling.channels, plan.execution->most_channels());
    if (job.by_reference && o.rows == nullptr && tells_all(o.collective) && !through_host()) {
        const Program& p = plan.program();
        job.mappable =
            peers_can_map(o, static_cast<std::size_t>(p.input_rows), static_cast<std::size_t>(p.output_rows));
        lesson_ = {plan.execution.get(), &mappable_[size_class(o.collective, bytes_of(o))]};
    }
    job.divide_by = o.average ? ranks() : 0;
    if (o.premultiply) {
        std::uint64_t& scalar = scalars_[queue_of(o)];
        scalar = o.immediate;
        if (o.scalar != nullptr) std::memcpy(&scalar, o.scalar, size_of(o.type));
        job.scalar = &scalar;
    }
    job.call = describe(o, shape);
    plan.execution->start(job);
    return *plan.execution;
}

}  // namespace tutti
