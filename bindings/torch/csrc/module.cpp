// What Python sees: see tutti_torch/__init__.py.
#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

#include "process_group.hpp"
#include "streams.hpp"

namespace tutti_torch {
namespace {

c10::intrusive_ptr<Base> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                std::chrono::duration<double> timeout, const c10::intrusive_ptr<GroupOptions>& options,
                                bool deferred) {
    return c10::make_intrusive<ProcessGroup>(store, rank, size, std::chrono::duration_cast<Milliseconds>(timeout),
                                             options ? *options : Settings(), deferred);
}

using Text = std::optional<std::string>;

c10::intrusive_ptr<GroupOptions> options_of(Text algorithm, Text transport, Text programs, std::optional<int> channels,
                                            std::optional<int> threads, std::optional<bool> check,
                                            std::optional<bool> reproducible) {
    return c10::make_intrusive<GroupOptions>(Settings{std::move(algorithm), std::move(transport), std::move(programs),
                                                      channels, threads, check, reproducible});
}

/// handle_of_current(index) gives the current stream of a device as a number.
void streams_of(const std::string& type, const pybind11::function& handle_of_current) {
    auto* const function = new pybind11::function(handle_of_current);  // for as long as the process lives
    use_streams(c10::Device(type).type(), [function](int device) {
        const pybind11::gil_scoped_acquire python;
        return reinterpret_cast<void*>((*function)(device).cast<std::uintptr_t>());
    });
}

std::string version() {
    int code = 0;
    must(tuttiGetVersion(&code), "version");
    return c10::str(code / 10000, ".", code / 100 % 100, ".", code % 100);
}

}  // namespace
}  // namespace tutti_torch

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    namespace py = pybind11;
    module.def("create", &tutti_torch::create, py::call_guard<py::gil_scoped_release>(), py::arg("store"),
               py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("options") = py::none(),
               py::arg("deferred") = false);
    using Options = tutti_torch::GroupOptions;
    py::class_<Options, tutti_torch::Base::Options, c10::intrusive_ptr<Options>>(
        module, "Options",
        "pg_options of a group, and of those that are made of it. Each is as in tuttiConfig_t (tutti.h); what is None\n"
        "is as Tutti's variables say.")
        .def(py::init(&tutti_torch::options_of), py::kw_only(), py::arg("algorithm") = py::none(),
             py::arg("transport") = py::none(), py::arg("programs") = py::none(), py::arg("channels") = py::none(),
             py::arg("threads") = py::none(), py::arg("check") = py::none(), py::arg("reproducible") = py::none())
        .def_readonly("algorithm", &Options::algorithm)
        .def_readonly("transport", &Options::transport)
        .def_readonly("programs", &Options::programs)
        .def_readonly("channels", &Options::channels)
        .def_readonly("threads", &Options::threads)
        .def_readonly("check", &Options::check)
        .def_readonly("reproducible", &Options::reproducible);
    module.def("close_all", &tutti_torch::ProcessGroup::close_all, py::call_guard<py::gil_scoped_release>());
    module.def("streams_of", &tutti_torch::streams_of);
    module.def("version", &tutti_torch::version);
}
