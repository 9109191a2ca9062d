#include "gpu/residents.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

namespace tutti::gpu {
namespace {

struct Residents {
    std::mutex mutex;
    std::map<std::pair<Gpus*, int>, std::weak_ptr<Residence>> residences;           // by device
    std::map<std::pair<Residence*, std::uint64_t>, std::weak_ptr<Tenant>> tenants;  // by key
};

Residents& residents() {
    static Residents* instance = new Residents;  // never destroyed: communicators may be destroyed at exit
    return *instance;
}

}  // namespace

std::shared_ptr<Residence> Residence::of(Gpus& gpus, int device) {
    const std::lock_guard lock(residents().mutex);
    std::weak_ptr<Residence>& known = residents().residences[{&gpus, device}];
    std::shared_ptr<Residence> found = known.lock();
    if (!found) known = found = std::shared_ptr<Residence>(new Residence(gpus, device));
    return found;
}

std::shared_ptr<Tenant> Tenant::of(Gpus& gpus, int device, std::uint64_t key, int ranks, int share) {
    const std::shared_ptr<Residence> residence = Residence::of(gpus, device);
    std::shared_ptr<Tenant> tenant;
    {
        const std::lock_guard lock(residents().mutex);
        std::weak_ptr<Tenant>& known = residents().tenants[{residence.get(), key}];
        tenant = known.lock();
        if (tenant) return tenant;
        known = tenant = std::shared_ptr<Tenant>(new Tenant(residence, key, ranks, share));
    }
    const std::lock_guard lock(residence->mutex_);
    residence->tenants_.push_back(tenant.get());
    residence->recount();
    return tenant;
}

Tenant::Tenant(std::shared_ptr<Residence> residence, std::uint64_t key, int ranks, int share)
    : residence_(std::move(residence)), key_(key), share_(share), seats_(static_cast<std::size_t>(ranks)) {}

Tenant::~Tenant() {
    {
        const std::lock_guard lock(residents().mutex);
        const auto known = residents().tenants.find({residence_.get(), key_});
        if (known != residents().tenants.end() && known->second.expired()) residents().tenants.erase(known);
    }
    const std::lock_guard lock(residence_->mutex_);
    std::erase(residence_->tenants_, this);
    residence_->recount();
}

void Tenant::leave(int seat) {
    const std::lock_guard lock(residence_->mutex_);
    at(seat).event.store(nullptr, std::memory_order_release);
    forsake(seat);
    watch(seat, nullptr);
}

void Tenant::captured(int blocks) {
    const std::lock_guard lock(residence_->mutex_);
    captured_ = std::max(captured_, blocks);
}

void Tenant::Seat::begin(std::uintptr_t its_stream, std::uint64_t its_group) {
    stream.store(its_stream, std::memory_order_relaxed);
    group.store(its_group, std::memory_order_relaxed);
    collectives.fetch_add(1, std::memory_order_acq_rel);
}

bool Tenant::Seat::stays() const {
    const std::uint32_t* const word = gave_up.load(std::memory_order_acquire);
    return !left.load(std::memory_order_acquire) && (word == nullptr || __atomic_load_n(word, __ATOMIC_ACQUIRE) == 0);
}

int Tenant::blocked_by(int seat, std::uintptr_t stream, std::uint64_t group) const {
    const std::uint64_t own = seats_[static_cast<std::size_t>(seat)].collectives.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < seats_.size(); ++i) {
        const Seat& s = seats_[i];
        if (s.collectives.load(std::memory_order_acquire) > own && s.group.load(std::memory_order_relaxed) != group &&
            s.stream.load(std::memory_order_relaxed) == stream)
            return static_cast<int>(i);
    }
    return -1;
}

// recount(), runs() and makes_room(): hold mutex_.

/// Sets contended_ after a tenant has come or gone.
void Residence::recount() {
    int most = 0;
    bool shared = false;
    for (const Tenant* t : tenants_) {
        most += t->ranks() * t->share_;
        shared = shared || t->ranks() > 1;
    }
    contended_ = shared && most > blocks_;
}

/// Whether the tenant's blocks may be on the device: from the first rank's launch of a call to the end of the last
/// rank's.
bool Residence::runs(Tenant& tenant) {
    if (tenant.blocks() == 0) return false;
    bool all_stay = true, alike = true;
    for (Tenant::Seat& s : tenant.seats_) {
        all_stay = all_stay && s.stays();
        alike = alike && s.collectives.load(std::memory_order_acquire) ==
                             tenant.seats_.front().collectives.load(std::memory_order_acquire);
    }
    bool running = tenant.entering_ > 0 || (all_stay && !alike);
    for (Tenant::Seat& s : tenant.seats_)
        if (void* const event = running ? nullptr : s.event.load(std::memory_order_acquire); event != nullptr)
            running = !gpus_.reached(device_, event);
    if (!running) tenant.blocks_ = 0;
    return running;
}

bool Residence::makes_room(std::span<const Stay> stays) {
    const auto stays_too = [&](const Tenant* t) {
        return std::ranges::any_of(stays, [&](const Stay& s) { return s.tenant == t; });
    };
    int taken = 0;
    for (Tenant* t : tenants_)
        if (!stays_too(t) && runs(*t)) taken += t->ranks() * t->blocks();
    std::map<Tenant*, int> wanted;
    for (const Stay& s : stays) wanted[s.tenant] = std::max(wanted[s.tenant], s.blocks);
    bool new_ones = false;
    for (auto& [tenant, blocks] : wanted) {
        const int had = runs(*tenant) ? tenant->blocks() : 0;
        new_ones = new_ones || blocks > had;
        blocks = std::max(blocks, had);
        taken += tenant->ranks() * blocks;
    }
    // A tenant that already runs got its room, for all of its ranks, when the first of them was let in.
    if (new_ones && taken > blocks_) return false;
    for (const auto& [tenant, blocks] : wanted) tenant->blocks_ = blocks;
    return true;
}

void Residence::enter(std::span<Stay> stays, const std::function<void()>& stop) {
    for (;;) {
        {
            const std::lock_guard lock(mutex_);
            if (!contended_ || makes_room(stays)) {
                for (Stay& s : stays) {
                    if (s.collective) s.tenant->at(s.seat).begin(s.stream, s.group);
                    // Counted even while all fit: it may still run when a tenant has come that does not.
                    s.tenant->blocks_ = std::max(s.tenant->blocks_, s.blocks);
                    s.counted = true;
                    ++s.tenant->entering_;
                }
                return;
            }
        }
        stop();
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
}

void Residence::entered(std::span<Stay> stays, bool launched) {
    const std::lock_guard lock(mutex_);
    for (Stay& s : stays) {
        if (!std::exchange(s.counted, false)) continue;
        --s.tenant->entering_;
        if (s.collective && !launched) s.tenant->at(s.seat).collectives.fetch_sub(1, std::memory_order_acq_rel);
    }
}

}  // namespace tutti::gpu
