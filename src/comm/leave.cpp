// How a rank leaves a communicator: in peace, which peers can tell from a death.
#include <thread>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "comm/communicator.hpp"

namespace tutti {

Communicator::~Communicator() {
    shielded("leaving a communicator", [&] {
        if (!suspended_) session().leave();
        if (gpu_ && connections_.engine() != nullptr) connections_.engine()->on_loss(nullptr);
    });
    if (gpu_) gpu_->finish();  // what its kernels use goes now, in the order of members: programs, ends, links' memory
    log(Level::info, "rank %d of %d leaves; its connections used at most %zu KiB", rank(), ranks(), memory() / 1024);
}

void Communicator::leave() {
    const Deadline limit = Clock::now() + options_.timeout;
    const auto drive = [&] {
        try {
            return connections_.poll();
        } catch (...) {  // nobody there will read it any more
            with_caught([&](const Error& error) { faults_.fail(error); });
            return false;
        }
    };
    // While something() and no fault: true if that has ended in time.
    const auto outlast = [&](const auto& something) {
        for (int looks = 0; !faults_.failed() && something(); ++looks) {
            if (Clock::now() > limit) return false;
            if (drive()) continue;
            if (looks < 1000)
                std::this_thread::yield();
            else
                std::this_thread::sleep_for(std::chrono::microseconds(500));
        }
        return true;
    };
    // Peers that see the word `leaving` look for nothing else that is to come.
    for (const auto& [peer_rank, its] : connections_.peers())
        outlast([&peer = its] { return peer.link && peer.link->pending(); });
    connections_.page().leaving.store(1, std::memory_order_release);
    faults_.close_parts(connections_.page().gates);
    if (gpu_) gpu_->finish();
    for (const auto& [peer_rank, its] : connections_.peers()) {
        const auto unread = [&, peer = peer_rank] {
            return !(suspended_ ? connections_.has_left(peer) : session().has_left(peer)) && connections_.unread(peer);
        };
        if (!connections_.all_in_process() && !outlast(unread))
            log(Level::warn, "rank %d leaves although rank %d has not read all that was sent to it", rank(), peer_rank);
    }
    // Ranks of one process can't wait for each other here: what they have sent stays in the kernel.
    const Deadline brief = Clock::now() + std::chrono::seconds(1);
    Engine* const engine = connections_.engine();
    while (engine != nullptr && engine->pending() && !faults_.failed() && Clock::now() < brief)
        if (!drive()) std::this_thread::yield();
    if (!suspended_) session().leave();
}

std::shared_ptr<Session> Communicator::suspend() {
    suspended_ = true;
    leave();
    session().rest();
    return connections_.shared_session();
}

}  // namespace tutti
