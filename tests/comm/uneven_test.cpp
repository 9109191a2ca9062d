// Collectives whose rows differ in length: random counts with zeros and large skews, rows in any order with gaps
// between them, every algorithm; what is not a row stays as it was.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "algorithms/algorithms.hpp"
#include "harness/catch.hpp"
#include "harness/collective.hpp"
#include "harness/harness.hpp"
#include "kernels/convert.hpp"

using namespace tutti;
using harness::require_success;

namespace {

using Counts = std::vector<size_t>;

constexpr Collective uneven_collectives[] = {Collective::all_to_all, Collective::gather, Collective::scatter,
                                             Collective::all_gather, Collective::reduce_scatter};

struct Case {
    Collective what;
    Counts counts;  // all_to_all: of rank q for rank r at q * n + r; else of rank r's row
    tuttiDataType_t type = tuttiFloat32;
    tuttiRedOp_t op = tuttiSum;
    int root = 0;
    bool in_place = false;
    bool mapped = false;  // buffers of tuttiMemAlloc
    unsigned seed = 1;    // of the displacements
};

size_t at(int i) {
    return static_cast<size_t>(i);
}

/// Memory of elements, all 0xa5 but where something is put.
class Elements {
  public:
    Elements(size_t count, tuttiDataType_t type, bool mapped)
        : type_(static_cast<DataType>(type)), bytes_(count * size_of(type_)), mapped_(mapped) {
        void* p = nullptr;
        if (mapped)
            require_success(tuttiMemAlloc(&p, bytes_), "tuttiMemAlloc");
        else
            p = operator new(bytes_, std::align_val_t(64));
        data_ = static_cast<unsigned char*>(p);
        std::memset(data_, 0xa5, bytes_);
    }
    ~Elements() {
        if (mapped_)
            tuttiMemFree(data_);
        else
            operator delete(data_, std::align_val_t(64));
    }
    Elements(const Elements&) = delete;
    void put(size_t i, double value) { store_from_double(type_, value, (*this)[i]); }
    unsigned char* operator[](size_t i) { return data_ + i * size_of(type_); }
    bool operator==(const Elements& other) const { return std::memcmp(data_, other.data_, bytes_) == 0; }

    bool same(const Elements& other, size_t i) const {
        const size_t size = size_of(type_);
        return std::memcmp(data_ + i * size, other.data_ + i * size, size) == 0;
    }

  private:
    DataType type_;
    size_t bytes_;
    bool mapped_;
    unsigned char* data_ = nullptr;
};

/// Rows in a random order, with gaps; empty ones anywhere, also in the midst of others.
struct Placed {
    Counts counts, displs;
    size_t end = 0;

    Placed(Counts lengths, std::mt19937& random) : counts(std::move(lengths)), displs(counts.size()) {
        std::vector<size_t> order(counts.size());
        for (size_t i = 0; i < order.size(); ++i) order[i] = i;
        std::shuffle(order.begin(), order.end(), random);
        for (const size_t row : order) {
            displs[row] = end += random() % 4;
            end += counts[row];
        }
        end += 3;
        for (size_t row = 0; row < counts.size(); ++row)
            if (counts[row] == 0) displs[row] = random() % end;
    }
};

/// One rank's call: its arguments, what it sends, and what it must get.
class Caller {
  public:
    Caller(const Case& c, int rank, int ranks) : c_(c), rank_(rank), n_(ranks), random_(c.seed + at(rank) * 77) {
        Counts in(1, c.what == Collective::all_to_all ? 0 : c.counts[at(rank)]), out = in;
        if (c.what == Collective::all_to_all) {
            in = {c.counts.begin() + rank * n_, c.counts.begin() + (rank + 1) * n_};
            out.clear();
            for (int q = 0; q < n_; ++q) out.push_back(c.counts[at(q * n_ + rank)]);
        }
        if (c.what == Collective::scatter) in = rank == c.root ? c.counts : Counts{};
        if (c.what == Collective::gather) out = rank == c.root ? c.counts : Counts{};
        if (c.what == Collective::all_gather) out = c.counts;
        if (c.what == Collective::reduce_scatter) in = c.counts;
        in_ = std::make_unique<Placed>(in, random_);
        out_ = std::make_unique<Placed>(out, random_);
        if (c.what == Collective::reduce_scatter) pack(*in_);
        make_buffers();
    }

