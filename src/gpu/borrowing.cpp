#include "gpu/borrowing.hpp"

#include <algorithm>
#include <cstring>

#include "base/log.hpp"
#include "base/result.hpp"
#include "gpu/offered.hpp"

namespace tutti::gpu {
namespace {

constexpr std::chrono::seconds fetching{10};  // of a peer's descriptors, which its service thread hands out

}  // namespace

Borrower::Borrower(Gpus& gpus, int device, std::shared_ptr<const PageMapping> page, Rank peer, int own_seat,
                   std::byte* table, Session* session)
    : gpus_(&gpus),
      device_(device),
      page_(std::move(page)),
      peer_(peer),
      own_seat_(own_seat),
      table_(table),
      session_(session),
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

bool Borrower::is_wanted_back(std::uint32_t number) const {
    const std::uint32_t turn = seen_[number].turn;
    return turn != 0 && (*page_)->entries[number].turn.load(std::memory_order_acquire) != turn;
}

bool Borrower::is_wanted_back() const {
    for (std::uint32_t k = 1; k < most_loans; ++k)
        if (is_wanted_back(k)) return true;
    return false;
}

void Borrower::give_back() {
    for (std::uint32_t k = 1; k < most_loans; ++k)
        if (is_wanted_back(k)) close(k);
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
        if (s.is_virtual)
            gpus_->unmap(device_, s.at);
        else
            gpus_->close(device_, s.at);
        if (number < max_regions) --open_;
    }
    if (s.turn != 0) {
        (*page_)->held[own_seat_][number].store(0, std::memory_order_release);
        (*page_)->ring();
    }
    s = {};
}

/// Opens what the entry names.
std::byte* Borrower::opened(const LendingPage::Entry& entry) {
    Handle name;
    for (std::size_t w = 0; w < std::size(entry.name); ++w) {
        const std::uint64_t word = entry.name[w].load(std::memory_order_relaxed);
        std::memcpy(name.bytes.data() + 8 * w, &word, 8);
    }
    if (entry.is_virtual.load(std::memory_order_relaxed) == 0) return gpus_->open(device_, name);
    Offered offered;
    std::memcpy(&offered, name.bytes.data(), sizeof offered);
    std::byte* const first = gpus_->reserve(device_, offered.bytes);
    try {
        map_offered(*gpus_, device_, first, 0, *session_, peer_, offered, Clock::now() + fetching);
    } catch (...) {
        gpus_->unmap(device_, first);
        throw;
    }
    return first;
}

/// Opens a loan. False if the lender has recalled this turn meanwhile. Throws if it can't be opened.
bool Borrower::open(std::uint32_t number, std::uint32_t turn) {
    const LendingPage::Entry& entry = (*page_)->entries[number];
    Seen& s = seen_[number];
    s = {turn, nullptr, false};
    (*page_)->held[own_seat_][number].store(turn, std::memory_order_seq_cst);
    full_fence();  // with that in Ledger::recall(): the lender sees `held`, or this sees the new turn
    if (entry.turn.load(std::memory_order_seq_cst) != turn) {
        close(number);
        return false;
    }
    try {
        s.is_virtual = entry.is_virtual.load(std::memory_order_relaxed) != 0;
        s.at = opened(entry);
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
        const bool all = give_back();
        free_what_is_back();
        futex_wait(own_.bell, bell, std::chrono::milliseconds(all ? 1000 : 1));
    }
}

/// False if some loans have to wait.
bool Borrowers::give_back() {
    const std::lock_guard lock(mutex_);
    if (std::ranges::none_of(all_, [](const Borrower& b) { return b.is_wanted_back(); })) return true;
    if (busy_ && busy_()) return false;
    for (Borrower& b : all_) b.give_back();
    return true;
}

}  // namespace tutti::gpu
