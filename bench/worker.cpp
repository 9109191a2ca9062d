#include "worker.hpp"

#include <algorithm>
#include <chrono>

#include "cuda.hpp"

namespace perf {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int race_rounds = 5;

double microseconds(Clock::duration time) {
    return std::chrono::duration<double, std::micro>(time).count();
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

}  // namespace

std::size_t buffer_bytes(const Options& options, int ranks) {
    // More than the last-level cache of most machines, over all ranks and both buffers; not more than the run touches.
    const std::size_t room = (std::size_t{64} << 20) / static_cast<std::size_t>(ranks);
    const auto operations = static_cast<std::size_t>(options.iterations) * static_cast<std::size_t>(options.aggregate);
    return std::max(options.max_bytes, std::min(room, options.max_bytes * operations));
}

Worker::Worker(World& world, const Options& options, const Collective& collective, Report* report, int thread)
    : world_(world), options_(options), collective_(collective), report_(report), thread_(thread) {
    constexpr std::size_t largest_element = 8;
    const std::size_t unalign = static_cast<std::size_t>(options.unalign) * largest_element;
    const std::size_t bytes = buffer_bytes(options, world.ranks()) + unalign;
    libraries_.push_back(&own_library());
    if (world.rival()) libraries_.push_back(world.rival());
    int rank = world.first_rank(thread);
    for (tuttiComm_t comm : world.join(thread)) {
        tuttiComm_t other = world.rival() ? world.rival_comms(thread)[members_.size()] : nullptr;
        tuttiStream_t stream = nullptr;
        const int device = world.device_of(rank);
        // Ranks of one thread on one GPU share a stream: one launch serves them all.
        const auto same = std::find_if(members_.begin(), members_.end(),
                                       [&](const Member& m) { return device >= 0 && m.device == device; });
        if (same != members_.end())
            stream = same->stream;
        else if (device >= 0)
            stream = cuda::make_stream(device);
        else if (!options.null_stream)
            expect(tuttiStreamCreate(&stream), comm, rank);
        members_.push_back({rank++,
                            device,
                            {comm, other},
                            stream,
                            {tuttiSum, tuttiSum},
                            Buffer(bytes, options.mapped, device),
                            Buffer(bytes, options.mapped, device),
                            {},
                            {}});
    }
    if (options.registered) register_buffers();
}

/// All ranks register windows together.
void Worker::register_buffers() {
    for (Buffer Member::*const side : {&Member::send, &Member::receive}) {
        expect(tuttiGroupStart(), nullptr, -1);
        for (Member& member : members_) {
            Buffer& buffer = member.*side;
            const tuttiComm_t comm = member.comms[0];
            member.windows.reserve(2);  // the handles are there when the group ends
            const tuttiResult_t result =
                options_.windows
                    ? tuttiCommWindowRegister(comm, buffer.data(), buffer.size(), &member.windows.emplace_back(),
                                              TUTTI_WIN_BEST_EFFORT | TUTTI_WIN_COLL_SYMMETRIC)
                    : tuttiCommRegister(comm, buffer.data(), buffer.size(), &member.registrations.emplace_back());
            expect(result, comm, member.rank);
        }
        expect(tuttiGroupEnd(), nullptr, -1);
    }
}

Worker::~Worker() {
    for (const Member& member : members_) {
        for (void* registration : member.registrations) tuttiCommDeregister(member.comms[0], registration);
        for (const tuttiWindow_t window : member.windows) tuttiCommWindowDeregister(member.comms[0], window);
    }
    for (const Member* member : streams())
        if (member->device >= 0)
            cuda::destroy_stream(member->device, member->stream);
        else if (member->stream)
            tuttiStreamDestroy(member->stream);
}

/// One member for each stream.
std::vector<const Worker::Member*> Worker::streams() const {
    std::vector<const Member*> distinct;
    for (const Member& member : members_)
        if (std::none_of(distinct.begin(), distinct.end(),
                         [&](const Member* d) { return d->device >= 0 && d->stream == member.stream; }))
            distinct.push_back(&member);
    return distinct;
}

void Worker::run() {
    const std::vector<Op> none{Op::none};
    for (int cycle = 0; options_.cycles == 0 || cycle < options_.cycles; ++cycle)
        for (const tuttiDataType_t type : options_.types)
            for (const Op op : collective_.reduces ? options_.ops : none) run_all_roots(type, op);
    world_.barrier(thread_);  // buffers may go now: freeing a GPU's memory waits for all that runs there
}

void Worker::run_all_roots(tuttiDataType_t type, Op op) {
    create_ops(type, op);
    if (!collective_.has_root) {
        run_sizes(type, op, -1);
    } else if (options_.root >= 0) {
        run_sizes(type, op, options_.root);
    } else {
        for (int root = 0; root < world_.ranks(); ++root) run_sizes(type, op, root);
    }
    destroy_ops(op);
}

Worker::Row Worker::row_of(std::size_t bytes, tuttiDataType_t type, Op op, int root) const {
    const Shape shape = collective_.shape(bytes / size_of(type), world_.ranks());
    return {type, op, root, shape, std::max(shape.send, shape.receive) * size_of(type)};
}

void Worker::run_sizes(tuttiDataType_t type, Op op, int root) {
    world_.barrier(thread_);
    warm_up(row_of(options_.max_bytes, type, op, root));
    warm_up(row_of(options_.min_bytes, type, op, root));
    for (std::size_t bytes = options_.min_bytes; bytes <= options_.max_bytes; bytes = options_.next(bytes)) {
        const Row row = row_of(bytes, type, op, root);
        if (report_) report_->begin({row.bytes, row.shape.count, type, op, root});
        for (const bool in_place : {false, true}) {
            if (in_place && !collective_.has_in_place) {
                if (report_) report_->half(nullptr, true);
                continue;
            }
            const std::vector<Measurement> measured = measure(row, in_place);
            if (report_) report_->half(&measured[0], in_place, measured.size() > 1 ? &measured[1] : nullptr);
        }
        if (report_) report_->end_of_row();
    }
}

void Worker::create_ops(tuttiDataType_t type, Op op) {
    static constexpr tuttiRedOp_t plain[] = {tuttiSum, tuttiProd, tuttiMax, tuttiMin, tuttiAvg};
    for (std::size_t side = 0; side < libraries_.size(); ++side)
        for (Member& m : members_) {
            std::uint64_t scalar = premul_scalar(type, m.rank);
            const Library& l = *libraries_[side];
            if (op == Op::mulsum)
                l.expect(l.create_op(&m.ops[side], &scalar, type, tuttiScalarHostImmediate, m.comms[side]),
                         m.comms[side], m.rank);
            else
                m.ops[side] = op == Op::none ? tuttiSum : plain[static_cast<int>(op)];
        }
}

void Worker::destroy_ops(Op op) {
    if (op != Op::mulsum) return;
    for (std::size_t side = 0; side < libraries_.size(); ++side)
        for (Member& m : members_)
            libraries_[side]->expect(libraries_[side]->destroy_op(m.ops[side], m.comms[side]), m.comms[side], m.rank);
}

// ---------------------------------------------------------------------------------------------------------------
// timing

std::byte* Worker::start(const Buffer& buffer, tuttiDataType_t type) const {
    return buffer.data() + static_cast<std::size_t>(options_.unalign) * size_of(type);
}

void Worker::issue(const Row& row, bool in_place, std::size_t offset) {
    const bool group = members_.size() > 1;
    if (group) library().expect(library().group_start(), nullptr, members_[0].rank);
    for (const Member& m : members_) {
        std::byte* receive = start(m.receive, row.type) + offset;
        const std::byte* send = start(m.send, row.type) + offset;
        if (in_place) {
            const std::size_t part = static_cast<std::size_t>(m.rank) * size_of(row.type);
            send = receive + part * row.shape.send_in_place;
            receive += part * row.shape.receive_in_place;
        }
        library().expect(collective_.call({&library(), send, receive, row.shape.count, row.type, m.ops[side_], row.root,
                                           m.rank, world_.ranks(), m.comms[side_], m.stream}),
                         m.comms[side_], m.rank);
    }
    if (group) library().expect(library().group_end(), nullptr, members_[0].rank);
}

void Worker::complete() {
    for (const Member& member : members_) complete(member);
}

/// A kernel that waits for a dead peer is told to end by the library, which is asked here whether it has heard of one.
void Worker::complete(const Member& member) {
    if (member.device < 0) {
        if (member.stream) expect(tuttiStreamSynchronize(member.stream), member.comms[0], member.rank);
        return;
    }
    tuttiComm_t comm = member.comms[side_];
    tuttiResult_t befallen = tuttiSuccess;
    while (!cuda::idle(member.device, member.stream) && befallen == tuttiSuccess)
        library().expect(library().async_error(comm, &befallen), comm, member.rank);
    library().expect(library().async_error(comm, &befallen), comm, member.rank);
    library().expect(befallen, comm, member.rank);
}

/// Microseconds per operation when all of them are in a graph that is replayed.
double Worker::time_graphs(const Row& row, bool in_place) {
    const std::vector<const Member*> distinct = streams();
    for (const Member* m : distinct) cuda::begin_capture(m->device, m->stream);
    for (int i = 0; i < options_.iterations; ++i) issue(row, in_place, 0);
    std::vector<void*> graphs;
    for (const Member* m : distinct) graphs.push_back(cuda::end_capture(m->device, m->stream));
    for (std::size_t i = 0; i < distinct.size(); ++i)
        graphs[i] = cuda::upload_graph(distinct[i]->device, graphs[i], distinct[i]->stream);
    const auto replay = [&] {
        for (std::size_t i = 0; i < distinct.size(); ++i)
            cuda::replay(distinct[i]->device, graphs[i], distinct[i]->stream);
    };
    world_.barrier(thread_);  // making a graph may wait for what runs, so nothing may wait for it
    replay();
    complete();
    world_.barrier(thread_);
    const auto begin = Clock::now();
    for (int i = 0; i < options_.graphs; ++i) replay();
    complete();
    const auto end = Clock::now();
    world_.barrier(thread_);  // and so may destroying one
    for (void* graph : graphs) cuda::destroy_graph(graph);
    return microseconds(end - begin) / options_.iterations / options_.graphs;
}

void Worker::warm_up(const Row& row) {
    for (side_ = 0; side_ < libraries_.size(); ++side_) {
        for (int i = 0; i < options_.warmup; ++i) issue(row, false, 0);
        complete();
    }
    side_ = 0;
}

/// Microseconds per operation on this thread, of `count` iterations.
double Worker::time(const Row& row, bool in_place, int count, std::vector<double>& iterations) {
    const std::size_t last_offset = buffer_bytes(options_, world_.ranks()) - row.bytes;
    std::size_t offset = 0;
    const auto begin = Clock::now();
    auto last = begin;
    for (int i = 0; i < count; ++i) {
        if (options_.aggregate > 1) library().expect(library().group_start(), nullptr, members_[0].rank);
        for (int j = 0; j < options_.aggregate; ++j) {
            issue(row, in_place, offset);
            offset = offset + row.bytes <= last_offset ? offset + row.bytes : 0;
        }
        if (options_.aggregate > 1) library().expect(library().group_end(), nullptr, members_[0].rank);
        if (options_.blocking) {
            complete();
            world_.barrier(thread_);
        }
        if (options_.per_iteration) {
            complete();
            const auto now = Clock::now();
            iterations.push_back(microseconds(now - last) / options_.aggregate);
            last = now;
        }
    }
    const auto issued = Clock::now();
    complete();
    const auto end = options_.cpu_time ? issued : Clock::now();
    return microseconds(end - begin) / count / options_.aggregate;
}

double Worker::averaged(double value) {
    switch (options_.average) {
        case Average::min:
            return world_.combine(thread_, value, tuttiMin);
        case Average::max:
            return world_.combine(thread_, value, tuttiMax);
        case Average::rank0:
            return world_.combine(thread_, world_.is_main(thread_) ? value : 0, tuttiSum);
        case Average::mean:
            break;
    }
    return world_.combine(thread_, value, tuttiSum) / (world_.processes() * options_.threads);
}

void Worker::average_iterations(std::vector<double>& iterations) {
    for (double& time : iterations) time = averaged(time);
    const auto skipped = std::min(iterations.size() - 1, static_cast<std::size_t>(options_.skip_iterations));
    iterations.erase(iterations.begin(), iterations.begin() + static_cast<std::ptrdiff_t>(skipped));
}

std::vector<Measurement> Worker::measure(const Row& row, bool in_place) {
    const std::size_t sides = libraries_.size();
    for (side_ = 0; side_ < sides; ++side_) {
        issue(row, in_place, 0);
        complete();
    }
    world_.barrier(thread_);

    // In a race the two take turns, in being first as well: what the machine does meanwhile hits both.
    const int rounds = sides == 1 ? 1 : std::min(race_rounds, options_.iterations);
    std::vector<double> iterations;
    std::vector<std::vector<double>> times(sides);
    for (int round = 0; round < rounds; ++round)
        for (std::size_t i = 0; i < sides; ++i) {
            side_ = (i + static_cast<std::size_t>(round)) % sides;
            times[side_].push_back(averaged(options_.graphs > 0
                                                ? time_graphs(row, in_place)
                                                : time(row, in_place, options_.iterations / rounds, iterations)));
        }
    std::vector<Measurement> measured(sides);
    for (side_ = 0; side_ < sides; ++side_) {
        Measurement& m = measured[side_];
        m.microseconds = median(times[side_]);
        if (m.microseconds > 0) m.algorithm_bandwidth = static_cast<double>(row.bytes) / m.microseconds / 1e3;
        m.bus_bandwidth = m.algorithm_bandwidth * collective_.bus_factor(world_.ranks());
        for (int check = 0; check < options_.checks && m.wrong.value_or(0) == 0; ++check)
            m.wrong = world_.combine(thread_, wrong_elements(row, in_place), tuttiSum);
    }
    side_ = 0;
    if (options_.per_iteration) {
        average_iterations(iterations);
        measured[0].iterations = summary_of(iterations);
    }
    if (options_.checksum && !options_.error) largest_error(row, in_place);
    if (options_.error) measured[0].error = world_.combine(thread_, largest_error(row, in_place), tuttiMax);
    return measured;
}

}  // namespace perf
