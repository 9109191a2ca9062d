// Shared memory of a peer that has crashed or gone mad: cells, posted receives, credits and pages with any content, at
// any time, in both ranks' arenas. The rank that works on them ends with an error, or with wrong results in its own
// buffers; it touches nothing else, and every call returns.
#include <array>
#include <map>

#include "algorithms/prove.hpp"
#include "fuzz.hpp"
#include "kernels/host/executor.hpp"
#include "transport/links.hpp"
#include "transport/regions.hpp"

using namespace tutti;

namespace {

constexpr std::size_t guard = 4096, most_bytes = 1 << 20, region_bytes = 1 << 16;
constexpr std::uint64_t region_id = 77;  // of the peer's memory that can be referred to

/// What outlives an input: two mapped arenas, this rank's buffers between guards, and memory of the peer's.
struct World {
    World() : pair(harness::join(shm_transport())) {
        pair.at[1].session->offer(region_id, region);
        for (std::byte*& buffer : buffers) {
            auto* const memory = static_cast<std::byte*>(allocate_region(most_bytes + 2 * guard));
            std::memset(memory, 0xa5, most_bytes + 2 * guard);
            buffer = memory + guard;
        }
    }
    void reset() {
        for (const auto& arena : pair.arenas) std::memset(arena->memory().data(), 0, ArenaLayout{2}.slots_begin());
    }
    void check_guards(std::size_t bytes) const {
        static const std::vector<std::byte> untouched(guard, std::byte{0xa5});
        for (const std::byte* buffer : buffers)
            for (const std::byte* end : {buffer - guard, buffer + bytes})
                TUTTI_ASSERT(std::memcmp(end, untouched.data(), guard) == 0);
    }
    harness::LinkedPair pair;
    const Fd region = make_memfd("region", region_bytes);
    std::array<std::byte*, 2> buffers{};
};

struct Kind_of_call {
    const char* algorithm;
    Collective collective;
};
constexpr Kind_of_call calls[] = {
    {"flat", Collective::all_reduce},     {"ring", Collective::all_reduce}, {"direct", Collective::all_to_all},
    {"ring", Collective::all_gather},     {"tree", Collective::broadcast},  {"bruck", Collective::all_to_all},
    {"ring", Collective::reduce_scatter}, {"binomial", Collective::gather}, {"doubling", Collective::all_reduce},
};

Program program_of(fuzz::Input& in) {
    const Kind_of_call& call = calls[in.below(std::size(calls))];
    static std::map<const Kind_of_call*, Program> known;
    if (const auto found = known.find(&call); found != known.end()) return found->second;
    const Algorithm* const algorithm = find_algorithm(call.algorithm);
    TUTTI_ASSERT(algorithm != nullptr && algorithm->supports(call.collective));
    return known[&call] = all_programs(*algorithm, call.collective, 2)[0];
}

/// Cut as schedule/tiling.cpp does, more or less. bytes: of the larger one of the buffers.
Job job_of(fuzz::Input& in, const Program& program, const World& world, Rows& rows, std::size_t& bytes) {
    constexpr std::size_t counts[] = {0, 1, 2, 7, 12, 13, 100, 1000, 5000, 40000};
    constexpr DataType types[] = {DataType::float32, DataType::int8, DataType::float64, DataType::bfloat16};
    Job job;
    job.type = types[in.below(std::size(types))];
    job.op = static_cast<ReduceOp>(in.below(reduce_ops));
    job.count = counts[in.below(std::size(counts))];
    const auto columns = static_cast<std::size_t>(program.columns), size = size_of(job.type);
    const auto parts = static_cast<std::size_t>(program.message_chunks);
    job.by_reference = in.flag();
    job.mappable = in.flag();
    job.block = (job.count + columns - 1) / columns;
    const std::size_t slot = slot_bytes / size / parts;
    job.tile = std::max<std::size_t>(1, job.by_reference ? job.block : std::min(job.block, in.flag() ? slot : 8));
    job.tiles = static_cast<std::uint32_t>(std::max<std::size_t>(1, (job.block + job.tile - 1) / job.tile));
    if (job.tiles > 64) job.tile = slot, job.tiles = 1;
    job.input = world.buffers[0];
    job.output = world.buffers[1];
    job.call = {.signature = 7, .collective = program.collective, .type = job.type, .count = job.count};
    const auto most_rows = static_cast<std::size_t>(std::max(program.input_rows, program.output_rows));
    bytes = std::max<std::size_t>(most_rows, 2) * job.count * size;
    if (program.collective != Collective::all_to_all || in.flag()) return job;
    for (auto [list, number] :
         {std::pair(&rows.input, program.input_rows), std::pair(&rows.output, program.output_rows)})
        for (int r = 0; r < number; ++r)
            list->push_back({static_cast<std::size_t>(r) * job.count, in.flag() ? job.count : job.count / 2});
    rows.longest = job.count;
    job.rows = &rows;
    return job;
}

/// What the peer does to the memory that both see.
class Peer {
  public:
    Peer(World& world, std::uint32_t first, const Job& job)
        : world_(world),
          out_(world.pair.arenas[1]->wire(0, 0, nullptr)),
          in_(world.pair.arenas[0]->wire(1, 0, nullptr)),
          next_(first),
          job_(job) {}

