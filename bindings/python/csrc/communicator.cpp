#include "communicator.hpp"

#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <chrono>
#include <climits>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>

#include "calls.hpp"
#include "work.hpp"

namespace tutti::python {

namespace {

int64_t last_number = 0;               // under the GIL, as all:
std::map<int64_t, Communicator*> all;  // by their numbers

int milliseconds(nb::handle value, const char* name) {
    const auto seconds = given<double>(value, name, "a number of seconds");
    constexpr int most = INT_MAX / 1000;
    if (!(seconds > 0 && seconds <= most))
        refuse(PyExc_ValueError, "%s is %g seconds; expected more than 0 and at most %d", name, seconds, most);
    return static_cast<int>(std::ceil(seconds * 1000));
}

int yes_or_no(nb::handle value, const char* name) {
    return given<bool>(value, name, "True or False") ? 1 : 0;
}

int whole(nb::handle value, const char* name) {
    return given<int>(value, name, "a whole number of 32 bits");
}

}  // namespace

std::vector<int> ranks_that_failed(tuttiComm_t comm) {
    int count = 0;
    std::vector<int> ranks;
    if (comm != nullptr && tuttiCommGetFailedRanks(comm, nullptr, 0, &count) == tuttiSuccess && count > 0) {
        ranks.resize(static_cast<size_t>(count));
        tuttiCommGetFailedRanks(comm, ranks.data(), static_cast<int>(ranks.size()), &count);
    }
    return ranks;
}

void raise_result(tuttiResult_t result, const std::string& text, const std::vector<int>& failed) {
    const nb::object error = nb::module_::import_("tutti.errors").attr("of")(static_cast<int>(result), text, failed);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
    throw nb::python_error();
}

// ---------------------------------------------------------------------------------------------------------- options

const char* Config::text(nb::handle value, const char* name) {
    const char* utf8 = PyUnicode_Check(value.ptr()) ? PyUnicode_AsUTF8AndSize(value.ptr(), nullptr) : nullptr;
    if (utf8 == nullptr) refuse(PyExc_TypeError, "%s= is a text", name);
    texts_.append(value);
    return utf8;
}

Config::Config(const nb::kwargs& options) {
    config_.blocking = 0;  // the caller waits, so that Ctrl-C can end it
    for (auto [key, value] : options) {
        const std::string name = nb::cast<std::string>(key);
        if (value.is_none()) continue;
        if (name == "timeout")
            config_.timeoutMs = milliseconds(value, name.c_str());
        else if (name == "init_timeout")
            config_.initTimeoutMs = milliseconds(value, name.c_str());
        else if (name == "check")
            config_.check = yes_or_no(value, name.c_str());
        else if (name == "reproducible")
            config_.reproducible = yes_or_no(value, name.c_str());
        else if (name == "algorithm")
            config_.algorithm = text(value, "algorithm");
        else if (name == "transport")
            config_.transport = text(value, "transport");
        else if (name == "name")
            config_.commName = text(value, "name");
        else if (name == "programs")
            config_.programs = text(value, "programs");
        else if (name == "device")
            config_.device = whole(value, name.c_str());
        else if (name == "channels")
            config_.channels = whole(value, name.c_str());
        else if (name == "threads")
            config_.threads = whole(value, name.c_str());
        else
            refuse(PyExc_TypeError,
                   "unknown option '%s': there are timeout, init_timeout, check, reproducible, algorithm, transport, "
                   "name, programs, device, channels and threads",
                   name.c_str());
    }
}

// ----------------------------------------------------------------------------------------------- beginning and end

Communicator::Communicator(tuttiComm_t comm) : comm_(comm), number_(++last_number) {
    try {
        expect(tuttiCommCount(comm, &size_), comm);
        expect(tuttiCommUserRank(comm, &rank_), comm);
        expect(tuttiCommDevice(comm, &device_), comm);
        listen_for_interrupts();
    } catch (...) {  // Ctrl-C, too
        const nb::gil_scoped_release free;
        tuttiCommAbort(comm);
        throw;
    }
    all[number_] = this;
}

Communicator::~Communicator() {
    all.erase(number_);
    if (comm_ == nullptr) return;
    if (forks_ != forks()) {
        new std::shared_ptr<Worker>(std::move(worker_));  // lost on purpose: its thread is not in this process
        return;
    }
    if (worker_ != nullptr) worker_->end();
    const nb::gil_scoped_release free;
    tuttiCommDestroy(comm_);
}

Communicator* Communicator::numbered(int64_t number) {
    const auto found = all.find(number);
    return found == all.end() ? nullptr : found->second;
}

tuttiComm_t Communicator::made(const Make& make, tuttiComm_t parent) {
    if (in_group())
        raise_result(tuttiInvalidUsage, "communicators are made outside of groups: give each rank its thread");
    tuttiComm_t comm = nullptr;
    tuttiResult_t result;
    {
        const nb::gil_scoped_release free;
        result = make(&comm);
    }
    try {
        for (Naps naps; result == tuttiInProgress; naps.nap()) {
            expect(tuttiCommGetAsyncError(comm != nullptr ? comm : parent, &result));
        }
        if (result != tuttiSuccess)
            raise_result(result, tuttiGetLastError(comm), ranks_that_failed(comm != nullptr ? comm : parent));
    } catch (...) {
        const nb::gil_scoped_release free;
        if (comm != nullptr) tuttiCommAbort(comm);
        throw;
    }
    return comm;
}

void Communicator::refuse_call() const {
    const char* why = "another thread is in a call on the communicator: it is used by one thread at a time";
    if (comm_ == nullptr) why = "the communicator was closed or aborted";
    if (forks_ != forks())
        why =
            "the communicator was made before this process was forked: make a new one, or start processes by spawn "
            "instead of fork";
    raise_result(tuttiInvalidUsage, why);
}

void Communicator::failed(tuttiResult_t result) {
    const std::string text = tuttiGetLastError(comm_);
    const bool interrupted = was_interrupted();
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (interrupted) raise_interrupt();  // asyncio's handler leaves the exception to its loop
    raise_result(result, text, ranks_that_failed(comm_));
}

namespace {

/// What a thread that destroys a communicator has to say.
struct Leaving {
    std::mutex mutex;
    Condition changed;
    bool done = false;
    tuttiResult_t result = tuttiSuccess;
    std::string text;

