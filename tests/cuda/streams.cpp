// Streams and events.
#include <algorithm>

#include "base/result.hpp"
#include "internal.hpp"

namespace tutti::on_hosts {

Stream& stream_of(cudaStream_t handle) {
    if (handle == nullptr || handle == cudaStreamLegacy) return current().legacy;
    if (handle == cudaStreamPerThread) {
        Stream*& own = thread().streams[&current()];
        if (own == nullptr) own = &new_stream(current(), true, 0);
        return *own;
    }
    for (const auto& stream : machine().streams)
        if (stream->handle == reinterpret_cast<std::uintptr_t>(handle) && stream->alive) return *stream;
    refuse(cudaErrorInvalidResourceHandle);
}

Event& event_of(const void* handle) {
    const auto found = machine().events.find(handle);
    require(found != machine().events.end(), cudaErrorInvalidResourceHandle);
    return *found->second;
}

namespace {

/// Refuses to ask for what a capture has recorded: it never happens.
void forbid_captured(const Event& event) {
    if (event.capture == nullptr) return;
    if (!event.capture->ended) event.capture->valid = false;
    refuse(cudaErrorCapturedEvent);
}

/// What a stream waits for, which is part of a capture.
void follow_captured(Stream& stream, const Event& event) {
    Capture& other = *event.capture;
    require(!other.ended, cudaErrorCapturedEvent);
    require(other.valid, cudaErrorStreamCaptureInvalidated);
    if (stream.legacy) invalidate(other, cudaErrorStreamCaptureImplicit);
    if (stream.capture == nullptr) {
        stream.capture = event.capture;
        stream.tail.clear();
        other.streams.push_back(&stream);
    } else if (stream.capture != event.capture) {
        stream.capture->valid = false;
        invalidate(other, cudaErrorStreamCaptureMerge);
    }
    for (const std::size_t node : event.nodes)
        if (std::ranges::find(stream.tail, node) == stream.tail.end()) stream.tail.push_back(node);
}

/// A node that waits for an event, or records it, at every launch of the graph. The flag means nothing elsewhere.
void capture_event(Stream& stream, const Event& event, Task task) {
    require(stream.capture != nullptr, cudaErrorInvalidValue);
    forbid_captured(event);
    submit(stream, std::move(task));
}

cudaError_t create(cudaStream_t* out, unsigned flags, int priority) {
    return call(context, [&](Lock&) {
        require(out != nullptr && (flags & ~unsigned{cudaStreamNonBlocking}) == 0, cudaErrorInvalidValue);
        Stream& made = new_stream(current(), (flags & cudaStreamNonBlocking) == 0, std::clamp(priority, -5, 0));
        *out = reinterpret_cast<cudaStream_t>(made.handle);
    });
}

/// All that the legacy stream's next work would follow, too.
void wait_for_stream(Lock& lock, Stream& stream) {
    const OpRef last = stream.last;
    if (stream.legacy)
        for (const auto& other : machine().streams)
            if (other->device == stream.device && other->blocking && other->capture == nullptr)
                wait_for(lock, OpRef(other->last), "cudaStreamSynchronize of the legacy stream");
    wait_for(lock, last, "cudaStreamSynchronize");
}

}  // namespace
}  // namespace tutti::on_hosts

