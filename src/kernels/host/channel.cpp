#include "kernels/host/channel.hpp"

#include <algorithm>
#include <cstring>

#include "base/peer_error.hpp"
#include "kernels/host/copy_bytes.hpp"
#include "schedule/to_all.hpp"

namespace tutti {
namespace {

std::size_t longest(const Program& program, std::uint32_t Step::*side) {
    std::uint32_t most = 0;
    for (const Step& s : program.steps) most = std::max(most, s.*side);
    return most;
}

}  // namespace

HostChannel::HostChannel(const BoundProgram& bound, RankPage& page, int number, std::span<const Connection> to,
                         std::span<const Connection> from)
    : bound_(bound),
      number_(number),
      own_(page.wake_up),
      touching_(page),
      sources_(new const void*[longest(bound.program, &Step::sources)]),
      sinks_(new void*[longest(bound.program, &Step::sinks)]) {
    for (const Connection& c : to) to_.push_back({c}), senders_.push_back(c.sender);
    for (const Connection& c : from) from_.push_back({c}), receivers_.push_back(c.receiver);
    reduction_.sources = sources_.get();
    reduction_.sinks = sinks_.get();
}

[[gnu::hot]] void HostChannel::start(const Job& job, const Layout& layout, std::byte* scratch) {
    // Tiles are dealt to the channels in turn, so that all channels work on neighbouring memory.
    const auto channel = static_cast<std::uint32_t>(number_), channels = static_cast<std::uint32_t>(job.channels);
    tiles_ = channel < job.tiles ? (job.tiles - channel + channels - 1) / channels : 0;
    cursor_ = {};
    mappable_ = job.mappable;
    job_ = tiles_ > 0 ? &job : nullptr;
    if (finished()) return;
    layout_ = &layout;
    tile_in_[static_cast<int>(Place::scratch)] = reinterpret_cast<std::uintptr_t>(scratch);
    reduction_.type = job.type;
    reduction_.op = job.op;
    reduction_.scalar = job.scalar;
    steps_ = layout.steps.data();
    shorts_ = layout.shorts.data();
    step_count_ = static_cast<std::uint32_t>(layout.steps.size());
    signature_ = job.call.signature;
    scales_ = job.scalar != nullptr;
    for (const Connection& c : to_) c.sender->begin(job.call, from_.empty());
}

[[gnu::hot]] bool HostChannel::progress() try {
    const Cursor before = cursor_;
    if (cursor_.tile < tiles_ && !advance(*this, cursor_))
        return cursor_.tile != before.tile || cursor_.step != before.step;
    if (settled()) job_ = nullptr;
    return finished() || cursor_.tile != before.tile;
} catch (...) {  // the step has ended, so this rank no longer touches a peer's memory
    touching_.end();
    throw;
}

[[gnu::hot]] bool HostChannel::settled() const {
    return std::ranges::all_of(to_, [](const Connection& c) { return c.sender->settled(); });
}

inline const Connection& HostChannel::connection_of(std::uint32_t message) const {
    const auto number = static_cast<std::size_t>(current().messages[message].index);
    if (message < current().received_count) return from_[number];
    return to_[number];
}

inline bool HostChannel::can_go(std::uint32_t message) const {
    const Connection& c = connection_of(message);
    return message < current().received_count ? c.receiver->ready() : c.sender->ready_for(layout_->longest_message);
}

HostExecution::Blocked HostChannel::blocked_on() const {
    if (finished()) return {};
    if (cursor_.tile == tiles_) {
        for (const Connection& c : to_)
            if (!c.sender->settled()) return {peer_of(c), false, number_, cursor_};
        return {};
    }
    if (cursor_.message == current().received_count + current().sent_count) return {};
    return {peer_of(connection_of(cursor_.message)), cursor_.message < current().received_count, number_, cursor_};
}

/// The peer of a connection; of a connection to all, the reader that has released least.
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
    if (finished()) return true;
    if (cursor_.tile == tiles_)
        return std::ranges::all_of(to_, [&](const Connection& c) { return c.sender->settled() || elsewhere(c); });
    for (std::uint32_t i = cursor_.message; i < current().received_count + current().sent_count; ++i)
        if (!can_go(i) && !elsewhere(connection_of(i))) return false;
    // A rank of this core that has yet to send what one of the next steps takes must run all the same.
    for (std::uint32_t next = cursor_.step + 1; next < steps() && step(next).sent_count == 0; ++next)
        for (const Operand& source : step(next).received()) {
            const Connection& c = from_[static_cast<std::size_t>(source.index)];
            if (!elsewhere(c) && !c.receiver->ready()) return false;
        }
    return true;
}

