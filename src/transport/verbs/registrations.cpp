#include "transport/verbs/registrations.hpp"

#include "base/log.hpp"
#include "base/result.hpp"
#include "bootstrap/service.hpp"
#include "transport/arena.hpp"
#include "transport/verbs/device.hpp"

namespace tutti::verbs {

Registrations::Registrations(const Device& device)
    : device_(device), process_(process_id()), watch_([this](std::uint64_t id) { forget(id); }) {}

std::optional<Registrations::Keys> Registrations::of(const std::byte* memory, std::size_t bytes, Access access) {
    const std::shared_ptr<Region> region = find_region(memory, bytes);
    if (!region) return std::nullopt;
    const std::lock_guard lock(mutex_);
    auto found = known_.find({region->id(), access});
    // A registration that allows more serves as well.
    for (const Access more : {Access::local_writes, Access::remote_writes})
        if (found == known_.end() && access < more) found = known_.find({region->id(), more});
    const ibv_mr* const registered = found != known_.end() ? found->second.get() : enlist(*region, access);
    if (registered == nullptr) return std::nullopt;
    return Keys{registered->lkey, registered->rkey};
}

ibv_mr* Registrations::enlist(const Region& region, Access access) {
    Owned<ibv_mr> registered(nullptr, device_.library().dereg_mr);
    try {
        registered = device_.enlist(region.base(), region.size(), access);
        log(Level::info, "verbs: %s knows the %zu bytes at %p%s", device_.name().c_str(), region.size(),
            static_cast<void*>(region.base()), access == Access::remote_writes ? ", and lets peers write there" : "");
    } catch (const Error& error) {
        if (!warned_)
            log(Level::warn, "%s; messages from and to memory that it does not know are copied", error.what());
        warned_ = true;
    }
    return known_.emplace(Id(region.id(), access), std::move(registered)).first->second.get();
}

void Registrations::forget(std::uint64_t id) {
    if (process_ != process_id()) return;
    const std::lock_guard lock(mutex_);
    for (const Access access : {Access::local_reads, Access::local_writes, Access::remote_writes})
        known_.erase({id, access});
}

}  // namespace tutti::verbs
