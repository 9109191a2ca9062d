#include "comm/communicator.hpp"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <bitset>
#include <cstring>

#include "base/config.hpp"
#include "base/log.hpp"
#include "bootstrap/identity.hpp"
#include "schedule/compose.hpp"
#include "schedule/verify.hpp"
#include "topology/placement.hpp"
#include "transport/faulty.hpp"
#include "transport/regions.hpp"

namespace tutti {

/// What a rank tells the others when it joins.
struct Communicator::Hello {
    Card card;
    gpu::Card gpu;
    std::uint64_t cores[16];         // the first 1024 that it may run on
    std::uint64_t fences;            // 1: allow_fences()
    std::uint64_t cache_bytes;       // largest_cache()
    std::uint64_t core_cache_bytes;  // core_cache()
    std::uint64_t tuning;            // what its tuner knows, as a hash
    std::uint64_t programs;          // UserAlgorithms::hash()
    std::int64_t place;              // Seat::place
};

namespace {

/// The only transport that may be used has one.
bool demands_engine(const Options& options) {
    const Transport* only = find_transport(options.transport);
    return only != nullptr && only->needs_engine();
}

/// Where other hosts' ranks can reach this one, if there may be some, or all are to be treated as such.
std::shared_ptr<Engine> make_engine(const Identity& identity, const Options& options) {
    const bool demanded = demands_engine(options);
    if (options.device >= 0 || !(demanded || (options.transport.empty() && !bootstrap::on_one_host(identity))))
        return nullptr;
    const bootstrap::Address here = bootstrap::data_interface(identity);
    if (!here && demanded)
        fail(tuttiSystemError, "transport %s was asked for, but no network interface is up", options.transport.c_str());
    return here ? open_engine(here) : nullptr;
}

template <class Hello>
Hello make_hello(const Arena& arena, const GpuSide* gpu, const UserAlgorithms& own, const Engine* engine,
                 const Options& options) {
    Hello hello{};
    hello.gpu = gpu != nullptr ? gpu->card() : gpu::Card{};
    hello.card = {host_id(), process_id(), arena.key(), getpid(), TUTTI_VERSION_CODE};
    if (engine != nullptr) {
        hello.card.door = engine->address();
        hello.card.fabrics = fabrics_here(options.transport);
    }
    hello.fences = allow_fences();
    hello.cache_bytes = largest_cache();
    hello.core_cache_bytes = core_cache();
    hello.tuning = Tuning::of_this_machine()->hash();
    hello.programs = own.hash();
    hello.place = seat_of_caller(gpu != nullptr ? gpu->gpus().info(gpu->device()).address : "").place;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (std::size_t core = 0; core < 1024 && core < CPU_SETSIZE; ++core)
            if (CPU_ISSET(core, &set)) hello.cores[core / 64] |= 1ull << core % 64;
    return hello;
}

template <class Hello>
Hello read_hello(const Session& session, Rank rank) {
    const std::span<const std::byte> card = session.card(rank);
    Hello hello;
    if (card.size() != sizeof hello)
        fail(tuttiInvalidUsage, "rank %d uses another version of Tutti than rank %d", rank, session.rank());
    std::memcpy(&hello, card.data(), sizeof hello);
    if (hello.card.version != TUTTI_VERSION_CODE)
        fail(tuttiInvalidUsage, "rank %d uses version %d of Tutti, rank %d version %d", rank, hello.card.version,
             session.rank(), TUTTI_VERSION_CODE);
    return hello;
}

/// Programs only work with those of the other ranks.
void compare_programs(std::uint64_t theirs, Rank their_rank, std::uint64_t ours, Rank our_rank) {
    if (theirs == ours) return;
    if (theirs == 0 || ours == 0)
        fail(tuttiInvalidUsage,
             "rank %d has loaded algorithms of its own and rank %d has not: all ranks must load the same files "
             "(config.programs, TUTTI_PROGRAMS)",
             theirs == 0 ? our_rank : their_rank, theirs == 0 ? their_rank : our_rank);
    fail(tuttiInvalidUsage,
         "rank %d has loaded other algorithms than rank %d: all ranks must load the same files in the same order "
         "(config.programs, TUTTI_PROGRAMS)",
         their_rank, our_rank);
}

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

}  // namespace

Options Options::from(const tuttiConfig_t* given) {
    const Config& c = config();
    Options options{std::chrono::milliseconds(c.timeout_ms),
                    std::chrono::milliseconds(c.init_timeout_ms),
                    c.check,
                    c.algorithm,
                    c.transport,
                    "",
                    -1,
                    c.reproducible,
                    c.lanes,
                    c.programs,
                    c.blocking};
    if (given == nullptr) return options;
    tuttiConfig_t known = TUTTI_CONFIG_INITIALIZER;
    if (given->magic != TUTTI_CONFIG_MAGIC || given->size < offsetof(tuttiConfig_t, timeoutMs))
        tutti::fail(tuttiInvalidArgument, "config was not initialized with TUTTI_CONFIG_INITIALIZER");
    std::memcpy(&known, given, std::min(given->size, sizeof known));
    const auto positive = [](const char* field, int value) {
        if (value <= 0)
            tutti::fail(tuttiInvalidArgument, "config.%s is %d; a number above 0 was expected", field, value);
        return std::chrono::milliseconds(value);
    };
    if (known.timeoutMs != TUTTI_UNDEF_INT) options.timeout = positive("timeoutMs", known.timeoutMs);
    if (known.initTimeoutMs != TUTTI_UNDEF_INT) options.init_timeout = positive("initTimeoutMs", known.initTimeoutMs);
    const auto set_flag = [](bool& to, const char* field, int value) {
        if (value == TUTTI_UNDEF_INT) return;
        if (value != 0 && value != 1)
            tutti::fail(tuttiInvalidArgument, "config.%s is %d; 0 or 1 was expected", field, value);
        to = value == 1;
    };
    set_flag(options.check, "check", known.check);
    set_flag(options.reproducible, "reproducible", known.reproducible);
    set_flag(options.blocking, "blocking", known.blocking);
    if (known.algorithm != nullptr) options.algorithm = known.algorithm;
    if (known.transport != nullptr) options.transport = known.transport;
    if (known.commName != nullptr) options.name = known.commName;
    if (known.lanes != TUTTI_UNDEF_INT) {
        if (known.lanes < 1 || known.lanes > collective_lanes)
            tutti::fail(tuttiInvalidArgument, "config.lanes is %d; a number from 1 to %d was expected", known.lanes,
                        collective_lanes);
        options.lanes = known.lanes;
    }
    if (known.programs != nullptr) options.programs = known.programs;
    if (known.device != TUTTI_UNDEF_INT) {
        if (known.device < TUTTI_DEVICE_CURRENT)
            tutti::fail(tuttiInvalidArgument, "config.device is %d; -2, -1 or the number of a CUDA device was expected",
                        known.device);
        const gpu::Gpus* gpus = known.device == TUTTI_DEVICE_CURRENT ? gpu::gpus() : nullptr;
        options.device = known.device != TUTTI_DEVICE_CURRENT   ? known.device
                         : gpus != nullptr && gpus->count() > 0 ? gpus->current()
                                                                : TUTTI_DEVICE_CPU;
    }
    return options;
}

std::unique_ptr<Communicator> Communicator::join(const Identity& identity, Rank rank, int ranks,
                                                 const Options& options) {
    if (ranks == 1) {  // nobody to meet
        const int devices[] = {options.device};
        return std::move(in_process(1, options, std::span(devices, options.device < 0 ? 0 : 1)).front());
    }
    std::shared_ptr<const UserAlgorithms> own = load_programs(options.programs, ranks);
    std::shared_ptr<Arena> arena = Arena::make(ranks, true);
    std::unique_ptr<GpuSide> gpu = options.device < 0 ? nullptr : std::make_unique<GpuSide>(options.device, ranks);
    std::shared_ptr<Engine> engine = make_engine(identity, options);
    const Hello hello = make_hello<Hello>(*arena, gpu.get(), *own, engine.get(), options);
    std::shared_ptr<Session> session =
        Session::join(identity, rank, ranks, std::as_bytes(std::span(&hello, 1)), options.init_timeout);
    session->offer(arena->key(), arena->fd());
    std::unique_ptr<Communicator> comm(new Communicator(std::move(session), std::move(arena), std::move(engine),
                                                        std::move(gpu), std::move(own), options));
    comm->identity_ = identity;
    comm->listen();
    return comm;
}

std::vector<std::unique_ptr<Communicator>> Communicator::in_process(int ranks, const Options& options,
                                                                    std::span<const int> devices) {
    const std::shared_ptr<const UserAlgorithms> own = load_programs(options.programs, ranks);
    std::vector<std::shared_ptr<Arena>> arenas;
    std::vector<std::shared_ptr<Engine>> engines;
    std::vector<std::unique_ptr<GpuSide>> gpus(static_cast<std::size_t>(ranks));
    for (std::size_t r = 0; r < devices.size(); ++r) gpus[r] = std::make_unique<GpuSide>(devices[r], ranks);
    std::vector<std::vector<std::byte>> cards;
    for (Rank rank = 0; rank < ranks; ++rank) {
        arenas.push_back(Arena::make(ranks, false));
        const bool demanded = demands_engine(options) && devices.empty();
        engines.push_back(demanded ? open_engine(bootstrap::Address::loopback()) : nullptr);
        const Hello hello = make_hello<Hello>(*arenas.back(), gpus[static_cast<std::size_t>(rank)].get(), *own,
                                              engines.back().get(), options);
        const auto bytes = std::as_bytes(std::span(&hello, 1));
        cards.emplace_back(bytes.begin(), bytes.end());
    }
    std::vector<std::shared_ptr<Session>> sessions = Session::in_process(std::move(cards));
    std::vector<std::unique_ptr<Communicator>> comms;
    const Identity identity = Identity::unopened();
    for (std::size_t rank = 0; rank < sessions.size(); ++rank) {
        comms.emplace_back(
            new Communicator(sessions[rank], arenas[rank], engines[rank], std::move(gpus[rank]), own, options));
        comms.back()->identity_ = identity;
        comms.back()->family_ = arenas;
        comms.back()->listen();
    }
    return comms;
}

Communicator::Communicator(std::shared_ptr<Session> session, std::shared_ptr<Arena> arena,
                           std::shared_ptr<Engine> engine, std::unique_ptr<GpuSide> gpu,
                           std::shared_ptr<const UserAlgorithms> own, const Options& options)
    : session_(std::move(session)),
      arena_(std::move(arena)),
      options_(options),
      gpu_(std::move(gpu)),
      own_(std::move(own)) {
    neighbourhood_.session = session_;
    neighbourhood_.arena = arena_;
    std::map<std::uint64_t, std::bitset<1024>> cores;  // by host
    std::size_t here = 0;
    std::vector<gpu::Card> gpu_cards;
    std::vector<std::uint64_t> processes;
    std::vector<Hello> hellos;
    std::vector<Seat> seats;
    for (Rank r = 0; r < ranks(); ++r) {
        const Hello& hello = hellos.emplace_back(read_hello<Hello>(*session_, r));
        compare_programs(hello.programs, r, own_->hash(), rank());
        neighbourhood_.cards.push_back(hello.card);
        seats.push_back({hello.card.host, static_cast<std::int32_t>(hello.place)});
        gpu_cards.push_back(hello.gpu);
        processes.push_back(hello.card.process);
        all_fence_ = all_fence_ && hello.fences == 1;
        here += hello.card.host == host_id();
        for (std::size_t core = 0; core < 1024; ++core)
            if (hello.cores[core / 64] >> core % 64 & 1) cores[hello.card.host].set(core);
    }
    crowded_ = here > cores[host_id()].count();
    if (!options_.reproducible) order_ = ring_order(seats);
    if (gpu_) {
        gpu_->connect(rank(), gpu_cards, processes);
    } else {
        for (Rank r = 0; r < ranks(); ++r)
            if (gpu_cards[static_cast<std::size_t>(r)].device >= 0)
                tutti::fail(tuttiInvalidUsage,
                            "rank %d is on a CPU and rank %d on a GPU: all ranks of a communicator must be on the same "
                            "kind",
                            rank(), r);
    }
    start_engine(std::move(engine));
    std::size_t all_cores = 0;  // the same on all ranks, which are to decide alike
    for (const auto& [host, its] : cores) all_cores += its.count();
    make_tuner(hellos, static_cast<int>(all_cores));
    static std::once_flag noted;
    std::call_once(noted, [] {
        for (const std::string& name : unheeded()) log(Level::info, "%s is set; it means nothing here", name.c_str());
    });
    log(Level::info, "rank %d of %d joined%s%s; %s", rank(), ranks(), options_.name.empty() ? "" : " ",
        options_.name.c_str(), crowded_ ? "ranks outnumber cores: waits yield" : "waits spin first");
}

/// Where no peer needs it, its port closes.
void Communicator::start_engine(std::shared_ptr<Engine> engine) {
    if (!engine) return;
    const std::vector<Card>& cards = neighbourhood_.cards;
    const Card& self = cards[static_cast<std::size_t>(rank())];
    const bool needed = std::ranges::any_of(cards, [&](const Card& peer) {
        return &peer != &self && choose_transport(self, peer, options_.transport).needs_engine();
    });
    if (!needed) return;
    neighbourhood_.engine = std::move(engine);
    neighbourhood_.engine->start(neighbourhood_, options_.timeout);
}

void Communicator::make_tuner(const std::vector<Hello>& hellos, int cores) {
    const auto card = [&](Rank r) -> const Card& { return hellos[static_cast<std::size_t>(r)].card; };
    const Transport* slowest = &local_transport();
    std::vector<std::uint64_t> hosts;
    for (Rank part = 0; part < ranks(); ++part)
        hosts.push_back(card(order_.empty() ? part : order_[static_cast<std::size_t>(part)]).host);
    for (Rank r = 1; r < ranks(); ++r) {
        const Transport& t = choose_transport(card(0), card(r), options_.transport);
        if (t.cost().alpha_us > slowest->cost().alpha_us) slowest = &t;
    }
    Platform platform =
        gpu_ ? gpu_platform(ranks(), gpu_->budget())
             : host_platform(ranks(), cores, hellos.front().cache_bytes, hellos.front().core_cache_bytes, *slowest);
    if (!gpu_) platform = spread(std::move(platform), hosts, shm_transport().cost());
    if (options_.lanes > 0) platform.lanes = options_.lanes;
    std::shared_ptr<const Tuning> tuning = Tuning::of_this_machine();
    const auto knows_other = [&](const Hello& h) { return h.tuning != hellos.front().tuning; };
    if (const auto other = std::ranges::find_if(hellos, knows_other); other != hellos.end()) {
        log(Level::info, "rank %d has other measurements of tutti-tune than rank 0: none are used",
            static_cast<int>(other - hellos.begin()));
        tuning = nullptr;
    }
    tuner_ = std::make_unique<Tuner>(platform, Allowed::parse(options_.algorithm, own_.get()), options_.reproducible,
                                     std::move(tuning), own_);
}

void Communicator::listen() {
    session_->on_fault([this](const Fault& fault) { heard(fault); });
}

Communicator::~Communicator() {
    session_->leave();
    log(Level::info, "rank %d of %d leaves; its connections used at most %zu KiB", rank(), ranks(), memory() / 1024);
}

Identity Communicator::next_meeting(const std::vector<Rank>& members) {
    for (const Rank r : members)
        if (neighbourhood_.cards[static_cast<std::size_t>(r)].host != host_id())
            tutti::fail(tuttiInvalidUsage,
                        "rank %d is on another host than rank %d: such communicators can't be shrunk, nor split after "
                        "an error; make a new one from a unique id",
                        r, rank());
    return identity_.again(members, meetings_[members]++);
}

std::size_t Communicator::memory() const {
    std::size_t wires = 0;
    for (const auto& [rank, peer] : peers_)
        for (const auto& sender : peer.senders) wires += sender != nullptr;
    const std::size_t on_gpu = gpu_ ? gpu_->memory() : 0;
    return on_gpu + page_bytes + wires * (sizeof(Fifo) + slot_depth * slot_stride);
}

Connection Communicator::connection(Rank rank, int lane) {
    Peer& peer = peers_[rank];
    if (!peer.link) {
        const Card& self = neighbourhood_.cards[static_cast<std::size_t>(this->rank())];
        const Transport& transport =
            choose_transport(self, neighbourhood_.cards[static_cast<std::size_t>(rank)], options_.transport);
        peer.link = transport.connect(neighbourhood_, rank, Clock::now() + options_.init_timeout);
        peer.transport = transport.name();
        if (!config().fault.empty())
            peer.link = faulty(std::move(peer.link), bell(), FaultPlan::parse(config().fault),
                               static_cast<std::uint64_t>(this->rank() * 4096 + rank));
        if (RankPage* const page = peer.link->page()) {
            std::lock_guard lock(fault_mutex_);
            pages_.push_back(page);
        }
        peer.senders.resize(lanes_per_link);
        peer.receivers.resize(lanes_per_link);
        log(Level::info, "rank %d reaches rank %d by %s", this->rank(), rank, peer.transport.c_str());
    }
    const auto l = static_cast<std::size_t>(lane);
    if (!peer.senders[l]) {
        peer.senders[l] = std::make_unique<Sender>(peer.link->outlet(lane));
        peer.receivers[l] = std::make_unique<Receiver>(peer.link->inlet(lane));
    }
    return {rank, peer.link.get(), peer.senders[l].get(), peer.receivers[l].get()};
}

/// Ranks play the parts that suit their places; who brings an own program has said who does what.
Program Communicator::make_program(const Algorithm& algorithm, const Request& request) const {
    const bool ours = find_algorithm(algorithm.name) == &algorithm && &algorithm != find_algorithm("pair");
    return reordered(algorithm.make, request, ours ? order_ : std::span<const Rank>());
}

Communicator::Plan Communicator::make_plan(Collective collective, Rank root, const Algorithm& algorithm) {
    const int node = tuner_->platform().node_ranks;
    Request request{collective, rank(), ranks(), root, node};
    if (config().verify && collective != Collective::send && collective != Collective::recv) {
        std::vector<Program> all;
        for (Rank r = 0; r < ranks(); ++r) all.push_back(make_program(algorithm, {collective, r, ranks(), root, node}));
        const Report report = verify(all);
        if (!report.ok) tutti::fail(tuttiInternalError, "%s", report.error.c_str());
    }
    TUTTI_ASSERT(algorithm.fifo_depth <= static_cast<int>(slot_depth));
    BoundProgram bound = BoundProgram::bind(make_program(algorithm, request), algorithm.pull_safe, algorithm.push_safe);
    const bool pair = collective == Collective::send || collective == Collective::recv;
    if (gpu_) return {collective, root, &algorithm, nullptr, gpu_->upload(std::move(bound), pair)};
    auto execution =
        std::make_unique<HostExecution>(std::move(bound), arena_->page(), pair ? 1 : collective_lanes,
                                        [&](Rank peer, int lane) { return connection(peer, pair ? pair_lane : lane); });
    return {collective, root, &algorithm, std::move(execution), nullptr};
}

/// The same on all ranks, which must cut alike.
bool Communicator::sends_slices(Plan& plan, bool altered) {
    std::optional<bool>& known = plan.sends_slices[altered];
    if (known) return *known;
    known = plan.algorithm->pull_safe;
    const bool pair = plan.collective == Collective::send || plan.collective == Collective::recv;
    for (Rank r = 0; r < ranks() && *known && !pair; ++r)
        known = gpu::sends_slices(
            make_program(*plan.algorithm, {plan.collective, r, ranks(), plan.root, tuner_->platform().node_ranks}),
            altered);
    return *known;
}

Communicator::Plan& Communicator::plan_by(const Operation& o, const Algorithm& algorithm) {
    for (const auto& plan : plans_)
        if (plan->collective == o.collective && plan->root == o.root && plan->algorithm == &algorithm) return *plan;
    plans_.push_back(std::make_unique<Plan>(make_plan(o.collective, o.root, algorithm)));
    return *plans_.back();
}

/// Of the larger one of a rank's buffers.
std::size_t Communicator::bytes_of(const Operation& o) const {
    if (o.rows) return o.rows->known * size_of(o.type);
    return o.count * size_of(o.type) * (row_per_rank(o.collective) ? static_cast<std::size_t>(ranks()) : 1);
}

const Candidate& Communicator::candidate_for(const Operation& o) {
    const std::size_t bytes = bytes_of(o);
    const bool mappable = o.rows == nullptr && mappable_[size_class(o.collective, bytes)];
    return tuner_->choose({o.collective, bytes, o.root, o.rows != nullptr, mappable});
}

double Communicator::expected_time(const Operation& o) {
    if (queue_of(o) == 0) return candidate_for(o).time;
    if (o.root == rank()) return 0;
    const Platform& p = tuner_->platform();
    const double byte = p.line.us_per_byte + p.rates.load + p.rates.store;
    return 2 * p.rates.message + p.line.alpha_us + static_cast<double>(o.count * size_of(o.type)) * byte;
}

std::pair<Communicator::Plan*, Flight> Communicator::plan_for(const Operation& o) {
    if (queue_of(o) != 0) return {&plan_by(o, *find_algorithm("pair")), pair_flight};
    const Candidate& chosen = candidate_for(o);
    if (logs(Level::info) && announced_.insert(&chosen).second)
        log(Level::info, "rank %d: %s of %zu bytes: %s, tiles of %zu bytes on %d lanes, %.3g us expected", rank(),
            std::string(name_of(o.collective)).c_str(), bytes_of(o), std::string(chosen.algorithm->name).c_str(),
            chosen.chunk_bytes, chosen.flight.lanes, chosen.time);
    return {&plan_by(o, *chosen.algorithm), chosen.flight};
}

int Communicator::queue_of(const Operation& o) {
    if (o.collective == Collective::send) return 1 + 2 * o.root;
    if (o.collective == Collective::recv) return 2 + 2 * o.root;
    return 0;
}

const Communicator::Shape& Communicator::shape_of(const Operation& o) {
    Shape& s = shape_;
    if (s.collective == o.collective && s.count == o.count && s.type == o.type && s.call_op == o.call_op &&
        s.root == o.root && !o.rows)
        return s;
    s = {};
    const auto [plan, flight] = plan_for(o);
    const Program& program = plan->program();
    const std::size_t element = size_of(o.type);
    const Cut c = gpu_     ? cut_for_gpus(o.count, element, program.columns, program.message_chunks,
                                          sends_slices(*plan, o.premultiply || o.average), gpu_->budget())
                  : o.rows ? cut_uneven(o.count, element, program.message_chunks, ranks())
                           : cut(o.count, element, program.columns, program.message_chunks, flight);
    std::uint32_t hash = mix(static_cast<std::uint32_t>(o.type) + 1, o.rows ? o.rows->hash : o.count);
    if (o.rows) hash = ~hash;
    if (queue_of(o) == 0) {  // the two sides of a pair differ in all else
        hash = mix(hash, static_cast<std::uint64_t>(o.collective) << 40 | static_cast<std::uint64_t>(o.call_op) << 32 |
                             c.tile);
        hash = mix(hash, static_cast<std::uint64_t>(o.root) << 32 | number_of(*plan->algorithm));
        hash = mix(hash, static_cast<std::uint64_t>(c.lanes));
    }
    const std::size_t like = o.rows ? SIZE_MAX : o.count;  // no call is like an uneven one
    s = {o.collective, o.type, o.call_op, o.root, like, plan, c, hash};
    return s;
}

/// What this rank now calls, for its peers to compare and, should they differ, to name.
Call Communicator::describe(const Operation& o) {
    Call call;
    call.collective = o.collective;
    call.type = o.type;
    call.op = o.call_op;
    call.algorithm = static_cast<std::uint8_t>(number_of(*shape_.plan->algorithm));
    call.root = o.root;
    call.count = o.count;
    if (o.rows) [[unlikely]]
        call.count = o.rows->digest();
    std::uint32_t hash = shape_.hash;
    if (queue_of(o) == 0) {
        call.sequence = sequence_++;
        hash += call.sequence * 0x9e3779b1u;
    }
    call.signature = hash == 0 ? 1 : hash;
    if (queue_of(o) == 0) {
        arena_->page().board[call.sequence % board_entries].set(call);
        arena_->page().sequence.store(sequence_, std::memory_order_release);
    }
    return call;
}

gpu::Job Communicator::gpu_job(const Operation& o) {
    const Shape& shape = shape_of(o);
    Call call = describe(o);
    call.signature = shape.hash == 0 ? 1 : shape.hash;  // a graph repeats it: no number in there
    return gpu_->job(o, shape.cut, call, *shape.plan->uploaded, options_.timeout);
}

/// Whether peers can map the buffers of all ranks decides which algorithm is best, and no rank knows it of another
/// before the call. The call before tells: users call again and again with the same buffers.
void Communicator::learn() {
    if (lesson_.execution == nullptr) return;
    const bool known = lesson_.execution->mappable();
    lesson_.execution = nullptr;
    if (*lesson_.known == known) return;
    *lesson_.known = known;
    shape_ = {};
    log(Level::info, "rank %d: %s of the last call can be mapped by peers", rank(),
        known ? "the buffers of all ranks" : "not all buffers");
}

bool Communicator::peers_can_map(const Operation& o, std::size_t input_rows, std::size_t output_rows) const {
    const std::size_t row = o.count * size_of(o.type);
    return tuner_->platform().sees_regions && find_region(o.input, row * input_rows) != nullptr &&
           find_region(o.output, row * output_rows) != nullptr;
}

HostExecution& Communicator::begin(const Operation& o) {
    if (queue_of(o) == 0) learn();
    const Shape& shape = shape_of(o);
    Plan& plan = *shape.plan;
    const Cut& c = shape.cut;
    Job job;
    job.input = static_cast<const std::byte*>(o.input);
    job.output = static_cast<std::byte*>(o.output);
    job.type = o.type;
    job.op = o.op;
    job.rows = o.rows;
    job.count = o.count;
    job.block = c.block;
    job.tile = c.tile;
    job.tiles = c.tiles;
    job.lanes = std::min(c.lanes, plan.execution->lanes());
    job.by_reference = c.by_reference;
    job.streaming = c.streaming;
    if (c.by_reference && o.rows == nullptr && tells_all(o.collective)) {
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
    job.call = describe(o);
    plan.execution->start(job);
    return *plan.execution;
}

}  // namespace tutti
