// The extension module tutti._tutti: the C API of libtutti as Python sees it.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "calls.hpp"
#include "communicator.hpp"

namespace tutti::python {

using namespace nb::literals;

namespace {

using Made = std::unique_ptr<Communicator>;

Made init(const nb::kwargs& options) {
    const Config config(options);
    return std::make_unique<Communicator>(
        Communicator::made([&](tuttiComm_t* comm) { return tuttiCommInitEnv(comm, config.get()); }, nullptr));
}

tuttiUniqueId id_of(const nb::bytes& bytes) {
    tuttiUniqueId id;
    if (bytes.size() != sizeof id.internal)
        refuse(PyExc_ValueError, "id has %zu bytes; expected the %zu of unique_id()", bytes.size(), sizeof id.internal);
    std::memcpy(id.internal, bytes.c_str(), sizeof id.internal);
    return id;
}

tuttiComm_t join(int nranks, const nb::bytes& bytes, int rank, const nb::kwargs& options) {
    const Config config(options);
    const tuttiUniqueId id = id_of(bytes);
    return Communicator::made(
        [&](tuttiComm_t* comm) { return tuttiCommInitRankConfig(comm, nranks, id, rank, config.get()); }, nullptr);
}

Made join_grown(int nranks, const nb::bytes& bytes, int rank, const nb::kwargs& options) {
    const Config config(options);
    const tuttiUniqueId id = id_of(bytes);
    return std::make_unique<Communicator>(Communicator::made(
        [&](tuttiComm_t* comm) { return tuttiCommGrow(nullptr, nranks, &id, rank, comm, config.get()); }, nullptr));
}

nb::bytes unique_id() {
    tuttiUniqueId id;
    expect(tuttiGetUniqueId(&id));
    return nb::bytes(id.internal, sizeof id.internal);
}

nb::list init_all(int nranks, nb::handle devices) {
    std::vector<int> on;
    if (!devices.is_none()) on = given<std::vector<int>>(devices, "devices", "a list of devices' numbers");
    if (nranks < 1) refuse(PyExc_ValueError, "nranks is %d; expected at least 1", nranks);
    if (!on.empty() && on.size() != static_cast<size_t>(nranks))
        refuse(PyExc_ValueError, "devices has %zu numbers; expected one for each of the %d ranks", on.size(), nranks);
    std::vector<tuttiComm_t> comms(static_cast<size_t>(nranks));
    tuttiResult_t result;
    {
        const nb::gil_scoped_release free;
        result = tuttiCommInitAll(comms.data(), nranks, on.empty() ? nullptr : on.data());
    }
    expect(result);
    nb::list made;
    for (tuttiComm_t comm : comms) made.append(std::make_unique<Communicator>(comm));
    return made;
}

int version() {
    int code = 0;
    expect(tuttiGetVersion(&code));
    return code;
}

int device_count() {
    int count = 0;
    expect(tuttiGetDeviceCount(&count));
    return count;
}

nb::dict settings() {
    const char* const* keys = nullptr;
    int count = 0;
    expect(tuttiParamGetAllKeys(&keys, &count));
    nb::dict found;
    for (int i = 0; i < count; ++i) {
        const char* value = nullptr;
        expect(tuttiParamGet(keys[i], &value));
        found[keys[i]] = value != nullptr ? nb::object(nb::str(value)) : nb::none();
    }
    return found;
}

void leave(nb::handle self, nb::handle exception, nb::handle, nb::handle) {
    Communicator& comm = nb::cast<Communicator&>(self);
    if (exception.is_none())
        comm.close();
    else
        comm.abort();
}

}  // namespace

void bind_communicator(nb::module_& module) {
    nb::class_<Communicator> c(module, "Communicator", R"(Ranks that call the same operations in the same order.

Communicator(nranks, id, rank, **options) joins one of nranks ranks as number rank; id is unique_id() of one of them.
tutti.init() is shorter under a launcher. One thread at a time uses it; abort() and revoke() are for any thread.
`with` closes it, or aborts it if an exception comes.)");
    c.def(
        "__init__",
        [](Communicator* self, int nranks, const nb::bytes& id, int rank, const nb::kwargs& options) {
            new (self) Communicator(join(nranks, id, rank, options));
        },
        "nranks"_a, "id"_a, "rank"_a, "options"_a);
    c.def_prop_ro("_number", &Communicator::number, "For tutti.jax.");
    c.def_prop_ro("rank", &Communicator::rank, "This rank's number, from 0.");
    c.def_prop_ro("size", &Communicator::size, "The number of ranks.");
    c.def_prop_ro("device", &Communicator::device, "This rank's CUDA device; -1: it is on the CPU.");
    c.def_prop_ro("closed", &Communicator::closed, "Whether close() or abort() was called.");
    c.def_prop_ro("revoked", &Communicator::revoked,
                  "Whether Ctrl-C has ended a wait, or revoke() was called: shrink, split, abort or close it.");
    c.def_prop_ro("failed_rank", &Communicator::failed_rank, "The rank with which the failure began, or None.");
    c.def_prop_ro("failed_ranks", &Communicator::failed_ranks, "That rank, and all others that have died.");
    c.def_prop_ro("memory", &Communicator::memory, "Upper bound of the memory of its connections, in bytes.");
    c.def("close", &Communicator::close, "Waits for what was begun, and leaves. Does nothing if it was closed.");
    c.def("abort", &Communicator::abort,
          "Ends all operations, also those that other threads wait in, tells the other ranks, and leaves.");
    c.def("revoke", &Communicator::revoke,
          "Ends all operations and tells the other ranks, as abort; the communicator can still be shrunk and split.");
    c.def("split", &Communicator::split, "color"_a.none(), "key"_a = 0, "options"_a,
          R"(All ranks call it: those of one color (0 or more) make a communicator, ordered by key, then by rank.

color None takes part, and gets None. Options as in tutti.init(); those not given are this communicator's.)");
    c.def("shrink", &Communicator::shrink, "exclude"_a = std::vector<int>(), "abort"_a = false, "options"_a,
          R"(The ranks that remain make a communicator: all but those in exclude, and those that have died.

abort: what is under way ends, and this communicator may have failed.)");
    c.def("grow_id", &Communicator::grow_id, "An id for new ranks: one rank makes it for one grow(). Keep it secret.");
    c.def("grow", &Communicator::grow, "nranks"_a, "options"_a,
          "Makes a communicator of nranks ranks: all members call it, and new ranks tutti.join(nranks, id, rank).");
    c.def(
        "suspend", [](Communicator& self) { self.wait_for(tuttiCommSuspend); },
        "All ranks call it: gives back the memory of connections until resume().");
    c.def(
        "resume", [](Communicator& self) { self.wait_for(tuttiCommResume); }, "Ends suspend(): all ranks call it.");
    c.def("__enter__", [](nb::handle self) { return nb::borrow(self); });
    c.def("__exit__", &leave, "exception"_a.none(), "value"_a.none(), "traceback"_a.none());
    c.def("__repr__", [](const Communicator& self) {
        const std::string state = self.closed() ? ", closed" : self.revoked() ? ", revoked" : "";
        return "<tutti.Communicator: rank " + std::to_string(self.rank()) + " of " + std::to_string(self.size()) +
               state + ">";
    });
    bind_collectives(c);
    bind_uneven(c);
    bind_one_sided(module, c);
}

}  // namespace tutti::python

NB_MODULE(_tutti, module) {
    using namespace tutti::python;
    nb::set_leak_warnings(false);  // a program may end with a communicator
    module.def("init", &init, "options"_a, R"(Joins the communicator that the launcher describes; one rank without one.

tutti-run, torchrun, mpirun and srun set what it reads. Options, all of which have defaults:
timeout, init_timeout: seconds that an operation waits for its peers, and that all ranks have to arrive.
device: a CUDA device; -1 (default): the CPU; -2: the current device.
check, reproducible: bool. algorithm, transport, name, programs: str. channels, threads: int. See
include/tutti/tutti.h.)");
    module.def("init_all", &init_all, "nranks"_a, "devices"_a.none() = nb::none(),
               "The communicators of nranks ranks of this process, one for each thread, or all in groups.");
    module.def("join", &join_grown, "nranks"_a, "id"_a, "rank"_a, "options"_a,
               "Joins a communicator that grows: see Communicator.grow(). id is its grow_id().");
    module.def("unique_id", &unique_id, "128 bytes by which ranks meet, and which let them in: keep them secret.");
    module.def("version_code", &version, "The version of libtutti, as TUTTI_VERSION_CODE.");
    module.def("device_count", &device_count, "How many CUDA devices ranks can be on.");
    module.def("settings", &settings, "What holds of each variable in docs/environment.md.");
    module.def("_end_all", &Communicator::end_all, "abort"_a, "For the end of the program: see _waiting.py.");
    bind_group(module);
    bind_work(module);
    bind_communicator(module);
    bind_jax(module);
}
