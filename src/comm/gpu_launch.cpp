#include "comm/gpu_launch.hpp"

#include <algorithm>
#include <atomic>
#include <compare>
#include <map>
#include <optional>
#include <tuple>

#include "base/caught.hpp"
#include "comm/copy_engine.hpp"
#include "comm/gpu_one_sided.hpp"
#include "plan/pieces.hpp"

namespace tutti {
namespace {

/// The order in which a group's operations are launched if a device has no room for all of them at once. It is the same
/// on all ranks, so the first operation that is not done yet is under way on all of them, and proceeds. Collectives go
/// in the order of their calls, messages in rounds, by how far the receiver is behind the sender.
struct Admission {
    std::size_t number;  // index in its queue, whose operations never run at the same time
    int round;           // 0: a collective
    int tenant;          // in the order of first calls in the group
    auto operator<=>(const Admission&) const = default;
};

struct Ready {
    Communicator* comm;
    void* stream;
    Operation operation;
    Admission turn;
    gpu::Job job{};  // by multicast: only its number of channels, which are blocks
    std::optional<gpu::MulticastJob> multicast = std::nullopt;  // it goes that way
    std::optional<gpu::Meeting> meeting = std::nullopt;         // the ranks meet; of the job only the channel counts
    bool copies = false;                                        // needs no kernel
    std::vector<Copy> list{};                                   // what it then copies
    void* sender_stream = nullptr;                              // for a receive from itself: the send's stream
};

bool is_to_itself(const Communicator& comm, const Operation& o) {
    return o.is_pair() && o.root == comm.rank();
}

/// One rank, or to itself.
bool is_plain_copy(const Communicator& comm, const Operation& o) {
    return is_to_itself(comm, o) ||
           (comm.ranks() == 1 && !o.premultiply && !o.average && (o.input != nullptr || o.count == 0));
}

int round_of(const Communicator& comm, const Operation& o) {
    if (!o.is_pair()) return 0;
    const int ahead = o.collective == Collective::send ? o.root - comm.rank() : comm.rank() - o.root;
    return (ahead + comm.ranks()) % comm.ranks();
}

/// The turns in all communicators concerned, taken in an order that all threads agree on and held while it lives.
class Turns {
  public:
    explicit Turns(std::span<const Issued> calls) {
        for (const Issued& c : calls) comms_.push_back(c.comm.get());
        std::sort(comms_.begin(), comms_.end());
        comms_.erase(std::unique(comms_.begin(), comms_.end()), comms_.end());
        turns_.reserve(comms_.size());
        for (Communicator* c : comms_) {
            turns_.emplace_back(c->ticket_lock());
            while (turns_.back().await() != TicketLock::Turn::inside) refuse_failed();
        }
    }

  private:
    void refuse_failed() const {
        for (const Communicator* c : comms_) c->faults().check();
    }
    std::vector<Communicator*> comms_;
    std::vector<Reservation> turns_;
};

/// Operations that run at the same time: no rank has more blocks than its share, and all communicators together have no
/// more than the device.
class Wave {
  public:
    explicit Wave(std::uint64_t group) : group_(group) {}
    bool empty() const { return members_.empty(); }

    /// Adds the operations of one turn; false, and none is added, if they can't run beside those already here.
    bool add(std::span<Ready> turn) {
        std::map<Communicator*, int> blocks = blocks_;
        for (const Ready& r : turn)
            if (!r.copies) blocks[r.comm] += static_cast<int>(r.job.channels);
        if (!empty() && (members_.front()->turn.number != turn.front().turn.number || !fits(blocks))) return false;
        blocks_ = std::move(blocks);
        for (Ready& r : turn) members_.push_back(&r);
        return true;
    }