[[gnu::hot]] void HostChannel::begin_tile(std::uint32_t tile) {
    tile_offset_ = (static_cast<std::size_t>(tile) * static_cast<std::size_t>(job_->channels) +
                    static_cast<std::size_t>(number_)) *
                   job_->tile;
    const std::size_t element = layout_->element, begin = tile_offset_ * element;
    tile_in_[static_cast<int>(Place::input)] = reinterpret_cast<std::uintptr_t>(job_->input) + begin;
    tile_in_[static_cast<int>(Place::output)] = reinterpret_cast<std::uintptr_t>(job_->output) + begin;
    // If steps may be skipped, the number of earlier messages of a tile is unknown.
    if (!job_->by_reference || !bound_.push_safe || job_->rows != nullptr) return;
    for (const BoundProgram::Postable& l : bound_.postables) {
        const std::size_t bytes = length_in_tile(step(l.step)) * element;
        const Connection& c = from_[static_cast<std::size_t>(l.from)];
        Reference where;
        if (bytes > inline_bytes && c.link->refer(slice(step(l.step), bound_.program.operands[l.slice]), bytes, where))
            c.receiver->post(l.ahead, where, bytes);
    }
}

inline bool HostChannel::ready(const Layout::Step& step, std::uint32_t& seen) {
    for (; seen < step.received_count; ++seen)
        if (!incoming(step.messages[seen]).receiver->ready()) return false;
    for (const std::uint32_t end = step.received_count + step.sent_count; seen < end; ++seen)
        if (!outgoing(step.messages[seen]).sender->ready_for(layout_->longest_message)) return false;
    return true;
}

/// What the other functions prepare takes longer than most steps of a small call. Messages that are not as they should
/// be are left to them.
inline Shortcut HostChannel::shortcut(std::uint32_t number, std::uint32_t& seen) {
    const Layout::Short& step = shorts_[number];
    if (step.form == Layout::Form::general || scales_) return Shortcut::none;
    if (step.form == Layout::Form::receives) return receive(step, seen);
    if (step.form == Layout::Form::sends) return send(step, seen);
    if (step.form == Layout::Form::reduces) return reduce(step, steps_[number], seen);
    copy_bytes(sink(step), source(step), step.bytes);
    return Shortcut::done;
}

inline Shortcut HostChannel::send(const Layout::Short& step, std::uint32_t& seen) {
    Sender& sender = *senders_[static_cast<std::size_t>(step.connection)];
    seen = 0;
    if (!sender.ready_for(layout_->longest_message)) return Shortcut::waits;
    Kind kind = Kind::inlined;
    if (step.bytes <= inline_bytes) {
        copy_few(sender.cell().payload, source(step), step.bytes);
    } else {
        kind = Kind::slot;
        sender.place(layout_->longest_message);
        std::memcpy(sender.slot(), source(step), step.bytes);
    }
    sender.commit(kind, step.bytes, signature_, mappable_);
    sender.ring();
    return Shortcut::done;
}

inline Shortcut HostChannel::receive(const Layout::Short& step, std::uint32_t& seen) {
    Receiver& receiver = *receivers_[static_cast<std::size_t>(step.connection)];
    seen = 0;
    if (!receiver.ready()) return Shortcut::waits;
    const std::byte* const from = message(receiver, step.bytes);
    if (from == nullptr) return Shortcut::none;
    copy_bytes(sink(step), from, step.bytes);
    receiver.release();
    wake(receiver.wake_up());
    return Shortcut::done;
}

