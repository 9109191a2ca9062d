#include "arrays.hpp"

#include <nanobind/stl/string.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "numpy.hpp"

namespace tutti::python {

namespace {

constexpr const char* names[] = {"int8",    "uint8",   "int32",   "uint32",   "int64",       "uint64",
                                 "float16", "float32", "float64", "bfloat16", "float8_e4m3", "float8_e5m2"};
static_assert(std::size(names) == tuttiNumTypes);

tuttiDataType_t integer(bool is_signed, size_t itemsize) {
    switch (itemsize) {
        case 1:
            return is_signed ? tuttiInt8 : tuttiUint8;
        case 4:
            return is_signed ? tuttiInt32 : tuttiUint32;
        case 8:
            return is_signed ? tuttiInt64 : tuttiUint64;
        default:
            return tuttiNumTypes;
    }
}

// The type of a format of the struct module. tuttiNumTypes: another one.
tuttiDataType_t type_of(const char* format, size_t itemsize) {
    if (*format == '@' || *format == '=' || *format == '<') ++format;
    if (*format == '\0' || format[1] != '\0') return tuttiNumTypes;
    switch (*format) {
        case 'b':
        case 'i':
        case 'l':
        case 'q':
            return integer(true, itemsize);
        case 'c':
        case 'B':
        case 'I':
        case 'L':
        case 'Q':
            return integer(false, itemsize);
        case 'e':
            return tuttiFloat16;
        case 'f':
            return tuttiFloat32;
        case 'd':
            return tuttiFloat64;
        default:
            return tuttiNumTypes;
    }
}

// Whether elements of this format are references to Python objects, at least in part. Names of fields (":name:") do not
// count.
bool has_objects(const char* format) {
    for (bool name = false; *format != '\0'; ++format) {
        if (*format == ':') name = !name;
        if (*format == 'O' && !name) return true;
    }
    return false;
}

// Of a type that NumPy itself does not know (package ml_dtypes). tuttiNumTypes: none of those.
tuttiDataType_t small_float(nb::handle object) {
    const nb::object type = nb::getattr(object, "dtype", nb::none());
    if (type.is_none()) return tuttiNumTypes;
    const std::string name = nb::cast<std::string>(nb::str(type));
    if (name == "bfloat16") return tuttiBfloat16;
    if (name == "float8_e4m3fn") return tuttiFloat8e4m3;
    return name == "float8_e5m2" ? tuttiFloat8e5m2 : tuttiNumTypes;
}

size_t size_of(tuttiDataType_t type) {
    constexpr size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    static_assert(std::size(sizes) == tuttiNumTypes);
    return sizes[type];
}

bool packed(int ndim, const int64_t* shape, const int64_t* strides, int64_t unit) {
    if (strides == nullptr) return true;
    for (int i = 0; i < ndim; ++i)
        if (shape[i] == 0) return true;
    for (int i = ndim; i-- > 0; unit *= shape[i])
        if (shape[i] != 1 && strides[i] != unit) return false;
    return true;
}

[[noreturn]] void refuse_strides(const char* name) {
    refuse(PyExc_ValueError,
           "%s: the array is not contiguous (in C order): pass a copy, as numpy.ascontiguousarray(%s) or "
           "%s.contiguous() make",
           name, name, name);
}

[[noreturn]] void refuse_read_only(const char* name) {
    refuse(PyExc_ValueError,
           "%s: the array is read-only, and the result is to be written to it: pass one that can be written to, as "
           "numpy.array(...) makes",
           name);
}

// Refuses tensors of torch whose memory is not their value, or whose gradient would be lost: DLPack's exchange in C
// does not ask. False: it is none of torch's.
bool refuse_lazy(nb::handle object, const char* name) {
    static PyObject* const gradient_name = PyUnicode_InternFromString("requires_grad");
    static const std::pair<PyObject*, const char*> views[] = {{PyUnicode_InternFromString("is_conj"), "conj"},
                                                              {PyUnicode_InternFromString("is_neg"), "neg"}};
    const nb::object gradient = nb::steal(PyObject_GetAttr(object.ptr(), gradient_name));
    if (!gradient.is_valid()) {
        PyErr_Clear();
        return false;
    }
    if (nb::cast<bool>(gradient))
        refuse(PyExc_ValueError, "%s: the tensor requires a gradient: pass %s.detach()", name, name);
    for (const auto& [asked, view] : views) {
        PyObject* arguments[] = {object.ptr()};
        const nb::object lazy =
            nb::steal(PyObject_VectorcallMethod(asked, arguments, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
        if (!lazy.is_valid()) throw nb::python_error();
        if (nb::cast<bool>(lazy))
            refuse(PyExc_ValueError,
                   "%s: the tensor is a lazy view (is_%s), whose memory has other values: pass "
                   "%s.resolve_%s()",
                   name, view, name, view);
    }
    return true;
}

// The beginning of DLPack's DLPackExchangeAPI.
struct Exchange {
    uint32_t major, minor;
    const Exchange* older;
    void *allocate, *from_object_managed, *to_object;
    int (*from_object)(void* object, nb::dlpack::dltensor* seen);  // borrowed. May be null
};

// What the type itself offers. nullptr: nothing, or only by a type from which it is derived.
const Exchange* exchange_of(PyTypeObject* asked) {
    static auto& known = *new nb::object;  // the last one that had it; Python is gone before static objects are
    static const Exchange* exchange = nullptr;
    const nb::handle type(reinterpret_cast<PyObject*>(asked));
    if (type.is(known)) return exchange;
    const nb::object own = nb::getattr(type, "__dict__", nb::none());
    if (own.is_none() || !nb::cast<bool>(own.attr("__contains__")("__dlpack_c_exchange_api__"))) return nullptr;
    const nb::object capsule = own["__dlpack_c_exchange_api__"];
    const auto* found = static_cast<const Exchange*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    if (found == nullptr) PyErr_Clear();
    while (found != nullptr && found->major != 1) found = found->older;
    if (found == nullptr || found->from_object == nullptr) return nullptr;
    known = nb::borrow(type);
    return exchange = found;
}

size_t product(int ndim, const int64_t* shape) {
    size_t count = 1;
    for (int i = 0; i < ndim; ++i) count *= static_cast<size_t>(shape[i]);
    return count;
}

}  // namespace

void refuse(PyObject* exception, const char* format, ...) {
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    PyErr_SetString(exception, text);
    throw nb::python_error();
}

Array::Array(nb::handle object, const char* name, Use use, int device) : Array() {  // ends if this throws
    if (!from_numpy(object, use) && !from_buffer(object, name, use) && !from_exchange(object, name) &&
        !from_cuda(object, name, use) && !from_dlpack(object, name, use)) {
        if (PyUnicode_Check(object.ptr()))
            refuse(PyExc_TypeError, "%s: str is no array (what is not an array is given by name, as op=\"max\")", name);
        refuse(PyExc_TypeError,
               "%s: %s is no array: expected an object with the buffer protocol, DLPack or __cuda_array_interface__, "
               "as numpy.asarray(...) makes",
               name, nb::str(object.type().attr("__name__")).c_str());
    }
    if (data_ == nullptr && bytes() > 0)
        refuse(
            PyExc_TypeError,
            "%s: %s has no memory of its own: pass the dense tensor that it stands for (of a DTensor: %s.to_local())",
            name, nb::str(object.type().attr("__name__")).c_str(), name);
    if (device_ != device) {
        const auto place = [](int d) { return d < 0 ? std::string("the CPU") : "CUDA device " + std::to_string(d); };
        refuse(PyExc_ValueError,
               "%s: the array is on %s, and this rank on %s: move the array, or make the communicator "
               "with device=",
               name, place(device_).c_str(), place(device).c_str());
    }
}

Array::Array(Array&& other) noexcept {
    *this = std::move(other);
}

Array& Array::operator=(Array&& other) noexcept {
    if (this == &other) return *this;
    release();
    data_ = other.data_;
    count_ = other.count_;
    itemsize_ = other.itemsize_;
    type_ = other.type_;
    device_ = other.device_;
    buffer_ = std::exchange(other.buffer_, {});
    owner_ = std::move(other.owner_);
    tensor_ = std::move(other.tensor_);
    return *this;
}

void Array::release() {
    if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
    buffer_.obj = nullptr;
    owner_.reset();
    tensor_.reset();
}

void Array::hold() {
    if (tensor_.is_valid() && nb::hasattr(tensor_, "detach")) tensor_ = tensor_.attr("detach")();
}

// The short way for what nearly all calls bring. All that is not as it should be goes the long way, which says why.
bool Array::from_numpy(nb::handle object, Use use) {
    const Numpy& n = numpy();
    if (!n.has(object) || !n.fields_known) return false;
    const auto* array = reinterpret_cast<const NumpyArray*>(object.ptr());
    const int wanted = use == Use::write ? NumpyArray::contiguous | NumpyArray::writeable : NumpyArray::contiguous;
    const tuttiDataType_t type = array->type();
    if ((array->flags & wanted) != wanted || type == tuttiNumTypes) return false;
    data_ = array->data;
    type_ = type;
    ndim_ = array->ndim;
    shape_ = reinterpret_cast<const int64_t*>(array->lengths);
    count_ = product(ndim_, shape_);
    itemsize_ = size_of(type);
    owner_ = nb::borrow(object);  // which also keeps NumPy from resizing it
    return true;
}

bool Array::from_buffer(nb::handle object, const char* name, Use use) {
    if (!PyObject_CheckBuffer(object.ptr())) return false;
    if (!numpy().has(object) && nb::hasattr(object.type(), "mask"))  // the type's: a record may have such a field
        refuse(
            PyExc_TypeError,
            "%s: the array has a mask, which would be lost: pass %s.filled(...), with a value that does not count, or "
            "%s.data and %s.mask one by one",
            name, name, name, name);
    if (PyObject_GetBuffer(object.ptr(), &buffer_, PyBUF_FULL_RO) != 0) {
        buffer_.obj = nullptr;
        nb::python_error error;  // as NumPy refuses the types of ml_dtypes
        const tuttiDataType_t type = small_float(object);
        if (type == tuttiNumTypes && !nb::hasattr(object, "__dlpack__"))
            refuse(PyExc_TypeError, "%s: its memory can't be used: %s", name, nb::str(error.value()).c_str());
        if (type == tuttiNumTypes) return false;
        const nb::object bits = object.attr("view")(type == tuttiBfloat16 ? "uint16" : "uint8");
        from_buffer(bits, name, use);
        type_ = type;
        return true;
    }
    data_ = buffer_.buf;
    itemsize_ = static_cast<size_t>(buffer_.itemsize);
    format_ = buffer_.format != nullptr ? buffer_.format : "B";
    type_ = type_of(format_, itemsize_);
    ndim_ = buffer_.ndim;
    static_assert(sizeof(Py_ssize_t) == sizeof(int64_t));
    shape_ = reinterpret_cast<const int64_t*>(buffer_.shape);
    count_ = itemsize_ == 0 ? 0 : static_cast<size_t>(buffer_.len) / itemsize_;
    if (type_ == tuttiNumTypes && has_objects(format_))
        refuse(PyExc_TypeError, "%s: elements are Python objects: see all_gather_object() and its sisters", name);
    if (buffer_.suboffsets != nullptr ||
        !packed(ndim_, shape_, reinterpret_cast<const int64_t*>(buffer_.strides), buffer_.itemsize))
        refuse_strides(name);
    if (use == Use::write && buffer_.readonly != 0) refuse_read_only(name);
    return true;
}

bool Array::from_cuda(nb::handle object, const char* name, Use use) {
    // In this order: torch takes microseconds to say that a tensor on a CPU has none of CUDA's.
    if (nb::hasattr(object, "__dlpack__") || !nb::hasattr(object, "__cuda_array_interface__")) return false;
    const nb::dict said = nb::cast<nb::dict>(object.attr("__cuda_array_interface__"));
    const std::string kind = nb::cast<std::string>(said["typestr"]);
    const nb::tuple place = nb::cast<nb::tuple>(said["data"]);
    for (nb::handle length : nb::cast<nb::tuple>(said["shape"])) lengths_.push_back(nb::cast<int64_t>(length));
    if (kind.size() < 3) refuse(PyExc_TypeError, "%s: the type '%s' is unknown", name, kind.c_str());
    itemsize_ = std::stoul(kind.substr(2));
    const char letter = kind[1] == 'i'   ? 'b'
                        : kind[1] == 'u' ? 'B'
                        : kind[1] != 'f' ? '?'
                                         : "??e?f???d"[itemsize_ & 15];
    const char format[] = {letter, '\0'};
    type_ = type_of(format, itemsize_);
    ndim_ = static_cast<int>(lengths_.size());
    shape_ = lengths_.data();
    count_ = product(ndim_, shape_);
    data_ = reinterpret_cast<void*>(nb::cast<uintptr_t>(place[0]));
    std::vector<int64_t> strides;
    if (said.contains("strides") && !said["strides"].is_none())
        for (nb::handle stride : nb::cast<nb::tuple>(said["strides"])) strides.push_back(nb::cast<int64_t>(stride));
    if (!strides.empty() && !packed(ndim_, shape_, strides.data(), static_cast<int64_t>(itemsize_)))
        refuse_strides(name);
    if (use == Use::write && nb::cast<bool>(place[1])) refuse_read_only(name);
    device_ = nb::hasattr(object, "device") && nb::hasattr(object.attr("device"), "id")
                  ? nb::cast<int>(object.attr("device").attr("id"))
                  : 0;
    owner_ = nb::borrow(object);
    return true;
}

// The exchange in C that a type offers (DLPack 1.3), as torch's do: nothing is called in Python, and nothing allocated.
// What it can't give goes the long way, which says why; so do types derived from such a one, which may be anything.
bool Array::from_exchange(nb::handle object, const char* name) {
    const Exchange* exchange = exchange_of(Py_TYPE(object.ptr()));
    if (exchange == nullptr || !refuse_lazy(object, name)) return false;
    nb::dlpack::dltensor tensor;
    if (exchange->from_object(object.ptr(), &tensor) != 0) {
        PyErr_Clear();
        return false;
    }
    take(tensor, name);
    tensor_ = nb::borrow(object);
    return true;
}

bool Array::from_dlpack(nb::handle object, const char* name, Use use) {
    if (!nb::hasattr(object, "__dlpack__")) return false;
    if (refuse_lazy(object, name)) tensor_ = nb::borrow(object);
    nb::ndarray<nb::ro> array;
    nb::ndarray<> writable;
    if (!nb::try_cast(object, array, false)) {
        try {
            object.attr("__dlpack__")();
        } catch (nb::python_error& error) {
            refuse(
                PyExc_TypeError,
                "%s: pass a dense array of numbers (for dates %s.view(\"u8\"), for a sparse tensor %s.to_dense(), for "
                "a quantized one %s.int_repr()): the memory of this one can't be used: %s",
                name, name, name, name, nb::str(error.value()).c_str());
        }
        refuse(PyExc_ValueError, "%s: its DLPack capsule can't be used", name);
    }
    if (use == Use::write && !nb::try_cast(object, writable, false)) refuse_read_only(name);
    lengths_.assign(array.shape_ptr(), array.shape_ptr() + array.ndim());
    nb::dlpack::dltensor tensor;
    tensor.data = const_cast<void*>(array.data());
    tensor.device = {array.device_type(), array.device_id()};
    tensor.ndim = static_cast<int32_t>(array.ndim());
    tensor.dtype = array.dtype();
    tensor.shape = lengths_.data();
    tensor.strides = const_cast<int64_t*>(array.stride_ptr());
    take(tensor, name);
    owner_ = nb::cast(std::move(array), nb::rv_policy::reference);
    return true;
}

// What DLPack says of memory that is held elsewhere.
void Array::take(const nb::dlpack::dltensor& tensor, const char* name) {
    static constexpr const char* kinds[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
    const nb::dlpack::dtype type = tensor.dtype;
    itemsize_ = (type.bits * type.lanes + 7U) / 8U;
    format_ = type.code < std::size(kinds) ? kinds[type.code] : "float of DLPack";
    switch (static_cast<nb::dlpack::dtype_code>(type.code)) {
        case nb::dlpack::dtype_code::Int:
            type_ = integer(true, itemsize_);
            break;
        case nb::dlpack::dtype_code::UInt:
            type_ = integer(false, itemsize_);
            break;
        case nb::dlpack::dtype_code::Float:
            type_ = itemsize_ == 2   ? tuttiFloat16
                    : itemsize_ == 4 ? tuttiFloat32
                    : itemsize_ == 8 ? tuttiFloat64
                                     : tuttiNumTypes;
            break;
        case nb::dlpack::dtype_code::Bfloat:
            type_ = itemsize_ == 2 ? tuttiBfloat16 : tuttiNumTypes;
            break;
        default:
            type_ = type.code == 10 ? tuttiFloat8e4m3 : type.code == 12 ? tuttiFloat8e5m2 : tuttiNumTypes;
    }
    ndim_ = tensor.ndim;
    shape_ = tensor.shape;
    count_ = product(ndim_, shape_);
    data_ = tensor.data == nullptr ? nullptr : static_cast<char*>(tensor.data) + tensor.byte_offset;
    if (!packed(ndim_, shape_, tensor.strides, 1)) refuse_strides(name);
    const int place = tensor.device.device_type;
    const bool on_gpu = place == nb::device::cuda::value || place == 13;  // managed
    if (!on_gpu && place != nb::device::cpu::value && place != nb::device::cuda_host::value)
        refuse(PyExc_ValueError,
               "%s: the array is on a device of DLPack's type %d, neither a CPU nor CUDA's: pass a copy on one of "
               "these, as %s.cpu() or numpy.asarray(%s) may make",
               name, place, name, name);
    device_ = on_gpu ? tensor.device.device_id : TUTTI_DEVICE_CPU;
}

tuttiDataType_t Array::type() const {
    if (!known())
        refuse(PyExc_TypeError,
               "elements of %zu bytes ('%s') are none that Tutti adds up: it knows int8, int32, int64, their unsigned "
               "forms, float16, float32, float64, bfloat16, float8_e4m3 and float8_e5m2; convert them, as "
               "x.astype(\"float32\") or x.float() does",
               itemsize_, format_);
    return type_;
}

bool Array::same_type(const Array& other) const {
    return type_ == other.type_ && (known() || itemsize_ == other.itemsize_);
}

const char* Array::type_name() const {
    return known() ? names[type_] : format_;
}

namespace {

nb::object with_shape(nb::handle like, nb::handle shape) {
    const Numpy& n = numpy();
    if (n.has(like)) {
        const nb::object type = nb::steal(PyObject_GetAttr(like.ptr(), n.dtype_name));
        PyObject* arguments[] = {nullptr, shape.ptr(), type.ptr()};
        PyObject* made = PyObject_Vectorcall(n.empty, arguments + 1, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
        if (made == nullptr) throw nb::python_error();
        return nb::steal(made);
    }
    static PyObject* const torch_name = PyUnicode_InternFromString("new_empty");
    PyObject* arguments[] = {like.ptr(), shape.ptr()};
    if (PyObject* made = PyObject_VectorcallMethod(torch_name, arguments, 2 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr);
        made != nullptr)
        return nb::steal(made);
    if (PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw nb::python_error();
    PyErr_Clear();
    return nb::module_::import_("tutti._arrays").attr("like")(like, shape);
}

}  // namespace

nb::object new_array(nb::handle like, const Array& seen, size_t first, bool drop) {
    const Numpy& n = numpy();
    if (first == 0 && !drop && n.has(like) && n.new_like != nullptr) {
        PyObject* made = n.new_like(like.ptr(), 0, nullptr, 0);
        if (made == nullptr) throw nb::python_error();
        return nb::steal(made);
    }
    const int skip = drop ? 1 : 0;
    const nb::object shape = nb::steal(PyTuple_New(seen.ndim() - skip + (first != 0 ? 1 : 0)));
    Py_ssize_t at = 0;
    if (first != 0) PyTuple_SetItem(shape.ptr(), at++, PyLong_FromSize_t(first));
    for (int i = skip; i < seen.ndim(); ++i) PyTuple_SetItem(shape.ptr(), at++, PyLong_FromLongLong(seen.shape()[i]));
    return with_shape(like, shape);
}

nb::object new_row(nb::handle like, size_t count) {
    return with_shape(like, nb::make_tuple(count));
}

}  // namespace tutti::python
