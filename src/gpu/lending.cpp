#include "gpu/lending.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/result.hpp"
#include "gpu/memory.hpp"

namespace tutti::gpu {

static_assert(sizeof(Handle) % 8 == 0);

Lender::Lender(Gpus& gpus, int device, std::shared_ptr<Ledger> ledger)
    : gpus_(gpus), device_(device), ledger_(std::move(ledger)) {}

Lender::~Lender() {
    for (std::uint32_t k = 1; k < most_loans; ++k)
        if (lent_[k].base != nullptr) take_back(k);
}

void Lender::permit(const Pointee& memory) {
    if (memory.base == nullptr) return;
    const std::lock_guard lock(mutex_);
    ++permitted_[{memory.base, memory.id}];
}

Loan Lender::forbid(const Pointee& memory) {
    const std::lock_guard lock(mutex_);
    const auto permit = permitted_.find({memory.base, memory.id});
    if (permit == permitted_.end() || --permit->second > 0) return {};
    permitted_.erase(permit);
    const std::uint32_t k = may_lend(memory) ? 0 : number_of(memory);
    if (k == 0) return {};
    const Loan loan{k, lent_[k].turn};
    take_back(k);
    return loan.turn == 0 ? Loan{} : loan;
}

std::vector<Loan> Lender::recall_permitted() {
    const std::lock_guard lock(mutex_);
    std::vector<Loan> loans;
    for (std::uint32_t k = 1; k < most_loans; ++k) {
        const Lent& its = lent_[k];
        if (its.base == nullptr || !permitted_.contains({its.base, its.id})) continue;
        if (its.turn != 0) loans.push_back({k, its.turn});
        take_back(k);
    }
    permitted_.clear();
    return loans;
}

bool Lender::may_lend(const Pointee& memory) const {
    return permitted_.contains({memory.base, memory.id}) || is_for_user(memory.base);
}

std::uint32_t Lender::find(const Pointee& memory) {
    if (memory.kind != Pointee::Kind::device || memory.base == nullptr || !ledger_->has_borrowers()) return 0;
    const std::lock_guard lock(mutex_);
    if (!may_lend(memory)) return 0;
    std::uint32_t found = number_of(memory);
    if (found == 0) {
        found = free_number(1, max_regions);
        if (found == 0 && !std::exchange(told_of_room_, true))
            log(Level::info, "GPU %d: buffers lie in more than %d allocations: messages from the others are copied",
                device_, max_regions - 1);
        if (found == 0) return 0;
        try {
            share(found, memory);
        } catch (const Error& error) {
            log(Level::info, "GPU %d: messages from the %zu bytes at %p are copied: %s", device_, memory.size,
                static_cast<void*>(memory.base), error.what());
        }
    }
    Lent& its = lent_[found];
    if (its.turn == 0 || found >= max_regions) return 0;
    if (its.everywhere) return found;
    its.everywhere = ledger_->is_everywhere(found, its.turn);
    if (!its.everywhere) return 0;
    log(Level::info, "GPU %d: all ranks of other processes see the %zu bytes at %p: messages refer to them", device_,
        its.size, static_cast<void*>(its.base));
    return found;
}

Loan Lender::lend_now(const Pointee& memory) {
    const std::lock_guard lock(mutex_);
    std::uint32_t k = number_of(memory);
    if (k == 0) {
        k = free_number(1, most_loans);
        if (k == 0) fail(tuttiInvalidUsage, "windows lie in more than %u allocations", most_loans - 1);
        share(k, memory);
    }
    if (lent_[k].turn == 0) fail(tuttiUnhandledCudaError, "it can't be shared");
    return {k, lent_[k].turn};
}

// The following functions of Lender: hold mutex_.

/// The allocation's number; 0 if it has none. Drops entries that were recalled, or whose memory was freed since.
std::uint32_t Lender::number_of(const Pointee& memory) {
    std::uint32_t found = 0;
    for (std::uint32_t k = 1; k < most_loans; ++k) {
        Lent& its = lent_[k];
        if (its.base == nullptr) continue;
        if (its.turn != 0 && ledger_->page().entries[k].turn.load(std::memory_order_relaxed) != its.turn)
            its = {};  // recall_all() has recalled it
        else if (its.base == memory.base && its.size == memory.size && its.id == memory.id)
            found = k;
        else if (its.base < memory.base + memory.size && memory.base < its.base + its.size)
            take_back(k);  // it was freed, and another allocation lies there
    }
    return found;
}

std::uint32_t Lender::free_number(std::uint32_t first, std::uint32_t end) const {
    for (std::uint32_t k = first; k < end; ++k)
        if (lent_[k].base == nullptr && ledger_->holder(k) < 0) return k;
    return 0;
}

void Lender::share(std::uint32_t number, const Pointee& memory) {
    Lent& its = lent_[number];
    its = {memory.base, memory.size, memory.id, 0, false};
    const Handle handle = gpus_.share(device_, memory.base);
    LendingPage::Entry& entry = ledger_->page().entries[number];
    for (std::size_t w = 0; w < std::size(entry.handle); ++w) {
        std::uint64_t word;
        std::memcpy(&word, handle.bytes.data() + 8 * w, 8);
        entry.handle[w].store(word, std::memory_order_relaxed);
    }
    const std::uint32_t turn = entry.turn.load(std::memory_order_relaxed) + 1;
    if (is_for_user(memory.base)) remember_claim(memory.base, {ledger_, number, turn});
    entry.turn.store(turn, std::memory_order_release);
    ledger_->page().changes.fetch_add(1, std::memory_order_release);
    its.turn = turn;
}

void Lender::take_back(std::uint32_t number) {
    if (lent_[number].turn != 0) ledger_->recall(number, lent_[number].turn);
    lent_[number] = {};
    told_of_room_ = false;
}

Borrower::Borrower(Gpus& gpus, int device, std::shared_ptr<const PageMapping> page, Rank peer, int own_seat,
                   std::byte* table)
    : gpus_(&gpus),
      device_(device),
      page_(std::move(page)),
      peer_(peer),
      own_seat_(own_seat),
      table_(table),
      seen_(most_loans) {
    if (page_->size() < sizeof(LendingPage))
        fail(tuttiInternalError, "rank %d lends its memory in a page of %zu bytes, %zu were expected", peer,
             page_->size(), sizeof(LendingPage));
}

Borrower::~Borrower() {
    for (std::uint32_t k = 1; k < seen_.size(); ++k) close(k);
}

void Borrower::look() {
    const std::uint32_t changes = (*page_)->changes.load(std::memory_order_acquire);
    if (changes == changes_) return;
    give_back();  // first: a new loan may lie at the address of an old one
    bool all = true;
    for (std::uint32_t k = 1; k < max_regions; ++k) {
        const std::uint32_t turn = (*page_)->entries[k].turn.load(std::memory_order_acquire);
        if (turn % 2 == 0 || turn == seen_[k].turn) continue;
        try {
            all = open(k, turn) && all;
        } catch (const Error& error) {
            log(Level::info, "GPU %d: memory of rank %d can't be reached, its messages are copied: %s", device_, peer_,
                error.what());
        }
    }
    if (all) changes_ = changes;
}

void Borrower::give_back() {
    for (std::uint32_t k = 1; k < most_loans; ++k)
        if (seen_[k].turn != 0 && (*page_)->entries[k].turn.load(std::memory_order_acquire) != seen_[k].turn) close(k);
}

std::byte* Borrower::open_now(Loan loan) {
    if (loan.number == 0 || loan.number >= most_loans)
        fail(tuttiRemoteError, "rank %d tells of loan %u, of %u", peer_, loan.number, most_loans);
    if (seen_[loan.number].turn != loan.turn) {
        close(loan.number);
        if (!open(loan.number, loan.turn)) fail(tuttiRemoteError, "rank %d has taken it back", peer_);
    }
    if (seen_[loan.number].at == nullptr) fail(tuttiUnhandledCudaError, "it can't be opened");
    return seen_[loan.number].at;
}

void Borrower::close(std::uint32_t number) {
    Seen& s = seen_[number];
    if (s.at != nullptr) {
        gpus_->close(device_, s.at);
        if (number < max_regions) --open_;
    }
    if (s.turn != 0) {
        (*page_)->held[own_seat_][number].store(0, std::memory_order_release);
        (*page_)->ring();
    }
    s = {};
}

/// Opens a loan. False if the lender has recalled this turn meanwhile. Throws if it can't be opened.
bool Borrower::open(std::uint32_t number, std::uint32_t turn) {
    const LendingPage::Entry& entry = (*page_)->entries[number];
    Handle handle;
    for (std::size_t w = 0; w < std::size(entry.handle); ++w) {
        const std::uint64_t word = entry.handle[w].load(std::memory_order_relaxed);
        std::memcpy(handle.bytes.data() + 8 * w, &word, 8);
    }
    Seen& s = seen_[number];
    s = {turn, nullptr};
    (*page_)->held[own_seat_][number].store(turn, std::memory_order_seq_cst);
    full_fence();  // with that in Ledger::recall(): the lender sees `held`, or this sees the new turn
    if (entry.turn.load(std::memory_order_seq_cst) != turn) {
        close(number);
        return false;
    }
    try {
        s.at = gpus_->open(device_, handle);
        if (number < max_regions) {
            ++open_;
            gpus_->upload(device_, table_ + number * sizeof s.at, &s.at, sizeof s.at);
        }
    } catch (...) {
        close(number);
        s.turn = turn;  // look() does not try it again
        throw;
    }
    (*page_)->borrowed[own_seat_][number].store(turn, std::memory_order_release);
    return true;
}

Borrowers::~Borrowers() {
    ends_.store(true, std::memory_order_release);
    own_.ring();
    if (thread_.joinable()) thread_.join();
}

void Borrowers::look() {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable() && std::ranges::any_of(all_, &Borrower::has_news)) start();
    for (Borrower& b : all_) b.look();
}

bool Borrowers::have_any() {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(all_, &Borrower::has_any);
}

std::byte* Borrowers::open_now(Rank peer, Loan loan) {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable()) start();  // first: the thread gives it back later
    const auto its = std::ranges::find(all_, peer, &Borrower::peer);
    if (its == all_.end()) fail(tuttiInternalError, "rank %d lends nothing", peer);
    return its->open_now(loan);
}

void Borrowers::start() {
    thread_ = start_thread("tutti-loans", [this] { serve(); });
}

void Borrowers::serve() {
    while (!ends_.load(std::memory_order_acquire)) {
        const std::uint32_t bell = own_.bell.load(std::memory_order_acquire);
        {
            const std::lock_guard lock(mutex_);
            for (Borrower& b : all_) b.give_back();
        }
        free_what_is_back();
        futex_wait(own_.bell, bell, std::chrono::seconds(1));
    }
}

}  // namespace tutti::gpu