    /// begun: set once something is enqueued, also if this throws after that.
    void launch(bool& begun) {
        Reservations room;
        ask_for(room);
        std::map<int, gpu::LaunchOrder*> kept;  // by device: all threads take their turns in one order
        for (const auto& [comm, blocks] : blocks_)
            if (gpu::LaunchOrder* const its = comm->gpu()->order()) kept.emplace(comm->gpu()->device(), its);
        Orders orders;
        for (const auto& [device, its] : kept) orders.try_emplace(device, *its);
        enqueue(orders, begun);
        room.launched = true;
    }

  private:
    /// The jobs of one launch: all on one device, of one type, on one stream.
    struct Kernel {
        std::vector<Ready*> jobs;
        void* stream;

        int device() const { return jobs.front()->comm->gpu()->device(); }
        bool serves(const Communicator* comm) const {
            return std::ranges::any_of(jobs, [&](const Ready* r) { return r->comm == comm; });
        }
        /// The users' streams other than the one it is on.
        std::vector<void*> other_streams() const {
            std::vector<void*> others;
            for (const Ready* r : jobs)
                if (r->stream != stream && std::ranges::find(others, r->stream) == others.end())
                    others.push_back(r->stream);
            return others;
        }
    };

    /// The devices' room that was asked for, by residence. The destructor says whether all is enqueued.
    struct Reservations {
        std::map<gpu::Residence*, std::vector<gpu::Stay>> stays;
        bool launched = false;
        Reservations() = default;
        Reservations(const Reservations&) = delete;
        ~Reservations() {
            for (auto& [residence, its] : stays) residence->entered(its, launched);
        }
    };

    using Orders = std::map<int, gpu::LaunchOrder::Turn>;  // by device, where a launch order is kept

    /// The kernels of a wave that have been started. If the rest of it fails, the destructor has their communicators
    /// wait for them at their end, as after_launch() does.
    struct Started {
        const Wave& wave;
        std::vector<const Kernel*> kernels{};
        bool all = false;
        explicit Started(const Wave& its) : wave(its) {}
        Started(const Started&) = delete;
        ~Started() {
            if (all) return;
            for (const Kernel* k : kernels)
                for (const auto& [comm, blocks] : wave.blocks_)
                    if (k->serves(comm))
                        shielded("a launch that has failed", [&, comm = comm] {
                            comm->gpu()->before_launch(k->stream);
                            comm->gpu()->after_launch(k->stream, comm->connections().engine());
                        });
        }
    };

    static bool fits(const std::map<Communicator*, int>& blocks) {
        std::map<gpu::Tenant*, int> of_rank;
        for (const auto& [comm, own] : blocks) {
            if (own > comm->gpu()->budget().share) return false;
            int& most = of_rank[comm->gpu()->tenant()];
            most = std::max(most, own);
        }
        std::map<gpu::Residence*, int> of_device;
        for (const auto& [tenant, most] : of_rank) {
            int& sum = of_device[&tenant->residence()];
            sum += tenant->ranks() * most;
            if (sum > tenant->residence().blocks() && of_rank.size() > 1) return false;
        }
        return true;
    }

    /// Waits until the devices have room for the wave. A communicator of one rank needs none: its blocks wait for no
    /// others and may begin as others end.
    void ask_for(Reservations& room) {
        for (const auto& [comm, blocks] : blocks_) {
            if (comm->ranks() == 1) continue;
            const auto of_comm = [comm = comm](const Ready* r) { return r->comm == comm && !r->copies; };
            const Ready& first = **std::ranges::find_if(members_, of_comm);
            if (comm->gpu()->gpus().capturing(first.stream)) {  // a graph's launch asks for no room
                comm->gpu()->tenant()->captured(blocks);
                continue;
            }
            const bool collective = !first.operation.is_pair();  // a wave's collectives come first
            const gpu::Stay stay = comm->gpu()->stay(blocks, collective, first.stream, group_);
            room.stays[&stay.tenant->residence()].push_back(stay);
        }
        for (auto& [residence, its] : room.stays)
            residence->enter(its, [this, since = Clock::now()] {
                for (const auto& [comm, blocks] : blocks_) check_wait_for_room(*comm, since);
            });
    }

