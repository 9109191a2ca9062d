// Collectives, sends and receives, one-sided operations and groups as methods of Python's Communicator.
#pragma once
#include <nanobind/nanobind.h>

#include <utility>

#include "arrays.hpp"
#include "communicator.hpp"
#include "work.hpp"

namespace tutti::python {

using Self = nb::pointer_and_handle<Communicator>;

/// Whether the calling thread is between the beginning and the end of tutti.group().
bool in_group();

/// Keeps until the end of the calling thread's group what a call in it uses.
void keep_in_group(const Self& self, Array&& in, Array&& out);

/// How a call goes: keyword arguments that all have.
struct How {
    /// op: what the call combines with, which must be there when it begins.
    How(Communicator& comm, nb::handle stream, bool async, nb::handle op = {});

    tuttiStream_t stream = nullptr;
    bool async = false;
    nb::object op;
};

/// Calls the C function here and now, in the group, or in the background. f: (tuttiComm_t) -> tuttiResult_t, with
/// pointers into `in` and `out`, which are kept as long as it needs them. Returns the result, or a Work.
template <typename F>
nb::object issue(const Self& self, const How& how, Array& in, Array& out, nb::object result, const F& f) {
    Communicator& comm = *self.p;
    const bool grouped = in_group();
    if (how.async || grouped) {
        in.hold();
        out.hold();
    }
    if (how.async) {
        const auto& worker = comm.worker();
        auto job = std::make_shared<Job>();
        job->issue = f;
        job->in = std::move(in);
        job->out = std::move(out);
        job->result = std::move(result);
        worker->begin(job);
        return nb::cast(new Work(worker, job), nb::rv_policy::take_ownership);
    }
    comm.wait_for(f);
    if (grouped) keep_in_group(self, std::move(in), std::move(out));
    return result;
}

/// An array's place and elements in a call that only moves them, where every element is so many units of a type.
struct Moved {
    explicit Moved(const Array& array) : type(array.moved_type()), scale(array.scale()) {}
    tuttiDataType_t type;
    size_t scale;
};

/// Throws a ValueError unless the array has `expected` elements. what: where that number comes from.
void expect_count(const Array& array, const char* name, size_t expected, const char* what);
void expect_same_type(const Array& x, const Array& out);

/// "sum", "prod", "max", "min", "avg", or what comm.pre_mul_sum() has made.
tuttiRedOp_t op_of(const Communicator& comm, nb::handle op);

using CommunicatorClass = nb::class_<Communicator>;
void bind_collectives(CommunicatorClass& communicator);
void bind_uneven(CommunicatorClass& communicator);
void bind_one_sided(nb::module_& module, CommunicatorClass& communicator);
void bind_group(nb::module_& module);

}  // namespace tutti::python
