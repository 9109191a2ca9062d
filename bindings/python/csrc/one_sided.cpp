// Memory that ranks of a host share, and what they write to each other's, and read there, without the other's doing.
#include <nanobind/stl/vector.h>

#include "calls.hpp"

namespace tutti::python {

using namespace nb::literals;

namespace {

// Memory of tuttiMemAlloc, with the buffer protocol.
class Memory {
  public:
    explicit Memory(size_t size) : size_(size) { expect(tuttiMemAlloc(&data_, size)); }
    ~Memory() { tuttiMemFree(data_); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    [[nodiscard]] size_t size() const { return size_; }

    static int get_buffer(PyObject* self, Py_buffer* view, int flags) {
        const Memory& memory = *nb::inst_ptr<Memory>(self);
        return PyBuffer_FillInfo(view, self, memory.data_, static_cast<Py_ssize_t>(memory.size_), 0, flags);
    }

  private:
    void* data_ = nullptr;
    size_t size_;
};

PyType_Slot memory_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(&Memory::get_buffer)}, {0, nullptr}};

class Window {
  public:
    Window(const Self& self, nb::handle memory, bool best_effort) : comm_(nb::borrow(self.h)) {
        Communicator& comm = *self.p;
        if (in_group()) refuse(PyExc_ValueError, "windows are registered outside of groups");
        if (!memory.is_none()) part_ = Array(memory, "memory", Array::Use::write, comm.device());
        part_.hold();
        comm.wait_for([&](tuttiComm_t c) {
            return tuttiCommWindowRegister(c, part_.data(), part_.bytes(), &window_,
                                           best_effort ? TUTTI_WIN_BEST_EFFORT : TUTTI_WIN_DEFAULT);
        });
    }
    ~Window() {
        if (window_ == nullptr || !comm().ours()) return;
        const tuttiComm_t comm_handle = comm().raw();
        const nb::gil_scoped_release free;  // it waits for what was begun, maybe with ranks of this process
        tuttiCommWindowDeregister(comm_handle, window_);
    }
    Window(const Window&) = delete;
    Window& operator=(const Window&) = delete;

    void close() {
        if (window_ == nullptr) return;
        if (!comm().closed()) comm().wait_for([&](tuttiComm_t c) { return tuttiCommWindowDeregister(c, window_); });
        window_ = nullptr;  // not before: if the call is refused, the others may still write to the memory
        part_ = Array();
    }

    nb::object put(nb::handle x, int peer, size_t offset, int signal, nb::handle stream) {
        if (window_ == nullptr) raise_result(tuttiInvalidUsage, "the window was closed");
        const Self self{&comm(), comm_};
        const How how(comm(), stream, false);
        Array in(x, "x", Array::Use::read, comm().device()), none;
        const Moved moved(in);
        return issue(self, how, in, none, nb::none(),
                     [=, this, from = in.data(), n = in.count() * moved.scale](tuttiComm_t c) {
                         return tuttiPutSignal(from, n, moved.type, peer, window_, offset, signal, 0, 0, c, how.stream);
                     });
    }

    nb::object get(nb::object out, int peer, size_t offset, nb::handle stream) {
        if (window_ == nullptr) raise_result(tuttiInvalidUsage, "the window was closed");
        const Self self{&comm(), comm_};
        const How how(comm(), stream, false);
        Array none, to(out, "out", Array::Use::write, comm().device());
        const Moved moved(to);
        return issue(self, how, none, to, std::move(out),
                     [=, this, into = to.data(), n = to.count() * moved.scale](tuttiComm_t c) {
                         return tuttiGet(into, n, moved.type, peer, window_, offset, 0, 0, c, how.stream);
                     });
    }

  private:
    Communicator& comm() { return nb::cast<Communicator&>(comm_); }

    nb::object comm_;
    Array part_;
    tuttiWindow_t window_ = nullptr;
};

nb::object signal(Self self, int peer, int signal, nb::handle stream) {
    const How how(*self.p, stream, false);
    Array none, nothing;
    return issue(self, how, none, nothing, nb::none(),
                 [=](tuttiComm_t c) { return tuttiSignal(peer, signal, 0, 0, c, how.stream); });
}

nb::object wait_signal(Self self, int peer, int count, int signal, nb::handle stream) {
    const How how(*self.p, stream, false);
    Array none, nothing;
    const tuttiWaitSignalDesc_t wanted{count, peer, signal, 0};
    return issue(self, how, none, nothing, nb::none(),
                 [=](tuttiComm_t c) { return tuttiWaitSignal(1, &wanted, c, how.stream); });
}

}  // namespace

void bind_one_sided(nb::module_& module, CommunicatorClass& c) {
    nb::class_<Memory>(module, "Memory", nb::type_slots(memory_slots),
                       R"(Zeroed bytes that the other ranks of a host can map, so that large messages are not copied.

It has the buffer protocol: tutti.zeros() makes an array in it. Freed with the last such array.)")
        .def(nb::init<size_t>(), "nbytes"_a)
        .def("__len__", &Memory::size);
    nb::class_<Window>(module, "Window",
                       R"(Memory that the other ranks may write to and read: see Communicator.window().)")
        .def("put", &Window::put, "x"_a, "peer"_a, nb::kw_only(), "offset"_a = 0, "signal"_a = 0,
             "stream"_a.none() = nb::none(),
             R"(Copies x to rank peer's part of the window, from byte `offset` of it on, then raises peer's signal.

The peer does nothing for it. signal: 0 to 7. Ends when both are done.)")
        .def("get", &Window::get, "out"_a, "peer"_a, nb::kw_only(), "offset"_a = 0, "stream"_a.none() = nb::none(),
             R"(Fills out with rank peer's part of the window, from byte `offset` of it on. Returns out.

The peer does nothing for it. It sees what this rank has put there before, and what the peer has written there before
it raised a signal that this rank has waited for. out: a writable array. InvalidArgument: it goes beyond the peer's
part, which has offset + out.nbytes bytes or more otherwise.)")
        .def("close", &Window::close,
             "Deregisters this rank's part: when it returns, nobody uses it any more. `with` does the same.")
        .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
        .def(
            "__exit__", [](Window& self, nb::handle, nb::handle, nb::handle) { self.close(); }, "exception"_a.none(),
            "value"_a.none(), "traceback"_a.none());
    c.def(
        "window",
        [](Self self, nb::handle memory, bool best_effort) {
            return nb::cast(new Window(self, memory, best_effort), nb::rv_policy::take_ownership);
        },
        "memory"_a.none(), nb::kw_only(), "best_effort"_a = false,
        R"(Makes a window: all ranks call it, each with memory of its own that the others may put to and get from.

memory: a writable array; None: no part. Between processes of one host one of tutti.zeros(), or whole pages.
best_effort: memory that can't be reached is accepted; puts and gets are refused.
All ranks are on CPUs, or all on GPUs that reach each other's memory, else InvalidUsage.)");
    c.def("signal", &signal, "peer"_a, nb::kw_only(), "signal"_a = 0, "stream"_a.none() = nb::none(),
          "Raises rank peer's signal (0 to 7), and no more.");
    c.def("wait_signal", &wait_signal, "peer"_a, "count"_a = 1, nb::kw_only(), "signal"_a = 0,
          "stream"_a.none() = nb::none(),
          R"(Waits until rank peer has raised the signal `count` times, and takes them: the next wait counts later ones.

Sees all that the peer has put before it raised the signal.)");
}

}  // namespace tutti::python
