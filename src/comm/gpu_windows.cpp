// How kernels reach the parts of windows: memory that other processes lend, or virtual memory in a strip.
#include <algorithm>
#include <cstring>

#include "base/caught.hpp"
#include "base/log.hpp"
#include "base/peer_error.hpp"
#include "comm/window_parts.hpp"
#include "gpu/memory.hpp"

namespace tutti {
namespace {

bool is_same_process(const gpu::Places& places, Rank a, Rank b) {
    return places.info(a).process == places.info(b).process;
}

}  // namespace

/// On GPUs: how peers reach this rank's part.
Windows::Told Windows::exposed(Window& window, void* buffer, std::size_t bytes,
                               std::optional<gpu::Offer>& offer) const {
    Told told{};
    const auto memory = bytes > 0 ? gpu::virtual_memory_at(buffer) : std::nullopt;
    told.exposed = gpu_->boards().expose(buffer, bytes, memory.has_value(), &window.lent);
    if (!memory) return told;
    told.begins = static_cast<std::uint64_t>(static_cast<std::byte*>(buffer) - memory->base);
    const auto segments = gpu_->gpus().segments(memory->device, memory->base, memory->bytes);
    told.offered = offer.emplace(gpu_->gpus(), memory->device, connections_.session(), segments).name();
    return told;
}

/// On GPUs: why the parts can't be mapped as a strip; empty if they can. The same text on all ranks.
std::string Windows::strip_obstacle(const std::vector<Told>& all) const {
    const auto begin = std::ranges::find_if(all, [](const Told& told) { return told.part.bytes > 0; });
    if (begin == all.end()) return "all ranks' parts are empty";
    for (auto told = begin; told != all.end(); ++told) {
        if (told->part.bytes == 0) continue;
        const auto first = begin - all.begin(), other = told - all.begin();
        if (told->offered.key == 0)
            return text("rank %td's part is not in memory of tuttiMemAllocDevice under TUTTI_GPU_VIRTUAL=1", other);
        if (told->begins != begin->begins)
            return text("rank %td's part begins at byte %llu of its allocation, rank %td's at byte %llu", first,
                        static_cast<unsigned long long>(begin->begins), other,
                        static_cast<unsigned long long>(told->begins));
    }
    return "";
}

/// Maps all parts.
std::unique_ptr<const gpu::Strip> Windows::mapped_strip(const std::vector<Told>& all) const {
    std::vector<gpu::Offered> parts(all.size());
    std::size_t begins = 0;
    for (Rank r = 0; r < ranks(); ++r) {
        const Told& told = all[static_cast<std::size_t>(r)];
        if (told.part.bytes == 0) continue;
        if (told.begins > told.offered.bytes || told.part.bytes > told.offered.bytes - told.begins)
            fail_by(r, tuttiRemoteError, "rank %d tells of %llu bytes from byte %llu on of an allocation of %llu bytes",
                    r, static_cast<unsigned long long>(told.part.bytes), static_cast<unsigned long long>(told.begins),
                    static_cast<unsigned long long>(told.offered.bytes));
        parts[static_cast<std::size_t>(r)] = told.offered;
        begins = told.begins;
    }
    return std::make_unique<const gpu::Strip>(gpu_->gpus(), gpu_->device(), connections_.session(), parts, begins,
                                              Clock::now() + timeout_);
}

/// On GPUs: maps the parts of ranks in other processes, and all of them as a strip, for this rank's kernels. Throws on
/// all ranks if one of them can't.
void Windows::map_parts(Window& window, const std::vector<Told>& all) {
    window.no_strip = strip_obstacle(all);
    if (!window.no_strip.empty() && gpu_->budget().by_reference) return;
    std::string why;
    try {
        if (window.no_strip.empty()) window.strip = mapped_strip(all);
    } catch (...) {
        why = text("rank %d can't map the window's parts: %s", rank(), caught().what());
    }
    for (Rank r = 0; r < ranks() && why.empty(); ++r) {
        WindowPart& part = window.parts[static_cast<std::size_t>(r)];
        if (part.bytes == 0 || is_same_process(connections_.places(), r, rank())) continue;
        const gpu::Exposed& exposed = all[static_cast<std::size_t>(r)].exposed;
        try {
            // Messages name the loan, also where puts go to the strip.
            std::byte* const lent = gpu_->neighbours().borrowers().open_now(r, exposed.loan) + exposed.offset;
            part.where.offset = reinterpret_cast<std::uint64_t>(window.strip ? window.strip->part(r) : lent);
        } catch (...) {
            why = text("rank %d can't reach the memory of rank %d: %s", rank(), r, caught().what());
        }
    }
    std::vector<Told> mine(all);
    for (Told& told : mine) std::strncpy(told.trouble, why.c_str(), sizeof told.trouble - 1);
    exchange(mine);
}

/// Gives the parts an address of multicast, if all ranks can. All ranks take the same steps, each when the one before
/// is done on all of them: CUDA waits in bind() until all GPUs take part.
void Windows::make_multicast(Window& window, const std::vector<Told>& all, const void* buffer) {
    window.no_multicast = window.strip ? connections_.places().multicast_obstacle() : window.no_strip;
    std::size_t bytes = SIZE_MAX;  // of each allocation, from its beginning on
    for (const Told& told : all) {
        bytes = std::min<std::size_t>(bytes, told.offered.bytes);
        if (window.no_multicast.empty() && told.part.bytes == 0) window.no_multicast = "a rank's part is empty";
    }
    if (!window.no_multicast.empty()) {
        if (window.strip)
            log(Level::info, "rank %d: a window has no address of multicast: %s", rank(), window.no_multicast.c_str());
        return;
    }
    std::unique_ptr<gpu::Multicast> mine;
    Offer offer(connections_.session());
    Told step{};
    const auto on_all = [&](auto&& work) {
        step.trouble[0] = '\0';
        try {
            work();
        } catch (...) {
            std::strncpy(step.trouble, text("rank %d: %s", rank(), caught().what()).c_str(), sizeof step.trouble - 1);
        }
        for (const Told& told : exchanged(std::vector<Told>(all.size(), step))) {
            if (window.no_multicast.empty() && told.trouble[0] != '\0')
                window.no_multicast = text("%.*s", static_cast<int>(sizeof told.trouble), told.trouble);
            if (told.multicast != 0) step.multicast = told.multicast;
        }
        return window.no_multicast.empty();
    };
    const bool made = on_all([&] {
                          if (rank() != 0) return;
                          mine = gpu_->gpus().make_multicast(gpu_->device(), ranks(), bytes);
                          step.multicast = offer.make(mine->descriptor());
                      }) &&
                      on_all([&] {
                          if (rank() == 0) return;
                          const Fd object = connections_.session().fetch(0, step.multicast, Clock::now() + timeout_);
                          mine = gpu_->gpus().join_multicast(gpu_->device(), object, bytes);
                      }) &&
                      on_all([&] {
                          const gpu::VirtualMemory memory = gpu::virtual_memory_at(buffer).value();
                          const std::size_t begins = all[static_cast<std::size_t>(rank())].begins;
                          window.multicast_at = mine->bind(memory.base) + begins;
                      });
    if (made)
        window.multicast = std::move(mine);
    else if (rank() == 0)
        log(Level::warn, "the ranks' GPUs have multicast, but a window does not get it: %s",
            window.no_multicast.c_str());
}

/// If all ranks have promised it, adds the window to promised_, to symmetric_ if messages can refer to all parts, and
/// to with_multicast_ if it has that. All ranks decide alike.
void Windows::keep_promise(const Window& window, void* buffer, const std::vector<Told>& all) {
    if (!std::ranges::all_of(all, [](const Told& told) { return told.symmetric == 1 && told.part.bytes > 0; })) return;
    const std::span mine(static_cast<const std::byte*>(buffer), window.parts[static_cast<std::size_t>(rank())].bytes);
    promised_.add(window, mine);
    if (window.multicast) with_multicast_.add(window, mine);
    const gpu::Budget& budget = gpu_->budget();
    const bool good = std::ranges::all_of(all, [&](const Told& told) {
        return told.exposed.loan.number < gpu::max_regions && (told.offered.key == 0 || !budget.across);
    });
    if (good && (budget.by_reference || budget.lends)) symmetric_.add(window, mine);
}

}  // namespace tutti
