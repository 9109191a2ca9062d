// Captures and graphs.
#include <algorithm>

#include "base/result.hpp"
#include "internal.hpp"

namespace tutti::on_hosts {

void invalidate(Capture& capture, cudaError_t code) {
    capture.valid = false;
    refuse(code);
}

void forbid_beside_captures() {
    const Thread& own = thread();
    if (own.mode == cudaStreamCaptureModeRelaxed) return;
    bool forbidden = false;
    for (const auto& c : machine().captures) {
        const bool its_own = c->thread == std::this_thread::get_id();
        if (its_own ? c->mode == cudaStreamCaptureModeRelaxed
                    : own.mode != cudaStreamCaptureModeGlobal || c->mode != cudaStreamCaptureModeGlobal)
            continue;
        c->valid = false;
        forbidden = true;
    }
    require(!forbidden, cudaErrorStreamCaptureUnsupported);
}

void forbid_implicit(const Stream& stream, bool and_invalidate) {
    if (!stream.legacy) return;
    for (const auto& c : machine().captures)
        for (const Stream* other : c->streams)
            if (other->device == stream.device && other->blocking) {
                if (and_invalidate) c->valid = false;
                refuse(cudaErrorStreamCaptureImplicit);
            }
}

void forbid_captured(const Stream& stream) {
    if (stream.capture != nullptr) invalidate(*stream.capture, cudaErrorStreamCaptureUnsupported);
}

void capture(Stream& stream, Task task) {
    require(stream.capture->valid, cudaErrorStreamCaptureInvalidated);
    std::vector<Graph::Node>& nodes = stream.capture->graph->nodes;
    nodes.push_back({std::move(task), std::move(stream.tail)});
    stream.tail = {nodes.size() - 1};
}

namespace {

/// Whether all nodes are before the end of the stream in which the capture began.
bool is_joined(const Capture& capture) {
    const std::vector<Graph::Node>& nodes = capture.graph->nodes;
    std::vector<bool> before(nodes.size());
    for (const std::size_t last : capture.origin->tail) before[last] = true;
    for (const std::size_t last : capture.left_out) before[last] = true;
    for (std::size_t n = nodes.size(); n-- > 0;)  // later ones come behind earlier ones
        if (before[n])
            for (const std::size_t earlier : nodes[n].after) before[earlier] = true;
    return std::ranges::all_of(before, [](bool it) { return it; });
}

}  // namespace

std::shared_ptr<GraphEvents> events_at_launch(const Graph& graph, Device& device) {
    auto events = std::make_shared<GraphEvents>();
    for (std::size_t n = 0; n < graph.nodes.size(); ++n)
        if (const void* const followed = graph.nodes[n].task.follows) events->followed[n] = event_of(followed).op;
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
        const void* const recorded = graph.nodes[n].task.records;
        if (recorded == nullptr) continue;
        Event& event = event_of(recorded);
        require(event.device == &device, cudaErrorInvalidResourceHandle);
        event.capture = nullptr;
        event.op = std::make_shared<Op>();
        event.op->task = {.what = "an event of a graph", .device = &device};
        events->recorded[n] = event.op;
    }
    return events;
}

namespace {

std::shared_ptr<const Graph> graph_of(cudaGraph_t handle) {
    const auto found = machine().graphs.find(handle);
    require(found != machine().graphs.end(), cudaErrorInvalidValue);
    return found->second;
}

auto& executable_of(cudaGraphExec_t handle) {
    const auto found = machine().executables.find(handle);
    require(found != machine().executables.end(), cudaErrorInvalidValue);
    return found->second;
}

/// Of one capture.
cudaGraphNode_t handle_of_node(std::size_t number) {
    return reinterpret_cast<cudaGraphNode_t>(number + 1);
}
std::size_t node_of(cudaGraphNode_t handle) {
    return reinterpret_cast<std::size_t>(handle) - 1;
}

/// Handles are never used again.
const void* new_handle() {
    static std::uintptr_t last = 0;
    return reinterpret_cast<const void*>(last += 64);
}

}  // namespace
}  // namespace tutti::on_hosts

