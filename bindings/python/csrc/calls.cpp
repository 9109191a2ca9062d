#include "calls.hpp"

#include <nanobind/stl/optional.h>

#include <cstring>
#include <optional>
#include <vector>

namespace tutti::python {

using namespace nb::literals;

// ------------------------------------------------------------------------------------------------------------ groups

namespace {

struct Open {
    std::vector<Communicator*> comms;
    std::vector<nb::object> kept;
    std::vector<Array> arrays;
};
thread_local Open open_group;
thread_local int open_groups = 0;  // how many of the calling thread's are open, one in another

// with tutti.group(): ...
struct Group {};

void enter_group() {
    if (open_groups == 0) expect(tuttiGroupStart());
    ++open_groups;
}

void leave_group(const Group&, nb::handle exception, nb::handle, nb::handle) {
    if (open_groups == 0) raise_result(tuttiInvalidUsage, "the end of a group that this thread has not begun");
    if (--open_groups > 0) return;
    const Open group = std::exchange(open_group, {});
    if (!exception.is_none()) {  // on its way out: nothing is issued
        tuttiGroupSimulateEnd(nullptr);
        return;
    }
    tuttiResult_t result;
    try {
        const Interruptible interruptible(group.comms.data(), group.comms.size());
        const nb::gil_scoped_release free;
        result = tuttiGroupEnd();
    } catch (...) {  // what a signal that has come before raises
        tuttiGroupSimulateEnd(nullptr);
        throw;
    }
    if (result == tuttiSuccess) return;
    const std::string text = tuttiGetLastError(nullptr);
    bool interrupted = false;
    for (Communicator* comm : group.comms) interrupted = comm->was_interrupted() || interrupted;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (interrupted) raise_interrupt();
    std::vector<int> failed;
    for (const Communicator* comm : group.comms)
        if (failed.empty()) failed = ranks_that_failed(comm->raw());
    raise_result(result, text, failed);
}

}  // namespace

bool in_group() {
    return open_groups > 0;
}

void keep_in_group(const Self& self, Array&& in, Array&& out) {
    open_group.comms.push_back(self.p);
    open_group.kept.push_back(nb::borrow(self.h));
    open_group.arrays.push_back(std::move(in));
    open_group.arrays.push_back(std::move(out));
}

void bind_group(nb::module_& module) {
    nb::class_<Group>(module, "group", R"(with tutti.group(): calls of this thread that are issued together at its end.

For sends and receives that wait for each other, and for several ranks that one thread drives. Results are there when
the group has ended. Groups nest: the outermost one issues. An exception inside issues nothing.)")
        .def(nb::init<>())
        .def("__enter__",
             [](nb::handle self) {
                 enter_group();
                 return nb::borrow(self);
             })
        .def("__exit__", &leave_group, "exception"_a.none(), "value"_a.none(), "traceback"_a.none());
}

// -------------------------------------------------------------------------------------------------------- arguments

How::How(Communicator& comm, nb::handle of, bool in_background, nb::handle with)
    : async(in_background), op(nb::borrow(with)) {
    if (!of.is_none()) {
        if (comm.device() < 0) refuse(PyExc_ValueError, "stream= is for ranks on a GPU: use async_=True");
        const char* name = nb::hasattr(of, "cuda_stream") ? "cuda_stream" : "ptr";
        const nb::object number = nb::isinstance<nb::int_>(of) ? nb::borrow(of) : nb::getattr(of, name, of);
        stream = reinterpret_cast<tuttiStream_t>(given<uintptr_t>(number, "stream", "a stream or its address"));
    }
    if (!async) return;
    if (comm.device() >= 0)
        refuse(PyExc_ValueError, "async_=True is for ranks on CPUs: calls on a GPU only enqueue, on stream=");
    if (in_group())
        refuse(PyExc_ValueError, "async_=True inside of tutti.group(): the group issues its calls at its end");
}

void expect_count(const Array& array, const char* name, size_t expected, const char* what) {
    if (array.count() == expected) return;
    refuse(PyExc_ValueError, "%s has %zu elements; expected %zu (%s)", name, array.count(), expected, what);
}

void expect_same_type(const Array& x, const Array& out) {
    if (!x.same_type(out))
        refuse(PyExc_TypeError, "x has elements of type %s, and out of type %s: make them the same", x.type_name(),
               out.type_name());
}

namespace {

struct RedOp {
    int64_t comm;  // by its number: operations that a communicator has begun keep the op, which must not keep that
    tuttiRedOp_t op;

