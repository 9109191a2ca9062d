// What a Python object shows of its memory: by the buffer protocol, __cuda_array_interface__ or DLPack.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <tutti/tutti.h>

#include <cstdint>
#include <vector>

namespace tutti::python {

namespace nb = nanobind;

/// The memory of an array, which stays where it is until this object ends. Made and destroyed with the GIL held.
class Array {
  public:
    enum class Use { read, write };

    Array() = default;
    /// Takes hold of object's memory. name: the argument, for errors. device: the communicator's CUDA device, or
    /// TUTTI_DEVICE_CPU. Throws a TypeError or a ValueError that says what to do.
    Array(nb::handle object, const char* name, Use use, int device);
    Array(Array&& other) noexcept;
    Array& operator=(Array&& other) noexcept;
    ~Array() { release(); }

    /// Keeps the memory from now on, whatever becomes of the object: for what goes on after the call.
    void hold();

    [[nodiscard]] void* data() const { return data_; }
    [[nodiscard]] size_t count() const { return count_; }
    [[nodiscard]] size_t itemsize() const { return itemsize_; }
    [[nodiscard]] size_t bytes() const { return count_ * itemsize_; }
    [[nodiscard]] int ndim() const { return ndim_; }
    /// Lengths of the axes. Not valid any more once the array has been moved.
    [[nodiscard]] const int64_t* shape() const { return shape_; }
    /// The type for arithmetic. Throws a TypeError if Tutti does not add up such elements.
    [[nodiscard]] tuttiDataType_t type() const;
    /// The type for what only moves data: elements that Tutti does not know are `scale` units of bytes each.
    [[nodiscard]] tuttiDataType_t moved_type() const { return known() ? type_ : tuttiUint8; }
    [[nodiscard]] size_t scale() const { return known() ? 1 : itemsize_; }
    [[nodiscard]] bool same_type(const Array& other) const;
    /// "float32", or what the object itself calls its elements.
    [[nodiscard]] const char* type_name() const;

  private:
    [[nodiscard]] bool known() const { return type_ != tuttiNumTypes; }
    bool from_numpy(nb::handle object, Use use);
    bool from_buffer(nb::handle object, const char* name, Use use);
    bool from_exchange(nb::handle object, const char* name);
    bool from_cuda(nb::handle object, const char* name, Use use);
    bool from_dlpack(nb::handle object, const char* name, Use use);
    void take(const nb::dlpack::dltensor& tensor, const char* name);
    void release();

    void* data_ = nullptr;
    size_t count_ = 0;
    size_t itemsize_ = 1;
    tuttiDataType_t type_ = tuttiNumTypes;
    int device_ = TUTTI_DEVICE_CPU;
    int ndim_ = 0;
    const int64_t* shape_ = nullptr;
    const char* format_ = "";
    Py_buffer buffer_{};            // obj is null unless the buffer protocol showed the memory
    nb::object owner_;              // what keeps it otherwise
    nb::object tensor_;             // torch's, if it is one; it may be given other memory (x.data = ...) unless held
    std::vector<int64_t> lengths_;  // shape_, where nothing else has it
};

/// A new array of the kind of `like`, whose memory Array shows as `seen`. Its axes: those of `like`, behind `first` if
/// that is not 0, without the first one if `drop`.
nb::object new_array(nb::handle like, const Array& seen, size_t first, bool drop);

/// A new array of one axis, of the kind and the type of `like`.
nb::object new_row(nb::handle like, size_t count);

/// Throws a Python exception with a text in the manner of printf.
[[noreturn]] __attribute__((format(printf, 2, 3))) void refuse(PyObject* exception, const char* format, ...);

/// An argument as a T. Throws a TypeError unless it is `what`: "a number of seconds".
template <typename T>
T given(nb::handle argument, const char* name, const char* what) {
    T value{};
    if (!nb::try_cast<T>(argument, value))
        refuse(PyExc_TypeError, "%s: this %s is not %s", name, nb::str(argument.type().attr("__name__")).c_str(), what);
    return value;
}

}  // namespace tutti::python
