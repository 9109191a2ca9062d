// Collectives inside of programs that JAX has compiled.
#include "jax_call.hpp"

#include <nanobind/stl/string.h>

#include <cstdio>
#include <string>

#include "calls.hpp"
#include "communicator.hpp"

namespace tutti::python {

namespace {

enum class What { all_reduce, all_gather, reduce_scatter, broadcast, all_to_all };

tuttiResult_t issue_for_jax(const JaxCall& call, tuttiComm_t comm) {
    const auto type = static_cast<tuttiDataType_t>(call.type);
    const auto op = static_cast<tuttiRedOp_t>(call.op);
    const auto count = static_cast<size_t>(call.count);
    switch (static_cast<What>(call.what)) {
        case What::all_reduce:
            return tuttiAllReduce(call.in, call.out, count, type, op, comm, nullptr);
        case What::all_gather:
            return tuttiAllGather(call.in, call.out, count, type, comm, nullptr);
        case What::reduce_scatter:
            return tuttiReduceScatter(call.in, call.out, count, type, op, comm, nullptr);
        case What::broadcast:
            return tuttiBroadcast(call.in, call.out, count, type, static_cast<int>(call.root), comm, nullptr);
        case What::all_to_all:
            return tuttiAlltoAll(call.in, call.out, count, type, comm, nullptr);
    }
    return tuttiInternalError;
}

bool run_for_jax(JaxCall& call) {
    const nb::gil_scoped_acquire gil;
    try {
        Communicator* comm = Communicator::numbered(call.comm);
        if (comm == nullptr)
            raise_result(tuttiInvalidUsage, "the communicator of the compiled function is no longer there: keep it");
        const nb::object kept = nb::find(comm);
        if (in_group()) raise_result(tuttiInvalidUsage, "what JAX compiles is called outside of tutti.group()");
        comm->wait_for([&](tuttiComm_t handle) { return issue_for_jax(call, handle); });
        return true;
    } catch (nb::python_error& error) {
        // Whoever waits for the program gets the text as an error of JAX's, and Ctrl-C comes again, as itself.
        if (error.matches(PyExc_KeyboardInterrupt)) PyErr_SetInterrupt();
        std::snprintf(call.error, sizeof call.error, "%s: %s", nb::type_name(error.type()).c_str(),
                      nb::str(error.value()).c_str());
    }
    return false;
}

}  // namespace

void bind_jax(nb::module_& module) {
    const JaxRun run = run_for_jax;
    module.attr("_jax_run") = reinterpret_cast<uintptr_t>(run);
}

}  // namespace tutti::python
