// A communicator as Python sees it: one handle of the C API, and what keeps a wrong call from ending the process.
#pragma once
#include <nanobind/nanobind.h>
#include <tutti/tutti.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "waiting.hpp"

namespace tutti::python {

class Worker;

/// Raises the exception of a result code.
[[noreturn]] void raise_result(tuttiResult_t result, const std::string& text, const std::vector<int>& failed = {});

/// What tuttiCommGetFailedRanks says; comm may be null.
std::vector<int> ranks_that_failed(tuttiComm_t comm);

/// tuttiGetLastError's text as an exception, unless result is tuttiSuccess.
inline void expect(tuttiResult_t result, tuttiComm_t comm = nullptr) {
    if (result != tuttiSuccess) raise_result(result, tuttiGetLastError(comm), ranks_that_failed(comm));
}

/// Options as keyword arguments of Python, in the form of C. Texts live as long as this object.
class Config {
  public:
    explicit Config(const nb::kwargs& options);
    [[nodiscard]] const tuttiConfig_t* get() const { return &config_; }

  private:
    const char* text(nb::handle value, const char* name);

    tuttiConfig_t config_ = TUTTI_CONFIG_INITIALIZER;
    nb::list texts_;
};

/// All its functions are called with the GIL held. Exactly one thread is in a call at a time; another one is refused.
class Communicator {
  public:
    /// What one call does: C functions on the handle, without the GIL.
    using Issue = std::function<tuttiResult_t(tuttiComm_t)>;
    /// Begins to make a communicator.
    using Make = std::function<tuttiResult_t(tuttiComm_t*)>;

    /// Takes the handle of a communicator that has been made.
    explicit Communicator(tuttiComm_t comm);
    ~Communicator();
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    /// Calls make and waits until it is done; Ctrl-C ends it. Null if there is none (split without a color). parent:
    /// the communicator that it comes from, or null.
    static tuttiComm_t made(const Make& make, tuttiComm_t parent);

    /// Counts communicators of this process, from 1.
    [[nodiscard]] int64_t number() const { return number_; }
    /// The one with this number. Null if there is none any more.
    static Communicator* numbered(int64_t number);
    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return size_; }
    [[nodiscard]] int device() const { return device_; }
    [[nodiscard]] bool closed() const { return comm_ == nullptr; }
    /// Neither closed nor of the process that this one was forked from, which goes on with it.
    [[nodiscard]] bool ours() const { return comm_ != nullptr && forks_ == forks(); }
    [[nodiscard]] bool revoked() const { return revoked_; }
    /// The handle, for questions that may be asked at any time. Null if closed.
    [[nodiscard]] tuttiComm_t raw() const { return comm_; }

    /// The handle. Throws if the communicator is closed, of the process that this one was forked from, or in use.
    tuttiComm_t handle() {
        if (comm_ == nullptr || forks_ != forks() || busy_) refuse_call();
        return comm_;
    }

    /// Calls issue(handle) without the GIL, after all that was begun with async_, and raises its error. A template, so
    /// that a small call costs no allocation.
    template <typename F>
    void wait_for(const F& issue) {
        const tuttiComm_t comm = drained();
        Communicator* self = this;
        tuttiResult_t result;
        {
            interrupted_ = false;
            const Interruptible interruptible(&self, 1);
            const Busy busy(*this);
            const nb::gil_scoped_release free;
            result = issue(comm);
        }
        if (result != tuttiSuccess) failed(result);
    }

    /// Raises what a call on this communicator has returned, or what a signal has raised meanwhile.
    [[noreturn]] void failed(tuttiResult_t result);

    /// Waits for all that was begun with async_. Meanwhile another thread may abort or close the communicator.
    void drain();
    /// The handle, when all that was begun has ended. Throws as handle().
    tuttiComm_t drained() {
        const tuttiComm_t comm = handle();
        if (worker_ == nullptr) return comm;
        drain();
        return handle();
    }
    const std::shared_ptr<Worker>& worker();

    void close();
    void abort();
    void revoke();
    /// The end of the program: closes all communicators that no thread is in a call on, in the order in which they were
    /// made, or aborts them. Ctrl-C ends a wait, and aborts the rest.
    static void end_all(bool abort);
    /// Ctrl-C: ends what waits. Called by another thread than the one that waits, with the GIL.
    void interrupt();
    /// Whether it did so since this was asked last.
    bool was_interrupted() { return std::exchange(interrupted_, false); }
    [[nodiscard]] nb::object failed_rank() const;
    [[nodiscard]] nb::tuple failed_ranks() const;
    uint64_t memory();

    nb::object split(nb::object color, int key, const nb::kwargs& options);
    nb::object shrink(const std::vector<int>& exclude, bool abort, const nb::kwargs& options);
    nb::object grow(int nranks, const nb::kwargs& options);
    nb::bytes grow_id();

  private:
    class Busy {
      public:
        explicit Busy(Communicator& comm) : comm_(comm) { comm_.busy_ = true; }
        ~Busy() { comm_.busy_ = false; }
        Busy(const Busy&) = delete;
        Busy& operator=(const Busy&) = delete;

      private:
        Communicator& comm_;
    };
    [[noreturn]] void refuse_call() const;
    nb::object from_this(const std::function<tuttiResult_t(tuttiComm_t, tuttiComm_t*)>& make);

    tuttiComm_t comm_;
    int64_t number_;
    int rank_ = 0, size_ = 0, device_ = TUTTI_DEVICE_CPU;
    int forks_ = forks();
    bool busy_ = false;         // a thread is in a call
    bool revoked_ = false;      // by Ctrl-C or revoke()
    bool interrupted_ = false;  // Ctrl-C has ended a call that has yet to say so
    std::shared_ptr<Worker> worker_;
};

void bind_communicator(nb::module_& module);
void bind_jax(nb::module_& module);

}  // namespace tutti::python
