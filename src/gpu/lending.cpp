#include "gpu/lending.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.hpp"
#include "base/result.hpp"

namespace tutti::gpu {

static_assert(sizeof(Handle) % 8 == 0);

Lender::Lender(Gpus& gpus, int device)
    : gpus_(gpus), device_(device), fd_(make_memfd("tutti-lending", sizeof(LendingPage))), mapping_(Mapping::of(fd_)) {}

std::uint32_t Lender::find(const Pointee& memory) {
    if (memory.kind != Pointee::Kind::device || memory.base == nullptr || borrowers_.empty()) return 0;
    std::uint32_t found = 0;
    for (std::uint32_t k = 1; k < max_regions; ++k) {
        const Loan& loan = loans_[k];
        if (loan.base == nullptr) continue;
        if (loan.base == memory.base && loan.size == memory.size && loan.id == memory.id)
            found = k;
        else if (loan.base < memory.base + memory.size && memory.base < loan.base + loan.size)
            take_back(k);  // freed: something else lies there
    }
    if (found == 0) found = lend(memory);
    if (found == 0 || !loans_[found].shareable) return 0;
    Loan& loan = loans_[found];
    if (loan.everywhere) return found;
    const std::uint32_t turn = page().entries[found].turn.load(std::memory_order_relaxed);
    loan.everywhere = std::ranges::all_of(
        borrowers_, [&](int seat) { return page().borrowed[seat][found].load(std::memory_order_acquire) == turn; });
    if (!loan.everywhere) return 0;
    log(Level::info, "GPU %d: all ranks of other processes see the %zu bytes at %p: messages refer to them", device_,
        loan.size, static_cast<void*>(loan.base));
    return found;
}

std::uint32_t Lender::lend(const Pointee& memory) {
    const auto free_one = [&] {
        for (std::uint32_t k = 1; k < max_regions; ++k)
            if (loans_[k].base == nullptr) return k;
        return 0u;
    };
    std::uint32_t k = free_one();
    if (k == 0 && full_for_-- == 0) {
        for (std::uint32_t old = 1; old < max_regions; ++old)
            if (!lives(loans_[old])) take_back(old);
        k = free_one();
        full_for_ = k == 0 ? 1000 : 0;
        if (k == 0)
            log(Level::info, "GPU %d: buffers lie in more than %d allocations: messages from the others are copied",
                device_, max_regions - 1);
    }
    if (k == 0) return 0;
    loans_[k] = {memory.base, memory.size, memory.id, false, false};
    Handle handle;
    try {
        handle = gpus_.share(device_, memory.base);
    } catch (const Error& error) {
        log(Level::info, "GPU %d: messages from the %zu bytes at %p are copied: %s", device_, memory.size,
            static_cast<void*>(memory.base), error.what());
        return k;
    }
    LendingPage::Entry& entry = page().entries[k];
    for (std::size_t w = 0; w < std::size(entry.handle); ++w) {
        std::uint64_t word;
        std::memcpy(&word, handle.bytes.data() + 8 * w, 8);
        entry.handle[w].store(word, std::memory_order_relaxed);
    }
    entry.turn.fetch_add(1, std::memory_order_release);
    page().changes.fetch_add(1, std::memory_order_release);
    loans_[k].shareable = true;
    return k;
}

void Lender::take_back(std::uint32_t number) {
    if (loans_[number].shareable) {
        page().entries[number].turn.fetch_add(1, std::memory_order_release);
        page().changes.fetch_add(1, std::memory_order_release);
    }
    loans_[number] = {};
    full_for_ = 0;
}

bool Lender::lives(const Loan& loan) const {
    try {
        const Pointee now = gpus_.pointee(loan.base);
        return now.kind == Pointee::Kind::device && now.base == loan.base && now.id == loan.id;
    } catch (const Error&) {  // nothing is there any more
        return false;
    }
}

Borrower::Borrower(Gpus& gpus, int device, const Fd& page, Rank peer, int own_seat, std::byte* table)
    : gpus_(&gpus),
      device_(device),
      mapping_(Mapping::of(page)),
      peer_(peer),
      own_seat_(own_seat),
      table_(table),
      seen_(max_regions) {
    if (mapping_.size() < sizeof(LendingPage))
        fail(tuttiInternalError, "rank %d lends its memory in a page of %zu bytes, %zu were expected", peer,
             mapping_.size(), sizeof(LendingPage));
}

Borrower::~Borrower() {
    for (const Seen& s : seen_)
        if (s.at != nullptr) gpus_->close(device_, s.at);
}

void Borrower::look() {
    const std::uint32_t changes = page().changes.load(std::memory_order_acquire);
    if (changes == changes_) return;
    bool all = true;
    // What was taken back first: what is new may lie where it lay.
    for (const bool opening : {false, true})
        for (std::uint32_t k = 1; k < max_regions; ++k) {
            const std::uint32_t turn = page().entries[k].turn.load(std::memory_order_acquire);
            if (turn == seen_[k].turn) continue;
            if (!opening)
                close(k);
            else if (turn % 2 == 1)
                all = open(k) && all;
        }
    if (all) changes_ = changes;
}

void Borrower::close(std::uint32_t number) {
    Seen& s = seen_[number];
    if (s.at != nullptr) {
        gpus_->close(device_, s.at);
        --open_;
    }
    s = {};
}

/// False if the lender changed it meanwhile.
bool Borrower::open(std::uint32_t number) {
    const LendingPage::Entry& entry = page().entries[number];
    Seen s{entry.turn.load(std::memory_order_acquire), nullptr};
    Handle handle;
    for (std::size_t w = 0; w < std::size(entry.handle); ++w) {
        const std::uint64_t word = entry.handle[w].load(std::memory_order_relaxed);
        std::memcpy(handle.bytes.data() + 8 * w, &word, 8);
    }
    std::atomic_thread_fence(std::memory_order_acquire);
    if (entry.turn.load(std::memory_order_relaxed) != s.turn) return false;
    try {
        s.at = gpus_->open(device_, handle);
        gpus_->upload(device_, table_ + number * sizeof s.at, &s.at, sizeof s.at);
        page().borrowed[own_seat_][number].store(s.turn, std::memory_order_release);
        ++open_;
    } catch (const Error& error) {
        log(Level::info, "GPU %d: memory of rank %d can't be reached, its messages are copied: %s", device_, peer_,
            error.what());
    }
    seen_[number] = s;
    return true;
}

}  // namespace tutti::gpu