    tuttiResult_t call(tuttiComm_t comm, tuttiStream_t stream) {
        // The arrays are the caller's again when the call has returned.
        auto in = std::make_unique<Placed>(*in_), out = std::make_unique<Placed>(*out_);
        const tuttiResult_t result = issue(*in, *out, comm, stream);
        for (Placed* p : {in.get(), out.get()}) {
            std::fill(p->counts.begin(), p->counts.end(), SIZE_MAX);
            std::fill(p->displs.begin(), p->displs.end(), SIZE_MAX);
        }
        return result;
    }

    void check() const {
        const std::string who = std::string(name_of(c_.what)) + "v, rank " + std::to_string(rank_);
        if (!(*receive_ == *expected_)) throw std::runtime_error(who + ": the receive buffer is wrong");
        if (send_ && !(*send_ == *sent_)) throw std::runtime_error(who + ": the send buffer was changed");
    }

    /// What lies between and behind the rows is as it was, whatever became of them.
    bool rows_only() const {
        std::vector<bool> in_row(out_->end + 1);
        for (size_t row = 0; row < out_->counts.size(); ++row)
            for (size_t i = 0; i < out_->counts[row]; ++i) in_row[out_->displs[row] + i] = true;
        for (size_t i = 0; i < in_row.size(); ++i)
            if (!in_row[i] && !receive_->same(*expected_, i)) return false;
        return true;
    }

  private:
    bool in_place() const {
        const bool both = !in_->counts.empty() && !out_->counts.empty();
        return c_.in_place && both && c_.what != Collective::all_to_all;
    }
    static void pack(Placed& p) {
        p.end = 0;
        for (size_t r = 0; r < p.counts.size(); ++r) {
            p.displs[r] = p.end;
            p.end += p.counts[r];
        }
    }

    /// Rank `from`'s element i of the row for `to`. Small numbers, which every type adds exactly.
    double value(int from, int to, size_t i) const {
        return static_cast<double>((at(from) * 5 + at(to) * 3 + i * 7 + i / 5) % 3);
    }
    double result(int row, size_t i) const {
        switch (c_.what) {
            case Collective::all_to_all:
                return value(row, rank_, i);
            case Collective::scatter:
                return value(c_.root, rank_, i);
            case Collective::reduce_scatter: {
                double all = value(0, rank_, i);
                for (int r = 1; r < n_; ++r)
                    all = c_.op == tuttiMax ? std::max(all, value(r, rank_, i)) : all + value(r, rank_, i);
                return all;
            }
            default:
                return value(row, row, i);
        }
    }
    /// What row number `row` of the send buffer is for: a rank, or, where there is one row, this rank's own.
    int target(size_t row) const { return in_->counts.size() > 1 ? static_cast<int>(row) : rank_; }
    int origin(size_t row) const { return out_->counts.size() > 1 ? static_cast<int>(row) : rank_; }

    void make_buffers() {
        if (in_place()) {  // the smaller buffer is this rank's row of the larger one
            if (in_->counts.size() >= out_->counts.size())
                *out_ = shifted(*in_, in_->displs[in_->counts.size() > 1 ? at(rank_) : 0]);
            else
                *in_ = shifted(*out_, out_->displs[at(rank_)]);
        }
        const auto make = [&](size_t n) { return std::make_unique<Elements>(n + 1, c_.type, c_.mapped); };
        receive_ = make(out_->end);
        expected_ = std::make_unique<Elements>(out_->end + 1, c_.type, false);
        if (!in_place()) {
            send_ = make(in_->end);
            sent_ = std::make_unique<Elements>(in_->end + 1, c_.type, false);
        }
        for (size_t row = 0; row < in_->counts.size(); ++row)
            for (size_t i = 0; i < in_->counts[row]; ++i) {
                const double v = value(rank_, target(row), i);
                for (Elements* e :
                     {in_place() ? receive_.get() : send_.get(), in_place() ? expected_.get() : sent_.get()})
                    e->put(in_->displs[row] + i, v);
            }
        for (size_t row = 0; row < out_->counts.size(); ++row)
            for (size_t i = 0; i < out_->counts[row]; ++i)
                expected_->put(out_->displs[row] + i, result(origin(row), i));
    }
    /// A buffer of one row that is this rank's row of a larger one, which begins where it does.
    Placed shifted(const Placed& larger, size_t displ) {
        Placed one({c_.counts[at(rank_)]}, random_);
        one.displs[0] = displ;
        one.end = larger.end;
        return one;
    }

