#include "device_group.hpp"

#include <algorithm>
#include <cstring>

namespace tutti_torch {
namespace {

/// "all_reduce" of "tutti:all_reduce"
const char* plain(const char* name) {
    return std::strchr(name, ':') + 1;
}

}  // namespace

DeviceGroup::DeviceGroup(const tuttiUniqueId& id, int rank, int size, Milliseconds timeout, const Settings& settings,
                         c10::Device device)
    : rank_(rank),
      side_(device),
      collectives_(
          std::make_unique<Collectives>(id, rank, size, timeout, timeout, settings, Place{device, side_.handle()})) {}

DeviceGroup::~DeviceGroup() {
    close(false);
}

c10::intrusive_ptr<c10d::Work> DeviceGroup::run(const Operation& operation,
                                                const std::function<void(Collectives&)>& job) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!collectives_) fail("tutti: the process group is closed");
    side_.follow_current();
    const c10::StreamGuard current(side_.stream());
    {
        const at::NoGradGuard values_only;
        job(*collectives_);
    }
    side_.keep(operation.inputs);
    side_.keep(operation.outputs);
    return c10::make_intrusive<DeviceWork>(rank_, operation, shared_from_this(), side_.stream());
}

void DeviceGroup::check_errors(const char* operation) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (collectives_) collectives_->check_errors(operation);
}

void DeviceGroup::close(bool abandon) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!collectives_) return;
    try {
        if (abandon && !side_.stream().query()) collectives_->revoke();
        side_.stream().synchronize();  // bounded: every operation of the communicator is
    } catch (const c10::Error&) {
        // The device is broken; there is nothing to wait for.
    }
    collectives_.reset();
}

DeviceWork::DeviceWork(int rank, const Operation& operation, std::shared_ptr<const DeviceGroup> group,
                       c10::Stream stream)
    : c10d::Work(rank, operation.type, operation.name, operation.inputs.vec()),
      name_(plain(operation.name)),
      number_(operation.number),
      outputs_(operation.outputs.vec()),
      group_(std::move(group)),
      done_(stream.device_type()),
      future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                                                       std::vector<c10::Device>{stream.device()})) {
    done_.record(stream);
    future_->markCompleted(c10::IValue(outputs_));  // on the current stream, which is this one
    // The profiler measures how long it took to enqueue.
    if (recordFunctionEndCallback_) recordFunctionEndCallback_();
}

bool DeviceWork::isCompleted() {
    return done_.query() || exception() != nullptr;
}

bool DeviceWork::isSuccess() const {
    return done_.query() && exception() == nullptr;
}

std::exception_ptr DeviceWork::exception() const {
    try {
        group_->check_errors(name_);
    } catch (...) {
        return std::current_exception();
    }
    return nullptr;
}

bool DeviceWork::wait(Milliseconds timeout) {
    using Clock = std::chrono::steady_clock;
    group_->check_errors(name_);
    done_.block(c10::impl::VirtualGuardImpl(done_.device_type()).getStream(group_->device()));
    unregister(*this);
    if (timeout == kNoTimeout) return true;
    for (const Clock::time_point end = Clock::now() + timeout; !done_.query();) {
        group_->check_errors(name_);
        if (Clock::now() > end)
            fail(c10::str("tutti: ", name_, ": wait() ended after ", timeout.count(), " ms, the operation has not"));
        std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    group_->check_errors(name_);
    return true;
}

bool Together::isCompleted() {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isCompleted(); });
}

bool Together::isSuccess() const {
    return std::all_of(works_.begin(), works_.end(), [](const auto& work) { return work->isSuccess(); });
}

bool Together::wait(Milliseconds timeout) {
    for (const auto& work : works_) work->wait(timeout);
    unregister(*this);
    return true;
}

}  // namespace tutti_torch
