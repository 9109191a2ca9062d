// What kernels read and write, counted by the interpreter of PTX, against what the schedules say that they must.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "algorithms/prove.hpp"
#include "harness/catch.hpp"
#include "on_hosts.hpp"
#include "transport/fifo.hpp"
#include "tutti/tutti.h"

using namespace tutti;

namespace {

enum class Protocol { lines, slots, by_reference };

/// Bytes of all ranks together.
struct Moved {
    std::uint64_t user_read = 0, user_written = 0;  // of users' buffers
    std::uint64_t read = 0, written = 0;            // of these, slots and scratch, in packs: unless some go in lines
    std::uint64_t lines = 0;                        // data stored in lines
    bool operator==(const Moved&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Moved& m) {
    return out << "users' buffers: " << m.user_read << " read, " << m.user_written << " written; all: " << m.read
               << " read, " << m.written << " written; in lines: " << m.lines;
}

/// From the programs of all ranks alone: what each step reads and stores, where all chunks have `chunk` bytes.
class Schedule {
  public:
    Schedule(const Algorithm& algorithm, std::vector<Program> programs, Protocol protocol)
        : algorithm_(algorithm),
          programs_(std::move(programs)),
          protocol_(protocol),
          refers_(protocol == Protocol::by_reference && programs_.front().message_chunks == 1) {
        for (const Program& p : programs_) receives(p);
        for (const Program& p : programs_) sends(p);
    }

    Moved moved(std::uint64_t chunk) const {
        Moved sum;
        for (const Program& p : programs_) {
            std::map<Rank, std::size_t> received, sent;  // messages so far
            for (const Step& step : p.steps) add(sum, p, step, received, sent, chunk);
        }
        if (protocol_ == Protocol::lines) sum.read = sum.written = 0;
        return sum;
    }

  private:
    enum class How { stored, referred, landed };
    using Messages = std::map<std::pair<Rank, Rank>, std::vector<How>>;

    static bool is_peer(const Operand& o) { return o.place == Place::peer; }
    static bool is_users(const Operand& o) { return o.place == Place::input || o.place == Place::output; }
    static const Operand* first_slice(std::span<const Operand> operands) {
        const auto found = std::ranges::find_if_not(operands, is_peer);
        return found == operands.end() ? nullptr : &*found;
    }

    /// Which messages a receiver has a place for: those that it stores as they are. It offers as many as have slots.
    void receives(const Program& p) {
        std::map<Rank, bool> parts;
        for (const Step& step : p.steps)
            for (const Operand& o : p.sources(step)) {
                if (!is_peer(o)) continue;
                std::vector<How>& all = how_[{o.index, p.rank}];
                const bool whole = !o.more && !std::exchange(parts[o.index], o.more);
                if (o.more) continue;
                const Operand* const sink = first_slice(p.sinks(step));
                const bool lands = step.sources == 1 && whole && sink != nullptr && is_users(*sink);
                all.push_back(lands && all.size() < slot_depth ? How::landed : How::stored);
            }
    }
    void sends(const Program& p) {
        std::map<Rank, std::size_t> number;
        std::map<Rank, bool> parts;
        for (const Step& step : p.steps)
            for (const Operand& o : p.sinks(step)) {
                if (!is_peer(o)) continue;
                const bool whole = !o.more && !std::exchange(parts[o.index], o.more);
                if (o.more) continue;
                How& how = how_.at({p.rank, o.index}).at(number[o.index]++);
                const Operand& source = p.sources(step)[0];
                const bool is_there = step.sources == 1 && !is_peer(source);
                const Operand* const shared = is_there ? &source : first_slice(p.sinks(step));
                if (!refers_ || !whole)
                    how = How::stored;
                else if (how == How::landed && step.sources > 1 && algorithm_.push_safe)
                    how = How::landed;
                else
                    how = algorithm_.pull_safe && shared != nullptr && is_users(*shared) ? How::referred : How::stored;
            }
    }

    void add(Moved& sum, const Program& p, const Step& step, std::map<Rank, std::size_t>& received,
             std::map<Rank, std::size_t>& sent, std::uint64_t chunk) const {
        const bool copies = step.sources == 1;
        Moved own;
        const Operand* there = nullptr;  // where the result is before the step
        for (const Operand& o : p.sources(step)) {
            const Operand* slice = is_peer(o) ? nullptr : &o;
            bool users = slice != nullptr && is_users(o), in_lines = false;
            if (is_peer(o)) {
                const How how = how_.at({o.index, p.rank}).at(received[o.index]);
                if (!o.more) ++received[o.index];
                in_lines = protocol_ == Protocol::lines;
                users = how != How::stored;
                if (how == How::landed) slice = first_slice(p.sinks(step));
            }
            if (copies) there = slice;
            own.read += in_lines ? 0 : chunk;
            own.user_read += users ? chunk : 0;
        }
        bool wanted = false;
        for (const Operand& o : p.sinks(step)) {
            bool users = is_users(o);
            if (is_peer(o)) {
                const How how = how_.at({p.rank, o.index}).at(sent[o.index]);
                if (!o.more) ++sent[o.index];
                if (how == How::referred) continue;
                if (protocol_ == Protocol::lines) own.lines += chunk;
                users = how == How::landed;
            } else if (there != nullptr && *there == o) {
                continue;
            }
            wanted = true;
            own.written += is_peer(o) && protocol_ == Protocol::lines ? 0 : chunk;
            own.user_written += users ? chunk : 0;
        }
        if (!wanted) return;
        sum.read += own.read, sum.written += own.written, sum.lines += own.lines;
        sum.user_read += own.user_read, sum.user_written += own.user_written;
    }

