// Which operations of a communicator on GPUs go by multicast (plan/multicast.hpp).
#include "base/log.hpp"
#include "comm/communicator.hpp"
#include "plan/multicast.hpp"

namespace tutti {
namespace {

bool is_aligned(const std::byte* a, const std::byte* b) {
    return ((reinterpret_cast<std::uintptr_t>(a) | reinterpret_cast<std::uintptr_t>(b)) % sizeof(gpu::Pack)) == 0;
}

/// Of all that ranks must have alike. With different places in windows they would add what does not belong together.
std::uint32_t signature_of(const Operation& o, const gpu::MulticastJob& job, const SymmetricWindows::Place& in,
                           const SymmetricWindows::Place& out) {
    const bool gathers = job.kind == gpu::MulticastJob::all_gather,
               scatters = job.kind == gpu::MulticastJob::reduce_scatter;
    const std::uint64_t facts[] = {static_cast<std::uint64_t>(job.kind),
                                   static_cast<std::uint64_t>(job.sum),
                                   static_cast<std::uint64_t>(o.type),
                                   o.count,
                                   job.blocks,
                                   gathers ? 0 : in.window->number,
                                   gathers ? 0 : in.at,
                                   scatters ? 0 : out.window->number,
                                   scatters ? 0 : out.at};
    return SymmetricWindows::signature_of(facts);
}

}  // namespace

/// Logs whether a call goes by multicast, the first time for each collective and answer. why_not: nullptr if it does.
void Communicator::tell_of_multicast(const Operation& o, const char* why_not) {
    const unsigned bit = 1u << (2 * static_cast<unsigned>(o.collective) + (why_not == nullptr ? 0 : 1));
    if ((told_of_multicast_ & bit) != 0) return;
    told_of_multicast_ |= bit;
    const std::string obstacle = connections_.places().multicast_obstacle();
    if (why_not != nullptr && !obstacle.empty()) why_not = obstacle.c_str();
    log(Level::info, "rank %d: %s of %zu elements goes by %s%s", rank(), std::string(name_of(o.collective)).c_str(),
        o.count, why_not == nullptr ? "nvls" : "other algorithms than nvls: ", why_not == nullptr ? "" : why_not);
}

std::optional<gpu::MulticastJob> Communicator::multicast_job(const Operation& o) {
    if (!planner_->allowed().names(o.collective, nvls)) return std::nullopt;
    const std::optional<gpu::MulticastSum> sum = multicast_sum(o);
    if (!sum || (options_.reproducible && in_any_order(o))) {
        tell_of_multicast(o,
                          "switches can't do the operation for the type, its rows are no multiples of 16 bytes, or "
                          "its sums must be reproducible");
        return std::nullopt;
    }
    const auto where = windows_.with_multicast().find(o);
    gpu::MulticastJob job{};
    if (where) {
        const auto& [in, out] = *where;
        job = gpu_->multicast_job(o, *sum, rank(), ranks(), options_.timeout);
        job.input = job.kind == gpu::MulticastJob::all_gather ? static_cast<std::byte*>(const_cast<void*>(o.input))
                                                              : in.window->multicast_at + in.at;
        job.output = job.kind == gpu::MulticastJob::reduce_scatter ? static_cast<std::byte*>(o.output)
                                                                   : out.window->multicast_at + out.at;
        job.parts = out.window->strip->part(0) + out.at;
        job.stride = out.window->strip->stride();
    }
    if (!where || !is_aligned(job.input, job.output)) {
        tell_of_multicast(o,
                          "its buffers are not in windows that have multicast, which all ranks registered with "
                          "TUTTI_WIN_COLL_SYMMETRIC, at multiples of 16 bytes");
        return std::nullopt;
    }
    link_all_for_texts();
    tell_of_multicast(o, nullptr);
    const std::size_t rows = o.collective == Collective::all_reduce ? 1 : static_cast<std::size_t>(ranks());
    job.blocks = multicast_blocks_for(job.bytes * rows, ranks(), gpu_->budget().channels);
    Call call;
    call.signature = signature_of(o, job, where->first, where->second);
    call.collective = o.collective;
    call.type = o.type;
    call.op = o.call_op;
    call.count = o.count;
    announce(true, call.signature, call);
    gpu_->number(job, call);
    return job;
}

}  // namespace tutti
