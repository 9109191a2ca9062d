#include "gpu/neighbours.hpp"

#include <algorithm>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/result.hpp"

namespace tutti::gpu {
namespace {

constexpr std::chrono::seconds at_the_end{10};  // wait for loans

/// The key under which a rank offers its lease; the page has the arena's own.
std::uint64_t lease_key(std::uint64_t arena) {
    return ~arena;
}

}  // namespace

Neighbours::~Neighbours() {
    shielded("taking back what was lent", [&] { await_return(lender_.recall_permitted(), at_the_end); });
    ledger_->close();
}

void Neighbours::offer(Session& session) const {
    session.offer(key_, ledger_->fd());
    session.offer(lease_key(key_), ledger_->lease());
}

std::vector<Fd> Neighbours::meet(Session& session, const Places& places, Deadline deadline) {
    session_ = &session;
    lender_.offer_through(session);
    const Rank self = session.rank();
    std::vector<Fd> leases;
    for (Rank peer = 0; peer < places.ranks(); ++peer) {
        if (peer == self || places.info(peer).process == places.info(self).process || !places.p2p(self, peer)) continue;
        ledger_->open();
        const std::uint64_t key = places.gpu(peer).arena_key;
        leases.push_back(session.fetch(peer, lease_key(key), deadline));
        leases.back().keep_from_children();
        auto page = std::make_shared<const PageMapping>(session.fetch(peer, key, deadline));
        ledger_->expect(places.seat(peer), page);
        all_.push_back({peer, places.seat(peer), std::move(page)});
    }
    return leases;
}

void Neighbours::borrow_through(const Ends& ends, const Places& places) {
    for (const Neighbour& n : all_)
        borrowers_.add(
            {gpus_, device_, n.page, n.rank, places.seat(session_->rank()), ends.table_of(n.rank), session_});
}

Pointee Neighbours::permit(const void* memory, std::size_t bytes) {
    if (bytes == 0) return {};
    const Pointee p = gpus_.pointee(memory);
    if (p.kind != Pointee::Kind::device || p.device != device_ || p.base == nullptr) return {};
    try {
        return lender_.permit(p, static_cast<const std::byte*>(memory), bytes);
    } catch (const Error& error) {
        log(Level::info, "GPU %d: messages from the %zu bytes at %p are copied, although they are registered: %s",
            device_, bytes, memory, error.what());
        return {};
    }
}

void Neighbours::forbid(const Pointee& memory, std::chrono::milliseconds timeout) {
    await_return(lender_.forbid(memory), timeout);
    lender_.settle();
}

/// Waits until the loans have come back. The borrowers' threads close them, whatever their ranks do, as soon as their
/// GPUs permit. Loans of dead ranks count as back. Throws tuttiTimeout.
void Neighbours::await_return(std::span<const Loan> loans, std::chrono::milliseconds timeout) {
    const Deadline until = Clock::now() + timeout;
    for (const Loan loan : loans)
        while (true) {
            const std::uint32_t bell = ledger_->page().bell.load(std::memory_order_acquire);
            for (const Rank dead : session_->dead())
                for (const Neighbour& n : all_)
                    if (n.rank == dead) ledger_->bury(n.seat);
            const int seat = ledger_->holder(loan.number, loan.turn);
            if (seat < 0) break;
            const auto its = std::ranges::find(all_, seat, &Neighbour::seat);
            if (Clock::now() > until)
                fail(tuttiTimeout,
                     "rank %d: %s still has memory of GPU %d open that this rank has deregistered: it must not be "
                     "freed before that process has closed it, or ended. Is it stopped, or does a kernel of its own "
                     "wait for what this rank is to call next? Deregister where all ranks have called the same",
                     session_->rank(), its == all_.end() ? "a peer" : session_->name(its->rank).c_str(), device_);
            futex_wait(ledger_->page().bell, bell, std::chrono::milliseconds(20));
        }
}

}  // namespace tutti::gpu
