#include "gpu/ledger.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <new>
#include <optional>
#include <utility>

#include "base/log.hpp"
#include "base/result.hpp"

namespace tutti::gpu {

void LendingPage::ring() {
    bell.fetch_add(1, std::memory_order_release);
    futex_wake_all(bell);
}

Ledger::Ledger() : fd_(make_memfd("tutti-lending", sizeof(LendingPage))), page_(fd_) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) fail_errno("a pipe for what a GPU lends");
    other_end_ = Fd(ends[0]);
    lease_ = Fd(ends[1]);
    lease_.keep_from_children();
}

void Ledger::expect(int seat, std::shared_ptr<const PageMapping> its) {
    const std::lock_guard lock(mutex_);
    borrowers_.push_back({seat, std::move(its)});
}

bool Ledger::has_borrowers() const {
    const std::lock_guard lock(mutex_);
    return !borrowers_.empty();
}

bool Ledger::is_everywhere(std::uint32_t number, std::uint32_t turn) const {
    const std::lock_guard lock(mutex_);
    return std::ranges::all_of(borrowers_, [&](const Member& b) {
        return page_->borrowed[b.seat][number].load(std::memory_order_acquire) == turn;
    });
}

void Ledger::bury(int seat) {
    for (auto& word : page_->held[seat]) word.store(0, std::memory_order_release);
}

void Ledger::recall(std::uint32_t number, std::uint32_t turn) {
    if (!page_->entries[number].turn.compare_exchange_strong(turn, turn + 1, std::memory_order_seq_cst)) return;
    page_->changes.fetch_add(1, std::memory_order_release);
    full_fence();  // with that in Borrower::open(): it sees the new turn, or holder() sees that it holds this one
    const std::lock_guard lock(mutex_);
    for (const Member& b : borrowers_) (*b.page)->ring();
}

bool Ledger::is_recalled(std::uint32_t number, std::uint32_t turn) const {
    return static_cast<std::int32_t>(page_->entries[number].turn.load(std::memory_order_acquire) - turn) > 0;
}

int Ledger::holder(std::uint32_t number, std::uint32_t turn) const {
    for (int seat = 0; seat < most_seats; ++seat) {
        const std::uint32_t held = page_->held[seat][number].load(std::memory_order_acquire);
        if (held != 0 && (turn == 0 || held == turn)) return seat;
    }
    return -1;
}

void Ledger::close() {
    const std::lock_guard lock(mutex_);
    lease_.reset();
}

bool Ledger::is_leased() const {
    if (!opened_.load(std::memory_order_relaxed)) return false;
    pollfd end{other_end_.get(), POLLIN, 0};
    return poll(&end, 1, 0) != 1 || (end.revents & POLLHUP) == 0;
}

namespace {

/// Memory that is to be freed once no claim holds.
struct Estate {
    Gpus* gpus;
    int device;
    std::byte* memory;
    std::vector<Claim> claims;
    bool is_back() const { return std::ranges::none_of(claims, &Claim::holds); }
};

struct Estates {
    std::mutex mutex;  // guards all of it
    std::vector<Estate> waiting;
    std::multimap<const std::byte*, Claim> lent;  // by base: the claims to memory of tuttiMemAllocDevice
};

Estates& estates() {
    static auto* const instance = new Estates;  // never destroyed: memory may be freed at exit
    return *instance;
}

}  // namespace

void free_what_is_back() noexcept {
    while (true) {
        std::optional<Estate> back;
        {
            const std::lock_guard lock(estates().mutex);
            auto& waiting = estates().waiting;
            const auto found = std::ranges::find_if(waiting, &Estate::is_back);
            if (found == waiting.end()) return;
            back = std::move(*found);
            waiting.erase(found);
        }
        back->gpus->free(back->device, back->memory);
    }
}

void free_when_back(Gpus& gpus, int device, std::byte* memory, std::span<const Claim> claims) noexcept {
    if (std::ranges::none_of(claims, &Claim::holds)) return gpus.free(device, memory);
    try {
        const std::lock_guard lock(estates().mutex);
        estates().waiting.push_back({&gpus, device, memory, {claims.begin(), claims.end()}});
    } catch (const std::bad_alloc&) {
        log(Level::warn, "GPU %d: memory that another process has open stays allocated", device);
    }
    free_what_is_back();
}

void remember_claim(const std::byte* base, Claim claim) {
    std::vector<Claim> over;  // destroyed without the lock
    const std::lock_guard lock(estates().mutex);
    auto& lent = estates().lent;
    for (auto [it, last] = lent.equal_range(base); it != last;)
        if (it->second.is_over()) {
            over.push_back(std::move(it->second));
            it = lent.erase(it);
        } else {
            ++it;
        }
    lent.emplace(base, std::move(claim));
}

std::vector<Claim> recall_all(const std::byte* base) {
    std::vector<Claim> claims;
    {
        const std::lock_guard lock(estates().mutex);
        const auto [first, last] = estates().lent.equal_range(base);
        for (auto it = first; it != last; ++it) claims.push_back(it->second);
        estates().lent.erase(first, last);
    }
    for (const Claim& c : claims) c.ledger->recall(c.number, c.turn);
    return claims;
}

}  // namespace tutti::gpu
