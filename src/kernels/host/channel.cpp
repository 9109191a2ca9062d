#include "kernels/host/channel.hpp"

#include <algorithm>

#include "base/peer_error.hpp"
#include "schedule/to_all.hpp"

namespace tutti {
namespace {

/// Buffers from here on are too large to stay in the cache.
constexpr std::size_t streaming_bytes = 8 * 1024 * 1024;

std::size_t longest(const Program& program, std::uint32_t Step::*side) {
    std::uint32_t most = 0;
    for (const Step& s : program.steps) most = std::max(most, s.*side);
    return most;
}

}  // namespace

HostChannel::HostChannel(const BoundProgram& bound, RankPage& page, int number, std::vector<Connection> to,
                         std::vector<Connection> from)
    : bound_(bound),
      page_(page),
      number_(number),
      to_(std::move(to)),
      from_(std::move(from)),
      step_list_(bound.program.steps.data()),
      operand_list_(bound.program.operands.data()),
      steps_(static_cast<std::uint32_t>(bound.program.steps.size())),
      columns_(static_cast<std::size_t>(bound.program.columns)),
      packs_(bound.program.message_chunks > 1),
      sources_(longest(bound.program, &Step::sources)),
      sinks_(longest(bound.program, &Step::sinks)),
      outgoing_(to_.size()),
      incoming_(from_.size()) {}

void HostChannel::start(const Job& job, std::byte* scratch) {
    job_ = &job;
    rows_ = job.rows;
    signature_ = job.call.signature;
    mappable_ = job.mappable;
    element_ = size_of(job.type);
    streaming_ = job.count * element_ >= streaming_bytes;
    const auto parts = static_cast<std::size_t>(bound_.program.message_chunks);
    needs_slots_ = parts * std::min(job.tile, job.block) * element_ > inline_bytes;
    scratch_ = scratch;
    // Tiles are dealt to the channels in turn, so that all of them work in the same neighbourhood.
    const auto channel = static_cast<std::uint32_t>(number_), channels = static_cast<std::uint32_t>(job.channels);
    tiles_ = channel < job.tiles ? (job.tiles - channel + channels - 1) / channels : 0;
    cursor_ = {};
    finished_ = tiles_ == 0;
    if (finished_) return;
    for (const Connection& c : to_) c.sender->begin(job.call);
}

bool HostChannel::progress() try {
    const Cursor before = cursor_;
    if (cursor_.tile < tiles_ && !advance(*this, cursor_))
        return cursor_.tile != before.tile || cursor_.step != before.step;
    finished_ = settled();
    return finished_ || cursor_.tile != before.tile;
} catch (...) {  // the step has ended here
    end_touch();
    throw;
}

bool HostChannel::settled() {
    for (const Connection& c : to_)
        if (!c.sender->settled()) return false;
    return true;
}

HostExecution::Blocked HostChannel::blocked_on() const {
    if (finished_) return {};
    if (cursor_.tile == tiles_) {
        for (const Connection& c : to_)
            if (!c.sender->settled()) return {peer_of(c), false, number_, cursor_};
        return {};
    }
    const Step& step = step_list_[cursor_.step];
    const Operand& o = operand_list_[step.first + std::min(cursor_.operand, step.sources + step.sinks - 1)];
    if (o.place != Place::peer) return {};
    const bool source = cursor_.operand < step.sources;
    const Connection& c = (source ? from_ : to_)[static_cast<std::size_t>(o.index)];
    return {peer_of(c), source, number_, cursor_};
}

/// The peer itself, or of all the one that has fallen behind most.
Rank HostChannel::peer_of(const Connection& c) const {
    if (c.peer != everybody) return c.peer;
    const auto others = static_cast<Rank>(c.sender->slowest());
    return others < bound_.program.rank ? others : others + 1;
}

bool HostChannel::waits_for_other_cores(std::int32_t core) const {
    const auto at = [core](const WakeUp& wake_up) {
        const std::int32_t its = wake_up.core.load(std::memory_order_relaxed);
        return its == 0 || its == core;
    };
    const auto elsewhere = [&](const Connection& c) {
        if (c.receiver != nullptr) return !at(c.receiver->wake_up());
        return std::ranges::none_of(c.sender->readers(), [&](const Sender::Reader& r) { return at(*r.wake_up); });
    };
    if (finished_) return true;
    if (cursor_.tile == tiles_)
        return std::all_of(to_.begin(), to_.end(),
                           [&](const Connection& c) { return c.sender->settled() || elsewhere(c); });
    const Step& step = step_list_[cursor_.step];
    for (std::uint32_t i = cursor_.operand; i < step.sources + step.sinks; ++i) {
        const Operand& o = operand_list_[step.first + i];
        if (o.place != Place::peer) continue;
        const bool source = i < step.sources;
        const Connection& c = (source ? from_ : to_)[static_cast<std::size_t>(o.index)];
        if (!(source ? c.receiver->ready() : c.sender->ready(needs_slots_)) && !elsewhere(c)) return false;
    }
    return true;
}

std::size_t HostChannel::length(std::uint32_t column) const {
    const std::size_t begin = column * job_->block + tile_offset_;
    const std::size_t end =
        std::min({column * job_->block + tile_offset_ + job_->tile, (column + 1) * job_->block, job_->count});
    return begin < end ? end - begin : 0;
}

void HostChannel::begin_tile(std::uint32_t tile) {
    tile_offset_ = (static_cast<std::size_t>(tile) * static_cast<std::size_t>(job_->channels) +
                    static_cast<std::size_t>(number_)) *
                   job_->tile;
    // Where steps may be passed over, nobody can tell how many messages are ahead of one.
    if (!job_->by_reference || !bound_.push_safe || rows_ != nullptr) return;
    for (const BoundProgram::Postable& l : bound_.postables) {
        const std::size_t bytes = length(l.column) * element_;
        const Connection& c = from_[static_cast<std::size_t>(l.from)];
        Reference where;
        if (bytes > inline_bytes && c.link->refer(slice(l.slice), bytes, where))
            c.receiver->post(l.ahead, where, bytes);
    }
}

inline bool HostChannel::ready(const Step& step, std::uint32_t& seen) {
    const Operand* const operands = operand_list_ + step.first;
    for (; seen < step.sources; ++seen)
        if (operands[seen].place == Place::peer && !from_[number(operands[seen])].receiver->ready()) return false;
    for (; seen < step.sources + step.sinks; ++seen)
        if (operands[seen].place == Place::peer && !to_[number(operands[seen])].sender->ready(needs_slots_))
            return false;
    return true;
}

inline void HostChannel::begin_step(const Step& step) {
    current_ = &step;
    if (rows_ != nullptr) [[unlikely]]
        begin_uneven(step);
    else
        elements_ = length(step.column);
    bytes_ = elements_ * element_;
    sources_.clear();
    sinks_.clear();
    scaled_source_ = -1;
    sinks_are_users_ = true;
}

/// Before this rank reads or writes a peer's memory directly: from now until the step's end the peer must not give its
/// buffers back to its user, and not begin if it has. The peer closes first and looks at `touching` then
/// (Faults::fail).
void HostChannel::touch(const Connection& connection) {
    RankPage* page = connection.link->page();
    if (!touching_) {
        page_.touching[touching_number()].store(1, std::memory_order_relaxed);
        full_fence();
        touching_ = true;
    }
    if (page != nullptr && page->closed.load(std::memory_order_relaxed) != 0)
        fail_by(connection.peer, tuttiRemoteError, "rank %d: rank %d has given up %s", bound_.program.rank,
                connection.peer, call_text(job_->call).c_str());
}

inline void HostChannel::end_touch() {
    if (touching_) page_.touching[touching_number()].store(0, std::memory_order_release);
    touching_ = false;
}

inline void HostChannel::load(std::uint32_t i) {
    const Operand& operand = operand_list_[i];
    if (operand.place != Place::peer) {
        if (operand.place == Place::input && job_->scalar != nullptr)
            scaled_source_ = static_cast<int>(sources_.count());
        sources_.push(slice(operand));
        return;
    }
    const Connection& c = from_[number(operand)];
    const Cell& cell = c.receiver->cell();
    const std::size_t at = incoming_[number(operand)], end = at + bytes_;
    const bool fits = operand.more ? end <= cell.bytes : end == cell.bytes;
    if (cell.signature != signature_ || !fits) [[unlikely]]
        mismatch(c);
    mappable_ &= cell.mappable != 0;
    // Lengths agree, but the peer may say that a message lies where one of that length has no room.
    if (cell.kind == Kind::inlined && end <= inline_bytes)
        sources_.push(cell.payload + at);
    else if (cell.kind == Kind::slot && end <= c.receiver->slot_room())
        sources_.push(c.receiver->slot() + at);
    else
        sources_.push(source_elsewhere(c, cell));
}

const std::byte* HostChannel::source_elsewhere(const Connection& c, const Cell& cell) {
    if (cell.kind == Kind::reference) {
        touch(c);
        return c.link->see(cell.reference, bytes_);
    }
    const Operand* const place = first_slice_sink(*current_);
    if (cell.kind == Kind::landed && place != nullptr)
        return slice(*place);  // what the sender stored there is this step's result already
    fail_by(c.peer, tuttiInternalError, "rank %d: a message of %zu bytes from rank %d can't be of kind %u",
            bound_.program.rank, bytes_, c.peer, static_cast<unsigned>(cell.kind));
}

const Operand* HostChannel::first_slice_sink(const Step& step) const {
    for (const Operand& o : bound_.program.sinks(step))
        if (o.place != Place::peer) return &o;
    return nullptr;
}

/// A local slice that holds, after the step, what the step sends.
const std::byte* HostChannel::shareable_slice(const Step& step) const {
    const Operand& source = operand_list_[step.first];
    const bool plain_copy = step.sources == 1 && source.place != Place::peer && scaled_source_ < 0;
    if (plain_copy && (job_->divide_by == 0 || !step.completes)) return slice(source);
    const Operand* sink = first_slice_sink(step);
    return sink != nullptr ? slice(*sink) : nullptr;
}

inline void HostChannel::store(std::uint32_t i) {
    const Operand& operand = operand_list_[i];
    if (operand.place != Place::peer) {
        sinks_.push(slice(operand));
        return;
    }
    Outgoing& out = outgoing_[number(operand)];
    const bool alone = !operand.more && !out.under_way;
    if (alone ? bytes_ <= inline_bytes : !needs_slots_) {
        out.kind = Kind::inlined;
        sinks_.push(to_[number(operand)].sender->cell().payload + out.at);
        sinks_are_users_ = false;
    } else if (std::byte* const place = slot_or_elsewhere(operand, alone)) {
        sinks_.push(place);
    }
}

/// nullptr: nowhere, since the receiver fetches it.
std::byte* HostChannel::slot_or_elsewhere(const Operand& operand, bool alone) {
    const Connection& c = to_[number(operand)];
    Outgoing& out = outgoing_[number(operand)];
    if (job_->by_reference && alone && c.link != nullptr && (rows_ == nullptr || bytes_ >= reference_bytes)) {
        // A result goes straight to where the receiver wants it; what is in memory already, the receiver fetches
        // itself.
        const PostedReceive* posted_receive =
            current_->sources > 1 && bound_.push_safe ? c.sender->posted_receive() : nullptr;
        // One of another length is that of a receiver that calls something else, and will say so.
        if (posted_receive != nullptr && posted_receive->bytes == bytes_) {
            touch(c);
            out.kind = Kind::landed;
            return c.link->see(posted_receive->where, bytes_);
        }
        const std::byte* shared = bound_.pull_safe ? shareable_slice(*current_) : nullptr;
        if (shared != nullptr && c.link->refer(shared, bytes_, out.reference)) {
            out.kind = Kind::reference;
            return nullptr;
        }
    }
    out.kind = Kind::slot;
    sinks_are_users_ = false;
    return c.sender->slot() + out.at;
}

inline void HostChannel::reduce(const Step& step) {
    const bool scaled = scaled_source_ >= 0, divided = job_->divide_by != 0 && step.completes;
    if (sources_.count() == 1 && !scaled && !divided) sinks_.remove(sources_.front());  // in place, or landed there
    if (sinks_.count() == 0 || elements_ == 0) return;
    Reduction r;
    r.type = job_->type;
    r.op = job_->op;
    r.count = elements_;
    r.sources = sources_.data();
    r.source_count = static_cast<int>(sources_.count());
    r.sinks = sinks_.data();
    r.sink_count = static_cast<int>(sinks_.count());
    r.scaled_source = scaled_source_;
    r.scalar = job_->scalar;
    r.divide_by = divided ? job_->divide_by : 0;
    r.streaming = streaming_ && sinks_are_users_;
    tutti::reduce(r);
}

inline void HostChannel::commit(std::uint32_t i) {
    const Operand& operand = operand_list_[i];
    if (operand.place != Place::peer) return;
    std::size_t bytes = bytes_;
    if (packs_ && goes_on(operand, bytes)) return;
    const Connection& c = to_[number(operand)];
    const Outgoing& out = outgoing_[number(operand)];
    if (out.kind != Kind::inlined) [[unlikely]]
        describe_elsewhere(c, out.kind, out.reference);
    c.sender->commit(out.kind, static_cast<std::uint32_t>(bytes), signature_, mappable_);
    for (const Sender::Reader& reader : c.sender->readers()) wake_later(*reader.wake_up);
}

/// Whether the message under way has more parts; bytes: of all that there are so far.
bool HostChannel::goes_on(const Operand& operand, std::size_t& bytes) {
    Outgoing& out = outgoing_[number(operand)];
    bytes += out.at;
    out.under_way = operand.more;
    out.at = operand.more ? next_part(out.at, bytes_, out.kind == Kind::slot) : 0;
    return operand.more;
}

void HostChannel::describe_elsewhere(const Connection& c, Kind kind, const Reference& reference) {
    if (kind == Kind::reference) c.sender->cell().reference = reference;
    if (rows_ != nullptr) c.sender->cell().set_row(row_);
}

inline void HostChannel::release(std::uint32_t i) {
    const Operand& operand = operand_list_[i];
    if (operand.place != Place::peer) return;
    const Connection& c = from_[number(operand)];
    if (packs_) {
        std::size_t& at = incoming_[number(operand)];
        at = operand.more ? next_part(at, bytes_, c.receiver->cell().kind == Kind::slot) : 0;
        if (operand.more) return;
    }
    c.receiver->release();
    wake_later(c.receiver->wake_up());
}

inline void HostChannel::end_step(const Step&) {
    end_touch();
    if (to_wake_.empty()) return;
    for (WakeUp* const wake_up : to_wake_) wake(*wake_up);
    to_wake_.clear();
}

const Row& HostChannel::row_at(const Operand& slice) const {
    return (slice.place == Place::input ? rows_->input : rows_->output)[static_cast<std::size_t>(slice.index)];
}

/// Every slice of a step says the same, and there is one: see uneven.hpp.
const Row& HostChannel::row_of(const Step& step) const {
    const Operand* o = operand_list_ + step.first;
    while (o->place != Place::input && o->place != Place::output) ++o;
    return row_at(*o);
}

std::byte* HostChannel::uneven_slice(const Operand& operand) const {
    const std::byte* base = operand.place == Place::input ? job_->input : job_->output;
    if (elements_ == 0) return const_cast<std::byte*>(base);  // an empty row may lie anywhere, and its buffer nowhere
    return const_cast<std::byte*>(base) + (row_at(operand).at + tile_offset_) * element_;
}

bool HostChannel::has_no_data(const Step& step) const {
    return tile_offset_ != 0 && !packs_ && row_of(step).count <= tile_offset_;
}

void HostChannel::begin_uneven(const Step& step) {
    row_ = row_of(step).count;
    elements_ = row_ > tile_offset_ ? std::min(row_ - tile_offset_, job_->tile) : 0;
    if (!counts_known_to_all(bound_.program.collective)) signature_ = row_signature(job_->call.signature, row_);
}

void HostChannel::mismatch(const Connection& c) const {
    const Cell& cell = c.receiver->cell();
    const Call theirs = c.receiver->call();
    if (rows_ != nullptr && cell.signature != signature_) {
        // What fits into a cell is the end of its row.
        const std::uint64_t sent = cell.kind == Kind::inlined ? tile_offset_ + cell.bytes / element_ : cell.row();
        if (cell.signature == row_signature(job_->call.signature, sent))
            fail_by(c.peer, tuttiInvalidUsage,
                    "rank %d expects %zu elements from rank %d in %s, but rank %d sends it %llu: both ranks of a pair "
                    "must give the same count",
                    bound_.program.rank, row_, c.peer, call_text(job_->call).c_str(), c.peer,
                    static_cast<unsigned long long>(sent));
    }
    if (cell.signature == signature_)
        fail_by(c.peer, tuttiInternalError, "rank %d: a message of %u bytes came from rank %d in %s, %zu were expected",
                bound_.program.rank, cell.bytes, c.peer, call_text(job_->call).c_str(), bytes_);
    if (theirs.signature == job_->call.signature)
        fail_by(c.peer, tuttiInvalidUsage,
                "rank %d calls %s, and so does rank %d, but it has sent a message of another call before: all ranks "
                "must issue the same operations in the same order with the same count, type, op and root",
                bound_.program.rank, call_text(job_->call).c_str(), c.peer);
    fail_by(c.peer, tuttiInvalidUsage,
            "rank %d calls %s, but rank %d calls %s: all ranks must issue the same operations in the same order "
            "with the same count, type, op and root",
            bound_.program.rank, call_text(job_->call).c_str(), c.peer, call_text(theirs).c_str());
}

}  // namespace tutti
