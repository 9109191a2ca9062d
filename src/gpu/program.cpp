#include "gpu/program.hpp"

#include <algorithm>
#include <cstring>

#include "base/result.hpp"

namespace tutti::gpu {
namespace {

/// Gathers arrays into one block of memory, to upload it as a whole. add() returns an array's offset.
class Image {
  public:
    template <class T>
    std::size_t add(const std::vector<T>& values) {
        const std::size_t at = (bytes_.size() + 15) / 16 * 16;
        bytes_.resize(at + values.size() * sizeof(T));
        if (!values.empty()) std::memcpy(bytes_.data() + at, values.data(), values.size() * sizeof(T));
        return at;
    }
    const std::vector<std::byte>& bytes() const { return bytes_; }

  private:
    std::vector<std::byte> bytes_;
};

void require_room(const BoundProgram& bound) {
    const std::size_t most = std::max(bound.to.size(), bound.from.size());
    if (most > max_connections)
        fail(tuttiInvalidUsage,
             "the algorithm connects rank %d to %zu others, and a GPU's block can hold %d connections: choose another "
             "one",
             bound.program.rank, most, max_connections);
    for (const Step& s : bound.program.steps)
        if (std::max(s.sources, s.sinks) > max_operands)
            fail(tuttiInvalidUsage,
                 "a step of rank %d has %u sources and %u sinks, and a GPU's block can hold %d: choose another "
                 "algorithm",
                 bound.program.rank, s.sources, s.sinks, max_operands);
}

/// Fills in the program for the kernel of small messages. False if that can't run it.
bool is_small(const BoundProgram& bound, const Ends& ends, int first_channel, SmallPlan& small) {
    const tutti::Program& p = bound.program;
    for (const auto* const peers : {&bound.to, &bound.from})
        for (const BoundProgram::Peer peer : *peers)
            if (!ends.has_lines(peer.rank)) return false;
    if (bound.to.size() > small_connections || bound.from.size() > small_connections) return false;
    if (p.steps.size() > small_steps || p.operands.size() > small_operands) return false;
    if (!p.steps.empty() && p.steps.front().first != 0) return false;
    std::uint16_t* number = small.numbers;
    const auto add = [&](const End* end) {
        const auto its = static_cast<std::size_t>(end - ends.all());
        *number++ = static_cast<std::uint16_t>(its);
        return its <= UINT16_MAX;
    };
    for (const BoundProgram::Peer peer : bound.to)
        if (!add(ends.to(peer.rank, first_channel))) return false;
    for (const BoundProgram::Peer peer : bound.from)
        if (!add(ends.from(peer.rank, first_channel))) return false;
    const auto as_byte = [](std::size_t value) { return static_cast<std::uint8_t>(value); };
    for (std::size_t s = 0; s < p.steps.size(); ++s) {
        const Step& step = p.steps[s];
        if (step.column > INT8_MAX) return false;
        small.steps[s] = {as_byte(step.first), as_byte(step.sources), as_byte(step.sinks),
                          static_cast<std::uint8_t>(step.column & INT8_MAX), step.completes != 0};
        for (std::uint32_t i = step.first; i < step.first + step.sources + step.sinks; ++i) {
            const Operand& o = p.operands[i];
            const bool received = o.place == Place::peer && i < step.first + step.sources;
            const auto chunk = static_cast<std::size_t>(o.index), columns = static_cast<std::size_t>(p.columns);
            const bool in_rows = o.place == Place::input || o.place == Place::output;
            const std::size_t index = in_rows ? chunk % columns : chunk + (received ? bound.to.size() : 0),
                              row = in_rows ? chunk / columns : 0;
            if (o.more || std::max(index, row) > UINT8_MAX) return false;
            small.operands[i] = {o.place, 0, as_byte(index), as_byte(row)};
            if (o.place != Place::peer) continue;
            small.operands[i].message = small.messages[index]++;
            if (small.messages[index] > line_depth) return false;
        }
    }
    small.step_count = as_byte(p.steps.size());
    small.operand_count = as_byte(p.operands.size());
    small.to_count = as_byte(bound.to.size());
    small.from_count = as_byte(bound.from.size());
    small.stride = Ends::stride;
    small.ends = ends.all();
    return true;
}

}  // namespace

bool sends_slices(const tutti::Program& program, bool altered) {
    const auto to_peer = [](const Operand& o) { return o.place == Place::peer; };
    const auto in_buffer = [](const Operand& o) { return o.place == Place::input || o.place == Place::output; };
    return std::ranges::all_of(program.steps, [&](const Step& s) {
        const auto sinks = program.sinks(s);
        if (std::ranges::none_of(sinks, to_peer)) return true;
        const Operand& source = program.sources(s)[0];
        if (s.sources == 1 && !to_peer(source) && !altered) return in_buffer(source);
        const auto local = std::ranges::find_if_not(sinks, to_peer);  // the machine refers to this one or to none
        return local != sinks.end() && in_buffer(*local);
    });
}

Program::Program(Pool& pool, BoundProgram bound, const Ends& ends, int first_channel, int channels, Control* control)
    : pool_(pool), bound_(std::move(bound)), channels_(channels) {
    require_room(bound_);
    std::vector<Postable> postables;
    const tutti::Program& p = bound_.program;
    for (const BoundProgram::Postable& l : bound_.postables)
        postables.push_back({l.from, l.ahead, p.operands[l.slice], p.steps[l.step].column});
    std::vector<End*> to, from;
    for (int channel = first_channel; channel < first_channel + channels; ++channel) {
        for (const BoundProgram::Peer peer : bound_.to) to.push_back(ends.to(peer.rank, channel));
        for (const BoundProgram::Peer peer : bound_.from) from.push_back(ends.from(peer.rank, channel));
    }
    Image image;
    const std::size_t at_steps = image.add(bound_.program.steps), at_operands = image.add(bound_.program.operands),
                      at_postables = image.add(postables), at_to = image.add(to), at_from = image.add(from);
    memory_ = Memory(pool, image.bytes().size());
    pool.gpus().upload(pool.device(), memory_.at(), image.bytes().data(), image.bytes().size());
    plan_.steps = reinterpret_cast<const Step*>(memory_.at() + at_steps);
    plan_.operands = reinterpret_cast<const Operand*>(memory_.at() + at_operands);
    plan_.postables = reinterpret_cast<const Postable*>(memory_.at() + at_postables);
    plan_.to = reinterpret_cast<End* const*>(memory_.at() + at_to);
    plan_.from = reinterpret_cast<End* const*>(memory_.at() + at_from);
    plan_.control = control;
    plan_.step_count = static_cast<std::uint32_t>(bound_.program.steps.size());
    plan_.operand_count = static_cast<std::uint32_t>(bound_.program.operands.size());
    plan_.postable_count = static_cast<std::uint32_t>(postables.size());
    plan_.to_count = static_cast<std::uint32_t>(bound_.to.size());
    plan_.from_count = static_cast<std::uint32_t>(bound_.from.size());
    plan_.columns = static_cast<std::uint32_t>(bound_.program.columns);
    plan_.scratch_chunks = static_cast<std::uint32_t>(bound_.program.scratch_chunks);
    plan_.pull_safe = bound_.pull_safe;
    plan_.push_safe = bound_.push_safe;
    if (is_small(bound_, ends, first_channel, small_)) plan_.small = &small_;
}

bool Program::uses(Place place) const {
    return std::ranges::any_of(bound_.program.operands, [&](const Operand& o) { return o.place == place; });
}

Plan Program::plan(std::size_t tile_bytes) {
    if (plan_.scratch_chunks != 0 && tile_bytes > scratch_stride_) {
        // At least twice the last one, so that all together are not much more than what is needed now.
        scratch_stride_ = std::max((tile_bytes + 127) / 128 * 128, 2 * scratch_stride_);
        scratch_.emplace_back(pool_, scratch_stride_ * plan_.scratch_chunks * static_cast<std::size_t>(channels_));
        plan_.scratch = scratch_.back().at();
        plan_.scratch_stride = scratch_stride_;
    }
    return plan_;
}

}  // namespace tutti::gpu
