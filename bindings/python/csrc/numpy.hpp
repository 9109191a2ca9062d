// NumPy, if the program has imported it: who has an array of its must have. Its headers are not needed.
#pragma once
#include <nanobind/nanobind.h>
#include <tutti/tutti.h>

namespace tutti::python {

namespace nb = nanobind;

// The beginnings of NumPy's objects, which its own macros compile into every extension, so they have been the same
// since NumPy 1.0 and through 2.0.
struct NumpyType {
    PyObject_HEAD PyTypeObject* scalar;
    char kind, letter, order, unused;
    int number;
};

struct NumpyArray {
    static constexpr int contiguous = 0x1, writeable = 0x400;

    PyObject_HEAD char* data;
    int ndim;
    Py_ssize_t* lengths;
    Py_ssize_t* strides;
    PyObject* base;
    NumpyType* dtype;
    int flags;

    /// tuttiNumTypes: another one, or one of the other order of bytes.
    [[nodiscard]] tuttiDataType_t type() const;
};

struct Numpy {
    /// PyArray_NewLikeArray of NumPy's C API, which compiles its place into every extension, too. order 0: C's. dtype
    /// null: the prototype's. subclass 0: an ndarray.
    using NewLike = PyObject* (*)(PyObject* prototype, int order, PyObject* dtype, int subclass);

    PyObject* array = nullptr;  // numpy.ndarray; null: NumPy was not imported
    PyObject* empty = nullptr;
    PyObject* dtype_name = nullptr;
    bool fields_known = false;   // the structures above are right: what they say of an array was compared
    NewLike new_like = nullptr;  // null: not known, or what it made was not as it should be

    /// Whether it is an ndarray, and of no class derived from it.
    [[nodiscard]] bool has(nb::handle object) const {
        return array == reinterpret_cast<PyObject*>(Py_TYPE(object.ptr()));
    }
};

const Numpy& numpy();

}  // namespace tutti::python