inline Shortcut HostChannel::reduce(const Layout::Short& step, const Layout::Step& all, std::uint32_t& seen) {
    const auto receiver_of = [this](const Operand& o) { return receivers_[static_cast<std::size_t>(o.index)]; };
    for (; seen < all.received_count; ++seen)
        if (!receiver_of(all.messages[seen])->ready()) return Shortcut::waits;
    const void** place = sources_.get();
    for (const Operand& o : all.sources()) {
        *place = o.place == Place::peer ? message(*receiver_of(o), step.bytes) : slice(all, o);
        if (*place++ == nullptr) return Shortcut::none;
    }
    sinks_[0] = sink(step);
    reduction_.count = all.length;
    reduction_.source_count = static_cast<int>(all.source_count);
    reduction_.sink_count = 1;
    reduction_.scaled_source = -1;
    reduction_.divide_by = all.completes ? job_->divide_by : 0;
    reduction_.streaming = reduction_.fetching = 0;
    if (all.length > 0) tutti::reduce(reduction_);
    for (const Operand& o : all.received()) {
        receiver_of(o)->release();
        wake(receiver_of(o)->wake_up());
    }
    return Shortcut::done;
}

/// Where the message lies that has arrived; nullptr if it is not as long as that, or in neither a cell nor a slot.
inline const std::byte* HostChannel::message(const Receiver& receiver, std::size_t bytes) {
    const Cell& cell = receiver.cell();
    if (cell.bytes != bytes || cell.signature != signature_) return nullptr;
    mappable_ &= cell.mappable != 0;
    return arrived(receiver, bytes);
}

inline void HostChannel::begin_step(const Layout::Step& step) {
    reduction_.count = length_in_tile(step);
    reduction_.divide_by = step.completes ? job_->divide_by : 0;
    bytes_ = reduction_.count * layout_->element;
    if (job_->rows != nullptr && !counts_known_to_all(bound_.program.collective)) [[unlikely]]
        signature_ = row_signature(job_->call.signature, step.length);
}

/// Call this before reading or writing a peer's memory directly. Until the end of the step the peer does not return
/// from its call, so its buffers stay valid. Throws if the peer has given up. Only in shared jobs do several steps run
/// at once, at most one on each channel.
void HostChannel::touch(const Connection& connection) {
    touching_.begin(job_->threads > 1 ? 1 + static_cast<std::size_t>(number_) : 0);
    const RankPage* const page = connection.link->page();
    if (page != nullptr && page->closed.load(std::memory_order_relaxed) != 0)
        fail_by(connection.peer, tuttiRemoteError, "rank %d: rank %d has given up %s", bound_.program.rank,
                connection.peer, call_text(job_->call).c_str());
}

inline void HostChannel::load(const Layout::Step& step) {
    const void** place = sources_.get();
    for (const Operand& o : step.sources()) *place++ = o.place == Place::peer ? payload(o) : slice(step, o);
    reduction_.fetching = layout_->bypass.any() ? cold_sources(step) : 0;
    reduction_.source_count = static_cast<int>(step.source_count);
    reduction_.scaled_source = -1;
    if (job_->scalar != nullptr) [[unlikely]]
        for (std::size_t i = 0; i < step.source_count; ++i)
            if (step.operands[i].place == Place::input) reduction_.scaled_source = static_cast<int>(i);
}

/// The address of the message that has arrived, or of its next part. Throws if signature or length differ.
inline const std::byte* HostChannel::payload(const Operand& source) {
    const Incoming& c = incoming(source);
    const Cell& cell = c.receiver->cell();
    const std::size_t end = c.at + bytes_;
    const bool fits = source.more ? end <= cell.bytes : end == cell.bytes;
    if (cell.signature != signature_ || !fits) [[unlikely]]
        mismatch(c);
    mappable_ &= cell.mappable != 0;
    const std::byte* const message = arrived(*c.receiver, end);
    return message != nullptr ? message + c.at : source_elsewhere(c, cell);
}

