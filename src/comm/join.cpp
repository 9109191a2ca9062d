// How ranks become a communicator: what they tell each other, and what each rank derives from that.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <new>
#include <sstream>

#include "base/caught.hpp"
#include "base/config.hpp"
#include "base/cores.hpp"
#include "base/log.hpp"
#include "base/os.hpp"
#include "bootstrap/frame.hpp"
#include "bootstrap/rendezvous.hpp"
#include "bootstrap/service.hpp"
#include "comm/core_distance.hpp"
#include "comm/driver.hpp"
#include "comm/hello.hpp"
#include "gpu/direct.hpp"
#include "topology/placement.hpp"

namespace tutti {

namespace {

// The number of TCP connections between two ranks. Each has as much under way as the system's buffers allow, some MiB.
constexpr int near_sockets = 2, far_sockets = 4;

/// Whether the options allow a single transport, and it needs an engine.
bool demands_engine(const Options& options) {
    const Transport* only = find_transport(options.transport);
    return only != nullptr && only->needs_engine();
}

/// Whether ranks may be on other hosts, or all are to be treated as if they were.
bool may_be_apart(const Identity& identity, const Options& options) {
    return demands_engine(options) || (options.transport.empty() && !bootstrap::on_one_host(identity));
}

/// The engine by which ranks on other hosts can reach this one; nullptr if there can be none or no interface is up.
std::shared_ptr<Engine> make_engine(const Identity& identity, const Options& options) {
    if (!may_be_apart(identity, options)) return nullptr;
    const bool demanded = demands_engine(options);
    const std::vector<bootstrap::Address> here = bootstrap::data_interfaces(identity);
    if (here.empty() && demanded)
        fail(tuttiSystemError, "transport %s was asked for, but no network interface is up", options.transport.c_str());
    return here.empty() ? nullptr : open_engine(here);
}

/// apart: ranks may be on other hosts; then slots are large enough for a long path, since ranks know only after they
/// have met whether it is. Unused slots take address space alone.
std::shared_ptr<Arena> make_arena(int ranks, bool shared, bool apart) {
    ArenaLayout layout{ranks};
    if (apart) layout.slot = far_slot_bytes_for(ranks);
    return Arena::make(layout, shared);
}

/// The NUMA nodes near the caller's cores, a bit for each of the first 64.
std::uint64_t memories_of_caller() {
    std::uint64_t bits = 0;
    const std::map<int, std::vector<int>>& memories = memories_here();
    for (const int core : cores_of_caller())
        if (const auto its = memories.find(core); its != memories.end())
            for (const int memory : its->second)
                if (memory >= 0 && memory < 64) bits |= std::uint64_t{1} << memory;
    return bits;
}

Demands demands_of(const Options& options, const UserAlgorithms& own) {
    Demands demands{};
    demands.programs = own.hash();
    if (!options.algorithm.empty()) demands.algorithm = fnv(options.algorithm);
    if (!options.transport.empty()) demands.transport = fnv(options.transport);
    demands.channels = static_cast<std::uint8_t>(options.channels);
    demands.reproducible = options.reproducible;
    demands.check = options.check;
    demands.general_kernel = !config().gpu_small;
    return demands;
}

/// tells_caches: for all ranks.
Hello make_hello(bool tells_caches, const Arena& arena, const GpuSide* gpu, const UserAlgorithms& own,
                 const Engine* engine, const Options& options) {
    static_assert(sizeof(Hello) + sizeof(Hello) / 64 + 8 <= bootstrap::endpoint_info_limit);  // packed, at worst
    Hello hello{};
    hello.version = TUTTI_VERSION_CODE;
    hello.gpu = gpu != nullptr ? gpu->info() : gpu::EndpointInfo{};
    hello.info = {host_id(), process_id(), arena.key(), getpid(), arena.fd().get()};
    if (engine != nullptr) {
        hello.info.addresses = engine->addresses();
        hello.info.fabrics = fabrics_here(options.transport);
    }
    hello.fences = allow_fences();
    if (tells_caches) {
        const Caches caches = Caches::here();
        hello.cache_kib = static_cast<std::uint32_t>(caches.largest >> 10);
        hello.core_cache_kib = static_cast<std::uint32_t>(caches.of_core >> 10);
        hello.caches = static_cast<std::uint32_t>(caches.number);
    }
    hello.tuning = Tuning::of_this_machine()->hash();
    hello.paths = Tuning::of_this_machine()->hash_of_paths();
    hello.demands = demands_of(options, own);
    hello.faulty = !config().fault.empty();
    hello.threads = static_cast<std::uint8_t>(gpu != nullptr ? 1 : options.threads.number);
    hello.zero_cta = options.zero_cta;
    hello.place = seat_of_caller(gpu != nullptr ? gpu->gpus().info(gpu->device()).address : "").place;
    for (const int core : cores_of_caller())
        if (static_cast<std::size_t>(core) < hello.cores.size()) hello.cores.set(static_cast<std::size_t>(core));
    if (hello.threads > 1) hello.memories = memories_of_caller();
    return hello;
}

/// By part: the number of its core among all cores in use. Empty unless every rank is bound to a single core.
std::vector<int> cores_of(const Census& told, std::span<const Rank> order) {
    if (std::ranges::count(told.only_core, -1) > 0) return {};
    std::map<std::pair<std::uint64_t, int>, int> numbers;  // by host and core
    std::vector<int> core_of;
    for (std::size_t part = 0; part < told.seats.size(); ++part) {
        const std::size_t rank = order.empty() ? part : static_cast<std::size_t>(order[part]);
        const std::pair key(told.seats[rank].host, told.only_core[rank]);
        core_of.push_back(numbers.try_emplace(key, static_cast<int>(numbers.size())).first->second);
    }
    return core_of;
}

/// Loads files of user algorithms (docs/programs.md); paths: separated by ':'. Throws Error, which names the file and,
/// if a line is wrong, the line.
std::shared_ptr<const UserAlgorithms> load_programs(const std::string& paths, int ranks) {
    auto own = std::make_shared<UserAlgorithms>(ranks, static_cast<int>(slot_depth));
    std::istringstream list(paths);
    list.exceptions(std::ios::badbit);  // else a lack of memory would pass for the end of the list
    for (std::string path; std::getline(list, path, ':');) {
        if (path.empty()) continue;
        const ProgramFile& file = own->add(read_file(path), path);
        const auto here = std::ranges::count(file.sets, ranks, &ProgramSet::ranks);
        log(Level::info, "%s has the algorithm %s: %td of its %zu sets of programs are for %d ranks, and proven",
            path.c_str(), file.name.c_str(), here, file.sets.size(), ranks);
    }
    return own;
}

Census census_of(const Session& session, const Demands& own) {
    Census all;
    all.seats.reserve(static_cast<std::size_t>(session.ranks()));
    all.only_core.reserve(static_cast<std::size_t>(session.ranks()));
    for (Rank r = 0; r < session.ranks(); ++r) {
        const Hello hello = hello_from(session.info(r), r, session.rank());
        compare(hello.demands, r, own, session.rank());
        all.add(hello);
    }
    return all;
}

/// The measurements of `tutti-tune`; nullptr if they are not the same on all ranks.
std::shared_ptr<const Tuning> common_tuning(const Census& told) {
    if (told.other_tuning < 0) return Tuning::of_this_machine();
    log(Level::info, "rank %d has other measurements of tutti-tune than rank 0: none are used", told.other_tuning);
    return nullptr;
}

/// Likewise for the path between hosts, which goes into `platform`.
void take_common_path(Platform& platform, const Census& told) {
    if (told.other_paths >= 0)
        log(Level::info, "rank %d has other measurements of paths between hosts than rank 0: none are used",
            told.other_paths);
    else if (const Tuning::Path* const path = platform.take_path(*Tuning::of_this_machine()))
        log(Level::info, "paths between hosts by %s: %.3g us, %.3g GB/s, as tutti-tune has measured",
            platform.transport.c_str(), path->latency_us, 1e-3 / path->us_per_byte);
}

bool all_share_memory(const Connections& connections) {
    for (Rank r = 0; r < connections.ranks(); ++r)
        if (r != connections.rank() && connections.transport_to(r).sees() == Sees::nothing) return false;
    return !connections.on_gpus();
}

/// Whether the ranks are two processes of one host whose cores share no cache, or it can't be measured. The same on
/// both. Call it only if each has a core.
bool cores_are_far(Connections& connections) {
    const Rank self = connections.rank();
    if (connections.ranks() != 2 || connections.on_gpus() || connections.transport_to(1 - self).sees() != Sees::regions)
        return false;
    RankPage* const page = connections.host_page();
    const int ns = page == nullptr ? 0 : line_ns_between(*page, self == 0);
    log(Level::info, "rank %d: a cache line takes %d ns from one rank to the other (0: not measured)", self, ns);
    return ns >= far_line_ns;
}

/// Tells the other members of the session why this rank, which has joined it, makes no communicator with them.
void tell_why(Session& session, const Error& why) {
    shielded("telling why a communicator could not be made", [&] {
        const Rank self = session.rank();
        session.raise({tuttiRemoteError, self, text("%s gave up: %s", session.name(self).c_str(), why.what())});
    });
}

}  // namespace

std::unique_ptr<Communicator> Communicator::meet(const Identity& identity, Rank rank, int ranks, const Options& options,
                                                 std::span<const std::uint64_t> processes, SessionOrigin origin) {
    allow_fences();  // first: once the process has a second thread, the kernel waits 10 ms for all processors
    if (rank == 0) open_rendezvous(identity);
    std::shared_ptr<const UserAlgorithms> own = load_programs(options.programs, ranks);
    std::shared_ptr<Arena> arena = make_arena(ranks, true, may_be_apart(identity, options));
    std::unique_ptr<GpuSide> gpu = options.device < 0 ? nullptr : std::make_unique<GpuSide>(options.device, ranks);
    std::shared_ptr<Engine> engine = make_engine(identity, options);
    const Hello hello = make_hello(rank == ranks - 1, *arena, gpu.get(), *own, engine.get(), options);
    const bootstrap::Address here = engine == nullptr ? bootstrap::Address{} : engine->addresses().front();
    std::shared_ptr<Session> session =
        Session::join(identity, rank, ranks, packed(hello), options.init_timeout, processes, origin, here);
    std::unique_ptr<Communicator> comm;
    try {
        session->offer(arena->key(), arena->fd());
        if (gpu) gpu->offer(*session);
        Census told = census_of(*session, hello.demands);
        comm.reset(new Communicator(session, std::move(arena), std::move(engine), std::move(gpu), own, options,
                                    std::move(told)));
        comm->faults_.listen();
        comm->settle();
        if (comm->connections_.places().share_processes())  // no rank launches kernels before all have settled
            session->exchange(comm->next_exchange(), std::array<std::byte, 1>{}, Clock::now() + options.init_timeout);
    } catch (...) {
        tell_why(*session, caught());  // before comm's destructor, which leaves without a fault
        throw;
    }
    return comm;
}

std::unique_ptr<Communicator> Communicator::join(const Identity& identity, Rank rank, int ranks, const Options& options,
                                                 std::span<const std::uint64_t> processes, SessionOrigin origin) {
    if (ranks == 1) {  // nobody to meet
        const int devices[] = {options.device};
        return std::move(in_process(1, options, std::span(devices, options.device < 0 ? 0 : 1)).front());
    }
    try {
        return meet(identity, rank, ranks, options, processes, origin);
    } catch (...) {
        // If the rendezvous is in this process, tell the ranks that wait there. It stays open for a refused call, which
        // the user may repeat.
        const Error why = caught();
        if (why.code() != tuttiInvalidArgument && why.code() != tuttiInvalidUsage)
            shielded("closing a rendezvous", [&] {
                std::string said = "out of memory";
                try {
                    said = text("rank %d could not join the others: %s", rank, why.what());
                } catch (const std::bad_alloc&) {
                }
                close_rendezvous(identity, said);
            });
        throw;
    }
}

std::vector<std::unique_ptr<Communicator>> Communicator::in_process(int ranks, const Options& options,
                                                                    std::span<const int> devices) {
    const std::shared_ptr<const UserAlgorithms> own = load_programs(options.programs, ranks);
    std::vector<std::shared_ptr<Arena>> arenas;
    std::vector<std::shared_ptr<Engine>> engines;
    std::vector<std::unique_ptr<GpuSide>> gpus(static_cast<std::size_t>(ranks));
    for (std::size_t r = 0; r < devices.size(); ++r)
        if (devices[r] != TUTTI_DEVICE_CPU) gpus[r] = std::make_unique<GpuSide>(devices[r], ranks);
    std::vector<std::vector<std::byte>> infos;
    for (Rank rank = 0; rank < ranks; ++rank) {
        arenas.push_back(make_arena(ranks, false, demands_engine(options)));
        engines.push_back(demands_engine(options) ? open_engine({{bootstrap::Address::loopback()}}) : nullptr);
        const Hello hello = make_hello(rank == ranks - 1, *arenas.back(), gpus[static_cast<std::size_t>(rank)].get(),
                                       *own, engines.back().get(), options);
        infos.push_back(packed(hello));
    }
    std::vector<std::shared_ptr<Session>> sessions = Session::in_process(std::move(infos));
    std::vector<std::unique_ptr<Communicator>> comms;
    comms.reserve(sessions.size());  // or emplace_back could throw and leak a new one
    for (std::size_t rank = 0; rank < sessions.size(); ++rank) {
        Options its = options;  // communicators split from it inherit them
        its.device = rank < devices.size() ? devices[rank] : TUTTI_DEVICE_CPU;
        comms.emplace_back(new Communicator(sessions[rank], arenas[rank], engines[rank], std::move(gpus[rank]), own,
                                            its, census_of(*sessions[rank], demands_of(options, *own))));
        comms.back()->connections_.keep(arenas);
        comms.back()->faults_.listen();
    }
    for (const auto& comm : comms) comm->settle();
    return comms;
}

Communicator::Communicator(std::shared_ptr<Session> session, std::shared_ptr<Arena> arena,
                           std::shared_ptr<Engine> engine, std::unique_ptr<GpuSide> gpu,
                           const std::shared_ptr<const UserAlgorithms>& own, const Options& options, Census told)
    : options_(options),
      connections_({std::move(session), std::move(arena), std::move(told.infos)}, std::move(told.gpus), options_),
      gpu_(std::move(gpu)),
      faults_(connections_, gpu_.get(), options_.timeout),
      windows_(connections_, faults_, gpu_.get(), options_.timeout, [this](const Operation& o) { run_one(*this, o); }),
      comparison_(connections_) {
    if (options_.zero_cta && told.other_policy >= 0) {
        log(Level::warn, "rank %d asks for TUTTI_CTA_POLICY_ZERO and rank %d does not: kernels run all collectives",
            rank(), told.other_policy);
        options_.zero_cta = false;
    }
    const std::uint64_t host = host_id();
    const auto here = std::ranges::count(told.seats, host, &Seat::host);
    caches_.bytes = told.caches.share(static_cast<int>(here));
    waiting_.all_fence = told.all_fence;
    waiting_.oversubscribed = static_cast<std::size_t>(here) > told.cores[host].count();
    waiting_.alone = waiting_.oversubscribed && told.has_core_alone(rank());
    waiting_.crowded = told.threads_on[host] > told.cores[host].count();
    if (options_.threads.number > 1 && !gpu_)
        crew_ = std::make_unique<Crew>(options_.threads, waiting_.crowded, connections_.page().wake_up);
    const std::vector<Rank> order = options_.reproducible ? std::vector<Rank>() : ring_order(told.seats);
    const gpu::Budget budget = connections_.on_gpus() ? meet_gpus() : gpu::Budget{};
    std::function<std::unique_ptr<DeviceSlots>(std::string&)> device_slots;
    if (gpu_)
        device_slots = [this](std::string& why) {
            return gpu::direct_slots(gpu_->gpus(), gpu_->device(), {config().gdr, config().gdr_reads}, why);
        };
    const std::string its_gpu = gpu_ ? "/sys/bus/pci/devices/" + gpu_->gpus().info(gpu_->device()).address : "";
    const bool far = round_trip() >= long_path;
    connections_.arena().use_slots_of(far ? far_slot_bytes_for(ranks()) : slot_bytes_for(ranks()));
    if (far)
        log(Level::info, "rank %d of %d: the path between hosts is long (%.1f ms there and back): messages of %zu KiB",
            rank(), ranks(), static_cast<double>(round_trip().count()) / 1000, connections_.arena().slot() / 1024);
    const int sockets = config().sockets > 0 ? config().sockets : far ? far_sockets : near_sockets;
    if (crew_ && engine)
        engine->spread_by([crew = crew_.get()](std::size_t count, const auto& part) { crew->spread(count, part); });
    connections_.start(std::move(engine), std::move(device_slots), {cores_of_caller(), its_gpu}, sockets);
    if (gpu_ && connections_.engine() != nullptr) {
        connections_.engine()->on_loss([this](const Error& error) { faults_.fail(error); });
        connections_.engine()->ask([this] { return gpu_->busy(); });
    }
    const bool far_cores = !waiting_.oversubscribed && cores_are_far(connections_);
    caches_.apart = far_cores;
    caches_.several = ranks() > 2 && all_share_memory(connections_);
    std::size_t all_cores = 0;  // of all hosts, so that all ranks decide alike
    for (const auto& [its_host, its] : told.cores) all_cores += its.count();
    auto tuner =
        Tuner::shared(platform_of(told, static_cast<int>(all_cores), order, budget, far_cores),
                      Allowed::parse(options_.algorithm, own.get()), options_.reproducible, common_tuning(told), own);
    const auto by_network = [this](Rank peer) {
        return !connections_.on_gpus() && connections_.transport_to(peer).needs_engine();  // kernels have one channel
    };
    planner_.emplace(std::move(tuner),
                     Planner::Site{rank(), order, gpu_ != nullptr, by_network,
                                   [this](BoundProgram b, bool pair) { return prepare(std::move(b), pair); },
                                   [this] { return connections_.host_page(); }});
    static std::once_flag noted;
    std::call_once(noted, [] {
        for (const std::string& name : unheeded()) log(Level::info, "%s is set; it means nothing here", name.c_str());
    });
    log(Level::info, "rank %d of %d joined%s%s; %s", rank(), ranks(), options_.name.empty() ? "" : " ",
        options_.name.c_str(), waiting_.oversubscribed ? "ranks outnumber cores: waits yield" : "waits spin first");
}

/// The round trip between hosts, the same on all ranks; 0 if all are on one host, or if kernels take part (their tiles
/// do not depend on it).
std::chrono::microseconds Communicator::round_trip() const {
    if (connections_.on_gpus()) return {};
    for (Rank r = 1; r < ranks(); ++r)
        if (connections_.transport_between(0, r).needs_engine()) return session().round_trip();
    return {};
}

/// Agrees on what the ranks' GPUs can bear, and connects this rank's GPU. All ranks get the same, also those on CPUs.
gpu::Budget Communicator::meet_gpus() {
    if (options_.transport == "p2p" && through_host())
        for (Rank r = 0; r < ranks(); ++r)
            for (Rank k = 0; k < r; ++k)
                if (const char* obstacle = connections_.places().obstacle(k, r))
                    fail(tuttiInvalidUsage,
                         "transport p2p, the only one allowed here, does not join ranks %d and %d: %s", k, r, obstacle);
    gpu::Budget budget = gpu::budget_of(connections_.places());
    if (options_.channels > 0) budget.channels = std::min(budget.channels, options_.channels);
    if (gpu_) gpu_->connect(session(), connections_.places(), budget, Clock::now() + options_.init_timeout);
    if (!through_host()) return budget;
    if (options_.check)
        log(Level::warn, "rank %d: config.check has no effect where messages between GPUs go through host memory",
            rank());
    options_.check = false;      // its messages would use the kernels' channels
    waiting_.all_fence = false;  // kernels wake no sleepers
    return budget;
}

Platform Communicator::platform_of(const Census& told, int cores, std::span<const Rank> order,
                                   const gpu::Budget& budget, bool far_cores) const {
    std::vector<std::uint64_t> hosts;
    hosts.reserve(told.seats.size());
    for (Rank part = 0; part < ranks(); ++part)
        hosts.push_back(
            told.seats[static_cast<std::size_t>(order.empty() ? part : order[static_cast<std::size_t>(part)])].host);
    const bool p2p = connections_.on_gpus() && !through_host();
    std::vector<const Transport*> used;
    for (Rank r = 1; r < ranks() && !p2p; ++r) {
        const Transport* const to = &connections_.transport_between(0, r);
        if (std::ranges::count(used, to) == 0) used.push_back(to);
    }
    Platform platform = p2p ? gpu_platform(ranks(), budget)
                            : host_platform(ranks(), cores, told.caches.largest, told.caches.of_core, used, far_cores);
    if (!p2p) platform = spread(std::move(platform), hosts, shm_transport().cost());
    platform.stretch(round_trip());
    if (!p2p) take_common_path(platform, told);
    if (!connections_.on_gpus()) platform.share_among(told.threads, told.all_memories());
    if (options_.channels > 0 && !p2p) platform.force_channels(options_.channels);
    if (through_host()) platform = tutti::through_host(std::move(platform), budget);
    platform.place_on_cores(cores_of(told, order));
    platform.rates.to_all = platform.rates.to_all && !told.any_faulty;
    return platform;
}

}  // namespace tutti
