#include "comm/gpu_launch.hpp"

#include <algorithm>
#include <map>

#include "comm/pieces.hpp"

namespace tutti {
namespace {

struct Ready {
    Communicator* comm;
    void* stream;
    Operation operation;
    gpu::Job job{};
    bool copies = false;   // one rank, or from a rank to itself: no kernel of ours
    std::size_t wave = 0;  // its place in its queue
};

std::size_t rows_bytes(const Operation& o) {
    return o.count * size_of(o.type);
}

bool is_plain_copy(const Communicator& comm, const Operation& o) {
    const bool to_itself = o.collective == Collective::recv && o.root == comm.rank();
    return to_itself || (comm.ranks() == 1 && !o.premultiply && !o.average && (o.input != nullptr || o.count == 0));
}

/// One rank's turn in all communicators concerned, taken in an order that all threads agree on.
class Turns {
  public:
    explicit Turns(std::span<const Issued> calls) {
        for (const Issued& c : calls) comms_.push_back(c.comm.get());
        std::sort(comms_.begin(), comms_.end());
        comms_.erase(std::unique(comms_.begin(), comms_.end()), comms_.end());
        for (Communicator* c : comms_) c->turnstile()->enter(c->turnstile()->ticket());
    }
    ~Turns() {
        for (Communicator* c : comms_) c->turnstile()->leave();
    }
    Turns(const Turns&) = delete;

  private:
    std::vector<Communicator*> comms_;
};

/// Jobs of one device and type, as many as fit, in one launch on the stream of the first; the other streams wait for
/// it, and it for them.
void launch(std::span<Ready* const> jobs) {
    Communicator& first = *jobs.front()->comm;
    gpu::Gpus& gpus = first.gpu()->gpus();
    const int device = first.gpu()->device();
    void* const stream = jobs.front()->stream;
    gpu::Launch launch;
    unsigned lanes = 0;
    std::vector<void*> others;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
        launch.jobs[i] = jobs[i]->job;
        lanes = std::max(lanes, jobs[i]->job.lanes);
        if (jobs[i]->stream != stream && std::find(others.begin(), others.end(), jobs[i]->stream) == others.end())
            others.push_back(jobs[i]->stream);
    }
    void* event = nullptr;
    for (void* other : others) {
        gpus.mark(device, event, other);
        gpus.follow(device, event, stream);
    }
    for (const Ready* r : jobs) r->comm->gpu()->before_launch(stream, r->comm->engine());
    gpus.launch(device, jobs.front()->operation.type, lanes, static_cast<unsigned>(jobs.size()), launch, stream);
    for (const Ready* r : jobs) r->comm->gpu()->leave_engine(r->comm->engine(), stream);
    if (!others.empty()) gpus.mark(device, event, stream);
    for (void* other : others) gpus.follow(device, event, other);
    for (const Ready* r : jobs) r->comm->gpu()->after_launch(r->stream);
    if (event != nullptr) gpus.drop(device, event);
}

void copy(const Ready& r) {
    GpuSide& side = *r.comm->gpu();
    if (r.operation.input == r.operation.output) return;
    side.before_launch(r.stream);
    side.gpus().copy(side.device(), r.operation.output, r.operation.input, rows_bytes(r.operation), r.stream);
    side.after_launch(r.stream);
}

}  // namespace

void launch_together(std::span<const Issued> calls) {
    const Turns turns(calls);
    std::vector<Ready> ready;
    std::map<std::pair<const Communicator*, int>, std::size_t> in_queue;
    std::size_t waves = 0;
    const auto add = [&](Communicator& comm, const Operation& operation, void* stream) {
        Ready r{&comm, stream, as_bytes(operation)};
        r.wave = in_queue[{&comm, Communicator::queue_of(operation)}]++;
        waves = std::max(waves, r.wave + 1);
        r.copies = is_plain_copy(comm, operation);
        r.job = r.copies ? gpu::Job{} : comm.gpu_job(r.operation, stream);
        ready.push_back(r);
    };
    for (const Issued& call : calls) {
        Communicator& comm = *call.comm;
        comm.throw_verdict();
        if (comm.failed()) throw Error(comm.fault()->code, comm.fault()->text);
        comm.gpu()->check_stream(call.gpu_stream);
        if (call.operation.rows == nullptr)
            add(comm, call.operation, call.gpu_stream);
        else
            for (const Operation& piece : pieces_of(call.operation, comm.rank(), comm.ranks()))
                add(comm, piece, call.gpu_stream);
    }
    for (std::size_t wave = 0; wave < waves; ++wave) {
        std::map<std::pair<int, DataType>, std::vector<Ready*>> batches;
        for (Ready& r : ready) {
            if (r.wave != wave) continue;
            if (r.copies)
                copy(r);
            else
                batches[{r.comm->gpu()->device(), r.operation.type}].push_back(&r);
        }
        for (auto& [key, jobs] : batches)
            for (std::size_t at = 0; at < jobs.size(); at += gpu::max_jobs)
                launch(std::span(jobs).subspan(at, std::min<std::size_t>(gpu::max_jobs, jobs.size() - at)));
    }
}

}  // namespace tutti