/// Where the message lies that has arrived, `end` bytes of it at least; nullptr if in neither a cell nor a slot. Its
/// length is right, but the peer may have written a kind that has no room for it.
inline const std::byte* HostChannel::arrived(const Receiver& receiver, std::size_t end) {
    const Cell& cell = receiver.cell();
    if (cell.kind == Kind::inlined && end <= inline_bytes) return cell.payload;
    if (in_slot(cell.kind) && receiver.holds(end)) return receiver.slot();
    return nullptr;
}

const std::byte* HostChannel::source_elsewhere(const Connection& c, const Cell& cell) {
    if (cell.kind == Kind::reference) {
        touch(c);
        return c.link->see(cell.reference, bytes_);
    }
    const Operand* const place = first_slice(current().sinks());
    if (cell.kind == Kind::landed && place != nullptr)
        return slice(current(), *place);  // the sender has stored this step's result there
    fail_by(c.peer, tuttiInternalError, "rank %d: a message of %zu bytes from rank %d can't be of kind %u",
            bound_.program.rank, bytes_, c.peer, static_cast<unsigned>(cell.kind));
}

/// The local slice that holds, after the current step, the value that it sends; nullptr if none does.
const std::byte* HostChannel::shareable_slice() const {
    const Layout::Step& step = current();
    const Operand& source = step.sources().front();
    if (reduction_.copies() && source.place != Place::peer) return slice(step, source);
    const Operand* const sink = first_slice(step.sinks());
    return sink != nullptr ? slice(step, *sink) : nullptr;
}

inline void HostChannel::store(const Layout::Step& step) {
    const void* const there_already = reduction_.copies() ? sources_[0] : nullptr;  // in place, or a landed message
    void** end = sinks_.get();
    reduction_.streaming = 0;
    const Bypass& bypass = layout_->bypass;
    bool read_soon = false;  // by an engine, which takes it from the cache
    for (const Operand& o : step.sinks()) {
        const bool to_peer = o.place == Place::peer;
        std::byte* const place = to_peer ? payload_room(o) : slice(step, o);
        if (bypass.sinks && to_peer && place == nullptr) read_soon |= outgoing(o).link->reads_references();
        if (place == nullptr || place == there_already) continue;
        if (bypass.any() && (to_peer ? bypass.stores(outgoing(o).kind, *outgoing(o).sender, own_) : bypass.sinks))
            reduction_.streaming |= Reduction::bit(end - sinks_.get());
        *end++ = place;
    }
    if (read_soon) reduction_.streaming = 0;
    reduction_.sink_count = static_cast<int>(end - sinks_.get());
}

/// As Reduction::fetching.
std::uint16_t HostChannel::cold_sources(const Layout::Step& step) {
    std::uint16_t cold = 0;
    for (std::ptrdiff_t k = 0; const Operand& o : step.sources()) {
        if (o.place == Place::peer ? layout_->bypass.reads(*incoming(o).receiver, own_) : layout_->bypass.sources)
            cold |= Reduction::bit(k);
        ++k;
    }
    return cold;
}

/// Where to store the message for a peer, or its next part; nullptr if it is by reference, so that the receiver reads
/// it itself.
inline std::byte* HostChannel::payload_room(const Operand& sink) {
    Outgoing& out = outgoing(sink);
    const bool alone = !sink.more && !out.under_way;
    if (!(alone ? bytes_ <= inline_bytes : layout_->longest_message <= inline_bytes))
        return slot_or_elsewhere(out, alone);
    out.kind = Kind::inlined;
    return out.sender->cell().payload + out.at;
}

