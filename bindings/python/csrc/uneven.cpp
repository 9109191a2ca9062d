// Collectives whose ranks have rows of different lengths.
#include <nanobind/stl/vector.h>

#include <optional>

#include "calls.hpp"

namespace tutti::python {

using namespace nb::literals;

namespace {

using Use = Array::Use;
using Numbers = std::vector<size_t>;
constexpr const char* kNumbers = "a list of whole numbers, each 0 or more";

// Where each rank's row lies in a buffer, in units of the type that is moved.
struct Rows {
    Numbers counts, displs;
    size_t own = 0;  // elements of this rank's row
    size_t end = 0;  // elements from the beginning to the end of the last row

    Rows() = default;
    Rows(const Communicator& comm, nb::handle lengths, nb::handle places, const char* name)
        : counts(given<Numbers>(lengths, name, kNumbers)) {
        const auto ranks = static_cast<size_t>(comm.size());
        if (counts.size() != ranks)
            refuse(PyExc_ValueError, "%s has %zu numbers; expected one for each of the %zu ranks", name, counts.size(),
                   ranks);
        own = counts[static_cast<size_t>(comm.rank())];
        if (!places.is_none()) displs = given<Numbers>(places, "displacements", kNumbers);
        if (!displs.empty() && displs.size() != ranks)
            refuse(PyExc_ValueError, "displacements of %s: %zu numbers; expected one for each of the %zu ranks", name,
                   displs.size(), ranks);
        for (size_t i = 0, next = 0; i < ranks; next += counts[i++]) {
            if (displs.size() < ranks) displs.push_back(next);
            if (counts[i] > SIZE_MAX - displs[i])
                refuse(PyExc_ValueError, "%s: rank %zu's row would end beyond all memory", name, i);
            if (counts[i] > 0) end = std::max(end, displs[i] + counts[i]);
        }
    }

    void scale(size_t units) {
        for (size_t& n : counts) n *= units;
        for (size_t& n : displs) n *= units;
    }

