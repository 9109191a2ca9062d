#include "plan/planner.hpp"

#include <bit>

#include "algorithms/prove.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "schedule/compose.hpp"
#include "schedule/sends_first.hpp"
#include "schedule/to_all.hpp"
#include "schedule/verify.hpp"

namespace tutti {
namespace {

std::uint32_t mix(std::uint32_t hash, std::uint64_t value) {
    hash = (hash ^ static_cast<std::uint32_t>(value)) * 0x9e3779b1u;
    hash = (hash ^ static_cast<std::uint32_t>(value >> 32)) * 0x85ebca77u;
    return hash ^ hash >> 15;
}

std::uint32_t signature_of(const Operation& o, const Tiling& tiling, const Algorithm& algorithm) {
    std::uint32_t hash = mix(static_cast<std::uint32_t>(o.type) + 1, o.rows ? o.rows->hash : o.count);
    if (o.rows) hash = ~hash;
    if (!o.is_pair()) {  // a pair's two sides differ in all of this
        hash = mix(hash, static_cast<std::uint64_t>(o.collective) << 40 | static_cast<std::uint64_t>(o.call_op) << 32 |
                             tiling.tile);
        hash = mix(hash, static_cast<std::uint64_t>(o.root) << 32 | number_of(algorithm));
    }
    return mix(hash, static_cast<std::uint64_t>(tiling.channels));
}

/// Whether, after the collective, every rank has had a message from every other one, directly or not, so that all have
/// learned the same.
constexpr bool tells_all(Collective c) {
    return c == Collective::all_reduce || c == Collective::reduce_scatter || c == Collective::all_gather ||
           c == Collective::all_to_all;
}

const Algorithm& pair_algorithm() {
    static const Algorithm& pair = *find_algorithm("pair");
    return pair;
}

/// Room for sends and receives with every peer, and for some collectives.
std::size_t most_plans_of(int ranks) {
    return 128 + 2 * static_cast<std::size_t>(ranks);
}

}  // namespace

Planner::Planner(std::shared_ptr<Tuner> tuner, Site site)
    : tuner_(std::move(tuner)), site_(std::move(site)), plans_(most_plans_of(platform().ranks)) {}

std::size_t Planner::Hash::operator()(const Question& q) const {
    const std::uint64_t what = q.bytes << 16 ^ static_cast<std::uint64_t>(q.root) << 8 ^
                               static_cast<std::uint64_t>(q.type) << 4 ^ static_cast<std::uint64_t>(q.collective);
    return what * 0x9e3779b97f4a7c15u >> 32;
}

std::atomic<bool>& Planner::told_of(Collective c, std::size_t bytes) const {
    return told_[static_cast<std::size_t>(c) * 65 + static_cast<std::size_t>(std::bit_width(bytes))];
}

std::size_t Planner::bytes_of(const Operation& o) const {
    if (o.rows) return o.rows->known * size_of(o.type);
    return o.count * size_of(o.type) * (row_per_rank(o.collective) ? static_cast<std::size_t>(platform().ranks) : 1);
}

/// The best algorithm depends on whether peers can map all ranks' buffers, which no rank knows of the others before the
/// call. The last such call tells: users call again and again with the same buffers.
Question Planner::question_of(const Operation& o) const {
    const std::size_t bytes = bytes_of(o);
    const bool mappable = o.symmetric || (o.rows == nullptr && told_of(o.collective, bytes));
    return {o.collective, bytes, o.root, o.rows != nullptr, mappable, o.premultiply || o.average, o.type, o.call_op};
}

void Planner::learn() {
    const bool known = lesson_->runs->execution->mappable();
    std::atomic<bool>& before = *std::exchange(lesson_, nullptr)->told;
    if (before == known) return;
    before = known;
    log(Level::info, "rank %d: %s of the last call can be mapped by peers", site_.rank,
        known ? "the buffers of all ranks" : "not all buffers");
}

/// Whether the plan may be dropped: not while it runs.
bool Planner::may_go(const Plan& plan) {
    if (plan.runs->execution && !plan.runs->execution->finished()) return false;
    if (&plan == lesson_) learn();
    return true;
}

const Plan& Planner::plan(const Operation& o) {
    if (lesson_ != nullptr && !o.is_pair()) learn();
    const Question question = question_of(o);
    if (o.rows) [[unlikely]] {  // no uneven call is like another: each replaces the last one
        Question kind = question;
        kind.bytes = 0;
        return keep(kind, make(question, o));
    }
    const Plan* const known = plans_.find(question);
    return known != nullptr ? *known : keep(question, make(question, o));
}

const Plan& Planner::keep(const Question& question, Plan plan) {
    if (Plan* const known = plans_.find(question)) return *known = std::move(plan);
    return plans_.add(question, std::move(plan), [this](const Plan& old) { return may_go(old); });
}

Tiling Planner::tiling_of(const Candidate& chosen, const Question& q, const Operation& o) const {
    Tiling tiling = chosen.tiling_of(o.count, size_of(o.type));
    if (!o.rows || q.bytes > 0) return tiling;
    std::size_t elements = 0;  // those that this rank knows of
    for (const auto& side : {o.rows->input, o.rows->output})
        for (const Row& row : side) elements += row.count;
    tiling.threads = std::min(platform().threads_for(elements * size_of(o.type)), tiling.channels);
    return tiling;
}

int Planner::threads_of(const Operation& o) const {
    if (o.is_pair() || o.one_sided != nullptr) return 1;
    try {
        const Question q = question_of(o);
        return tiling_of(tuner_->choose(q), q, o).threads;
    } catch (const Error&) {  // plan() will report it
        return 1;
    }
}

Plan Planner::make(const Question& q, const Operation& o) {
    Plan plan;
    Tiling& tiling = plan.job;
    if (o.is_pair()) {
        constexpr TileShape one_message{.sends_slices = true};
        plan.algorithm = &pair_algorithm();
        tiling =
            tile(o.count, size_of(o.type), one_message, pair_limits(q.bytes, site_.by_network(o.root), platform()));
        plan.runs = executable(o, *plan.algorithm, false);
    } else {
        RankPage* const page = tuner_->decides_slowly() && site_.host_page ? site_.host_page() : nullptr;
        std::optional<SharedDecisions> shared;
        if (page != nullptr) shared.emplace(*page);
        const Candidate& chosen = tuner_->choose(q, shared ? &*shared : nullptr);
        if (logs(Level::info) && announced_.insert(&chosen).second)
            log(Level::info,
                "rank %d: %s of %zu bytes: %s, tiles of %zu bytes on %d channels by %d threads, %.3g us expected",
                site_.rank, std::string(name_of(o.collective)).c_str(), q.bytes,
                std::string(chosen.algorithm->name).c_str(), chosen.tiling.tile, chosen.tiling.channels,
                chosen.tiling.threads, chosen.time);
        plan.algorithm = chosen.algorithm;
        tiling = tiling_of(chosen, q, o);
        if (tiling.by_reference && !o.rows && tells_all(o.collective) && platform().sees_regions)
            plan.told = &told_of(o.collective, q.bytes);
        // Messages by reference are read where they lie: writing them once for all ranks saves nothing.
        const bool fetched =
            tiling.by_reference && chosen.algorithm->pull_safe && (platform().rates.references || q.mappable);
        plan.runs = executable(o, *chosen.algorithm, platform().rates.to_all && !fetched);
    }
    plan.job.type = o.type;
    plan.job.op = o.op;
    plan.job.count = o.count;
    plan.job.divide_by = o.average ? platform().ranks : 0;
    Call& call = plan.job.call;
    call.signature = signature_of(o, tiling, *plan.algorithm);
    call.collective = o.collective;
    call.type = o.type;
    call.op = o.call_op;
    call.algorithm = static_cast<std::uint8_t>(number_of(*plan.algorithm));
    call.root = o.root;
    call.count = o.rows ? o.rows->digest() : o.count;
    return plan;
}

/// The program of a rank. In the library's algorithms ranks take the parts that suit their places; a program from a
/// file says itself which rank does what.
Program Planner::program_of(const Operation& o, const Algorithm& algorithm, Rank rank) const {
    const bool ours = find_algorithm(algorithm.name) == &algorithm && !o.is_pair();
    return reordered(algorithm.maker(),
                     {o.collective, rank, platform().ranks, o.root, platform().nodes, platform().cores},
                     ours ? site_.order : std::span<const Rank>());
}

std::shared_ptr<Executable> Planner::executable(const Operation& o, const Algorithm& algorithm, bool all) {
    std::weak_ptr<Executable>& known = executables_[{o.collective, o.root, &algorithm, all}];
    if (std::shared_ptr<Executable> executable = known.lock()) return executable;
    const auto program = [&](Rank r) { return program_of(o, algorithm, r); };
    if (config().verify && !o.is_pair()) {
        std::vector<Program> programs;
        for (Rank r = 0; r < platform().ranks; ++r) programs.push_back(program(r));
        const Report report = verify(programs);
        if (!report.ok) fail(tuttiInternalError, "%s", report.error.c_str());
    }
    TUTTI_ASSERT(algorithm.fifo_depth <= static_cast<int>(slot_depth));
    Program own = program(site_.rank);
    if (all) own = to_all(own, program);
    if (!site_.on_gpu) own = sends_first(own);
    BoundProgram bound = BoundProgram::bind(std::move(own), algorithm.pull_safe, algorithm.push_safe);
    const auto made = std::make_shared<Executable>(site_.prepare(std::move(bound), o.is_pair()));
    if (site_.on_gpu) uploaded_.push_back(made);
    known = made;
    return made;
}

double Planner::expected_time(const Operation& o) const {
    const Platform& p = platform();
    const double put = p.rates.load + p.rates.store;  // per byte
    if (o.one_sided) return p.line.alpha_us + static_cast<double>(o.one_sided->bytes) * put;
    if (!o.is_pair()) return tuner_->choose(question_of(o)).time;
    if (o.root == site_.rank) return 0;
    return 2 * (p.rates.message + p.line.handling_us) + p.line.alpha_us +
           static_cast<double>(o.count * size_of(o.type)) * (p.line.us_per_byte + put);
}

}  // namespace tutti
