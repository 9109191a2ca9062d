#include "comm/ticket_lock.hpp"

#include <algorithm>

namespace tutti {

void TicketLock::wait(std::uint32_t ticket) {
    {
        const std::lock_guard lock(mutex_);
        pass_given_back();
    }
    const std::uint32_t now = serving_.load(std::memory_order_acquire);
    if (now == ticket) return;
    waiting_.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(serving_, now, std::chrono::milliseconds(10));
    waiting_.fetch_sub(1, std::memory_order_relaxed);
}

std::vector<TicketLock::Reserved>::iterator TicketLock::find(std::uint32_t ticket) {
    return std::ranges::find(reserved_, ticket, &Reserved::ticket);
}

/// Passes over given-back tickets whose turn it is. The caller holds mutex_; no other thread advances serving_
/// meanwhile, since such a turn has no owner.
void TicketLock::pass_given_back() {
    for (;;) {
        const std::uint32_t now = serving_.load(std::memory_order_acquire);
        const auto found = find(now);
        if (found == reserved_.end() || !found->given_back) return;
        reserved_.erase(found);
        serve(now + 1);
    }
}

std::uint32_t TicketLock::reserve() {
    const std::lock_guard lock(mutex_);
    if (reserved_.size() == reserved_.capacity()) reserved_.reserve(2 * reserved_.size() + 8);
    reserved_.push_back({ticket(), called_off_});  // must not throw, or the ticket would be lost
    return reserved_.back().ticket;
}

TicketLock::Turn TicketLock::await(std::uint32_t ticket) {
    for (int tries = 0; tries < 2; ++tries) {
        if (tries > 0) wait(ticket);
        const std::lock_guard lock(mutex_);
        const auto found = find(ticket);
        if (found == reserved_.end() || found->given_back) return Turn::called_off;
        if (serving_.load(std::memory_order_acquire) != ticket) continue;
        reserved_.erase(found);
        return Turn::inside;
    }
    return Turn::waits;
}

void TicketLock::give_back(std::uint32_t ticket) noexcept {
    const std::lock_guard lock(mutex_);
    if (const auto found = find(ticket); found != reserved_.end()) found->given_back = true;
    pass_given_back();
}

void TicketLock::call_off() noexcept {
    const std::lock_guard lock(mutex_);
    called_off_ = true;
    for (Reserved& r : reserved_) r.given_back = true;
    pass_given_back();
    futex_wake_all(serving_);
}

}  // namespace tutti
