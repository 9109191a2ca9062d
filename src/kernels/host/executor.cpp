#include "kernels/host/executor.hpp"

#include <algorithm>
#include <string>

#include "base/result.hpp"
#include "kernels/host/channel.hpp"

namespace tutti {
namespace {

int number_of(std::vector<BoundProgram::Peer>& peers, BoundProgram::Peer peer) {
    const auto found = std::find(peers.begin(), peers.end(), peer);
    if (found != peers.end()) return static_cast<int>(found - peers.begin());
    peers.push_back(peer);
    return static_cast<int>(peers.size()) - 1;
}

void require_distinct(std::span<const Operand> operands) {
    for (std::size_t i = 0; i < operands.size(); ++i)
        for (std::size_t k = i + 1; k < operands.size(); ++k)
            if (operands[i].place == Place::peer && operands[k].place == Place::peer &&
                operands[i].index == operands[k].index)
                fail(tuttiInternalError, "a step has rank %d twice on one side", operands[i].index);
}

}  // namespace

const Operand* first_slice(std::span<const Operand> operands) {
    const auto found = std::ranges::find_if(operands, [](const Operand& o) { return o.place != Place::peer; });
    return found == operands.end() ? nullptr : &*found;
}

BoundProgram BoundProgram::bind(Program program, bool pull_safe, bool push_safe) {
    BoundProgram bound;
    bound.pull_safe = pull_safe;
    bound.push_safe = push_safe;
    struct Received {
        std::uint32_t messages;
        bool under_way;
    };
    std::vector<Received> received;  // by connection
    for (std::uint32_t s = 0; s < program.steps.size(); ++s) {
        const Step& step = program.steps[s];
        if (step.sources + step.sinks <= 64) {  // the check is quadratic, and larger steps are right by construction
            require_distinct(program.sources(step));
            require_distinct(program.sinks(step));
        }
        Operand* const operands = program.operands.data() + step.first;
        for (std::uint32_t i = 0; i < step.sources + step.sinks; ++i) {
            if (operands[i].place != Place::peer) continue;
            operands[i].index =
                number_of(i < step.sources ? bound.from : bound.to, {operands[i].index, operands[i].all});
            bound.messages.push_back(operands[i]);
            if (i >= step.sources) continue;
            received.resize(bound.from.size());
            Received& r = received[static_cast<std::size_t>(operands[i].index)];
            const bool alone = !r.under_way && !operands[i].more && !operands[i].all;
            r.under_way = operands[i].more;
            const std::uint32_t ahead = r.messages;
            if (!r.under_way) ++r.messages;
            if (step.sources != 1 || ahead >= slot_depth || !alone) continue;
            if (const Operand* const slice = first_slice(program.sinks(step)))
                bound.postables.push_back(
                    {operands[i].index, ahead, s, static_cast<std::uint32_t>(slice - program.operands.data())});
        }
    }
    bound.program = std::move(program);
    return bound;
}

HostExecution::HostExecution(BoundProgram bound, RankPage& page, int most_channels, CacheShare caches, Connect connect)
    : bound_(std::move(bound)),
      page_(page),
      most_channels_(most_channels),
      caches_(caches),
      connect_(std::move(connect)) {}

HostExecution::~HostExecution() = default;

void HostExecution::add_channel() {
    const int channel = static_cast<int>(channels_.size());
    std::vector<Connection> to, from;
    for (const BoundProgram::Peer peer : bound_.to) to.push_back(connect_(peer, channel, true));
    for (const BoundProgram::Peer peer : bound_.from) from.push_back(connect_(peer, channel, false));
    channels_.push_back(std::make_unique<HostChannel>(bound_, page_, channel, to, from));
}

void HostExecution::lay_out() {
    const Program& program = bound_.program;
    const Job& job = job_;
    const Rows* const rows = job.rows;
    TUTTI_ASSERT(rows == nullptr || (rows->input.size() == static_cast<std::size_t>(program.input_rows) &&
                                     rows->output.size() == static_cast<std::size_t>(program.output_rows)));
    const std::size_t element = size_of(job.type);
    const auto columns = static_cast<std::size_t>(program.columns);
    const auto is_row = [](const Operand& o) { return o.place == Place::input || o.place == Place::output; };
    const auto row_of = [&](const Operand& slice) {
        return (slice.place == Place::input ? rows->input : rows->output)[static_cast<std::size_t>(slice.index)];
    };
    layout_.steps.clear();  // stays empty, and the next job lays out anew, if there is no memory for `at`
    layout_.shorts.clear();
    layout_.steps.reserve(program.steps.size());
    layout_.shorts.reserve(program.steps.size());
    layout_.at.clear();
    for (const Operand& o : program.operands) {
        const auto chunk = static_cast<std::size_t>(o.index);
        std::size_t at = 0;  // elements
        if (o.place == Place::scratch) at = chunk * job.tile;
        if (is_row(o)) at = rows != nullptr ? row_of(o).at : chunk / columns * job.count + chunk % columns * job.block;
        layout_.at.push_back(at * element);
    }
    const std::size_t longest_part = std::min(job.tile, job.block) * element;
    layout_.element = element;
    layout_.by_reference = job.by_reference;
    layout_.scratch = static_cast<std::size_t>(program.scratch_chunks) * job.tile * element;
    const auto parts = static_cast<std::size_t>(program.message_chunks);
    layout_.longest_message = parts * longest_part;
    if (layout_.longest_message > inline_bytes) layout_.longest_message = parts * next_part(0, longest_part, true);
    const auto bytes_of = [&](int even_rows, std::span<const Row> own) {
        std::size_t count = rows == nullptr ? static_cast<std::size_t>(even_rows) * job.count : 0;
        for (const Row& row : own) count += row.count;
        return count * element;
    };
    const auto has = [&](Place place) { return std::ranges::count(program.operands, place, &Operand::place) > 0; };
    layout_.input = layout_.output = 0;
    if (has(Place::input)) layout_.input = bytes_of(program.input_rows, rows ? rows->input : std::span<const Row>());
    if (has(Place::output))
        layout_.output = bytes_of(program.output_rows, rows ? rows->output : std::span<const Row>());
    choose_ways();
    const Operand* messages = bound_.messages.data();
    for (const Step& step : program.steps) {
        const std::size_t begin = std::min(step.column * job.block, job.count);
        std::size_t length = std::min(job.block, job.count - begin);
        if (rows != nullptr)  // every step has a slice, and all its slices are of one row: see uneven.hpp
            length = row_of(*std::find_if(program.operands.begin() + step.first, program.operands.end(), is_row)).count;
        const auto peers = [](std::span<const Operand> operands) {
            return static_cast<std::uint32_t>(std::ranges::count(operands, Place::peer, &Operand::place));
        };
        const std::uint32_t received = peers(program.sources(step)), sent = peers(program.sinks(step));
        const Operand* const operands = program.operands.data() + step.first;
        const std::size_t *const at = layout_.at.data() + step.first, last = step.sources + step.sinks - 1;
        layout_.steps.push_back(
            {operands, messages, at, length, step.sources, step.sinks, received, sent, step.completes != 0});
        const Layout::Form form = form_of(step);
        const auto bytes = static_cast<std::uint32_t>(form == Layout::Form::general ? 0 : length * element);
        layout_.shorts.push_back({form, operands[0].place, operands[last].place, at[0], at[last],
                                  operands[form == Layout::Form::receives ? 0 : last].index, bytes});
        messages += received + sent;
    }
}

/// Of a step of job_.
Layout::Form HostExecution::form_of(const Step& step) const {
    if (step.sources == 0 || step.sinks != 1 || bound_.program.message_chunks != 1 || job_.rows != nullptr ||
        job_.tiles != 1 || layout_.large || layout_.bypass.slots || layout_.tries_slots || layout_.tries_copies)
        return Layout::Form::general;
    const bool receives = bound_.program.operands[step.first].place == Place::peer;
    const bool sends = bound_.program.operands[step.first + step.sources].place == Place::peer;
    if (step.sources > 1) return sends ? Layout::Form::general : Layout::Form::reduces;
    if (step.completes) return Layout::Form::general;
    if (sends) return receives || job_.by_reference ? Layout::Form::general : Layout::Form::sends;
    return receives ? Layout::Form::receives : Layout::Form::copies;
}

Job& HostExecution::take(const Job& job, const Rows* rows) {
    TUTTI_ASSERT(job.channels <= most_channels_);
    while (channels_.size() < static_cast<std::size_t>(job.channels)) add_channel();
    const bool like_the_last = job.block == job_.block && job.tile == job_.tile && job.count == job_.count &&
                               job.type == job_.type && job.by_reference == layout_.by_reference && rows == nullptr &&
                               job_.rows == nullptr;
    job_ = job;
    job_.rows = rows;
    if (!like_the_last || layout_.steps.empty()) lay_out();
    if (scratch_.size() < layout_.scratch * channels_.size()) scratch_.resize(layout_.scratch * channels_.size());
    return job_;
}

/// For jobs of this layout: what bypasses the caches, and what a Trial decides.
void HostExecution::choose_ways() {
    const bool meets = !bound_.to.empty() && !bound_.from.empty();  // else its own time tells little
    const std::size_t buffers = layout_.input + layout_.output, longest_message = layout_.longest_message;
    layout_.large = Bypass::too_large(caches_, buffers, layout_.output);
    layout_.bypass = {};
    layout_.bypass.decide_on_slots(caches_, longest_message, !meets);
    layout_.tries_slots = Bypass::tries_slots(caches_, longest_message, buffers);
    layout_.tries_copies =
        layout_.by_reference && job_.rows == nullptr && meets && Bypass::tries_copies(caches_, buffers);
    trial_ = Trial(buffers >= 16 << 20 ? 4 : 8);  // many programs do not make many calls as long as that
}

/// Of a large job.
void HostExecution::decide_on_buffers() {
    const bool two = job_.input + layout_.input <= job_.output || job_.output + layout_.output <= job_.input;
    const std::size_t all = two ? layout_.input + layout_.output : std::max(layout_.input, layout_.output);
    layout_.bypass.decide_on_buffers(caches_, all, layout_.output);
}

void HostExecution::try_ways() {
    const bool refers = layout_.by_reference && job_.mappable;
    const bool tries = (refers ? layout_.tries_copies : layout_.tries_slots) && job_.threads == 1;
    const bool other = tries && trial_.other(Clock::now());
    job_.by_reference = layout_.by_reference && !(refers && other);
    layout_.bypass.slots = other && layout_.tries_slots;
}

[[gnu::hot]] void HostExecution::begin() {
    if (layout_.large) decide_on_buffers();
    if (layout_.tries_copies || layout_.tries_slots) try_ways();
    int running = 0;
    for (int channel = 0; channel < job_.channels; ++channel) {
        HostChannel& l = *channels_[static_cast<std::size_t>(channel)];
        l.start(job_, layout_, scratch_.data() + static_cast<std::size_t>(channel) * layout_.scratch);
        if (!l.finished()) ++running;
    }
    running_.store(running, std::memory_order_relaxed);
}

bool HostExecution::mappable() const {
    bool all = job_.mappable;
    for (int channel = 0; channel < job_.channels; ++channel)
        all &= channels_[static_cast<std::size_t>(channel)]->mappable();
    return all;
}

[[gnu::hot]] bool HostExecution::progress() {
    if (job_.threads > 1) [[unlikely]]
        return share(0);
    bool moved = false;
    for (int channel = 0; channel < job_.channels; ++channel) {
        HostChannel& l = *channels_[static_cast<std::size_t>(channel)];
        if (l.finished()) continue;
        moved |= l.progress();
        if (l.finished()) running_.store(running_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
    }
    return moved;
}

bool HostExecution::share(int thread) {
    const int threads = job_.threads, channels = job_.channels;
    bool moved = false;
    for (int channel = thread; channel < channels; channel += threads)
        moved |= progress_if_free(*channels_[static_cast<std::size_t>(channel)]);
    // Help with other threads' channels. One at a time, so that the thread's own channels never wait for long.
    for (int next = 1; next < channels && !moved; ++next)
        moved = progress_if_free(*channels_[static_cast<std::size_t>((thread + next) % channels)]);
    return moved;
}

bool HostExecution::progress_if_free(HostChannel& channel) {
    if (!channel.claim()) return false;
    const bool moved = !channel.finished() && channel.progress();
    if (moved && channel.finished()) running_.fetch_sub(1, std::memory_order_release);
    channel.give_back();
    return moved;
}

void HostExecution::blocked_on(const std::function<void(const Blocked&)>& see) const {
    for (int channel = 0; channel < job_.channels; ++channel) {
        HostChannel& l = *channels_[static_cast<std::size_t>(channel)];
        if (!l.claim()) continue;  // another thread is advancing it
        const Blocked b = l.blocked_on();
        l.give_back();
        if (b.peer >= 0) see(b);
    }
}

bool HostExecution::waits_for_other_cores(std::int32_t core) const {
    if (job_.threads > 1) return false;  // other threads have claimed some channels
    for (int channel = 0; channel < job_.channels; ++channel)
        if (!channels_[static_cast<std::size_t>(channel)]->waits_for_other_cores(core)) return false;
    return true;
}

std::string call_text(const Call& call) {
    static constexpr const char* ops[] = {"sum", "prod", "max", "min", "avg", "mulsum"};
    if (call.signature == 0) return "nothing yet";
    // The call may come from a peer: it may be torn, or its memory may be corrupt.
    if (static_cast<int>(call.collective) >= collectives || static_cast<int>(call.type) >= data_types)
        return "something that no call is";
    std::string out(name_of(call.collective));
    const auto count = static_cast<unsigned long long>(call.count);
    if ((call.count & Rows::digested) == 0)
        out += text("(count %llu, ", count);
    else if (counts_known_to_all(call.collective))
        out += text("v(%llu elements, counts #%04llx, ", count & Rows::all_known, count >> 48 & 0x7fff);
    else
        out += "v(";
    out += name_of(call.type);
    if (reduces(call.collective)) out += std::string(", ") + ops[call.op % 6];
    if (has_root(call.collective)) out += text(", root %d", call.root);
    if (call.collective == Collective::send) out += text(", to %d", call.root);
    if (call.collective == Collective::recv) out += text(", from %d", call.root);
    return out + ")";
}

}  // namespace tutti