    const Algorithm& algorithm_;
    const std::vector<Program> programs_;
    const Protocol protocol_;
    const bool refers_;  // messages of several chunks never do
    Messages how_;
};

void require(cudaError_t result) {
    REQUIRE(result == cudaSuccess);
}
void require(tuttiResult_t result) {
    if (result != tuttiSuccess) FAIL(tuttiGetLastError(nullptr));
}

/// Ranks of this thread, whose buffers hold `most` bytes.
class World {
  public:
    /// policy: if TUTTI_CTA_POLICY_ZERO, the buffers are symmetric windows.
    World(const Algorithm& algorithm, int ranks, Protocol its_protocol, std::size_t most,
          int policy = TUTTI_CTA_POLICY_DEFAULT)
        : protocol(its_protocol) {
        // What peers can't use, memory of pools on other GPUs, goes through slots.
        const bool pools = protocol == Protocol::slots;
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        const std::string name(algorithm.name);
        config.algorithm = name.c_str();
        config.ctaPolicy = policy;
        config.channels = 1;  // so that messages of more than 16 KiB go in no lines
        tuttiUniqueId id;
        require(tuttiGetUniqueId(&id));
        require(tuttiGroupStart());
        comms.resize(static_cast<std::size_t>(ranks));
        for (int r = 0; r < ranks; ++r) {
            config.device = pools ? r % 3 : 0;
            require(tuttiCommInitRankConfig(&comms[static_cast<std::size_t>(r)], ranks, id, r, &config));
        }
        require(tuttiGroupEnd());
        for (int r = 0; r < ranks; ++r) {
            cudaStream_t stream = nullptr;
            require(cudaSetDevice(pools ? r % 3 : 0));
            require(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
            streams.push_back(stream);
            for (auto* const buffers : {&inputs, &outputs}) {
                void* memory = nullptr;
                require(pools ? cudaMallocAsync(&memory, most, stream) : cudaMalloc(&memory, most));
                require(cudaMemsetAsync(memory, 0, most, stream));
                buffers->push_back(memory);
            }
        }
        synchronize();
        for (const auto* const buffers : {&inputs, &outputs}) {
            if (policy != TUTTI_CTA_POLICY_ZERO) break;
            windows.emplace_back(comms.size());  // the handles are there when the group ends
            require(tuttiGroupStart());
            for (std::size_t r = 0; r < comms.size(); ++r)
                require(tuttiCommWindowRegister(comms[r], (*buffers)[r], most, &windows.back()[r],
                                                TUTTI_WIN_COLL_SYMMETRIC));
            require(tuttiGroupEnd());
        }
    }
    ~World() {
        for (const auto& all : windows)
            for (std::size_t r = 0; r < comms.size(); ++r) tuttiCommWindowDeregister(comms[r], all[r]);
        for (const tuttiComm_t comm : comms) tuttiCommDestroy(comm);
        for (const auto* const buffers : {&inputs, &outputs})
            for (void* const memory : *buffers) cudaFree(memory);
        for (const cudaStream_t stream : streams) cudaStreamDestroy(stream);
        cudaSetDevice(0);
    }
    World(const World&) = delete;

    void synchronize() const {
        for (const cudaStream_t stream : streams) require(cudaStreamSynchronize(stream));
    }

    /// count: elements of a row.
    void call(Collective collective, std::size_t count) const {
        require(tuttiGroupStart());
        for (std::size_t r = 0; r < comms.size(); ++r) require(call(collective, count, r));
        require(tuttiGroupEnd());
        synchronize();
    }
    Moved moved() const {
        Moved sum;
        for (const auto* const buffers : {&inputs, &outputs})
            for (const void* const memory : *buffers) {
                const on_hosts::Traffic its = on_hosts::traffic(memory);
                sum.user_read += its.read, sum.user_written += its.written;
            }
        const on_hosts::Traffic all = on_hosts::traffic();
        sum.lines = all.lines_written;
        if (protocol == Protocol::lines) return sum;
        const auto without_cells = [](std::uint64_t bytes) { return bytes / 1024 * 1024; };  // chunks are multiples
        sum.read = without_cells(all.packs_read), sum.written = without_cells(all.packs_written);
        return sum;
    }

  private:
    tuttiResult_t call(Collective collective, std::size_t count, std::size_t r) const {
        const void* const in = inputs[r];
        void* const out = outputs[r];
        switch (collective) {
            case Collective::all_reduce:
                return tuttiAllReduce(in, out, count, tuttiFloat32, tuttiSum, comms[r], streams[r]);
            case Collective::reduce_scatter:
                return tuttiReduceScatter(in, out, count, tuttiFloat32, tuttiSum, comms[r], streams[r]);
            case Collective::all_gather:
                return tuttiAllGather(in, out, count, tuttiFloat32, comms[r], streams[r]);
            case Collective::broadcast:
                return tuttiBroadcast(in, out, count, tuttiFloat32, 0, comms[r], streams[r]);
            case Collective::reduce:
                return tuttiReduce(in, out, count, tuttiFloat32, tuttiSum, 0, comms[r], streams[r]);
            case Collective::all_to_all:
                return tuttiAlltoAll(in, out, count, tuttiFloat32, comms[r], streams[r]);
            case Collective::gather:
                return tuttiGather(in, out, count, tuttiFloat32, 0, comms[r], streams[r]);
            case Collective::scatter:
                return tuttiScatter(in, out, count, tuttiFloat32, 0, comms[r], streams[r]);
            default:
                return tuttiInvalidArgument;
        }
    }

    const Protocol protocol;
    std::vector<tuttiComm_t> comms;
    std::vector<cudaStream_t> streams;
    std::vector<void*> inputs, outputs;
    std::vector<std::vector<tuttiWindow_t>> windows;
};

/// Bytes of a chunk: in lines, and so that none are used.
constexpr std::size_t chunk_of(Protocol protocol) {
    return protocol == Protocol::lines ? 1024 : 20480;
}

}  // namespace

TEST_CASE("kernels move the bytes that the schedule has, and no more") {
    const auto protocol = GENERATE(Protocol::lines, Protocol::slots, Protocol::by_reference);
    const int ranks = protocol == Protocol::by_reference ? 4 : 3;
    const std::size_t chunk = chunk_of(protocol);
    int compared = 0;
    for (const Algorithm& algorithm : algorithms()) {
        std::vector<Collective> its;
        for (const Way& way : algorithm.ways)
            if (way.collective != Collective::barrier && least_ranks(way.collective) == 1)
                its.push_back(way.collective);
        if (its.empty()) continue;
        std::size_t most = 0;
        const auto columns = [&](Collective c) {
            return static_cast<std::size_t>(all_programs(algorithm, c, ranks).front().columns);
        };
        for (const Collective c : its) most = std::max(most, columns(c) * chunk * static_cast<std::size_t>(ranks));
        const World world(algorithm, ranks, protocol, most);
        for (const Collective c : its) {
            world.call(c, columns(c) * chunk / sizeof(float));  // makes connections, and lines of cells
            on_hosts::reset_traffic();
            world.call(c, columns(c) * chunk / sizeof(float));
            INFO(algorithm.name << ", " << name_of(c) << " of " << ranks << " ranks, protocol "
                                << static_cast<int>(protocol));
            CHECK(world.moved() == Schedule(algorithm, all_programs(algorithm, c, ranks), protocol).moved(chunk));
            ++compared;
        }
    }
    CHECK(compared > 20);
}

TEST_CASE("direct by reference moves what no algorithm can do without") {
    const int ranks = GENERATE(2, 4);
    const Algorithm& direct = *find_algorithm("direct");
    const std::uint64_t n = static_cast<std::uint64_t>(ranks), size = n * 65536;
    const World world(direct, ranks, Protocol::by_reference, size);
    const auto moved = [&](Collective c, std::uint64_t bytes_of_a_row) {
        on_hosts::reset_traffic();
        world.call(c, bytes_of_a_row / sizeof(float));
        return world.moved();
    };
    // Every input is read once, every output written once, and nothing else.
    CHECK(moved(Collective::all_reduce, size) == Moved{n * size, n * size, n * size, n * size, 0});
    CHECK(moved(Collective::reduce_scatter, size / n) == Moved{n * size, size, n * size, size, 0});
    CHECK(moved(Collective::all_to_all, size / n) == Moved{n * size, n * size, n * size, n * size, 0});
    // Of a gather each rank reads all inputs.
    CHECK(moved(Collective::all_gather, size / n) == Moved{n * size, n * size, n * size, n * size, 0});
}

TEST_CASE("kernels move nothing of what copy engines copy") {
    constexpr std::size_t row = 65536;
    const World world(*find_algorithm("direct"), 3, Protocol::by_reference, 3 * row, TUTTI_CTA_POLICY_ZERO);
    for (const Collective c : {Collective::all_gather, Collective::all_to_all}) {
        on_hosts::reset_traffic();
        world.call(c, row / sizeof(float));
        CHECK(world.moved() == Moved{});
    }
    on_hosts::reset_traffic();
    world.call(Collective::all_reduce, row / sizeof(float));
    CHECK(world.moved() == Moved{3 * row, 3 * row, 3 * row, 3 * row, 0});
}