using namespace tutti::on_hosts;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    return call(context, [&](Lock&) {
        Stream& stream = stream_of(handle);
        require(!stream.legacy, cudaErrorStreamCaptureUnsupported);
        require(stream.capture == nullptr, cudaErrorIllegalState);
        auto made = std::make_shared<Capture>();
        made->number = machine().last_capture++;
        made->mode = mode;
        made->thread = std::this_thread::get_id();
        made->origin = &stream;
        made->streams = {&stream};
        machine().captures.push_back(made);
        stream.capture = made;
        stream.tail.clear();
    });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* out) {
    *out = nullptr;
    return call(context, [&](Lock&) {
        const std::shared_ptr<Capture> it = stream_of(handle).capture;
        require(it != nullptr, cudaErrorIllegalState);
        require(it->origin == &stream_of(handle), cudaErrorStreamCaptureUnmatched);
        require(it->mode == cudaStreamCaptureModeRelaxed || it->thread == std::this_thread::get_id(),
                cudaErrorStreamCaptureWrongThread);
        const bool joined = is_joined(*it);
        it->ended = true;
        std::erase(machine().captures, it);
        for (Stream* const stream : it->streams) stream->capture = nullptr;
        require(it->valid, cudaErrorStreamCaptureInvalidated);
        require(joined, cudaErrorStreamCaptureUnjoined);
        const void* const made = new_handle();
        machine().graphs[made] = it->graph;
        *out = static_cast<cudaGraph_t>(const_cast<void*>(made));
    });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
    return call(context, [&](Lock&) {
        const Stream& stream = stream_of(handle);
        forbid_implicit(stream, false);
        *status = stream.capture == nullptr ? cudaStreamCaptureStatusNone
                  : stream.capture->valid   ? cudaStreamCaptureStatusActive
                                            : cudaStreamCaptureStatusInvalidated;
    });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* number,
                                     cudaGraph_t* graph, const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                     std::size_t* count) {
    return call(context, [&](Lock&) {
        require(status != nullptr && graph == nullptr && (nodes != nullptr) == (count != nullptr),
                cudaErrorInvalidValue);
        const Stream& stream = stream_of(handle);
        forbid_implicit(stream, false);
        *status = stream.capture == nullptr ? cudaStreamCaptureStatusNone
                  : stream.capture->valid   ? cudaStreamCaptureStatusActive
                                            : cudaStreamCaptureStatusInvalidated;
        if (*status != cudaStreamCaptureStatusActive) return;
        Capture& its = *stream.capture;
        if (number != nullptr) *number = its.number;
        if (nodes == nullptr) return;
        its.told.clear();
        for (const std::size_t last : stream.tail) its.told.push_back(handle_of_node(last));
        its.edges.assign(its.told.size(), {});
        *nodes = its.told.data();
        *count = its.told.size();
        if (edges != nullptr) *edges = its.edges.data();
    });
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t handle, cudaGraphNode_t* nodes,
                                                const cudaGraphEdgeData* edges, std::size_t count, unsigned flags) {
    return call(context, [&](Lock&) {
        Stream& stream = stream_of(handle);
        require(stream.capture != nullptr, cudaErrorIllegalState);
        require(stream.capture->valid, cudaErrorStreamCaptureInvalidated);
        require(edges == nullptr && flags == cudaStreamSetCaptureDependencies, cudaErrorInvalidValue);
        std::vector<std::size_t> tail;
        for (std::size_t i = 0; i < count; ++i) {
            tail.push_back(node_of(nodes[i]));
            require(tail.back() < stream.capture->graph->nodes.size(), cudaErrorInvalidValue);
        }
        for (const std::size_t last : stream.tail)
            if (std::ranges::find(tail, last) == tail.end()) stream.capture->left_out.push_back(last);
        stream.tail = std::move(tail);
    });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    return call(context, [&](Lock&) {
        require(mode != nullptr && *mode <= cudaStreamCaptureModeRelaxed, cudaErrorInvalidValue);
        std::swap(*mode, thread().mode);
    });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t handle, unsigned long long flags) {
    return call(context, [&](Lock&) {
        require(flags == 0, cudaErrorInvalidValue);
        const void* const made = new_handle();
        machine().executables[made] = {graph_of(handle), nullptr};
        *out = static_cast<cudaGraphExec_t>(const_cast<void*>(made));
    });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t handle, cudaStream_t stream) {
    return call(context, [&](Lock&) {
        executable_of(handle);
        forbid_captured(stream_of(stream));
        submit(stream_of(stream), {.what = "upload a graph"});
    });
}

/// In the stream's order, and behind the last launch of the same one.
cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream_handle) {
    return call(context, [&](Lock&) {
        auto& [graph, last] = executable_of(handle);
        Stream& stream = stream_of(stream_handle);
        forbid_captured(stream);
        std::vector<OpRef> after;
        if (last != nullptr) after.push_back(last);
        const std::shared_ptr<GraphEvents> events = events_at_launch(*graph, *stream.device);
        last = submit(stream, {.what = "graph", .graph = graph, .events = events}, std::move(after));
    });
}

cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
    return call(driver, [&](Lock&) {
        graph_of(handle);
        machine().graphs.erase(handle);
    });
}

/// What was launched still runs.
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
    return call(driver, [&](Lock&) {
        executable_of(handle);
        machine().executables.erase(handle);
    });
}
}