    /// The wave's jobs in as few launches as possible. Launches that wait for each other must not share a stream, so
    /// each has one of its own.
    std::vector<Kernel> kernels() {
        std::map<std::tuple<int, bool, bool, DataType>, std::vector<Ready*>> alike;
        for (Ready* r : members_)
            if (!r->copies)
                alike[{r->comm->gpu()->device(), r->multicast.has_value(), r->meeting.has_value(), r->operation.type}]
                    .push_back(r);
        std::vector<Kernel> kernels;
        std::map<int, std::vector<void*>> taken;  // by device
        std::size_t spares = 0;
        for (const auto& [key, jobs] : alike) {
            const std::size_t most = std::get<1>(key) ? 1 : gpu::max_jobs;
            for (std::size_t at = 0; at < jobs.size(); at += most) {
                const auto begin = jobs.begin() + static_cast<std::ptrdiff_t>(at);
                const auto size = std::min(most, jobs.size() - at);
                Kernel kernel{{begin, begin + static_cast<std::ptrdiff_t>(size)}, nullptr};
                std::vector<void*>& others = taken[std::get<0>(key)];
                const auto free = std::ranges::find_if(
                    kernel.jobs, [&](const Ready* r) { return std::ranges::find(others, r->stream) == others.end(); });
                const Ready& first = *jobs.front();
                kernel.stream = free != kernel.jobs.end() ? (*free)->stream
                                                          : first.comm->gpu()->spare_stream(spares++, first.stream);
                others.push_back(kernel.stream);
                kernels.push_back(std::move(kernel));
            }
        }
        return kernels;
    }

    void enqueue(Orders& orders, bool& begun) {
        for (Ready* r : members_)
            if (r->copies) copy(*r->comm->gpu(), r->list, r->stream, r->sender_stream), begun = true;
        const std::vector<Kernel> all = kernels();
        if (all.empty()) return;
        gpu::Gpus& gpus = all.front().jobs.front()->comm->gpu()->gpus();
        std::map<int, void*> events;  // one for each device, as CUDA demands
        const auto follow = [&](const Kernel& k, void* first, void* second) {
            void*& event = events[k.device()];
            gpus.mark(k.device(), event, first);
            gpus.follow(k.device(), event, second);
        };
        // Every kernel follows what its users' streams hold now, hence no other kernel of the wave; what comes later on
        // those streams follows the kernel.
        for (const Kernel& k : all)
            for (void* user : k.other_streams()) follow(k, user, k.stream);
        Started started(*this);
        started.kernels.reserve(all.size());
        for (const Kernel& k : all) {
            if (const auto order = orders.find(k.device()); order != orders.end()) order->second.before(k.stream);
            start(gpus, k, started, begun);
        }
        for (const Kernel& k : all)
            if (const auto order = orders.find(k.device()); order != orders.end()) order->second.after(k.stream);
        for (const Kernel& k : all)
            for (void* user : k.other_streams()) follow(k, k.stream, user);
        for (const auto& [comm, blocks] : blocks_) {
            const Kernel* last = nullptr;  // the communicator's last kernel; its stream follows the others
            for (const Kernel& k : all) {
                if (!k.serves(comm)) continue;
                if (last != nullptr) follow(k, last->stream, k.stream);
                last = &k;
            }
            comm->gpu()->after_launch(last->stream, comm->connections().engine());
            if (!gpus.capturing(last->stream)) continue;
            for (void* user : last->other_streams())  // all branches of a capture must join its users' streams
                follow(*last, last->stream, user);
        }
        started.all = true;
        for (const auto& [device, event] : events) gpus.drop(device, event);
    }

