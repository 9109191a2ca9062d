#include "numpy.hpp"

namespace tutti::python {

namespace {

// Whether an array is as NumpyArray says: by the buffer protocol.
bool right(nb::handle made) {
    const auto* array = reinterpret_cast<const NumpyArray*>(made.ptr());
    Py_buffer seen;
    if (PyObject_GetBuffer(made.ptr(), &seen, PyBUF_FULL_RO) != 0) throw nb::python_error();
    const bool same = array->data == seen.buf && array->ndim == seen.ndim && seen.ndim == 2 &&
                      array->lengths[0] == seen.shape[0] && array->lengths[1] == seen.shape[1] &&
                      array->strides[0] == seen.strides[0] && array->type() == tuttiFloat64 &&
                      (array->flags & NumpyArray::contiguous) != 0 && (array->flags & NumpyArray::writeable) == 0;
    PyBuffer_Release(&seen);
    return same;
}

// The same for an array that new_like has made, like the one above but for what is in it.
bool made_right(nb::handle made, nb::handle like) {
    const auto* array = reinterpret_cast<const NumpyArray*>(made.ptr());
    const auto* wanted = reinterpret_cast<const NumpyArray*>(like.ptr());
    constexpr int flags = NumpyArray::contiguous | NumpyArray::writeable;
    return Py_TYPE(made.ptr()) == Py_TYPE(like.ptr()) && array->data != wanted->data && array->ndim == 2 &&
           array->lengths[0] == 2 && array->lengths[1] == 3 && array->type() == tuttiFloat64 &&
           (array->flags & flags) == flags;
}

Numpy::NewLike new_like_of(nb::handle like) {
    constexpr int place = 277;
    nb::object table;
    for (const char* name : {"numpy._core._multiarray_umath", "numpy.core._multiarray_umath"}) {
        const nb::object module = nb::borrow(PyDict_GetItemString(PyImport_GetModuleDict(), name));
        if (module.is_valid() && !table.is_valid()) table = nb::getattr(module, "_ARRAY_API", nb::none());
    }
    if (!table.is_valid() || PyCapsule_CheckExact(table.ptr()) == 0) return nullptr;
    void** const functions = static_cast<void**>(PyCapsule_GetPointer(table.ptr(), nullptr));
    const auto new_like = functions != nullptr ? reinterpret_cast<Numpy::NewLike>(functions[place]) : nullptr;
    const nb::object made = nb::steal(new_like != nullptr ? new_like(like.ptr(), 0, nullptr, 0) : nullptr);
    PyErr_Clear();
    return made.is_valid() && made_right(made, like) ? new_like : nullptr;
}

Numpy found() {
    Numpy numpy;
    const nb::object module = nb::borrow(PyDict_GetItemString(PyImport_GetModuleDict(), "numpy"));
    if (!module.is_valid() || module.is_none() || !nb::hasattr(module, "ndarray")) return numpy;  // or half imported
    nb::object read_only = module.attr("zeros")(nb::make_tuple(2, 3), "float64");
    read_only.attr("flags").attr("writeable") = false;
    numpy.empty = nb::object(module.attr("empty")).release().ptr();
    numpy.dtype_name = PyUnicode_InternFromString("dtype");
    numpy.array = nb::object(module.attr("ndarray")).release().ptr();
    numpy.fields_known = right(read_only);
    if (numpy.fields_known) numpy.new_like = new_like_of(read_only);
    return numpy;
}

}  // namespace

tuttiDataType_t NumpyArray::type() const {
    // By the numbers of NPY_TYPES.
    constexpr tuttiDataType_t none = tuttiNumTypes;
    constexpr tuttiDataType_t types[] = {none,        tuttiInt8,    tuttiUint8,  none,        none,
                                         tuttiInt32,  tuttiUint32,  tuttiInt64,  tuttiUint64, tuttiInt64,
                                         tuttiUint64, tuttiFloat32, tuttiFloat64};
    if (dtype->order != '=' && dtype->order != '|') return none;
    if (dtype->number == 23) return tuttiFloat16;
    return dtype->number >= 0 && dtype->number <= 12 ? types[dtype->number] : none;
}

const Numpy& numpy() {
    static Numpy known;
    if (known.array == nullptr) known = found();
    return known;
}

}  // namespace tutti::python