    void leave(tuttiComm_t comm) {
        const tuttiResult_t got = tuttiCommDestroy(comm);
        const std::lock_guard lock(mutex);
        result = got;
        if (result != tuttiSuccess) text = tuttiGetLastError(nullptr);
        done = true;
        changed.notify_all();
    }
};

/// Destroys comm, which waits until the other ranks have read what this one sent. Ctrl-C ends the main thread's wait;
/// a thread of its own goes on then.
void destroy(tuttiComm_t comm) {
    const auto leaving = std::make_shared<Leaving>();
    bool done = !Interruptible::is_main();
    if (!done) {
        try {
            std::thread([=] { leaving->leave(comm); }).detach();
        } catch (const std::system_error&) {
            done = true;  // there is no thread to be had
        }
    }
    if (done) {
        const nb::gil_scoped_release free;
        leaving->leave(comm);
    }
    for (Signals signals; !done;) {
        {
            const nb::gil_scoped_release free;
            std::unique_lock lock(leaving->mutex);
            done = leaving->changed.wait_until(lock, Condition::Clock::now() + std::chrono::milliseconds(50),
                                               [&] { return leaving->done; });
        }
        if (!done) signals.look();
    }
    if (leaving->result != tuttiSuccess) raise_result(leaving->result, leaving->text);
}

}  // namespace

void Communicator::close() {
    if (comm_ == nullptr) return;
    handle();
    drain();
    if (comm_ == nullptr) return;
    const tuttiComm_t comm = handle();
    comm_ = nullptr;
    if (worker_ != nullptr) worker_->end();
    destroy(comm);
}

void Communicator::end_all(bool abort) {
    const auto remaining = all;  // an end runs code of Python, which may end others
    for (const auto& [number, unused] : remaining) {
        Communicator* const comm = numbered(number);
        if (comm == nullptr || comm->closed() || comm->forks_ != forks() || comm->busy_) continue;
        if (abort) {
            comm->abort();
            continue;
        }
        try {
            comm->close();
        } catch (nb::python_error& error) {
            if (error.matches(PyExc_Exception)) continue;  // a failure that the program has not looked at
            end_all(true);
            throw;
        }
    }
}

void Communicator::abort() {
    if (comm_ == nullptr || forks_ != forks()) return;
    const tuttiComm_t comm = comm_;
    comm_ = nullptr;
    if (worker_ != nullptr) worker_->stop();
    {
        const nb::gil_scoped_release free;
        tuttiCommAbort(comm);
    }
    if (const auto worker = std::move(worker_)) worker->end();
}

void Communicator::revoke() {
    if (comm_ == nullptr || forks_ != forks()) refuse_call();
    const tuttiComm_t comm = comm_;
    revoked_ = true;
    tuttiResult_t result;
    {
        const nb::gil_scoped_release free;
        result = tuttiCommRevoke(comm, TUTTI_REVOKE_DEFAULT);
    }
    expect(result, comm);
}

void Communicator::interrupt() {
    if (comm_ == nullptr) return;
    revoked_ = interrupted_ = true;
    tuttiCommRevoke(comm_, TUTTI_REVOKE_DEFAULT);
}

void Communicator::drain() {
    if (const auto worker = worker_) worker->drain();
}

const std::shared_ptr<Worker>& Communicator::worker() {
    const tuttiComm_t comm = handle();
    if (worker_ == nullptr) worker_ = std::make_shared<Worker>(comm);
    return worker_;
}

nb::tuple Communicator::failed_ranks() const {
    return nb::tuple(nb::cast(ranks_that_failed(forks_ == forks() ? comm_ : nullptr)));
}

nb::object Communicator::failed_rank() const {
    const nb::tuple ranks = failed_ranks();
    return ranks.size() > 0 ? nb::object(ranks[0]) : nb::none();
}

uint64_t Communicator::memory() {
    uint64_t bytes = 0;
    wait_for([&](tuttiComm_t comm) { return tuttiCommMemory(comm, &bytes); });
    return bytes;
}

// -------------------------------------------------------------------------------- communicators from communicators

nb::object Communicator::from_this(const std::function<tuttiResult_t(tuttiComm_t, tuttiComm_t*)>& make) {
    const tuttiComm_t parent = drained();
    tuttiComm_t comm = nullptr;
    {
        const Busy busy(*this);
        comm = made([&](tuttiComm_t* made) { return make(parent, made); }, parent);
    }
    return comm == nullptr ? nb::none() : nb::cast(std::make_unique<Communicator>(comm));
}

nb::object Communicator::split(nb::object color, int key, const nb::kwargs& options) {
    const Config config(options);
    const int number = color.is_none() ? TUTTI_SPLIT_NOCOLOR : whole(color, "color");
    return from_this(
        [&](tuttiComm_t parent, tuttiComm_t* made) { return tuttiCommSplit(parent, number, key, made, config.get()); });
}

nb::object Communicator::shrink(const std::vector<int>& exclude, bool abort, const nb::kwargs& options) {
    const Config config(options);
    return from_this([&](tuttiComm_t parent, tuttiComm_t* made) {
        return tuttiCommShrink(parent, exclude.data(), static_cast<int>(exclude.size()), made, config.get(),
                               abort ? TUTTI_SHRINK_ABORT : TUTTI_SHRINK_DEFAULT);
    });
}

nb::object Communicator::grow(int nranks, const nb::kwargs& options) {
    const Config config(options);
    return from_this([&](tuttiComm_t parent, tuttiComm_t* made) {
        return tuttiCommGrow(parent, nranks, nullptr, -1, made, config.get());
    });
}

nb::bytes Communicator::grow_id() {
    tuttiUniqueId id;
    wait_for([&](tuttiComm_t comm) { return tuttiCommGetUniqueId(comm, &id); });
    return nb::bytes(id.internal, sizeof id.internal);
}

}  // namespace tutti::python
