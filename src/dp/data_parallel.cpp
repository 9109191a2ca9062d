// tuttiDpDataParallel: one process with many devices. The calling thread issues the collectives of all devices in
// groups; only the caller's function runs on a thread per device.
#include <algorithm>
#include <deque>

#include "base/thread.hpp"
#include "dp/calls.hpp"
#include "dp/memory.hpp"
#include "dp/options.hpp"
#include "dp/sized.hpp"

namespace tutti::dp {
namespace {

constexpr const char* function = "tuttiDpDataParallel";

/// One device, with its replica of all parameters and its share of the batch. Device 0 uses the caller's memory.
class Device {
  public:
    Device(int number, tuttiComm_t comm, tuttiStream_t stream, const std::vector<Parameter>& parameters,
           const tuttiDpBatch_t& batch, int devices)
        : comm_(comm) {
        int at = TUTTI_DEVICE_CPU, rank = 0, ranks = 0;
        must(tuttiCommDevice(comm, &at));
        must(tuttiCommUserRank(comm, &rank));
        must(tuttiCommCount(comm, &ranks));
        if (rank != number || ranks != devices)
            fail(tuttiInvalidArgument, "%s: comms[%d] is rank %d of %d; rank %d of %d was expected", function, number,
                 rank, ranks, number, devices);
        backend_ = at == TUTTI_DEVICE_CPU ? shared_host() : gpu_backend(at, stream);
        const auto n = static_cast<std::size_t>(devices), d = static_cast<std::size_t>(number);
        const std::size_t each = batch.samples / n, more = batch.samples % n;
        replica_.device = number;
        replica_.stream = backend_->stream();
        replica_.samples = each + (d < more ? 1 : 0);
        replica_.firstSample = d * each + std::min(d, more);
        const bool first = number == 0;
        input_ = first ? const_cast<void*>(batch.input) : room(replica_.samples * batch.inputBytes);
        replica_.input = input_;
        replica_.output = first ? batch.output : room(replica_.samples * batch.outputBytes);
        for (const Parameter& p : parameters) {
            values_.push_back(first ? p.data : room(p.count * size_of(p.type)));
            gradients_.push_back(first || p.grad == nullptr ? p.grad : room(p.count * size_of(p.grad_type)));
            if (p.grad != nullptr) backend_->zero(p.grad_type, gradients_.back(), p.count);
        }
        replica_.values = values_.data();
        replica_.gradients = gradients_.data();
    }
    Device(const Device&) = delete;

    const tuttiDpReplica_t& replica() const { return replica_; }
    tuttiComm_t comm() const { return comm_; }
    tuttiStream_t stream() const { return backend_->stream(); }
    void* input() const { return input_; }
    void settle() const { backend_->settle(); }

  private:
    std::byte* room(std::size_t bytes) {
        blocks_.push_back(std::make_unique<Block>(backend_, bytes));
        return blocks_.back()->base();
    }

