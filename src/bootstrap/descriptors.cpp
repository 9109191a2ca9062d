#include "bootstrap/descriptors.hpp"

#include <algorithm>

namespace tutti::bootstrap {
namespace {

constexpr std::ptrdiff_t most_parked = 1024;  // per connection; each is a waiting thread of the peer

}  // namespace

void Descriptors::offer(std::uint64_t key, std::shared_ptr<Fd> fd) {
    monitor_.look([&] {
        if (fd && !news_.left_locked())
            offers_[key] = std::move(fd);
        else
            offers_.erase(key);
    });
}

std::shared_ptr<Fd> Descriptors::offered(std::uint64_t key) const {
    return monitor_.look([&] {
        const auto found = offers_.find(key);
        return found == offers_.end() ? nullptr : found->second;
    });
}

void Descriptors::withdraw_all() {
    monitor_.look([&] { offers_.clear(); });
}

bool Descriptors::wait(const PendingFetch& fetch, Deadline deadline) {
    return monitor_.wait(deadline, [&] { return fetch.done; });
}

void Descriptors::asked(Connection& connection, const Fetch& fetch) {
    if (news_.left() || !connection.address().is_local()) return connection.send(Give{fetch.id, false});
    if (auto fd = offered(fetch.key)) return connection.send(Give{fetch.id, true}, std::move(fd));
    const auto self = connection.shared_from_this();
    std::erase_if(parked_, [](const Parked& p) { return p.connection.expired(); });
    if (std::ranges::count_if(parked_, [&](const Parked& p) { return p.connection.lock() == self; }) >= most_parked)
        return connection.send(Give{fetch.id, false});
    parked_.push_back({self, fetch});
}

void Descriptors::offer_changed(std::uint64_t key) {
    std::vector<Parked> all;
    all.swap(parked_);
    for (const Parked& p : all) {
        const auto c = p.connection.lock();
        if (!c || c->is_closed()) continue;
        if (p.fetch.key == key)
            asked(*c, p.fetch);
        else
            parked_.push_back(p);
    }
}

void Descriptors::begin(const std::shared_ptr<PendingFetch>& fetch) {
    fetch->id = next_++;
    fetches_.push_back(fetch);
}

bool Descriptors::wants(Rank peer) const {
    return std::ranges::any_of(fetches_, [&](const auto& f) { return f->peer == peer; });
}

void Descriptors::send_requests(Connection& connection) {
    for (const auto& f : fetches_) {
        if (f->peer != connection.peer || f->sent) continue;
        f->sent = true;
        connection.send(Fetch{f->id, f->key});
    }
}

void Descriptors::send_again(Rank peer) {
    for (const auto& f : fetches_)
        if (f->peer == peer) f->sent = false;
}

std::shared_ptr<PendingFetch> Descriptors::take(Rank peer, std::uint32_t id) {
    const auto found = std::ranges::find_if(fetches_, [&](const auto& f) { return f->id == id && f->peer == peer; });
    if (found == fetches_.end()) return nullptr;
    const std::shared_ptr<PendingFetch> fetch = *found;
    fetches_.erase(found);
    return fetch;
}

void Descriptors::settle(PendingFetch& fetch, Fd descriptor, const Fault& trouble) {
    monitor_.change([&] {
        fetch.done = true;
        fetch.descriptor = std::move(descriptor);
        fetch.trouble = trouble;
    });
}

void Descriptors::fail(const Fault& fault, Rank peer) {
    std::erase_if(fetches_, [&](const auto& f) {
        if (peer >= 0 && f->peer != peer) return false;
        settle(*f, {}, fault);
        return true;
    });
}

}  // namespace tutti::bootstrap
