#include "comm/copy_engine.hpp"

#include <algorithm>

#include "base/os.hpp"

namespace tutti {
namespace {

using Buffer = SymmetricWindows::Place;

/// Whether the parts of all ranks have `bytes` there.
bool all_have(const Buffer& found, std::size_t bytes) {
    return std::ranges::all_of(found.window->parts, [&](const WindowPart& part) {
        return found.at <= part.bytes && bytes <= part.bytes - found.at;
    });
}

/// Of all on which the ranks must agree, so that each finds the others' rows.
std::uint32_t copy_signature(const Operation& o, const Buffer& input, const Buffer& output, bool in_place) {
    const std::uint64_t facts[] = {static_cast<std::uint64_t>(o.collective),
                                   o.count * size_of(o.type),
                                   input.window->parts.front().key,
                                   input.at,
                                   output.window->parts.front().key,
                                   output.at,
                                   in_place ? 1u : 0u};
    return SymmetricWindows::signature_of(facts);
}

}  // namespace

void copy(GpuSide& side, std::span<const Copy> copies, void* stream, void* sender_stream) {
    gpu::Gpus& gpus = side.gpus();
    void* event = nullptr;
    const auto follow = [&](void* first, void* second) {
        if (first == second) return;
        gpus.mark(side.device(), event, first);
        gpus.follow(side.device(), event, second);
    };
    follow(sender_stream, stream);
    if (!copies.empty()) {
        side.before_launch(stream);
        for (const Copy& c : copies) gpus.copy(side.device(), c.to, c.from, c.bytes, stream);
        side.after_launch(stream);
    }
    follow(stream, sender_stream);
    if (event != nullptr) gpus.drop(side.device(), event);
}

std::vector<Copy> plain_copy(const Operation& o) {
    if (o.input == o.output) return {};
    return {{o.output, o.input, o.count * size_of(o.type)}};
}

std::optional<CopyCall> copy_call_of(Communicator& comm, const Operation& o) {
    const bool gathers = o.collective == Collective::all_gather;
    if (!comm.options().zero_cta || comm.ranks() == 1) return {};
    if (!gathers && o.collective != Collective::all_to_all) return {};
    const auto self = static_cast<std::size_t>(comm.rank()), ranks = static_cast<std::size_t>(comm.ranks());
    const std::size_t row = o.count * size_of(o.type), all = row * ranks, in = gathers ? row : all;
    const auto places = comm.windows().promised().find(o);
    if (!places) return {};
    auto* const out = static_cast<std::byte*>(o.output);
    const bool in_place = gathers && o.input == out + self * row;
    const Buffer output = places->second, input = in_place ? output : places->first;
    if (!all_have(output, all) || !all_have(input, in_place ? all : in)) return {};

    CopyCall call;
    call.signature = copy_signature(o, input, output, in_place);
    for (std::size_t k = 0; k < ranks; ++k) {  // each rank begins with another peer
        const std::size_t peer = (self + k) % ranks;
        const std::size_t at = in_place ? peer * row : gathers ? 0 : self * row;
        const std::uint64_t part = input.window->parts[peer].where.offset;
        const Copy copy{out + peer * row, reinterpret_cast<const std::byte*>(part) + input.at + at, row};
        if (copy.from != copy.to) call.copies.push_back(copy);
    }
    return call;
}

}  // namespace tutti