    tuttiResult_t issue(Placed& in, Placed& out, tuttiComm_t comm, tuttiStream_t stream) {
        Elements& from = in_place() ? *receive_ : *send_;
        const auto buffer = [](Elements& e, const Placed& p) { return p.counts.empty() ? nullptr : e[0]; };
        const auto row = [](Elements& e, const Placed& p) {
            return p.counts.empty() || p.counts[0] == 0 ? nullptr : e[p.displs[0]];
        };
        const auto array = [](const Counts& c) { return c.empty() ? nullptr : c.data(); };
        switch (c_.what) {
            case Collective::all_to_all:
                return tuttiAlltoAllv(buffer(from, in), array(in.counts), array(in.displs), buffer(*receive_, out),
                                      array(out.counts), array(out.displs), c_.type, comm, stream);
            case Collective::gather:
                return tuttiGatherv(row(from, in), in.counts[0], buffer(*receive_, out), array(out.counts),
                                    array(out.displs), c_.type, c_.root, comm, stream);
            case Collective::scatter:
                return tuttiScatterv(buffer(from, in), array(in.counts), array(in.displs), row(*receive_, out),
                                     out.counts[0], c_.type, c_.root, comm, stream);
            case Collective::all_gather:
                return tuttiAllGatherv(row(from, in), in.counts[0], buffer(*receive_, out), array(out.counts),
                                       array(out.displs), c_.type, comm, stream);
            default:
                return tuttiReduceScatterv(buffer(from, in), row(*receive_, out), array(in.counts), c_.type, c_.op,
                                           comm, stream);
        }
    }

    const Case& c_;
    int rank_, n_;
    std::mt19937 random_;
    std::unique_ptr<Placed> in_, out_;
    std::unique_ptr<Elements> send_, receive_, sent_, expected_;
};

/// Threads that are the ranks of a communicator; algorithm: the only one, where it fits.
class Threads {
  public:
    explicit Threads(int ranks, const char* algorithm = nullptr, bool check = false, bool reproducible = false)
        : comms_(at(ranks)) {
        tuttiConfig_t config = TUTTI_CONFIG_INITIALIZER;
        config.algorithm = algorithm;
        config.timeoutMs = 20000;
        config.check = check;
        config.reproducible = reproducible;
        tuttiUniqueId id;
        require_success(tuttiGetUniqueId(&id), "tuttiGetUniqueId");
        harness::run(ranks, [&](int rank) {
            require_success(tuttiCommInitRankConfig(&comms_[at(rank)], ranks, id, rank, &config), "init");
        });
    }
    ~Threads() {
        for (tuttiComm_t comm : comms_) tuttiCommDestroy(comm);
    }
    Threads(const Threads&) = delete;
    int ranks() const { return static_cast<int>(comms_.size()); }
    tuttiComm_t operator[](int rank) const { return comms_[at(rank)]; }

    void run(const std::vector<Case>& cases) {
        harness::run(ranks(), [&](int rank) {
            for (const Case& c : cases) {
                Caller caller(c, rank, ranks());
                require_success(caller.call(comms_[at(rank)], nullptr), name_of(c.what).data());
                caller.check();
            }
        });
    }