    RedOp(int64_t of, tuttiRedOp_t made) : comm(of), op(made) {}
    ~RedOp() {
        const Communicator* const c = Communicator::numbered(comm);
        if (c != nullptr && c->ours()) tuttiRedOpDestroy(op, c->raw());
    }
    RedOp(const RedOp&) = delete;
    RedOp& operator=(const RedOp&) = delete;
};

struct OpName {
    PyObject* name;
    tuttiRedOp_t op;
};

nb::object pre_mul_sum(Self self, nb::handle scalar) {
    const Array factor(scalar, "scalar", Array::Use::read, TUTTI_DEVICE_CPU);
    expect_count(factor, "scalar", 1, "one element of the type that is summed");
    tuttiRedOp_t op{};
    const tuttiComm_t comm = self.p->handle();
    expect(tuttiRedOpCreatePreMulSum(&op, factor.data(), factor.type(), tuttiScalarHostImmediate, comm), comm);
    return nb::cast(new RedOp(self.p->number(), op), nb::rv_policy::take_ownership);
}

}  // namespace

tuttiRedOp_t op_of(const Communicator& comm, nb::handle op) {
    static const OpName known[] = {{PyUnicode_InternFromString("sum"), tuttiSum},
                                   {PyUnicode_InternFromString("prod"), tuttiProd},
                                   {PyUnicode_InternFromString("max"), tuttiMax},
                                   {PyUnicode_InternFromString("min"), tuttiMin},
                                   {PyUnicode_InternFromString("avg"), tuttiAvg}};
    for (const OpName& k : known)
        if (op.ptr() == k.name) return k.op;
    if (PyUnicode_Check(op.ptr())) {
        for (const OpName& k : known)
            if (PyUnicode_Compare(op.ptr(), k.name) == 0) return k.op;
    } else if (nb::isinstance<RedOp>(op)) {
        const RedOp& made = nb::cast<RedOp&>(op);
        if (made.comm != comm.number())
            refuse(PyExc_ValueError, "op was made by pre_mul_sum() of another communicator: call this one's");
        return made.op;
    }
    refuse(PyExc_ValueError,
           "op is one of \"sum\", \"prod\", \"max\", \"min\", \"avg\", or what pre_mul_sum() returns");
}

// ------------------------------------------------------------------------------------------------------- collectives

namespace {

using Use = Array::Use;

void expect_root(const Communicator& comm, int root, const char* name) {
    if (root < 0 || root >= comm.size())
        refuse(PyExc_ValueError, "%s is %d; expected a rank from 0 to %d", name, root, comm.size() - 1);
}

// x's first axis is the ranks: what a rank gets has its elements divided by their number.
size_t part_of(const Communicator& comm, const Array& x, bool has_out) {
    const auto ranks = static_cast<size_t>(comm.size());
    if (has_out && x.count() % ranks == 0) return x.count() / ranks;
    if (!has_out && x.ndim() > 0 && x.shape()[0] == comm.size()) return x.count() / ranks;
    refuse(PyExc_ValueError,
           has_out ? "x has %zu elements, which %d ranks can't share equally"
                   : "x has %zu elements, and its first axis is not the %d ranks: reshape it, or give out=",
           x.count(), comm.size());
}

nb::object all_reduce(Self self, nb::handle x, nb::object out, nb::handle op, bool async, nb::handle stream) {
    Communicator& comm = *self.p;
    const How how(comm, stream, async, op);
    const tuttiRedOp_t operation = op_of(comm, op);
    Array in(x, "x", Use::read, comm.device());
    const tuttiDataType_t type = in.type();
    const size_t count = in.count();
    const void* from = in.data();
    if (out.is_none()) out = new_array(x, in, 0, false);
    Array to(out, "out", Use::write, comm.device());
    expect_same_type(in, to);
    expect_count(to, "out", count, "as many as x");
    return issue(self, how, in, to, std::move(out), [=, into = to.data()](tuttiComm_t c) {
        return tuttiAllReduce(from, into, count, type, operation, c, how.stream);
    });
}

nb::object reduce(Self self, nb::handle x, int root, nb::object out, nb::handle op, bool async, nb::handle stream) {
    Communicator& comm = *self.p;
    const How how(comm, stream, async, op);
    const tuttiRedOp_t operation = op_of(comm, op);
    expect_root(comm, root, "root");
    Array in(x, "x", Use::read, comm.device()), to;
    const tuttiDataType_t type = in.type();
    const size_t count = in.count();
    if (comm.rank() == root) {
        if (out.is_none()) out = new_array(x, in, 0, false);
        to = Array(out, "out", Use::write, comm.device());
        expect_same_type(in, to);
        expect_count(to, "out", count, "as many as x");
    } else {
        out = nb::none();
    }
    return issue(self, how, in, to, std::move(out), [=, from = in.data(), into = to.data()](tuttiComm_t c) {
        return tuttiReduce(from, into, count, type, operation, root, c, how.stream);
    });
}

nb::object broadcast(Self self, nb::object x, int root, bool async, nb::handle stream) {
    Communicator& comm = *self.p;
    const How how(comm, stream, async);
    expect_root(comm, root, "root");
    Array all(x, "x", comm.rank() == root ? Use::read : Use::write, comm.device()), none;
    const Moved moved(all);
    const size_t count = all.count() * moved.scale;
    return issue(self, how, all, none, std::move(x), [=, data = all.data()](tuttiComm_t c) {
        return tuttiBroadcast(data, data, count, moved.type, root, c, how.stream);
    });
}

nb::object all_gather(Self self, nb::handle x, nb::object out, bool async, nb::handle stream) {
    Communicator& comm = *self.p;
    const How how(comm, stream, async);
    Array in(x, "x", Use::read, comm.device());
    const Moved moved(in);
    const size_t count = in.count() * moved.scale;
    const auto ranks = static_cast<size_t>(comm.size());
    if (out.is_none()) out = new_array(x, in, ranks, false);
    Array to(out, "out", Use::write, comm.device());
    expect_same_type(in, to);
    expect_count(to, "out", in.count() * ranks, "x of every rank");
    return issue(self, how, in, to, std::move(out), [=, from = in.data(), into = to.data()](tuttiComm_t c) {
        return tuttiAllGather(from, into, count, moved.type, c, how.stream);
    });
}

nb::object gather(Self self, nb::handle x, int root, nb::object out, bool async, nb::handle stream) {
    Communicator& comm = *self.p;
    const How how(comm, stream, async);
    expect_root(comm, root, "root");
    Array in(x, "x", Use::read, comm.device()), to;
    const Moved moved(in);
    const size_t count = in.count() * moved.scale;
    if (comm.rank() == root) {
        const auto ranks = static_cast<size_t>(comm.size());
        if (out.is_none()) out = new_array(x, in, ranks, false);
        to = Array(out, "out", Use::write, comm.device());
        expect_same_type(in, to);
        expect_count(to, "out", in.count() * ranks, "x of every rank");
    } else {
        out = nb::none();
    }
    return issue(self, how, in, to, std::move(out), [=, from = in.data(), into = to.data()](tuttiComm_t c) {
        return tuttiGather(from, into, count, moved.type, root, c, how.stream);
    });
}

nb::object scatter(Self self, nb::handle x, int root, nb::object out, bool async, nb::handle stream) {
    Communicator& comm = *self.p;
    const How how(comm, stream, async);
    expect_root(comm, root, "root");
    Array in, to;
    size_t part = 0;
    if (comm.rank() == root) {
        if (x.is_none()) refuse(PyExc_TypeError, "x is None on rank %d, the root: it has what is scattered", root);
        in = Array(x, "x", Use::read, comm.device());
        Array seen(x, "x", Use::read, comm.device());  // a moved array has no shape
        part = part_of(comm, seen, !out.is_none());
        if (out.is_none()) out = new_array(x, seen, 0, true);
    } else if (out.is_none()) {
        refuse(PyExc_TypeError, "scatter needs out= on rank %d: it does not know yet what the root will send",
               comm.rank());
    }
    to = Array(out, "out", Use::write, comm.device());
    if (comm.rank() == root) {
        expect_same_type(in, to);
        expect_count(to, "out", part, "a rank's part of x");
    }
    const Moved moved(to);
    const size_t count = to.count() * moved.scale;
    return issue(self, how, in, to, std::move(out), [=, from = in.data(), into = to.data()](tuttiComm_t c) {
        return tuttiScatter(from, into, count, moved.type, root, c, how.stream);
    });
}

nb::object reduce_scatter(Self self, nb::handle x, nb::object out, nb::handle op, bool async, nb::handle stream) {
    Communicator& comm = *self.p;
    const How how(comm, stream, async, op);
    const tuttiRedOp_t operation = op_of(comm, op);
    Array in(x, "x", Use::read, comm.device());
    const tuttiDataType_t type = in.type();
    const size_t count = part_of(comm, in, !out.is_none());
    if (out.is_none()) out = new_array(x, in, 0, true);
    Array to(out, "out", Use::write, comm.device());
    expect_same_type(in, to);
    expect_count(to, "out", count, "a rank's part of x");
    return issue(self, how, in, to, std::move(out), [=, from = in.data(), into = to.data()](tuttiComm_t c) {
        return tuttiReduceScatter(from, into, count, type, operation, c, how.stream);
    });
}

nb::object all_to_all(Self self, nb::handle x, nb::object out, bool async, nb::handle stream) {
    Communicator& comm = *self.p;
    const How how(comm, stream, async);
    Array in(x, "x", Use::read, comm.device());
    const Moved moved(in);
    const size_t count = part_of(comm, in, !out.is_none()) * moved.scale;
    if (out.is_none()) out = new_array(x, in, 0, false);
    Array to(out, "out", Use::write, comm.device());
    expect_same_type(in, to);
    expect_count(to, "out", in.count(), "as many as x");
    return issue(self, how, in, to, std::move(out), [=, from = in.data(), into = to.data()](tuttiComm_t c) {
        return tuttiAlltoAll(from, into, count, moved.type, c, how.stream);
    });
}

nb::object barrier(Self self, bool async, nb::handle stream) {
    const How how(*self.p, stream, async);
    Array none, nothing;
    return issue(self, how, none, nothing, nb::none(), [=](tuttiComm_t c) { return tuttiBarrier(c, how.stream); });
}

nb::object send(Self self, nb::handle x, int peer, bool async, nb::handle stream) {
    const How how(*self.p, stream, async);
    expect_root(*self.p, peer, "peer");
    Array in(x, "x", Use::read, self.p->device()), none;
    const Moved moved(in);
    return issue(self, how, in, none, nb::none(),
                 [=, from = in.data(), count = in.count() * moved.scale](tuttiComm_t c) {
                     return tuttiSend(from, count, moved.type, peer, c, how.stream);
                 });
}

nb::object recv(Self self, nb::object out, int peer, bool async, nb::handle stream) {
    const How how(*self.p, stream, async);
    expect_root(*self.p, peer, "peer");
    Array none, to(out, "out", Use::write, self.p->device());
    const Moved moved(to);
    return issue(self, how, none, to, std::move(out),
                 [=, into = to.data(), count = to.count() * moved.scale](tuttiComm_t c) {
                     return tuttiRecv(into, count, moved.type, peer, c, how.stream);
                 });
}

nb::object sendrecv(Self self, nb::handle x, int dest, nb::object out, int source, bool async, nb::handle stream) {
    const How how(*self.p, stream, async);
    expect_root(*self.p, dest, "dest");
    expect_root(*self.p, source, "source");
    Array in(x, "x", Use::read, self.p->device()), to(out, "out", Use::write, self.p->device());
    const Moved sent(in), received(to);
    const size_t send_count = in.count() * sent.scale, recv_count = to.count() * received.scale;
    return issue(self, how, in, to, std::move(out), [=, from = in.data(), into = to.data()](tuttiComm_t c) {
        if (const tuttiResult_t r = tuttiGroupStart(); r != tuttiSuccess) return r;
        tuttiSend(from, send_count, sent.type, dest, c, how.stream);  // a refusal is told again by the group's end
        tuttiRecv(into, recv_count, received.type, source, c, how.stream);
        return tuttiGroupEnd();
    });
}

}  // namespace

#define HOW "async_"_a = false, "stream"_a.none() = nb::none()
#define HOW_TEXT                                                                                      \
    "\n\nasync_: True begins it in the background, and returns a Work: wait() for it, or await it.\n" \
    "stream: ranks on a GPU: the cudaStream_t, as a number or a stream of torch or CuPy; None: the default one."

void bind_collectives(CommunicatorClass& c) {
    const auto sum = nb::steal<nb::str>(PyUnicode_InternFromString("sum"));  // found by its address
    nb::class_<RedOp>(c, "RedOp", "An operation made by Communicator.pre_mul_sum().");
    c.def("pre_mul_sum", &pre_mul_sum, "scalar"_a, R"(An op that multiplies this rank's input by scalar, then sums.

scalar: one element of the type that will be reduced, as numpy.float32(0.5). Every rank may have another one.)");
    c.def("all_reduce", &all_reduce, "x"_a, "out"_a.none() = nb::none(), nb::kw_only(), "op"_a = sum, HOW,
          R"(Element i of the result is op over all ranks of x's element i. Returns out.

x: a contiguous array, the same type and number of elements on all ranks.
out: where the result goes, as large as x and of its type; it may be x. None: a new array like x.
op: "sum", "prod", "max", "min", "avg", or what pre_mul_sum() returns.
Raises TypeError and ValueError for arrays that can't be used, InvalidUsage if ranks' calls differ, RemoteError if a
rank is lost, Timeout.)" HOW_TEXT);
    c.def(
        "reduce", &reduce, "x"_a, "root"_a = 0, "out"_a.none() = nb::none(), nb::kw_only(), "op"_a = sum, HOW,
        "As all_reduce, with the result on rank root alone; elsewhere out is not used, and None is returned." HOW_TEXT);
    c.def("broadcast", &broadcast, "x"_a, "root"_a = 0, nb::kw_only(), HOW,
          "Writes x of rank root to x of all other ranks: as many elements of the same type. Returns x." HOW_TEXT);
    c.def("all_gather", &all_gather, "x"_a, "out"_a.none() = nb::none(), nb::kw_only(), HOW,
          R"(x of all ranks, one after the other: result[q] is that of rank q. Returns out.

x: the same type and number of elements on all ranks.
out: size times the elements of x, in any shape. None: a new array of the shape (size, *x.shape).)" HOW_TEXT);
    c.def(
        "gather", &gather, "x"_a, "root"_a = 0, "out"_a.none() = nb::none(), nb::kw_only(), HOW,
        "As all_gather, with the result on rank root alone; elsewhere out is not used, and None is returned." HOW_TEXT);
    c.def("scatter", &scatter, "x"_a.none(), "root"_a = 0, "out"_a.none() = nb::none(), nb::kw_only(), HOW,
          R"(Rank q gets x[q] of rank root. Returns out.

x: on root, size times the elements of out; None elsewhere.
out: required but on root, where None makes a new array of the shape x.shape[1:].)" HOW_TEXT);
    c.def("reduce_scatter", &reduce_scatter, "x"_a, "out"_a.none() = nb::none(), nb::kw_only(), "op"_a = sum, HOW,
          R"(Rank q gets op over all ranks of x[q]. Returns out.

x: of the shape (size, ...); with out=, of any shape with size times the elements of out.
out: None makes a new array of the shape x.shape[1:].)" HOW_TEXT);
    c.def("all_to_all", &all_to_all, "x"_a, "out"_a.none() = nb::none(), nb::kw_only(), HOW,
          R"(result[q] is x[rank] of rank q. Returns out.

x: of the shape (size, ...); with out=, of any shape that size ranks share equally.
out: as large as x, and no part of it. None: a new array like x.)" HOW_TEXT);
    c.def("barrier", &barrier, nb::kw_only(), HOW, "Ends on no rank before all ranks have called it." HOW_TEXT);
    c.def("send", &send, "x"_a, "peer"_a, nb::kw_only(), HOW,
          R"(Sends x to rank peer, whose matching recv() has as many elements of the same type.

It may return before the peer has received: do not rely on it. Two ranks that send to each other call sendrecv(), or do
so in a group.)" HOW_TEXT);
    c.def("recv", &recv, "out"_a, "peer"_a, nb::kw_only(), HOW,
          "Receives into out what rank peer sends. Returns out." HOW_TEXT);
    c.def("sendrecv", &sendrecv, "x"_a, "dest"_a, "out"_a, "source"_a, nb::kw_only(), HOW,
          "Sends x to rank dest, and receives into out from rank source, at the same time. Returns out." HOW_TEXT);
}

}  // namespace tutti::python
