#include "plan/tuner.hpp"

#include <algorithm>
#include <bit>
#include <limits>

#include "algorithms/prove.hpp"
#include "base/result.hpp"
#include "gpu/program.hpp"
#include "schedule/oversubscription.hpp"
#include "transport/fifo.hpp"

namespace tutti {
namespace {

constexpr int rehearsed_ranks = 64;  // with more ranks only the closed form is used: all programs would take too long
constexpr int frugal_peers = 31;     // peers of a rank; more connections cost too much memory
constexpr std::size_t lavish_bytes = 64 << 20;  // slots of a rank that needs more connections all the same
constexpr std::size_t smallest_tile = 16 * 1024;
// Times that the model can't tell apart: where ranks outnumber cores, where it is known which of them share one, and
// where each has one.
constexpr double about_equal = 1.1, about_equal_bound = 1.04, about_equal_near = 1.15;
constexpr double surely_more = 1.01 * std::max(about_equal, about_equal_near);  // even if both were rounded
constexpr double most_time = std::numeric_limits<double>::infinity();

}  // namespace

struct Tuner::Subject {
    const Algorithm* algorithm;
    Collective collective;
    Rehearsal rehearsal;  // all ranks' programs; above rehearsed_ranks only rank 0's, for its shape
    bool whole;
    bool complete = false;  // has all ranks' programs
    bool settled;           // the time lost by waiting is known exactly, not only a lower bound
    TileShape shapes[2];    // for inputs not altered, and altered
    ClosedForm form;
    std::string refusal;
    const Tuning::Curve* measured = nullptr;
    std::vector<double> corrections;  // by point of the curve: measured over computed time