    // A row must not reach beyond the buffer's end.
    void expect_within(const Array& array, const char* name) const {
        if (array.count() < end)
            refuse(PyExc_ValueError, "%s has %zu elements, and its rows reach to element %zu", name, array.count(),
                   end);
    }
};

nb::object all_gatherv(Self self, nb::handle x, nb::handle counts, nb::object out, nb::handle displs, bool async,
                       nb::handle stream) {
    Communicator& comm = *self.p;
    const How how(comm, stream, async);
    Rows rows(comm, counts, displs, "counts");
    Array in(x, "x", Use::read, comm.device());
    expect_count(in, "x", rows.own, "counts[rank]");
    if (out.is_none()) out = new_row(x, rows.end);
    Array to(out, "out", Use::write, comm.device());
    expect_same_type(in, to);
    rows.expect_within(to, "out");
    const Moved moved(in);
    rows.scale(moved.scale);
    return issue(self, how, in, to, std::move(out),
                 [=, from = in.data(), into = to.data(), n = in.count() * moved.scale](tuttiComm_t c) {
                     return tuttiAllGatherv(from, n, into, rows.counts.data(), rows.displs.data(), moved.type, c,
                                            how.stream);
                 });
}

nb::object gatherv(Self self, nb::handle x, nb::handle counts, int root, nb::object out, nb::handle displs, bool async,
                   nb::handle stream) {
    Communicator& comm = *self.p;
    const How how(comm, stream, async);
    Array in(x, "x", Use::read, comm.device()), to;
    const Moved moved(in);
    Rows rows;
    if (comm.rank() == root) {
        rows = Rows(comm, counts, displs, "counts");
        if (out.is_none()) out = new_row(x, rows.end);
        to = Array(out, "out", Use::write, comm.device());
        expect_same_type(in, to);
        rows.expect_within(to, "out");
        rows.scale(moved.scale);
    } else {
        out = nb::none();
    }
    return issue(self, how, in, to, std::move(out),
                 [=, from = in.data(), into = to.data(), n = in.count() * moved.scale](tuttiComm_t c) {
                     return tuttiGatherv(from, n, into, rows.counts.data(), rows.displs.data(), moved.type, root, c,
                                         how.stream);
                 });
}

nb::object scatterv(Self self, nb::handle x, nb::handle counts, int root, nb::object out, nb::handle displs, bool async,
                    nb::handle stream) {
    Communicator& comm = *self.p;
    const How how(comm, stream, async);
    Array in, to;
    Rows rows;
    if (comm.rank() == root) {
        in = Array(x, "x", Use::read, comm.device());
        rows = Rows(comm, counts, displs, "counts");
        rows.expect_within(in, "x");
        if (out.is_none()) out = new_row(x, rows.own);
    } else if (out.is_none()) {
        refuse(PyExc_TypeError, "scatterv needs out= on rank %d: it does not know yet what the root will send",
               comm.rank());
    }
    to = Array(out, "out", Use::write, comm.device());
    const Moved moved(to);
    if (comm.rank() == root) {
        expect_same_type(in, to);
        expect_count(to, "out", rows.own, "counts[rank]");
        rows.scale(moved.scale);
    }
    return issue(self, how, in, to, std::move(out),
                 [=, from = in.data(), into = to.data(), n = to.count() * moved.scale](tuttiComm_t c) {
                     return tuttiScatterv(from, rows.counts.data(), rows.displs.data(), into, n, moved.type, root, c,
                                          how.stream);
                 });
}

nb::object all_to_allv(Self self, nb::handle x, nb::handle sendcounts, nb::handle recvcounts, nb::object out,
                       nb::handle sdispls, nb::handle rdispls, bool async, nb::handle stream) {
    Communicator& comm = *self.p;
    const How how(comm, stream, async);
    Rows sent(comm, sendcounts, sdispls, "sendcounts");
    Rows received(comm, recvcounts, rdispls, "recvcounts");
    Array in(x, "x", Use::read, comm.device());
    sent.expect_within(in, "x");
    if (out.is_none()) out = new_row(x, received.end);
    Array to(out, "out", Use::write, comm.device());
    expect_same_type(in, to);
    received.expect_within(to, "out");
    const Moved moved(in);
    sent.scale(moved.scale);
    received.scale(moved.scale);
    return issue(self, how, in, to, std::move(out), [=, from = in.data(), into = to.data()](tuttiComm_t c) {
        return tuttiAlltoAllv(from, sent.counts.data(), sent.displs.data(), into, received.counts.data(),
                              received.displs.data(), moved.type, c, how.stream);
    });
}

nb::object reduce_scatterv(Self self, nb::handle x, nb::handle counts, nb::object out, nb::handle op, bool async,
                           nb::handle stream) {
    Communicator& comm = *self.p;
    const How how(comm, stream, async, op);
    const tuttiRedOp_t operation = op_of(comm, op);
    const Rows rows(comm, counts, nb::none(), "counts");
    Array in(x, "x", Use::read, comm.device());
    const tuttiDataType_t type = in.type();
    expect_count(in, "x", rows.end, "the sum of counts");
    if (out.is_none()) out = new_row(x, rows.own);
    Array to(out, "out", Use::write, comm.device());
    expect_same_type(in, to);
    expect_count(to, "out", rows.own, "counts[rank]");
    return issue(self, how, in, to, std::move(out), [=, from = in.data(), into = to.data()](tuttiComm_t c) {
        return tuttiReduceScatterv(from, into, rows.counts.data(), type, operation, c, how.stream);
    });
}

}  // namespace

#define HOW "async_"_a = false, "stream"_a.none() = nb::none()

void bind_uneven(CommunicatorClass& c) {
    c.def("all_gatherv", &all_gatherv, "x"_a, "counts"_a, "out"_a.none() = nb::none(), nb::kw_only(),
          "displs"_a.none() = nb::none(), HOW, R"(x of all ranks in one row, whose lengths differ. Returns out.

counts: for each rank the number of elements of its x; the same on all ranks.
displs: where in out each rank's elements begin; None: one behind the other.
out: large enough for all of them; what lies in between is not touched. None: a new array of one axis.
async_, stream: as in all_reduce().)");
    c.def("gatherv", &gatherv, "x"_a, "counts"_a.none() = nb::none(), "root"_a = 0, "out"_a.none() = nb::none(),
          nb::kw_only(), "displs"_a.none() = nb::none(), HOW,
          "As all_gatherv, with the result on rank root alone, which alone gives counts, displs and out.");
    c.def("scatterv", &scatterv, "x"_a.none(), "counts"_a.none() = nb::none(), "root"_a = 0,
          "out"_a.none() = nb::none(), nb::kw_only(), "displs"_a.none() = nb::none(), HOW,
          R"(Rank q gets counts[q] elements of root's x, from displs[q] on. Returns out.

x, counts, displs: on root; None elsewhere. out: as many elements as this rank gets; required but on root.
async_, stream: as in all_reduce().)");
    c.def("all_to_allv", &all_to_allv, "x"_a, "sendcounts"_a, "recvcounts"_a, "out"_a.none() = nb::none(),
          nb::kw_only(), "sdispls"_a.none() = nb::none(), "rdispls"_a.none() = nb::none(), HOW,
          R"(Sends sendcounts[q] elements of x to each rank q, and receives recvcounts[q] from it into out. Returns out.

sdispls, rdispls: where in x and out they begin; None: one behind the other.
async_, stream: as in all_reduce().)");
    c.def("reduce_scatterv", &reduce_scatterv, "x"_a, "counts"_a, "out"_a.none() = nb::none(), nb::kw_only(),
          "op"_a = "sum", HOW,
          R"(Rank q gets the q-th row, of counts[q] elements, of op over all ranks of x. Returns out.

counts: the same on all ranks; x has as many elements as their sum. async_, stream: as in all_reduce().)");
}

}  // namespace tutti::python
