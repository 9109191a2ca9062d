// When what is enqueued begins. Streams are dealt to the hardware queues of their device and priority. In a queue work
// begins in the order in which it was enqueued: its head waits for the stream's earlier work, for events and for room,
// and all behind it waits with it, whichever stream it is of.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/result.hpp"
#include "internal.hpp"

namespace tutti::on_hosts {
namespace {

/// Threads that are used again; never ended.
class Threads {
  public:
    void run(std::function<void()> work) {
        const std::lock_guard lock(mutex_);
        work_.push_back(std::move(work));
        if (work_.size() > idle_)
            std::thread([this] { serve(); }).detach();
        else
            arrived_.notify_one();
    }

  private:
    void serve() {
        std::unique_lock lock(mutex_);
        while (true) {
            ++idle_;
            arrived_.wait(lock, [this] { return !work_.empty(); });
            --idle_;
            const auto work = std::move(work_.front());
            work_.pop_front();
            lock.unlock();
            work();
            lock.lock();
        }
    }
    std::mutex mutex_;
    std::condition_variable arrived_;
    std::deque<std::function<void()>> work_;
    std::size_t idle_ = 0;
};
Threads& threads() {
    static auto* const all = new Threads;
    return *all;
}

Device& device_of(const Op& op) {
    return *op.task.device;
}

void finish(const OpRef& op) {
    op->done = true;
    op->finished = Clock::now();
    op->task.work = nullptr;
    op->task.launch = nullptr;
    op->task.graph = nullptr;
    op->task.events = nullptr;
    std::erase(device_of(*op).live, op);
    if (op->mark != nullptr) op->mark->done = true, op->mark->finished = op->finished;
    const OpRef parent = std::move(op->parent);
    if (parent != nullptr && --parent->nodes_left == 0) finish(parent);
    notify();
}

/// What a kernel or copy throws is the end of the device's context, as a fault is.
void fault(Device& device, const std::string& what, const char* why) {
    std::fprintf(stderr, "GPUs on hosts: GPU %d: %s: %s\n", device.number, what.c_str(), why);
    if (const int code = machine().settings.exit_at_fault; code != 0) std::_Exit(code);
    device.failure = cudaErrorLaunchFailure;
}

void run_work(const OpRef& op) {
    threads().run([op] {
        std::string failure;
        try {
            op->task.work();
        } catch (const std::exception& error) {
            failure = error.what();
        }
        const Lock lock = locked();
        if (!failure.empty()) fault(device_of(*op), op->task.what, failure.c_str());
        finish(op);
        advance();
    });
}

/// One after the other, for all devices: CUDA promises no more.
void run_host_functions() {
    threads().run([] {
        Lock lock = locked();
        Machine& own = machine();
        while (!own.host_functions.empty()) {
            const OpRef op = own.host_functions.front();
            own.host_functions.pop_front();
            thread().in_host_function = true;
            lock.unlock();
            op->task.work();
            lock.lock();
            thread().in_host_function = false;
            finish(op);
            advance();
        }
        own.in_host_function = false;
    });
}

void run_block(const OpRef& op, unsigned number, int* place, int takes) {
    threads().run([op, number, place, takes] {
        const Launch& launch = *op->task.launch;
        const ptx::Dim at{number % launch.grid.x, number / launch.grid.x % launch.grid.y,
                          number / launch.grid.x / launch.grid.y};
        std::string failure;
        try {
            ptx::run_block(launch.kernel, launch.parameters.data(), launch.grid, launch.block, at, launch.shared,
                           device_of(*op).reach.get());
        } catch (const std::exception& error) {
            failure = error.what();
        }
        const Lock lock = locked();
        if (!failure.empty()) fault(device_of(*op), op->task.what, failure.c_str());
        *place += takes;
        if (++op->blocks_ended == launch.grid.count()) finish(op);
        advance();
    });
}

/// The blocks of kernels begin in the kernels' order: none of a later one before all of an earlier one have.
bool begin_blocks(Device& device) {
    bool any = false;
    while (!device.kernels.empty()) {
        const OpRef op = device.kernels.front();
        const int takes = Device::whole / op->task.launch->per_multiprocessor;
        const auto emptiest = std::ranges::max_element(device.room);
        if (*emptiest < takes) return any;
        *emptiest -= takes;
        run_block(op, op->blocks_begun++, &*emptiest, takes);
        if (op->blocks_begun < op->task.launch->grid.count()) continue;
        op->placed = any = true;
        device.kernels.erase(device.kernels.begin());
    }
    return any;
}

OpRef make_op(Task task) {
    auto op = std::make_shared<Op>();
    op->task = std::move(task);
    device_of(*op).live.push_back(op);
    return op;
}

void begin_graph(const OpRef& op) {
    const std::shared_ptr<const Graph> graph = op->task.graph;
    op->nodes_left = graph->nodes.size();
    std::vector<OpRef> made;
    for (const Graph::Node& node : graph->nodes) {
        const OpRef own = made.emplace_back(make_op(node.task));
        own->parent = op;
        for (const std::size_t earlier : node.after) own->after.push_back(made[earlier]);
        const auto its = [number = made.size() - 1](const std::map<std::size_t, OpRef>& events) {
            const auto found = events.find(number);
            return found == events.end() ? nullptr : found->second;
        };
        own->mark = its(op->task.events->recorded);
        if (const OpRef followed = its(op->task.events->followed)) own->after.push_back(followed);
        device_of(*own).loose.push_back(own);
    }
    if (made.empty()) finish(op);
}

void begin(const OpRef& op) {
    Device& device = device_of(*op);
    op->begun = true;
    op->after.clear();
    op->placed = op->task.launch == nullptr;
    if (device.failure != cudaSuccess && !op->task.host_function) {
        op->placed = true;
        finish(op);
    } else if (op->task.launch != nullptr) {
        const auto less_urgent = [&](const OpRef& other) { return other->task.priority > op->task.priority; };
        device.kernels.insert(std::ranges::find_if(device.kernels, less_urgent), op);
    } else if (op->task.graph != nullptr) {
        begin_graph(op);
    } else if (op->task.host_function) {
        machine().host_functions.push_back(op);
        if (!std::exchange(machine().in_host_function, true)) run_host_functions();
    } else if (op->task.work) {
        run_work(op);
    } else {
        finish(op);
    }
}

bool is_ready(const OpRef& op) {
    return std::ranges::all_of(op->after, [](const OpRef& earlier) { return earlier->done; });
}

bool advance_queue(Queue& queue) {
    bool any = false;
    while (!queue.empty()) {
        const OpRef head = queue.front();
        if (!head->begun) {
            if (!is_ready(head)) return any;
            begin(head);
            any = true;
        }
        if (!head->placed) return any;
        queue.pop_front();
    }
    return any;
}

bool advance_graphs(Device& device) {
    const auto found = std::ranges::find_if(device.loose, is_ready);
    if (found == device.loose.end()) return false;
    const OpRef op = *found;
    device.loose.erase(found);
    begin(op);
    return true;
}

std::string state_of(const Op& op) {
    std::string out = op.task.what;
    if (op.stream != nullptr) out += op.stream->legacy ? " (legacy stream)" : text(" (stream %d)", op.stream->number);
    if (op.task.launch != nullptr)
        out +=
            text(", blocks: %u begun, %u ended, of %u", op.blocks_begun, op.blocks_ended, op.task.launch->grid.count());
    if (!op.begun && op.after.empty()) out += ", ready";
    for (const OpRef& earlier : op.after)
        if (!earlier->done) out += ", waits for " + earlier->task.what;
    return out;
}

}  // namespace

void advance() {
    bool again = true;
    while (again) {
        again = false;
        for (const auto& device : machine().devices) {
            for (auto& [priority, queues] : device->queues)
                for (const auto& queue : queues.all) again |= advance_queue(*queue);
            while (advance_graphs(*device)) again = true;
            again |= begin_blocks(*device);
        }
    }
}

Stream& new_stream(Device& device, bool blocking, int priority) {
    auto& streams = machine().streams;
    auto made = std::make_unique<Stream>();
    made->device = &device;
    made->number = static_cast<int>(streams.size()) + 1;
    made->priority = priority;
    made->blocking = blocking;
    made->handle = 0x1000;  // the first one that is free
    const auto taken = [&](const auto& other) { return other->alive && other->handle == made->handle; };
    while (std::ranges::any_of(streams, taken)) made->handle += 16;
    return *streams.emplace_back(std::move(made));
}

/// Dealt in turn, when a stream is first used.
static Queue& queue_for(Device& device, int priority) {
    Device::Queues& queues = device.queues[priority];
    const auto most = static_cast<std::size_t>(machine().settings.connections);
    if (queues.all.size() < most) queues.all.push_back(std::make_unique<Queue>());
    return *queues.all[queues.next++ % most];
}

OpRef submit(Stream& stream, Task task, std::vector<OpRef> after) {
    if (task.device == nullptr) task.device = stream.device;
    task.priority = stream.priority;
    if (stream.capture != nullptr) {
        capture(stream, std::move(task));
        return nullptr;
    }
    forbid_implicit(stream);
    Device& device = *stream.device;
    const auto follow = [&](const OpRef& earlier) {
        if (earlier != nullptr && !earlier->done) after.push_back(earlier);
    };
    follow(stream.last);
    if (stream.legacy) {
        for (const auto& other : machine().streams)
            if (other->device == &device && other->blocking) follow(other->last);
    } else if (stream.blocking) {
        follow(device.legacy.last);
    }
    if (stream.queue == nullptr) stream.queue = &queue_for(device, stream.priority);
    const OpRef op = make_op(std::move(task));
    op->stream = &stream;
    op->after = std::move(after);
    stream.last = op;
    stream.queue->push_back(op);
    advance();
    return op;
}

void wait_for(Lock& lock, const OpRef& op, const char* what) {
    if (op != nullptr) wait(lock, what, [&] { return op->done; });
}

void wait_for_all(Lock& lock, Device& device, const char* what) {
    const std::vector<OpRef> all = device.live;
    wait(lock, what, [&] { return std::ranges::all_of(all, [](const OpRef& op) { return op->done; }); });
}

bool is_done(const OpRef& op) {
    if (op == nullptr || op->done) return true;
    if (Clock::now() - op->enqueued > std::chrono::milliseconds(machine().settings.wait_ms)) {
        std::fprintf(stderr, "GPUs on hosts: this was enqueued %d ms ago: %s\nAll of it:\n%s",
                     machine().settings.wait_ms, state_of(*op).c_str(), picture().c_str());
        std::abort();
    }
    return false;
}

std::string picture() {
    std::string out;
    for (const auto& [thread, what] : machine().waits) out += "a thread of the host: waits in " + what + "\n";
    for (const auto& device : machine().devices) {
        for (const auto& [priority, queues] : device->queues)
            for (std::size_t q = 0; q < queues.all.size(); ++q)
                for (const OpRef& op : *queues.all[q])
                    out += text("GPU %d, queue %zu of priority %d: %s\n", device->number, q, priority,
                                state_of(*op).c_str());
        for (const OpRef& op : device->loose)
            out += text("GPU %d, in a graph: %s\n", device->number, state_of(*op).c_str());
        for (const OpRef& op : device->live)
            if (op->begun) out += text("GPU %d, begun: %s\n", device->number, state_of(*op).c_str());
        int room = 0;
        for (const int left : device->room) room += left == Device::whole ? 1 : 0;
        if (!device->live.empty())
            out += text("GPU %d: %d of %zu multiprocessors are empty\n", device->number, room, device->room.size());
    }
    return out;
}

}  // namespace tutti::on_hosts