    /// A message that may be right.
    void send(fuzz::Input& in) {
        Cell& cell = out_.fifo->cells[next_ % fifo_depth];
        cell.signature = in.below(16) == 1 ? in.number<std::uint32_t>() : job_.call.signature;
        if (in.below(4) == 1 && job_.rows != nullptr) cell.signature = row_signature(7, in.below(4) * job_.count / 2);
        cell.bytes = length(in);
        cell.kind = static_cast<Kind>(in.below(32) == 1 ? in.number<std::uint16_t>() : in.below(4));
        cell.mappable = in.flag();
        in.fill(cell.payload, in.below(4) == 1 ? sizeof cell.payload : 0);
        if (cell.kind == Kind::reference) cell.reference = place(in);
        cell.turn.store(++next_, std::memory_order_release);
    }
    void give_credit(fuzz::Input& in) {
        in_.fifo->released.store(in.below(4) == 1 ? in.number<std::uint32_t>() : ++credit_);
    }
    void post(fuzz::Input& in, std::uint32_t message) {
        PostedReceive& posted_receive = in_.fifo->posted_receives[message % fifo_depth];
        posted_receive.bytes = length(in);
        posted_receive.where = place(in);
        posted_receive.turn.store(message + 1);
    }
    /// Anything, anywhere but in the slots, where any content is right.
    void scribble(fuzz::Input& in) {
        const std::span<std::byte> memory = world_.pair.arenas[in.below(2)]->memory();
        const std::size_t at = in.number<std::uint32_t>() % ArenaLayout{2}.slots_begin();
        in.fill(memory.data() + at, 1 + in.below(8));
    }
    void say_call(fuzz::Input& in) {
        Call call;
        in.fill(&call, sizeof call);
        RankPage& page = world_.pair.arenas[1]->page();
        page.board[in.below(board_entries)].set(call);
        out_.fifo->call.set(call);
        page.closed = in.below(16) == 1;
    }

  private:
    std::uint32_t length(fuzz::Input& in) const {
        const std::size_t size = size_of(job_.type);
        switch (in.below(6)) {
            case 0:
                return in.number<std::uint32_t>();
            case 1:
                return static_cast<std::uint32_t>(inline_bytes);
            case 2:
                return static_cast<std::uint32_t>(job_.count / 2 * size);
            default:
                return static_cast<std::uint32_t>(std::min({job_.tile, job_.block, job_.count}) * size);
        }
    }
    static Reference place(fuzz::Input& in) {
        const std::uint64_t region = in.below(16) == 1 ? in.number<std::uint64_t>() : region_id;
        const std::uint64_t offset = in.below(8) == 1 ? in.number<std::uint64_t>() : in.below(region_bytes) & ~7u;
        return {region, offset};
    }

    World& world_;
    const Wire out_, in_;
    std::uint32_t next_, credit_ = next_;
    const Job& job_;
};

}  // namespace

FUZZ_TARGET(shared_memory) {
    static World world;
    world.reset();
    Program program = program_of(in);
    Rows rows;
    std::size_t bytes = 0;
    const Job job = job_of(in, program, world, rows, bytes);
    if (bytes > most_bytes) return;
    std::memset(world.buffers[1] + bytes, 0xa5, guard);  // what an earlier input has used
    std::memset(world.buffers[0] + bytes, 0xa5, guard);
    const std::uint32_t first = in.flag() ? 0 : 0xfffffffe;
    Link& link = *world.pair.link[0];
    Sender sender(link.outlet(0), first);
    Receiver receiver(link.inlet(0), first);
    for (const auto& arena : world.pair.arenas)
        for (Rank r = 0; r < 2; ++r) arena->wire(r, 0, nullptr).fifo->released = first;
    Peer peer(world, first, job);
    const bool pulls = in.flag(), pushes = in.flag();
    HostExecution execution(BoundProgram::bind(std::move(program), pulls, pushes), world.pair.arenas[0]->page(), 1,
                            CacheShare(), [&](BoundProgram::Peer, int, bool) {
                                return Connection{1, &link, &sender, &receiver};
                            });
    fuzz::accepts([&] {
        execution.start(job);
        for (int actions = 0; actions < 256 && !in.empty() && !execution.finished(); ++actions) {
            switch (in.below(8)) {
                case 0:
                case 1:
                    peer.send(in);
                    break;
                case 2:
                    peer.give_credit(in);
                    break;
                case 3:
                    peer.post(in, first + in.below(4));
                    break;
                case 4:
                    peer.scribble(in);
                    break;
                case 5:
                    peer.say_call(in);
                    break;
                default:
                    execution.progress();
                    execution.blocked_on([](const HostExecution::Blocked&) {});
                    execution.waits_for_other_cores(1);
            }
        }
        execution.progress();
    });
    const RankPage& page = *link.page();
    for (const SharedCall& call : page.board) TUTTI_ASSERT(!call_text(call.get()).empty());
    world.check_guards(bytes);
}