/// The same for messages that do not go in a cell. alone: the message has one part.
std::byte* HostChannel::slot_or_elsewhere(Outgoing& out, bool alone) {
    if (job_->by_reference && alone && out.link != nullptr && (job_->rows == nullptr || bytes_ >= reference_bytes)) {
        // The result of a reduction is stored where the receiver wants it. Data that is in memory already is left to
        // the receiver to read.
        const PostedReceive* posted_receive =
            reduction_.source_count > 1 && bound_.push_safe ? out.sender->posted_receive() : nullptr;
        // If the length differs, the receiver calls something else, and will report that.
        if (posted_receive != nullptr && posted_receive->bytes == bytes_) {
            touch(out);
            out.kind = Kind::landed;
            return out.link->see(posted_receive->where, bytes_);
        }
        const std::byte* shared = bound_.pull_safe ? shareable_slice() : nullptr;
        // A send that fits into the slots ends without its receiver; over TCP there is no other reason to wait for it.
        const bool waits = bound_.program.collective != Collective::send || tiles_ > slot_depth;
        const bool by_kernel = out.link->reads_references();
        if (shared != nullptr && (waits || !by_kernel) && out.link->refer(shared, bytes_, out.reference)) {
            out.kind = Kind::reference;
            return nullptr;
        }
    }
    if (out.at == 0) out.sender->place(layout_->longest_message);
    out.kind = Kind::slot;
    return out.sender->slot() + out.at;
}

inline void HostChannel::reduce(const Layout::Step&) {
    const Reduction& r = reduction_;
    if (r.sink_count == 0 || r.count == 0) return;
    if (r.copies() && r.sink_count == 1 && !r.bypasses())
        std::memcpy(sinks_[0], sources_[0], bytes_);
    else
        tutti::reduce(r);
}

inline void HostChannel::commit(const Layout::Step& step) {
    for (const Operand& o : step.sent()) {
        Outgoing& out = outgoing(o);
        std::size_t bytes = bytes_;
        if (packs() && goes_on(out, o, bytes)) continue;
        if (out.kind != Kind::inlined) [[unlikely]]
            describe_elsewhere(out);
        out.sender->commit(out.kind, static_cast<std::uint32_t>(bytes), signature_, mappable_);
        for (const Sender::Reader& reader : out.sender->readers()) wake_later(*reader.wake_up);
    }
}

/// Ends a part of a message. Returns true if more parts follow. bytes: length of the part; becomes the length of the
/// message so far.
bool HostChannel::goes_on(Outgoing& out, const Operand& operand, std::size_t& bytes) const {
    bytes += out.at;
    out.under_way = operand.more;
    out.at = operand.more ? next_part(out.at, bytes_, out.kind == Kind::slot) : 0;
    return operand.more;
}

void HostChannel::describe_elsewhere(const Outgoing& out) const {
    if (out.kind == Kind::reference) out.sender->cell().reference = out.reference;
    if (job_->rows != nullptr) out.sender->cell().set_row(current().length);
}

inline void HostChannel::release(const Layout::Step& step) {
    for (const Operand& o : step.received()) {
        Incoming& c = incoming(o);
        if (packs()) {
            c.at = o.more ? next_part(c.at, bytes_, in_slot(c.receiver->cell().kind)) : 0;
            if (o.more) continue;
        }
        c.receiver->release();
        wake_later(c.receiver->wake_up());
    }
}

inline void HostChannel::end_step(const Layout::Step&) {
    touching_.end();
    if (to_wake_.empty()) return;
    for (WakeUp* const wake_up : to_wake_) wake(*wake_up);
    to_wake_.clear();
}

void HostChannel::mismatch(const Connection& c) const {
    const Cell& cell = c.receiver->cell();
    const Call theirs = c.receiver->call();
    if (job_->rows != nullptr && cell.signature != signature_) {
        // A message in a cell is the end of its row, so its length tells that of the row.
        const std::uint64_t sent =
            cell.kind == Kind::inlined ? tile_offset_ + cell.bytes / layout_->element : cell.row();
        if (cell.signature == row_signature(job_->call.signature, sent))
            fail_by(c.peer, tuttiInvalidUsage,
                    "rank %d expects %zu elements from rank %d in %s, but rank %d sends it %llu: both ranks of a pair "
                    "must give the same count",
                    bound_.program.rank, current().length, c.peer, call_text(job_->call).c_str(), c.peer,
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
