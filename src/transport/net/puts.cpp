#include "transport/net/puts.hpp"

#include <algorithm>
#include <cstring>

#include "transport/numbering.hpp"

namespace tutti::net {

std::optional<PutMessage> read_put(const Cell& cell, const std::byte* slot) {
    const bool inlined = cell.kind == Kind::inlined;
    const std::size_t before = inlined ? sizeof(PutHeader) : put_header_in_slot;
    if (cell.kind > Kind::slot || cell.bytes < before) return std::nullopt;
    const std::byte* const message = inlined ? cell.payload : slot;
    PutMessage read{{}, {message + before, cell.bytes - before}};
    std::memcpy(&read.header, message, sizeof read.header);
    return read;
}

void Puts::take(const Wire& in, const Wire& out) {
    if (!messages_) {
        messages_.emplace(in, first_message);
        back_.emplace(out, first_message);
    }
    in_ = in;  // again each time, since the slots may have moved to a GPU
    out_ = out;
    if (!request_) go_on();
}

bool Puts::go_on() {
    bool moved = false;
    while (!broken_) {
        if (!request_ && !messages_->ready()) return moved;
        if (!request_ && !deal_with(messages_->cell())) broken_ = true;
        if (broken_) return true;
        if (request_) moved |= answer();
        if (request_) return moved;
        messages_->release();
        moved = true;
    }
    return moved;
}

/// Whether this rank has given up or leaves: puts, gets and answers are then dropped.
bool Puts::is_over() const {
    return mine_.page().closed.load() != 0 || mine_.page().leaving.load() != 0;
}

/// Handles one message. False if it breaks the protocol.
bool Puts::deal_with(const Cell& cell) {
    const bool inlined = cell.kind == Kind::inlined;
    if (is_over()) return true;
    if (!inlined && in_.on_device) return false;
    const auto message = read_put(cell, messages_->slot());
    if (!message) return false;
    const auto& [header, data] = *message;
    if (header.signal >= signals_per_peer || header.raises > 1 || header.asks + header.written > 1) return false;
    if (header.key == 0 && !data.empty()) return false;
    if (header.asks == 1 || (!inlined && header.written == 0)) note_window(header);
    return header.asks == 1 ? ask(header, data) : put(header, data);
}

/// The peer uses a window without its adapter: perhaps it does not know yet that this could.
void Puts::note_window(const PutHeader& put) {
    const auto known = known_.find(put.gate);
    if (put.gate >= most_windows || (known != known_.end() && known->second == put.key)) return;
    known_[put.gate] = put.key;
    untold_.emplace(untold_.begin(), put.gate, put.key);  // the last one may be half told
}

std::optional<WindowKey> Puts::next_window(std::span<const void* const> adapters) {
    while (!untold_.empty()) {
        const auto [gate, key] = untold_.back();
        const std::uint32_t way = next_way_++;
        if (next_way_ >= adapters.size()) untold_.pop_back(), next_way_ = 0;
        if (const auto reach = mine_.lent().reach(gate, key, adapters[way]))
            return WindowKey{reinterpret_cast<std::uintptr_t>(reach->memory.data()),
                             reach->offset,
                             reach->memory.size(),
                             gate,
                             key,
                             reach->remote_key,
                             way};
    }
    return std::nullopt;
}

/// Keeps a refusal for the peer. False if the access breaks the protocol.
bool Puts::note(LentMemory::Access access, const PutHeader& what) {
    if (access == LentMemory::Access::not_lent) refusal_ = {what.gate, what.key, what.asks};
    return access != LentMemory::Access::out_of_bounds;
}

bool Puts::put(const PutHeader& put, std::span<const std::byte> data) {
    std::uint64_t written = 0;
    if (put.written == 1) {
        if (data.size() != sizeof written) return false;
        std::memcpy(&written, data.data(), sizeof written);
    }
    const auto access = [&] {
        return put.written == 1 ? mine_.lent().look(put.gate, put.key, put.offset, written)
                                : mine_.lent().write(put.gate, put.key, put.offset, data);
    };
    if (put.key != 0 && !refusal_ && !note(access(), put)) return false;
    if (put.raises == 1 && !refusal_) mine_.signals(peer_).raise(put.signal);
    return true;
}

bool Puts::ask(const PutHeader& request, std::span<const std::byte> data) {
    std::uint64_t bytes = 0;
    if (data.size() != sizeof bytes || request.signal != 0 || request.raises != 0 || out_.on_device) return false;
    std::memcpy(&bytes, data.data(), sizeof bytes);
    if (refusal_) return true;
    if (!note(mine_.lent().look(request.gate, request.key, request.offset, bytes), request)) return false;
    if (!refusal_) request_ = {request, bytes};
    return true;
}

/// Answers the request as far as there is room. True if anything moved.
bool Puts::answer() {
    const std::size_t most = out_.stride - (slot_stride - slot_bytes);
    for (bool moved = false;; moved = true) {
        auto& [from, rest] = *request_;
        const std::size_t size = std::min<std::uint64_t>(rest, most);
        const bool inlined = size <= inline_bytes;
        if (is_over()) return request_.reset(), true;
        if (!back_->ready(!inlined)) return moved;
        const std::span piece(inlined ? back_->cell().payload : back_->slot(), size);
        if (mine_.lent().read(from.gate, from.key, from.offset, piece) != LentMemory::Access::done) {
            note(LentMemory::Access::not_lent, from);
            return request_.reset(), true;
        }
        back_->commit(inlined ? Kind::inlined : Kind::slot, static_cast<std::uint32_t>(size), 0);
        from.offset += size;
        rest -= size;
        if (rest == 0) return request_.reset(), true;
    }
}

void Puts::take_answers(const Wire& in) {
    if (!answers_) answers_.emplace(in, first_message);
    for (; answers_->ready(); answers_->release()) {
        const Cell& cell = answers_->cell();
        const bool inlined = cell.kind == Kind::inlined;
        if (is_over()) continue;
        const bool readable = inlined || (cell.kind == Kind::slot && !in.on_device);
        const std::byte* const data = inlined ? cell.payload : answers_->slot();
        if (!readable || !mine_.awaited().fill(peer_, {data, cell.bytes})) broken_ = true;
    }
}

}  // namespace tutti::net