    void start(gpu::Gpus& gpus, const Kernel& kernel, Started& started, bool& begun) const {
        unsigned channels = 0;
        for (const Ready* r : kernel.jobs) channels = std::max(channels, r->job.channels);
        for (const auto& [comm, blocks] : blocks_)
            if (kernel.serves(comm)) comm->gpu()->before_launch(kernel.stream, comm->connections().engine());
        run(gpus, kernel, channels);
        begun = true;
        started.kernels.push_back(&kernel);
        for (const auto& [comm, blocks] : blocks_)
            if (kernel.serves(comm)) comm->gpu()->leave_engine(comm->connections().engine(), kernel.stream);
    }

    static void run(gpu::Gpus& gpus, const Kernel& kernel, unsigned channels) {
        if (const auto& multicast = kernel.jobs.front()->multicast)
            return gpus.run(kernel.device(), *multicast, kernel.stream);
        const DataType type = kernel.jobs.front()->operation.type;
        const auto count = static_cast<unsigned>(kernel.jobs.size());
        if (kernel.jobs.front()->meeting) {
            gpu::MeetingLaunch launch{};
            for (const Ready* r : kernel.jobs) launch.jobs[launch.count++] = *r->meeting;
            return gpus.run(kernel.device(), launch, kernel.stream);
        }
        if (count <= gpu::small_jobs && gpus.has_small() &&
            std::ranges::all_of(kernel.jobs, [](const Ready* r) { return gpu::is_small(r->job); })) {
            gpu::SmallLaunch launch{};
            std::size_t bytes = 0;  // of a block's longest slice
            for (std::size_t i = 0; i < count; ++i) {
                launch.jobs[i] = gpu::small_job(kernel.jobs[i]->job, size_of(type));
                const gpu::Job& job = kernel.jobs[i]->job;
                bytes = std::max<std::size_t>(bytes, std::min(job.tile, job.block) * size_of(type));
            }
            constexpr unsigned least = 64;  // a thread for each operand
            static_assert(least >= gpu::small_operands);
            const auto warps = static_cast<unsigned>((bytes + 8 * 32 - 1) / (8 * 32));
            const unsigned threads = std::min(std::max(32 * warps, least), gpus.threads());
            return gpus.run(kernel.device(), type, channels, count, threads, launch, kernel.stream);
        }
        gpu::Launch launch;
        for (std::size_t i = 0; i < count; ++i) launch.jobs[i] = kernel.jobs[i]->job;
        gpus.launch(kernel.device(), type, channels, count, launch, kernel.stream);
    }