  private:
    std::vector<tuttiComm_t> comms_;
};

size_t rows_in(Collective c, int n) {
    return c == Collective::all_to_all ? at(n) * at(n) : at(n);
}

/// Lengths of many kinds: none, some, one that is much longer than all others, all the same.
std::vector<Counts> many_counts(size_t rows, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<Counts> all{Counts(rows, 0), Counts(rows, 1), Counts(rows, 40000)};
    for (const size_t limit : {3u, 14u, 200u, 20000u}) {
        Counts some(rows);
        for (size_t& c : some) c = random() % 3 == 0 ? 0 : random() % limit;
        all.push_back(some);
    }
    Counts skewed(rows, 0);
    skewed[random() % rows] = 300007;
    all.push_back(skewed);
    for (size_t& c : skewed) c += random() % 5;
    all.push_back(skewed);
    Counts tiles(rows, 16384);  // whole tiles, where nothing short says where a row ends
    for (size_t& c : tiles) c *= random() % 4;
    all.push_back(tiles);
    return all;
}

std::vector<Case> many_cases(int n, unsigned seed, bool mapped = false) {
    std::vector<Case> cases;
    for (const Collective what : uneven_collectives)
        for (const Counts& counts : many_counts(rows_in(what, n), seed++))
            for (const bool in_place : {false, true})
                cases.push_back(
                    {what, counts, tuttiFloat32, tuttiSum, static_cast<int>(seed) % n, in_place, mapped, seed * 3});
    return cases;
}

}  // namespace

TEST_CASE("uneven: every collective, 1 to 9 ranks, with zeros and skews, in place and not") {
    const int ranks = GENERATE(1, 2, 3, 4, 5, 7, 9);
    const bool mapped = GENERATE(false, true);
    CAPTURE(ranks, mapped);
    if (harness::sanitized && (ranks == 2 || ranks > 4)) return;  // that took a minute
    Threads(ranks).run(many_cases(ranks, 100u * at(ranks), mapped));
}

TEST_CASE("uneven: every algorithm that can, the others are passed over") {
    for (const Algorithm& a : algorithms())
        for (const int ranks : {2, 3, 6}) {
            if (harness::sanitized && ranks != 3) continue;
            if (!a.supports(Collective::all_gather) && !a.supports(Collective::gather)) continue;
            CAPTURE(a.name, ranks);
            Threads(ranks, a.name.data()).run(many_cases(ranks, 17, ranks == 3 && !harness::sanitized));
        }
}

TEST_CASE("uneven: every type and op") {
    std::vector<Case> cases;
    for (int type = 0; type < tuttiNumTypes; ++type)
        for (const Collective what : uneven_collectives)
            for (const tuttiRedOp_t op : {tuttiSum, tuttiMax}) {
                if (op == tuttiMax && what != Collective::reduce_scatter) continue;
                Counts counts(rows_in(what, 3));
                for (size_t i = 0; i < counts.size(); ++i) counts[i] = i % 3 == 1 ? 0 : 1 + i * 1000;
                cases.push_back({what, counts, static_cast<tuttiDataType_t>(type), op, 2});
            }
    Threads(3).run(cases);
}

TEST_CASE("uneven: among even ones of the same counts, also with reproducible sums and with check") {
    const bool check = GENERATE(false, true), reproducible = GENERATE(false, true);
    Threads threads(3, "ring", check, reproducible);
    harness::run(3, [&](int rank) {
        for (int round = 0; round < 5; ++round)
            for (const Collective what : uneven_collectives) {
                harness::run_case({what == Collective::all_to_all       ? harness::Case::What::all_to_all
                                   : what == Collective::gather         ? harness::Case::What::gather
                                   : what == Collective::scatter        ? harness::Case::What::scatter
                                   : what == Collective::reduce_scatter ? harness::Case::What::reduce_scatter
                                                                        : harness::Case::What::all_gather,
                                   100},
                                  threads[rank], rank, 3);
                const Case c{what, Counts(rows_in(what, 3), 100)};
                Caller caller(c, rank, 3);
                require_success(caller.call(threads[rank], nullptr), "call");
                caller.check();
            }
    });
    SUCCEED();
}

TEST_CASE("uneven: one thread drives all ranks in a group, several calls") {
    const int n = GENERATE(2, 4);
    const std::vector<Case> cases = many_cases(n, 5);
    Threads threads(n);
    std::vector<std::unique_ptr<Caller>> callers;
    for (size_t i = 0; i + 2 < cases.size(); i += 3) {
        REQUIRE(tuttiGroupStart() == tuttiSuccess);
        for (int r = 0; r < n; ++r)
            for (size_t k = i; k < i + 3; ++k) {
                callers.push_back(std::make_unique<Caller>(cases[k], r, n));
                REQUIRE(callers.back()->call(threads[r], nullptr) == tuttiSuccess);
            }
        REQUIRE(tuttiGroupEnd() == tuttiSuccess);
        for (const auto& caller : callers) REQUIRE_NOTHROW(caller->check());
        callers.clear();
    }
}

