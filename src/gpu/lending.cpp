#include "gpu/lending.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "base/result.hpp"
#include "gpu/memory.hpp"

namespace tutti::gpu {

static_assert(sizeof(Handle) % 8 == 0 && sizeof(Offered) <= sizeof(Handle));

Lender::Lender(Gpus& gpus, int device, std::shared_ptr<Ledger> ledger)
    : gpus_(gpus), device_(device), ledger_(std::move(ledger)) {}

Lender::~Lender() {
    for (std::uint32_t k = 1; k < most_loans; ++k)
        if (lent_[k].base != nullptr) take_back(k);
    for (const auto& [number, offer] : offers_) offer->withdraw();  // claims may keep it longer than the session lives
}

Pointee Lender::permit(const Pointee& memory, const std::byte* at, std::size_t bytes) {
    Pointee whole = memory;
    if (memory.is_virtual) {
        if (!ledger_->has_borrowers()) return {};
        const std::vector<Segment> segments = gpus_.segments(device_, at, bytes);
        const Segment& last = segments.back();
        whole.base = const_cast<std::byte*>(segments.front().at);
        whole.size = static_cast<std::size_t>(last.at + last.bytes - whole.base);
    }
    if (whole.base == nullptr) return {};
    const std::lock_guard lock(mutex_);
    ++permitted_[key_of(whole)];
    return whole;
}

std::vector<Loan> Lender::forbid(const Pointee& permitted) {
    const std::lock_guard lock(mutex_);
    const auto permit = permitted_.find(key_of(permitted));
    if (permit == permitted_.end() || --permit->second > 0) return {};
    permitted_.erase(permit);
    std::vector<Loan> loans;
    for (std::uint32_t k = 1; k < most_loans; ++k) {
        const Lent& its = lent_[k];
        if (its.base == nullptr || its.id != permitted.id || !its.overlaps(permitted.base, permitted.size)) continue;
        Pointee all = permitted;
        all.base = its.base, all.size = its.size;
        if (forget_recalled(k) || lendable(all, its.base, its.size)) continue;
        if (its.turn != 0) loans.push_back({k, its.turn});
        take_back(k);
    }
    return loans;
}

std::vector<Loan> Lender::recall_permitted() {
    const std::lock_guard lock(mutex_);
    std::vector<Loan> loans;
    for (std::uint32_t k = 1; k < most_loans; ++k) {
        const Lent& its = lent_[k];
        if (its.base == nullptr || is_for_user(its.base)) continue;
        if (its.turn != 0) loans.push_back({k, its.turn});
        take_back(k);
    }
    permitted_.clear();
    return loans;
}

Lender::Found Lender::find(const Pointee& memory, const std::byte* at, std::size_t bytes, bool of_windows) {
    if (memory.kind != Pointee::Kind::device || memory.base == nullptr || !ledger_->has_borrowers()) return {};
    const std::lock_guard lock(mutex_);
    std::uint32_t found = number_of(memory, at, bytes, [&](const Lent& l) { return l.of_window || !of_windows; });
    if (found == 0 && !of_windows) {
        const std::optional<Pointee> all = lendable(memory, at, bytes);
        if (!all) return {};
        found = free_number(1, max_regions);
        if (found == 0 && !std::exchange(told_of_room_, true))
            log(Level::info, "GPU %d: buffers lie in more than %d allocations: messages from the others are copied",
                device_, max_regions - 1);
        if (found == 0) return {};
        try {
            share(found, *all);
        } catch (const Error& error) {
            log(Level::info, "GPU %d: messages from the %zu bytes at %p are copied: %s", device_, all->size,
                static_cast<void*>(all->base), error.what());
        }
    }
    Lent& its = lent_[found];
    if (its.turn == 0 || found >= max_regions) return {};
    if (its.everywhere) return {found, its.base};
    its.everywhere = ledger_->is_everywhere(found, its.turn);
    if (!its.everywhere) return {};
    withdraw(found);
    log(Level::info, "GPU %d: all ranks of other processes see the %zu bytes at %p: messages refer to them", device_,
        its.size, static_cast<void*>(its.base));
    return {found, its.base};
}

Loan Lender::lend_now(const Pointee& permitted) {
    const std::lock_guard lock(mutex_);
    std::uint32_t k = number_of(permitted, permitted.base, permitted.size, [&](const Lent& l) {
        return l.base == permitted.base && l.size == permitted.size;  // a larger one may end before the window
    });
    if (k == 0) {
        k = free_number(1, most_loans);
        if (k == 0) fail(tuttiInvalidUsage, "windows lie in more than %u allocations", most_loans - 1);
        share(k, permitted);
    }
    if (lent_[k].turn == 0) fail(tuttiUnhandledCudaError, "it can't be shared");
    lent_[k].of_window = true;
    return {k, lent_[k].turn};
}

void Lender::settle() {
    const std::lock_guard lock(mutex_);
    std::vector<std::uint32_t> back;
    for (const auto& [number, offer] : offers_)
        if (lent_[number].base == nullptr && ledger_->holder(number) < 0) back.push_back(number);
    for (const std::uint32_t number : back) withdraw(number);
}

// The following functions of Lender: hold mutex_.

/// What to lend for these bytes: all memory of tuttiMemAllocDevice, else the permitted ranges in which they lie.
/// Nothing if some of them are not permitted.
std::optional<Pointee> Lender::lendable(const Pointee& memory, const std::byte* at, std::size_t bytes) const {
    if (is_for_user(memory.base)) return memory;
    std::byte* first = nullptr;
    const std::byte* reached = at;
    for (const auto& [key, count] : permitted_) {  // in the order of their bases
        const auto& [base, size, id] = key;
        if (base > reached || base >= at + bytes) break;
        if (id != memory.id || base + size <= at) continue;
        if (first == nullptr) first = base;
        reached = std::max<const std::byte*>(reached, base + size);
    }
    if (first == nullptr || reached < at + bytes) return std::nullopt;
    Pointee all = memory;
    all.base = first, all.size = static_cast<std::size_t>(reached - first);
    return all;
}

/// The number of a loan that suits and has these bytes, if possible one that all have opened; 0 if there is none. Drops
/// loans that were recalled, or whose memory was freed or mapped otherwise since.
template <class Suits>
std::uint32_t Lender::number_of(const Pointee& memory, const std::byte* at, std::size_t bytes, Suits suits) {
    std::uint32_t found = 0;
    for (std::uint32_t k = 1; k < most_loans; ++k) {
        const Lent& its = lent_[k];
        if (its.base == nullptr || forget_recalled(k)) continue;
        if (has_changed(its, memory, at, bytes))
            take_back(k);
        else if (its.id == memory.id && its.has(at, bytes) && suits(its) && (found == 0 || its.everywhere))
            found = k;
    }
    return found;
}

/// Forgets a loan that recall_all() has recalled.
bool Lender::forget_recalled(std::uint32_t number) {
    Lent& its = lent_[number];
    if (its.turn == 0 || ledger_->page().entries[number].turn.load(std::memory_order_relaxed) == its.turn) return false;
    its = {};
    return true;
}

/// Whether something else lies now where `lent` has been: `memory`, or another allocation at these bytes of it.
bool Lender::has_changed(const Lent& lent, const Pointee& memory, const std::byte* at, std::size_t bytes) const {
    if (lent.id != memory.id) return lent.overlaps(memory.base, memory.size);
    if (lent.segments.empty() || !lent.overlaps(at, bytes)) return false;
    const auto first = std::ranges::find_if(lent.segments, [&](const Segment& s) { return s.at + s.bytes > at; });
    const auto end = std::find_if(first, lent.segments.end(), [&](const Segment& s) { return s.at >= at + bytes; });
    return !gpus_.are_mapped({first, end});
}

std::uint32_t Lender::free_number(std::uint32_t first, std::uint32_t end) const {
    for (std::uint32_t k = first; k < end; ++k)
        if (lent_[k].base == nullptr && ledger_->holder(k) < 0) return k;
    return 0;
}

void Lender::withdraw(std::uint32_t number) {
    const auto offer = offers_.find(number);
    if (offer == offers_.end()) return;
    offer->second->withdraw();  // claims may keep it
    offers_.erase(offer);
}

void Lender::share(std::uint32_t number, const Pointee& memory) {
    withdraw(number);  // that of an earlier loan, which is back
    Lent& its = lent_[number];
    its = {.base = memory.base, .size = memory.size, .id = memory.id};
    Handle name;
    std::shared_ptr<const void> claim;  // of memory of tuttiMemAllocDevice: what its end withdraws
    if (memory.is_virtual) {
        std::vector<Segment> segments = gpus_.segments(device_, memory.base, memory.size);
        const auto offer = std::make_shared<Offer>(gpus_, device_, *session_, segments);
        if (segments.front().at != memory.base || offer->name().bytes != memory.size)
            fail(tuttiInvalidUsage, "it was mapped otherwise when it was registered");
        std::memcpy(name.bytes.data(), &offer->name(), sizeof offer->name());
        offers_[number] = offer;
        if (is_for_user(memory.base))
            claim = {offer.get(), [offer](const void*) { offer->withdraw(); }};
        else
            its.segments = std::move(segments);
    } else {
        name = gpus_.share(device_, memory.base);
    }
    LendingPage::Entry& entry = ledger_->page().entries[number];
    entry.is_virtual.store(memory.is_virtual, std::memory_order_relaxed);
    for (std::size_t w = 0; w < std::size(entry.name); ++w) {
        std::uint64_t word;
        std::memcpy(&word, name.bytes.data() + 8 * w, 8);
        entry.name[w].store(word, std::memory_order_relaxed);
    }
    const std::uint32_t turn = entry.turn.load(std::memory_order_relaxed) + 1;
    if (is_for_user(memory.base)) remember_claim(memory.base, {ledger_, number, turn, std::move(claim)});
    entry.turn.store(turn, std::memory_order_release);
    ledger_->page().changes.fetch_add(1, std::memory_order_release);
    its.turn = turn;
}

/// What was offered for it stays until it has come back.
void Lender::take_back(std::uint32_t number) {
    if (lent_[number].turn != 0) ledger_->recall(number, lent_[number].turn);
    lent_[number] = {};
    told_of_room_ = false;
}

}  // namespace tutti::gpu