    std::vector<Ready*> members_;
    std::map<Communicator*, int> blocks_;  // by communicator: its rank's
    std::uint64_t group_;                  // tells calls of launch_together() apart
};

/// Throws if the communicator has failed or the call's stream is not its device's.
void check(const Issued& call) {
    Communicator& comm = *call.comm;
    comm.faults().throw_verdict();
    comm.faults().check();
    comm.gpu()->check_stream(call.gpu_stream);
}

/// A collective of a communicator of one rank, if that is a plain copy; false, and nothing is done, if not.
bool copy_alone(const Issued& call) {
    const Operation& o = call.operation;
    if (o.one_sided != nullptr || o.rows != nullptr || o.is_pair() || !is_plain_copy(*call.comm, o)) return false;
    check(call);
    copy(*call.comm->gpu(), plain_copy(o), call.gpu_stream, call.gpu_stream);
    return true;
}

/// Adds what copy engines run, as three operations: the ranks meet, copy, and meet again.
template <class Add>
void add_copies(CopyCall call, Add&& add) {
    Ready* r = &add();
    gpu::Meeting meeting = r->comm->gpu_meeting(r->operation, call.signature);
    const auto meet = [&](Ready& its, std::uint32_t begins) {
        meeting.begins = begins;
        its.meeting = meeting;
        its.job.channels = gpu::Meeting::channels;
    };
    meet(*r, 1);
    r = &add();
    r->copies = true;
    r->list = std::move(call.copies);
    meet(add(), 0);
}

/// Checks and plans the calls. Returns what to launch; one-sided calls go to `one_sided` instead.
std::vector<Ready> prepare(std::span<const Issued> calls, std::uint64_t group, OneSidedCalls& one_sided) {
    std::vector<Ready> ready;
    std::map<std::pair<const Communicator*, int>, std::size_t> in_queue;
    std::map<const gpu::Tenant*, int> tenants;
    for (const Issued& call : calls) {
        Communicator& comm = *call.comm;
        check(call);
        if (call.operation.one_sided != nullptr) {
            one_sided.add(call);
            continue;
        }
        if (is_to_itself(comm, call.operation) && call.operation.collective == Collective::send)
            continue;  // the receive does the copy
        if (!call.operation.is_pair()) comm.gpu()->check_mates(call.gpu_stream, group);
        const int tenant = tenants.try_emplace(comm.gpu()->tenant(), static_cast<int>(tenants.size())).first->second;
        for (const Operation& o : pieces_of(call.operation, comm.rank(), comm.ranks())) {
            const auto add = [&]() -> Ready& {
                const std::size_t number = in_queue[{&comm, o.queue()}]++;
                ready.push_back({&comm, call.gpu_stream, o, {number, round_of(comm, o), tenant}});
                ready.back().sender_stream = is_to_itself(comm, call.operation) ? call.sender_stream : call.gpu_stream;
                return ready.back();
            };
            if (std::optional<CopyCall> copied = copy_call_of(comm, o)) {
                add_copies(std::move(*copied), add);
                continue;
            }
            Ready& r = add();
            r.copies = is_plain_copy(comm, o);
            if (r.copies) r.list = plain_copy(o);
            if (r.copies) continue;
            r.multicast = comm.multicast_job(o);
            if (r.multicast)
                r.job.channels = r.multicast->blocks;
            else
                r.job = comm.gpu_job(o, call.gpu_stream);
        }
    }
    return ready;
}

}  // namespace

void check_wait_for_room(const Communicator& comm, Clock::time_point since) {
    comm.faults().check();
    if (Clock::now() - since <= comm.options().timeout) return;
    fail(
        tuttiTimeout,
        "rank %d found no room for its kernel on GPU %d within %.1f s: other communicators, several of whose ranks are "
        "threads of this process, run there and do not end. All threads must call what communicators share a GPU in "
        "the same order, or in one group",
        comm.rank(), comm.gpu()->device(), static_cast<double>(comm.options().timeout.count()) * 1e-3);
}

void launch_together(std::span<const Issued> calls) {
    static std::atomic<std::uint64_t> groups{0};
    const std::uint64_t group = ++groups;
    const Turns turns(calls);
    if (calls.size() == 1 && calls.front().comm->ranks() == 1 && copy_alone(calls.front())) return;
    OneSidedCalls one_sided;
    std::vector<Ready> ready = prepare(calls, group, one_sided);
    std::ranges::stable_sort(ready, {}, &Ready::turn);
    bool begun = false;
    try {
        one_sided.enqueue_puts(begun);
        Wave wave(group);
        for (std::size_t begin = 0, end = 0; begin < ready.size(); begin = end) {
            while (end < ready.size() && ready[end].turn == ready[begin].turn) ++end;
            const std::span turn(ready.data() + begin, end - begin);
            if (wave.add(turn)) continue;
            wave.launch(begun);
            wave = Wave(group);
            wave.add(turn);
        }
        if (!wave.empty()) wave.launch(begun);
        one_sided.enqueue_waits(group, begun);
    } catch (...) {
        if (begun)  // half of the group is enqueued, and the peers would wait for the rest
            with_caught([&](const Error& error) {
                for (const Issued& call : calls) call.comm->faults().fail(error);
            });
        throw;
    }
}

}  // namespace tutti
