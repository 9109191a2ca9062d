// A group's communicator on a device with streams. Operations are enqueued on a stream of their own, by the calling
// thread, in the order of the calls: they come after what the caller has enqueued on its current stream, and what it
// enqueues after wait() comes after them. Nobody waits on the host.
#pragma once

#include <memory>
#include <mutex>

#include "collectives.hpp"
#include "streams.hpp"
#include "work.hpp"

namespace tutti_torch {

class DeviceGroup : public std::enable_shared_from_this<DeviceGroup> {
  public:
    /// Blocks until all ranks have come.
    DeviceGroup(const tuttiUniqueId& id, int rank, int size, Milliseconds timeout, const Settings& settings,
                c10::Device device);
    ~DeviceGroup();
    DeviceGroup(const DeviceGroup&) = delete;

    c10::intrusive_ptr<c10d::Work> run(const Operation& operation, const std::function<void(Collectives&)>& job);

    /// Throws what has befallen operations that were enqueued.
    void check_errors(const char* operation) const;
    c10::Device device() const { return side_.device(); }
    /// Waits until all operations have ended, or, if `abandon`, ends them. Any number of times.
    void close(bool abandon);

  private:
    int rank_;
    SideStream side_;
    mutable std::mutex mutex_;
    std::unique_ptr<Collectives> collectives_;
};

/// An operation that was enqueued.
class DeviceWork final : public c10d::Work {
  public:
    DeviceWork(int rank, const Operation& operation, std::shared_ptr<const DeviceGroup> group, c10::Stream stream);

    /// The operation has ended, or can't.
    bool isCompleted() override;
    bool isSuccess() const override;
    std::exception_ptr exception() const override;
    /// The current stream goes on after the operation. With a timeout the calling thread waits for it, too, so long.
    /// Throws what has befallen the group's operations by now.
    bool wait(Milliseconds timeout = kNoTimeout) override;
    void synchronize() override { wait(); }
    std::vector<at::Tensor> result() override { return outputs_; }
    std::uint64_t getSequencenumber() const TUTTI_OVERRIDE_SINCE_2_8 { return number_; }
    /// Its callbacks run at once, on streams that come after the operation.
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

  private:
    const char* name_;
    std::uint64_t number_;
    Tensors outputs_;
    std::shared_ptr<const DeviceGroup> group_;
    c10::Event done_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

/// Some works as one.
class Together final : public c10d::Work {
  public:
    explicit Together(std::vector<c10::intrusive_ptr<c10d::Work>> works) : works_(std::move(works)) {}
    bool isCompleted() override;
    bool isSuccess() const override;
    bool wait(Milliseconds timeout = kNoTimeout) override;
    void synchronize() override { wait(); }

  private:
    std::vector<c10::intrusive_ptr<c10d::Work>> works_;
};

}  // namespace tutti_torch