    tuttiComm_t comm_;
    BackendPtr backend_;
    std::vector<std::unique_ptr<Block>> blocks_;
    std::vector<void*> values_, gradients_;
    void* input_ = nullptr;
    tuttiDpReplica_t replica_{};
};

using Devices = std::deque<Device>;

/// Scatters samples from device 0 to the others (out), or gathers them there. whole: all samples, on device 0;
/// part(device): a device's own samples.
template <class Part>
void move_samples(const Devices& devices, void* whole, std::size_t sample_bytes, bool out, Part part) {
    const Device& first = devices.front();
    for (std::size_t d = 1; d < devices.size(); ++d) {
        const Device& device = devices[d];
        const std::size_t bytes = device.replica().samples * sample_bytes;
        if (bytes == 0) continue;
        std::byte* const there = static_cast<std::byte*>(whole) + device.replica().firstSample * sample_bytes;
        const int number = static_cast<int>(d);
        if (out) {
            must(tuttiSend(there, bytes, tuttiUint8, number, first.comm(), first.stream()));
            must(tuttiRecv(part(device), bytes, tuttiUint8, 0, device.comm(), device.stream()));
        } else {
            must(tuttiSend(part(device), bytes, tuttiUint8, 0, device.comm(), device.stream()));
            must(tuttiRecv(there, bytes, tuttiUint8, number, first.comm(), first.stream()));
        }
    }
}

/// Runs work on all devices, on a thread each. If some fail, throws the result of the first of them.
void run(const Devices& devices, tuttiDpWork_t work, void* user) {
    std::vector<tuttiResult_t> results(devices.size(), tuttiSuccess);
    {
        std::vector<Thread> threads;
        for (std::size_t d = 1; d < devices.size(); ++d)
            threads.push_back(start_thread("tutti-dp", [&, d] { results[d] = work(user, &devices[d].replica()); }));
        results[0] = work(user, &devices[0].replica());
    }
    for (std::size_t d = 0; d < results.size(); ++d)
        if (results[d] != tuttiSuccess)
            fail(results[d], "%s: work returned %d (%s) on device %zu", function, static_cast<int>(results[d]),
                 tuttiGetErrorString(results[d]), d);
}

void data_parallel(std::span<const tuttiComm_t> comms, const tuttiStream_t* streams,
                   const std::vector<Parameter>& parameters, const tuttiDpBatch_t& batch, tuttiDpWork_t work,
                   void* user) {
    Devices devices;
    for (std::size_t d = 0; d < comms.size(); ++d)
        devices.emplace_back(static_cast<int>(d), comms[d], streams != nullptr ? streams[d] : nullptr, parameters,
                             batch, static_cast<int>(comms.size()));
    in_group([&] {
        for (const Device& device : devices)
            for (std::size_t p = 0; p < parameters.size(); ++p) {
                void* const at = device.replica().values[p];
                must(tuttiBroadcast(at, at, parameters[p].count, static_cast<tuttiDataType_t>(parameters[p].type), 0,
                                    device.comm(), device.stream()));
            }
        move_samples(devices, const_cast<void*>(batch.input), batch.inputBytes, true,
                     [](const Device& d) { return d.input(); });
    });
    run(devices, work, user);
    in_group([&] {
        for (const Device& device : devices)
            for (std::size_t p = 0; p < parameters.size(); ++p) {
                void* const at = device.replica().gradients[p];
                if (at != nullptr)
                    must(tuttiReduce(at, at, parameters[p].count, static_cast<tuttiDataType_t>(parameters[p].grad_type),
                                     tuttiSum, 0, device.comm(), device.stream()));
            }
        move_samples(devices, batch.output, batch.outputBytes, false,
                     [](const Device& d) { return d.replica().output; });
    });
    for (const Device& device : devices) device.settle();
}

}  // namespace
}  // namespace tutti::dp

tuttiResult_t tuttiDpDataParallelSized(size_t parameterSize, size_t batchSize, const tuttiComm_t* comms, int devices,
                                       const tuttiStream_t* streams, const tuttiDpParameter_t* parameters, size_t count,
                                       const tuttiDpBatch_t* batch, tuttiDpWork_t work, void* user) {
    using namespace tutti;
    return guarded([&] {
        const auto required = [](const void* given, const char* name) {
            if (given == nullptr) fail(tuttiInvalidArgument, "%s: %s is NULL", dp::function, name);
        };
        required(comms, "comms");
        required(batch, "batch");
        if (devices < 1) fail(tuttiInvalidArgument, "%s: devices is %d; 1 or more was expected", dp::function, devices);
        if (count > 0) required(parameters, "parameters");
        if (work == nullptr) fail(tuttiInvalidArgument, "%s: work is NULL", dp::function);
        const tuttiDpBatch_t b = dp::read_sized(dp::function, batch, 1, batchSize)[0];
        if ((b.input == nullptr && b.samples * b.inputBytes > 0) ||
            (b.output == nullptr && b.samples * b.outputBytes > 0))
            fail(tuttiInvalidArgument, "%s: the batch's %s is NULL", dp::function,
                 b.input == nullptr ? "input" : "output");
        const auto given = dp::read_sized(dp::function, parameters, count, parameterSize);
        const std::vector<dp::Parameter> all =
            dp::read_parameters(dp::function, given, dp::read_options(nullptr, given, devices));
        for (const dp::Parameter& p : all)
            if (p.data == nullptr) fail(tuttiInvalidArgument, "%s: '%s' has no values", dp::function, p.name.c_str());
        dp::data_parallel({comms, static_cast<std::size_t>(devices)}, streams, all, b, work, user);
    });
}
