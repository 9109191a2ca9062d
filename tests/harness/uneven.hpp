// Uneven collectives for tests of any executor: calls with random counts and displacements, and the expected results.
// Memory outside of rows must not change.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/data.hpp"
#include "harness/emulated_gpus.hpp"
#include "harness/harness.hpp"

namespace tutti::harness::uneven {

using Counts = std::vector<size_t>;

inline constexpr Collective uneven_collectives[] = {Collective::all_to_all, Collective::gather, Collective::scatter,
                                                    Collective::all_gather, Collective::reduce_scatter};

struct Case {
    Collective what;
    Counts counts;  // all_to_all: from rank q to rank r at q * n + r; otherwise the length of rank r's row
    tuttiDataType_t type = tuttiFloat32;
    tuttiRedOp_t op = tuttiSum;
    int root = 0;
    bool in_place = false;
    bool mapped = false;           // buffers of tuttiMemAlloc
    unsigned seed = 1;             // of the displacements
    EmulatedGpus* gpus = nullptr;  // buffers are on device rank % count() of these; nullptr for the host
};

inline size_t at(int i) {
    return static_cast<size_t>(i);
}

/// A buffer of elements, filled with bytes 0xa5.
class Elements {
  public:
    Elements(size_t count, tuttiDataType_t type, bool mapped = false, EmulatedGpus* gpus = nullptr, int device = 0)
        : type_(static_cast<DataType>(type)),
          bytes_(count * size_of(type_)),
          mapped_(mapped),
          gpus_(gpus),
          device_(device) {
        void* p = nullptr;
        if (gpus != nullptr)
            p = gpus->allocate(device, bytes_);
        else if (mapped)
            must_succeed(tuttiMemAlloc(&p, bytes_), "tuttiMemAlloc");
        else
            p = operator new(bytes_, std::align_val_t(64));
        data_ = static_cast<unsigned char*>(p);
        std::memset(data_, 0xa5, bytes_);
    }
    ~Elements() {
        if (gpus_ != nullptr)
            gpus_->free(device_, reinterpret_cast<std::byte*>(data_));
        else if (mapped_)
            tuttiMemFree(data_);
        else
            operator delete(data_, std::align_val_t(64));
    }
    Elements(const Elements&) = delete;
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
    EmulatedGpus* gpus_;
    int device_;
    unsigned char* data_ = nullptr;
};

/// Random displacements: rows in a random order, with gaps. Empty rows are anywhere, also inside of others.
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

/// One rank's call: its arguments, its input and the expected result.
class Caller {
  public:
    Caller(const Case& c, int rank, int ranks)
        : c_(c), rank_(rank), n_(ranks), random_(harness::seed() + c.seed + at(rank) * 77) {
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
        // The arrays belong to the caller again when the call has returned, so overwrite them.
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

    /// True if memory between and behind the rows is unchanged, whatever the rows contain.
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

    /// The number of the first element of a row for rank `to`, as in Data.
    static size_t first(int to) { return at(to) << 32; }
    Data data() const { return {c_.type, c_.what == Collective::reduce_scatter ? std::optional(c_.op) : std::nullopt}; }
    /// Writes the expected content of a row of this rank's output.
    void put_result(int row, size_t count, void* to) const {
        if (c_.what == Collective::reduce_scatter)
            data().put_result(n_, first(rank_), count, to);
        else if (c_.what == Collective::scatter)
            data().put_input(c_.root, first(rank_), count, to);
        else
            data().put_input(row, first(c_.what == Collective::all_to_all ? rank_ : row), count, to);
    }
    /// The rank for which a row of the send buffer is; this rank if there is one row. origin(): the same of the receive
    /// buffer.
    int target(size_t row) const { return in_->counts.size() > 1 ? static_cast<int>(row) : rank_; }
    int origin(size_t row) const { return out_->counts.size() > 1 ? static_cast<int>(row) : rank_; }

    void make_buffers() {
        if (in_place()) {  // the smaller buffer is this rank's row of the larger one
            if (in_->counts.size() >= out_->counts.size())
                *out_ = shifted(*in_, in_->displs[in_->counts.size() > 1 ? at(rank_) : 0]);
            else
                *in_ = shifted(*out_, out_->displs[at(rank_)]);
        }
        const int device = c_.gpus != nullptr ? rank_ % c_.gpus->count() : 0;
        const auto make = [&](size_t n) {
            return std::make_unique<Elements>(n + 1, c_.type, c_.mapped, c_.gpus, device);
        };
        receive_ = make(out_->end);
        expected_ = std::make_unique<Elements>(out_->end + 1, c_.type);
        if (!in_place()) {
            send_ = make(in_->end);
            sent_ = std::make_unique<Elements>(in_->end + 1, c_.type);
        }
        for (size_t row = 0; row < in_->counts.size(); ++row)
            for (Elements* e : {in_place() ? receive_.get() : send_.get(), in_place() ? expected_.get() : sent_.get()})
                data().put_input(rank_, first(target(row)), in_->counts[row], (*e)[in_->displs[row]]);
        for (size_t row = 0; row < out_->counts.size(); ++row)
            put_result(origin(row), out_->counts[row], (*expected_)[out_->displs[row]]);
    }
    /// A placement of one row, this rank's, at displacement `displ` of the larger buffer.
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

inline size_t rows_in(Collective c, int n) {
    return c == Collective::all_to_all ? at(n) * at(n) : at(n);
}

/// Sets of row lengths: all empty, all equal, random, one much longer than the others. Fewer sets under sanitizers.
inline std::vector<Counts> many_counts(size_t rows, unsigned seed) {
    std::mt19937 random(harness::seed() + seed);
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
    Counts tiles(rows, 16384);  // whole tiles, where no short tile marks the end of a row
    for (size_t& c : tiles) c *= random() % 4;
    all.push_back(tiles);
    if (harness::sanitized) all = {all[1], all[4], all[6], all[8], all[9]};
    return all;
}

inline std::vector<Case> many_cases(int n, unsigned seed, bool mapped = false) {
    std::vector<Case> cases;
    for (const Collective what : uneven_collectives)
        for (const Counts& counts : many_counts(rows_in(what, n), seed++))
            for (const bool in_place : {false, true})
                cases.push_back(
                    {what, counts, tuttiFloat32, tuttiSum, static_cast<int>(seed) % n, in_place, mapped, seed * 3});
    return cases;
}

}  // namespace tutti::harness::uneven