    int rows() const {
        int rows = 1;
        for (const Program& p : rehearsal.programs) rows = std::max({rows, p.input_rows, p.output_rows});
        return rows;
    }
};

Tuner::Tuner(Platform platform, Allowed allowed, bool reproducible, std::shared_ptr<const Tuning> tuning,
             std::shared_ptr<const UserAlgorithms> own)
    : platform_(std::move(platform)),
      allowed_(std::move(allowed)),
      reproducible_(reproducible),
      tuning_(std::move(tuning)),
      own_(std::move(own)) {}

Tuner::~Tuner() = default;

std::shared_ptr<Tuner> Tuner::shared(Platform platform, Allowed allowed, bool reproducible,
                                     std::shared_ptr<const Tuning> tuning, std::shared_ptr<const UserAlgorithms> own) {
    static std::mutex mutex;
    static auto& tuners = *new std::vector<std::weak_ptr<Tuner>>;  // never destroyed: communicators may end at exit
    const auto no_files = [](const auto& files) { return files == nullptr || files->hash() == 0; };
    std::lock_guard lock(mutex);
    std::erase_if(tuners, [](const auto& known) { return known.expired(); });
    for (const auto& known : tuners)
        if (std::shared_ptr<Tuner> t = known.lock())
            if (t->platform_ == platform && t->allowed_.text() == allowed.text() && t->reproducible_ == reproducible &&
                t->tuning_ == tuning && (t->own_ == own || (no_files(t->own_) && no_files(own))))
                return t;
    const auto made = std::make_shared<Tuner>(std::move(platform), std::move(allowed), reproducible, std::move(tuning),
                                              std::move(own));
    tuners.push_back(made);
    return made;
}

/// Where each rank has a core, all decide at the same time; among many ranks a decision is short.
bool Tuner::decides_slowly() const {
    return platform_.oversubscribed() && platform_.ranks <= rehearsed_ranks;
}

std::size_t Tuner::played() const {
    std::lock_guard lock(mutex_);
    std::size_t played = 0;
    for (const auto& [key, subjects] : subjects_)
        for (const Subject& s : subjects) played += s.rehearsal.played;
    return played;
}

/// Why the algorithm can't do this call; nullptr if it can.
const char* Tuner::objection(const Algorithm& a, const Question& q) const {
    if (reproducible_ && reduces(q.collective) && !a.in_rank_order(q.collective))
        return "it does not add in rank order";
    if (q.uneven && !a.uneven_safe(q.collective)) return "it is for rows of equal length";
    return nullptr;
}

/// The root only matters to algorithms from files: for all others, all ranks are alike.
Tuner::Key Tuner::key_of(const Question& q) const {
    return {q.collective, q.uneven, has_root(q.collective) && own_ && own_->hash() != 0 ? q.root : 0};
}

/// The algorithms that can do the collective. If ranks are on several hosts, the usual compositions replace the entry
/// that stands for them; compositions that a list names are always there.
std::vector<const Algorithm*> Tuner::capable_of(Collective c, Rank root) const {
    const bool hosts = !platform_.nodes.empty();
    std::vector<const Algorithm*> capable;
    for (const Algorithm& a : algorithms())
        if (a.supports(c) && (!hosts || a.name != a.family)) capable.push_back(&a);
    if (hosts || !allowed_.text().empty())
        for (const Algorithm& a : compositions())
            if (a.supports(c) && ((hosts && a.usual) || allowed_.names(c, a.name))) capable.push_back(&a);
    if (own_)
        for (const Algorithm* a : own_->candidates(c, root)) capable.push_back(a);
    return capable;
}

/// The closed form on this platform. Hosts of unequal sizes count as if all were like the smallest; their other ranks
/// are remainder ranks, on as many rails.
ClosedForm Tuner::form_of(const Algorithm& a, Collective c) const {
    if (platform_.nodes.empty() || !a.form_on_hosts) return a.closed_form(c, platform_.ranks);
    return a.form_on_hosts(c, static_cast<int>(platform_.nodes.size()), std::ranges::min(platform_.nodes));
}

/// The form with the chunks of the busiest rank, be it by sending, which forms tell, or by receiving. What a rank
/// receives is what it sends in the collective that runs backwards in time.
ClosedForm Tuner::busiest_form_of(const Algorithm& a, Collective c) const {
    ClosedForm form = form_of(a, c);
    const Collective backwards = c == Collective::reduce      ? Collective::broadcast
                                 : c == Collective::broadcast ? Collective::reduce
                                 : c == Collective::gather    ? Collective::scatter
                                 : c == Collective::scatter   ? Collective::gather
                                                              : c;
    if (backwards == c || !a.supports(backwards)) return form;
    const ClosedForm received = form_of(a, backwards);
    if (received.busiest_rank > form.busiest_rank) {
        form.busiest_rank = received.busiest_rank;
        form.near_chunks = received.near_chunks;
    }
    return form;
}

std::vector<Tuner::Subject> Tuner::rehearse(const Question& q) const {
    const int ranks = platform_.ranks;
    const std::span<const int> nodes = platform_.nodes, cores = platform_.cores;
    const Rank root = std::get<Rank>(key_of(q));
    const std::vector<const Algorithm*> capable = capable_of(q.collective, root);
    const bool a_list_holds = std::ranges::any_of(
        capable, [&](const Algorithm* a) { return objection(*a, q) == nullptr && allowed_.allows(q.collective, *a); });
    std::vector<Subject> all;
    for (const Algorithm* a : capable) {
        const bool whole = ranks <= rehearsed_ranks;
        Subject s{a, q.collective, {}, whole, false, !whole, {}, busiest_form_of(*a, q.collective), {}, nullptr, {}};
        s.rehearsal.programs = programs_of(*a, q.collective, 0, ranks, root, nodes, cores);
        s.rehearsal.peers = peers_of(s.rehearsal.programs);
        const Program& shape = s.rehearsal.programs.front();
        s.shapes[0] = s.shapes[1] = {shape.columns, shape.message_chunks, false};
        const auto packed = static_cast<std::size_t>(s.shapes[0].message_chunks);
        if (const char* reason = objection(*a, q))
            s.refusal = reason;
        else if (a_list_holds && !allowed_.allows(q.collective, *a))
            s.refusal = "it is not among those allowed: " + allowed_.text();
        else if (const std::size_t most = limits_of(q).most_chunks(); packed > most)
            s.refusal = text("it packs %zu chunks into a message, which has room for %zu", packed, most);
        const ClosedForm sent = form_of(*a, q.collective);
        if (!whole) s.rehearsal.peers.most = static_cast<int>(sent.busiest_rank / std::max(1LL, sent.busiest_link));
        if (s.rehearsal.peers.most <= frugal_peers) cast(s, root);
        if (!whole) s.rehearsal.programs.front().steps = {}, s.rehearsal.programs.front().operands = {};
        all.push_back(std::move(s));
    }
    refuse_lavish(all);
    for (Subject& s : all) cast(s, root);
    return all;
}

/// Makes all ranks' programs, unless they exist or the algorithm has been refused.
void Tuner::cast(Subject& s, Rank root) const {
    if (!s.whole || s.complete || !s.refusal.empty()) return;
    s.complete = true;
    Rehearsal& r = s.rehearsal;
    r.programs = all_programs(*s.algorithm, s.collective, platform_.ranks, root, platform_.nodes, platform_.cores);
    r.peers = peers_of(r.programs);
    r.pull_safe = s.algorithm->pull_safe;
    r.push_safe = s.algorithm->push_safe;
    for (const bool altered : {false, true})
        s.shapes[altered].sends_slices = r.pull_safe && std::ranges::all_of(r.programs, [&](const Program& p) {
                                             return gpu::sends_slices(p, altered);
                                         });
}

/// Refuses algorithms that connect a rank with too many others, if there are some that do not. All-to-all is exempt:
/// each rank has data for every other one, and fewer connections would move it several times.
void Tuner::refuse_lavish(std::vector<Subject>& all) {
    if (!all.empty() && all.front().collective == Collective::all_to_all) return;
    const auto frugal = [](const Subject& s) { return s.refusal.empty() && s.rehearsal.peers.most <= frugal_peers; };
    if (std::ranges::none_of(all, frugal)) return;
    for (Subject& s : all)
        if (s.refusal.empty() && !frugal(s))
            s.refusal = text("it connects a rank with %d others, which costs too much memory", s.rehearsal.peers.most);
}

/// Computes the time that the algorithm loses by waiting. enough: stop there, since a longer time does not matter; a
/// second call goes on to the end.
void Tuner::play(Subject& s, double enough) const {
    if (s.settled || !s.refusal.empty()) return;
    Rehearsal& r = s.rehearsal;
    if (r.lost > 0) enough = most_time;
    if (r.order.empty()) r.rehearse();
    const auto line = [&](Rank from, Rank to) { return platform_.line_between(from, to); };
    if (platform_.oversubscribed())
        r.lost = lost_by_sharing(r, platform_.rates, line, platform_.core_of, &r.played, enough);
    s.settled = !platform_.oversubscribed() || r.lost < enough;
}

std::vector<Tuner::Subject>& Tuner::subjects(const Question& q) {
    const auto known = subjects_.find(key_of(q));
    if (known != subjects_.end()) return known->second;
    std::vector<Subject> all = rehearse(q);  // kept once it is complete: without memory, the next call begins anew
    for (Subject& s : all) {
        if (!s.refusal.empty() || !tuning_) continue;
        s.measured = tuning_->find(q.collective, s.algorithm->name, platform_.transport, platform_.ranks);
        if (s.measured == nullptr) continue;
        play(s, most_time);
        for (const Tuning::Point& p : *s.measured)
            s.corrections.push_back(p.time / weigh(s, {q.collective, p.bytes, q.root, q.uneven}).time);
    }
    return subjects_.emplace(key_of(q), std::move(all)).first->second;
}

/// The price where there are too many ranks for a rehearsal.
void Tuner::price_by_form(Candidate& c, const Subject& s, const Tiling& tiling, const Rates& r, Cached cached) const {
    c.closed_form = true;
    const auto add = [&](const Line& line, int rounds, long long chunks) {
        const double moved = static_cast<double>(chunks), packed = s.shapes[0].message_chunks;
        const double messages = std::max(moved / packed, static_cast<double>(rounds));
        const double per_byte =
            2 * (r.load + r.store) + line.us_per_byte + r.lines + (cached.buffers ? 0 : 2 * r.memory);
        const double work = messages * (r.step + 2 * (r.message + line.handling_us)) +
                            moved * static_cast<double>(tiling.tile) * per_byte;
        c.price.busiest += work;
        if (!cached.buffers) c.price.far += 2 * moved * static_cast<double>(tiling.tile) * r.memory * platform_.ranks;
        c.price.chain += work + rounds * line.alpha_us;
    };
    const ClosedForm& f = s.form;
    add(platform_.line, f.rounds - f.near_rounds, f.busiest_rank - f.near_chunks);
    add(platform_.host_of.empty() ? platform_.line : platform_.near, f.near_rounds, f.near_chunks);
    c.price.work = c.price.busiest * platform_.ranks;
    c.price.waits = static_cast<long long>(f.rounds) * platform_.ranks;
    if (platform_.oversubscribed()) c.price.lost = r.switching * static_cast<double>(c.price.waits) / r.cores;
    add_tiles(c.price, tiling.tiles, tiling.channels, platform_.ranks, r);
}

/// The limits for this call. A user's program writes its input before a call and reads the output after it: then short
/// calls take less time if they are copied, and they run alike whether peers can map the buffers or not. Where ranks
/// outnumber cores, a message by reference also keeps its sender from returning until the receiver has run; there
/// copies pay while all buffers fit the cores' own caches (docs/performance-cpu.md).
TileLimits Tuner::limits_of(const Question& q) const {
    TileLimits limits = q.uneven ? platform_.uneven : platform_.limits;
    if (!q.uneven && q.bytes <= platform_.copied_up_to(q.collective)) limits.reference = SIZE_MAX;
    if (limits.reference == SIZE_MAX || !(platform_.rates.references || q.mappable))
        limits.tile = std::min(limits.tile, platform_.exchanged);
    if (q.mappable) limits.slices = std::max(limits.slices, limits.mappable_slices);
    return limits;
}

/// The price of the call within these limits.
Candidate Tuner::cut(const Subject& s, const Question& q, const TileLimits& limits, LastTile& last) const {
    const auto rows = static_cast<std::size_t>(s.rows()), ranks = static_cast<std::size_t>(platform_.ranks);
    Rates rates = platform_.rates;
    rates.references = rates.references || q.mappable;
    Candidate c;
    c.algorithm = s.algorithm;
    c.shape = s.shapes[q.altered];
    c.limits = limits;
    c.rows = s.rows();
    c.tiling = c.tiling_of((q.bytes + rows - 1) / rows, 1);
    if (!c.tiling.in_lines) rates.message += rates.flag, rates.lines = 0;
    Tiling moved = c.tiling;
    moved.tile = std::min(c.tiling.tile, c.tiling.block);  // short rows make short messages
    Cached cached{.buffers = 2 * ranks * q.bytes <= platform_.cache_bytes};
    if (!s.whole) {
        price_by_form(c, s, moved, rates, cached);
    } else {
        const std::size_t under_way =  // one message to each peer
            s.rehearsal.peers.pairs * moved.tile * static_cast<std::size_t>(c.shape.message_chunks) *
            static_cast<std::size_t>(moved.channels);
        cached.messages = under_way < platform_.near_bytes;
        // In smaller calls what another core has written costs about as much as what the own one has (measured on one
        // machine: docs/performance-cpu.md, "Ranks that share cores").
        if (4 * ranks * q.bytes < platform_.near_bytes) rates.between_cores = 0;
        const auto line = [&](Rank a, Rank b) {
            Line between = platform_.line_between(a, b);
            between.us_per_byte += rates.lines;
            return between;
        };
        if (last.bytes != moved.tile || last.by_reference != moved.by_reference || last.cached != cached.messages)
            last = {moved.tile, moved.by_reference, cached.messages,
                    price_of_tile(s.rehearsal, moved, rates, line, cached,
                                  platform_.cores.empty() ? std::span<const int>() : platform_.core_of)};
        c.price = last.price;
        add_tiles(c.price, moved.tiles, moved.channels, platform_.ranks, rates);
    }
    c.time = c.price.time;
    c.tiling.threads = std::min(c.price.threads, c.tiling.channels);
    return c;
}

/// The best tile and number of channels, by computation alone.
Candidate Tuner::weigh(const Subject& s, const Question& q) const {
    TileLimits limits = limits_of(q);
    LastTile last;
    if (limits.fixed()) return cut(s, q, limits, last);
    Candidate best;
    const std::size_t longest = std::min(limits.tile, limits.slots.message);
    const int channels = limits.slots.channels;
    const std::size_t most =  // most bytes under way to a peer
        s.rehearsal.peers.most <= frugal_peers
            ? SIZE_MAX
            : lavish_bytes / slot_depth / static_cast<std::size_t>(s.rehearsal.peers.most);
    for (limits.tile = smallest_tile; limits.tile <= longest; limits.tile *= 2) {
        for (int n = platform_.fewest_channels; n <= channels; n *= 2) {
            if (best.algorithm != nullptr && limits.tile * static_cast<std::size_t>(n) > most) break;
            limits.slots.channels = n;
            Candidate c = cut(s, q, limits, last);
            c.limits.slots.channels = c.tiling.channels;
            if (best.algorithm == nullptr || c.time < best.time) best = std::move(c);
            if (best.tiling.tiles <= static_cast<std::uint32_t>(n)) break;  // more channels would be idle
        }
        if (best.tiling.tiles == 1 && best.limits.tile < limits.tile) break;
    }
    return best;
}

Candidate Tuner::judge(const Subject& s, const Question& q) const {
    const std::size_t bytes = q.bytes;
    Candidate c = weigh(s, q);
    if (s.corrections.empty() || (q.mappable && c.tiling.by_reference)) return c;  // measured with private buffers
    const Tuning::Curve& curve = *s.measured;
    const auto after =
        static_cast<std::size_t>(std::ranges::lower_bound(curve, bytes, {}, &Tuning::Point::bytes) - curve.begin());
    if (after == 0) {
        c.correction = s.corrections.front();
    } else if (after == curve.size()) {
        c.correction = s.corrections.back();
    } else {
        // Interpolates over powers of two in plain arithmetic, which gives the same on every host.
        const double below = std::bit_width(curve[after - 1].bytes), above = std::bit_width(curve[after].bytes);
        const double share = above > below ? (std::bit_width(bytes) - below) / (above - below) : 1;
        c.correction = s.corrections[after - 1] * (1 - share) + s.corrections[after] * share;
    }
    c.time *= c.correction;
    return c;
}

std::vector<Candidate> Tuner::candidates(const Question& q) {
    std::lock_guard lock(mutex_);
    for (Subject& s : subjects(q)) play(s, most_time);
    return judge_all(q);
}

/// All candidates for a call, the best first. Those that surely take too long are not simulated, or not to the end: the
/// time without any waiting is known sooner, and once some candidates are judged, another one may be seen to wait too
/// long.
std::vector<Candidate> Tuner::judge_all(const Question& q) {
    std::vector<Subject>& subjects = this->subjects(q);
    std::vector<Candidate> all(subjects.size());
    std::vector<std::pair<double, std::size_t>> order;  // by the shortest time that each may take
    for (std::size_t i = 0; i < all.size(); ++i) {
        const Subject& s = subjects[i];
        all[i].algorithm = s.algorithm;
        all[i].refusal = s.refusal;
        const bool known = s.settled || platform_.rates.insists;  // else weigh() gives a lower bound
        if (s.refusal.empty()) order.emplace_back(known ? 0 : weigh(s, q).time, i);
    }
    std::ranges::sort(order);
    double too_long = most_time;
    for (const auto& [least, i] : order) {
        Subject& s = subjects[i];
        if (least < too_long) play(s, too_long);
        if (s.settled) {
            all[i] = judge(s, q);
            too_long = std::min(too_long, all[i].time * surely_more);
        } else {
            all[i].refusal = "it surely takes longer than another one";
        }
    }
    std::ranges::stable_sort(all, [&](const Candidate& a, const Candidate& b) {
        if (a.refusal.empty() != b.refusal.empty()) return a.refusal.empty();
        return a.time < b.time;
    });
    prefer_balanced(all, q.bytes);
    return all;
}

/// Decides among candidates whose times the model can't tell apart. Where ranks outnumber cores, the model assumes that
/// cores share all work evenly, which is truer the less the busiest rank has to do: where bytes matter, that decides
/// first, and then fewer waits; for small calls, fewer waits alone. Fewer waits also decide where each core has its
/// rank, if all that is touched stays in the cores' own caches: there bytes cost less than the model says.
void Tuner::prefer_balanced(std::vector<Candidate>& sorted, std::size_t bytes) const {
    const auto touched = 4 * static_cast<std::size_t>(platform_.ranks) * bytes;  // both buffers, messages in and out
    const bool near =
        platform_.rates.threads <= collective_channels && platform_.host_of.empty() && touched <= platform_.near_bytes;
    if (sorted.empty() || !(platform_.oversubscribed() || near)) return;
    const double equal = !platform_.cores.empty()     ? about_equal_bound
                         : platform_.oversubscribed() ? about_equal
                                                      : about_equal_near;
    const bool bytes_matter = platform_.oversubscribed() && bytes > smallest_tile;
    const auto close = std::ranges::find_if_not(sorted, [&](const Candidate& c) {
        return c.refusal.empty() && c.correction == 1 && c.time <= equal * sorted.front().time;
    });
    const auto busiest = [](const Candidate& c) { return c.price.busiest * c.tiling.tiles; };
    const auto waits = [](const Candidate& c) { return c.price.waits * c.tiling.tiles; };
    auto best = sorted.begin();
    for (auto c = sorted.begin(); c != close; ++c)
        if ((bytes_matter && busiest(*c) * about_equal < busiest(*best)) ||
            ((!bytes_matter || busiest(*c) < busiest(*best) * about_equal) && waits(*c) < waits(*best)))
            best = c;
    std::rotate(sorted.begin(), best, best + 1);
}

Candidate Tuner::decide(const Question& q) {
    std::vector<Candidate> all = judge_all(q);
    if (all.empty() || !all.front().refusal.empty())
        fail(tuttiInvalidUsage, "no algorithm can do %s among %d ranks%s%s", std::string(name_of(q.collective)).c_str(),
             platform_.ranks, all.empty() ? "" : ": ", all.empty() ? "" : all.front().refusal.c_str());
    return std::move(all.front());
}

const Candidate& Tuner::choose(const Question& q, SharedDecisions* shared) {
    const DecisionKey key(key_of(q), std::bit_width(q.bytes), q.mappable, q.altered && limits_of(q).slices > 0);
    std::unique_lock lock(mutex_);
    const auto known = decided_.find(key);
    if (known != decided_.end()) return known->second;
    Question rounded = q;
    rounded.bytes = std::bit_floor(q.bytes);
    SharedDecisions::Duty duty;
    std::optional<Candidate> theirs;
    if (shared != nullptr) {
        lock.unlock();
        if (const auto decision = shared->ask(number_of(key), duty)) theirs = candidate_of(*decision, rounded);
        lock.lock();
    }
    const Candidate& chosen = decided_.emplace(key, theirs ? std::move(*theirs) : decide(rounded)).first->second;
    if (!theirs) duty.fulfil(decision_of(chosen));
    return chosen;
}

}  // namespace tutti