TEST_CASE("uneven: on streams, whose work comes when the arrays are gone") {
    const int n = 3;
    const std::vector<Case> cases = many_cases(n, 9);
    Threads threads(n);
    std::vector<tuttiStream_t> streams(at(n));
    std::vector<std::unique_ptr<Caller>> callers;
    for (int r = 0; r < n; ++r) {
        REQUIRE(tuttiStreamCreate(&streams[at(r)]) == tuttiSuccess);
        for (const Case& c : cases) {
            callers.push_back(std::make_unique<Caller>(c, r, n));
            REQUIRE(callers.back()->call(threads[r], streams[at(r)]) == tuttiSuccess);
        }
    }
    for (tuttiStream_t s : streams) REQUIRE(tuttiStreamSynchronize(s) == tuttiSuccess);
    for (const auto& caller : callers) REQUIRE_NOTHROW(caller->check());
    for (tuttiStream_t s : streams) REQUIRE(tuttiStreamDestroy(s) == tuttiSuccess);
}

TEST_CASE("uneven: ranks that disagree are told both counts, at once, and nothing is written beyond") {
    struct Difference {
        Collective what;
        size_t theirs, mine;  // what rank 1 has for rank 0, and what rank 0 thinks it has
        std::vector<std::string> words;
    };
    std::vector<Difference> differences;
    constexpr size_t tile = 16384;  // where whole tiles are equal the message must say more
    for (const auto& [theirs, mine] : {std::pair<size_t, size_t>{0, 5},
                                       {5, 0},
                                       {5, 6},
                                       {100000, tile},
                                       {tile * 3, tile * 4},
                                       {tile * 4, tile * 3},
                                       {tile + 5, tile + 6}}) {
        const std::string a = std::to_string(theirs), b = std::to_string(mine);
        for (const Collective what : {Collective::all_to_all, Collective::gather})
            differences.push_back({what, theirs, mine, {"rank 0 expects " + b, "rank 1 sends it " + a}});
        differences.push_back({Collective::scatter, theirs, mine, {"rank 0 expects " + b, "rank 1 sends it " + a}});
        for (const Collective what : {Collective::all_gather, Collective::reduce_scatter})
            differences.push_back({what, theirs, mine, {"rank 0 calls ", ", but rank ", " elements, counts #"}});
    }
    for (const Difference& d : differences) {
        CAPTURE(std::string(name_of(d.what)), d.theirs, d.mine);
        Threads threads(3);
        const auto begun = std::chrono::steady_clock::now();
        std::atomic<int> told{0}, gave_up{0}, rows_only{0};
        harness::run(3, [&](int rank) {
            const size_t here = rank == 0 ? d.mine : d.theirs;
            Counts counts(rows_in(d.what, 3), 2);
            if (d.what == Collective::all_to_all)
                counts[1 * 3 + 0] = here;
            else
                counts[d.what == Collective::scatter ? 0 : 1] = here;
            const Case c{d.what, counts, tuttiFloat32, tuttiSum, d.what == Collective::scatter ? 1 : 0};
            Caller caller(c, rank, 3);
            tuttiResult_t result = caller.call(threads[rank], nullptr);
            float x = 0;  // a rank that has got all that it expects is told by its next call
            if (result == tuttiSuccess)
                result = tuttiAllReduce(&x, &x, 1, tuttiFloat32, tuttiSum, threads[rank], nullptr);
            const std::string text = tuttiGetLastError(threads[rank]);
            const auto says = [&](const std::string& word) { return text.find(word) != std::string::npos; };
            // One that hears of it while it reads a peer's memory knows only that the peer has given up.
            const bool expected = result == tuttiInvalidUsage || result == tuttiRemoteError;
            told += expected && std::ranges::all_of(d.words, says);
            gave_up += expected && says("has given up");
            rows_only += caller.rows_only();
        });
        REQUIRE(told >= 1);
        REQUIRE(told + gave_up >= 3);
        REQUIRE(rows_only == 3);
        REQUIRE(std::chrono::steady_clock::now() - begun < std::chrono::seconds(5));
    }
}
