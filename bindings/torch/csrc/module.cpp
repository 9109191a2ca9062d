// What Python sees: see tutti_torch/__init__.py.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "process_group.hpp"
#include "streams.hpp"

namespace tutti_torch {
namespace {

c10::intrusive_ptr<Base> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                std::chrono::duration<double> timeout, bool deferred) {
    return c10::make_intrusive<ProcessGroup>(store, rank, size, std::chrono::duration_cast<Milliseconds>(timeout),
                                             deferred);
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
               py::arg("rank"), py::arg("size"), py::arg("timeout"), py::arg("deferred") = false);
    module.def("close_all", &tutti_torch::ProcessGroup::close_all, py::call_guard<py::gil_scoped_release>());
    module.def("streams_of", &tutti_torch::streams_of);
    module.def("version", &tutti_torch::version);
}