using namespace tutti::on_hosts;

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* out) {
    return create(out, cudaStreamDefault, 0);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
    return create(out, flags, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int priority) {
    return create(out, flags, priority);
}

/// What is enqueued still runs.
cudaError_t cudaStreamDestroy(cudaStream_t handle) {
    return call(context, [&](Lock&) {
        Stream& stream = stream_of(handle);
        require(!stream.legacy && handle != cudaStreamPerThread, cudaErrorInvalidResourceHandle);
        forbid_captured(stream);
        stream.alive = false;
    });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
    return call(context, [&](Lock&) {
        Stream& stream = stream_of(handle);
        forbid_captured(stream);
        forbid_implicit(stream);
        forbid_beside_captures();
        require(is_done(stream.last), cudaErrorNotReady);
        require(stream.device->failure == cudaSuccess, stream.device->failure);
    });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    return call(context, [&](Lock& lock) {
        Stream& stream = stream_of(handle);
        forbid_captured(stream);
        forbid_implicit(stream);
        forbid_beside_captures();
        wait_for_stream(lock, stream);
        require(stream.device->failure == cudaSuccess, stream.device->failure);
    });
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
    return call(context, [&](Lock&) {
        Stream& stream = stream_of(handle);
        forbid_captured(stream);
        *device = stream.device->number;
    });
}

cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* id) {
    return call(context, [&](Lock&) {
        Stream& stream = stream_of(handle);
        forbid_captured(stream);
        *id = static_cast<unsigned long long>(stream.legacy ? 0 : stream.number);
    });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned flags) {
    return call(context, [&](Lock&) {
        Stream& stream = stream_of(handle);
        const Event& event = event_of(event_handle);
        if (flags == cudaEventWaitExternal)
            return capture_event(stream, event, {.what = "wait for an event", .follows = event_handle});
        require(flags == cudaEventWaitDefault, cudaErrorInvalidValue);
        if (stream.capture != nullptr) require(stream.capture->valid, cudaErrorStreamCaptureInvalidated);
        if (event.capture != nullptr) return follow_captured(stream, event);
        if (event.op == nullptr) return;  // never recorded
        if (stream.capture != nullptr) invalidate(*stream.capture, cudaErrorStreamCaptureIsolation);
        submit(stream, {.what = "wait for an event"}, {event.op});
    });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* argument) {
    return call(context, [&](Lock&) {
        require(function != nullptr, cudaErrorInvalidValue);
        submit(stream_of(handle),
               {.what = "host function", .work = [=] { function(argument); }, .host_function = true});
    });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
    return call(context, [&](Lock&) {
        constexpr unsigned known = cudaEventBlockingSync | cudaEventDisableTiming;
        require(out != nullptr && (flags & ~known) == 0, cudaErrorInvalidValue);
        auto made = std::make_unique<Event>();
        made->device = &current();
        made->timing = (flags & cudaEventDisableTiming) == 0;
        *out = reinterpret_cast<cudaEvent_t>(made.get());
        machine().events[made.get()] = std::move(made);
    });
}
cudaError_t cudaEventCreate(cudaEvent_t* out) {
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    return call(context, [&](Lock&) {
        event_of(handle);
        machine().events.erase(handle);
    });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
    return cudaEventRecordWithFlags(handle, stream_handle, cudaEventRecordDefault);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream_handle, unsigned flags) {
    return call(context, [&](Lock&) {
        Event& event = event_of(handle);
        Stream& stream = stream_of(stream_handle);
        require(event.device == stream.device, cudaErrorInvalidResourceHandle);
        if (flags == cudaEventRecordExternal)
            return capture_event(stream, event, {.what = "record an event", .records = handle});
        require(flags == cudaEventRecordDefault, cudaErrorInvalidValue);
        if (stream.capture != nullptr) {
            require(stream.capture->valid, cudaErrorStreamCaptureInvalidated);
            event.op = nullptr;
            event.capture = stream.capture;
            event.nodes = stream.tail;
        } else {
            event.op = submit(stream, {.what = "record an event"});
            event.capture = nullptr;
        }
    });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
    return call(context, [&](Lock&) {
        const Event& event = event_of(handle);
        forbid_captured(event);
        forbid_beside_captures();
        require(is_done(event.op), cudaErrorNotReady);
        require(event.device->failure == cudaSuccess, event.device->failure);
    });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    return call(context, [&](Lock& lock) {
        const Event& event = event_of(handle);
        const Device& device = *event.device;
        forbid_captured(event);
        forbid_beside_captures();
        wait_for(lock, OpRef(event.op), "cudaEventSynchronize");
        require(device.failure == cudaSuccess, device.failure);
    });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
    return call(context, [&](Lock&) {
        const Event &first = event_of(begin), &second = event_of(end);
        forbid_captured(first);
        forbid_captured(second);
        require(first.device == second.device && first.timing && second.timing && first.op != nullptr &&
                    second.op != nullptr,
                cudaErrorInvalidResourceHandle);
        require(is_done(first.op) && is_done(second.op), cudaErrorNotReady);
        *milliseconds = std::chrono::duration<float, std::milli>(second.op->finished - first.op->finished).count();
    });
}
}
