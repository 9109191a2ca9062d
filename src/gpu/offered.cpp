#include "gpu/offered.hpp"

#include "base/caught.hpp"
#include "base/result.hpp"

namespace tutti::gpu {

Offer::Offer(Gpus& gpus, int device, Session& session, std::span<const Segment> segments) : session_(session) {
    const Fd list = make_memfd("tutti-segments", segments.size() * sizeof(std::uint64_t));
    const Mapping mapping = Mapping::of(list);
    auto* const sizes = reinterpret_cast<std::uint64_t*>(mapping.base());
    while (name_.key == 0) random_bytes(&name_.key, sizeof name_.key);
    for (const Segment& s : segments) {
        sizes[name_.segments++] = s.bytes;
        name_.bytes += s.bytes;
    }
    try {
        add(list);
        for (const Segment& s : segments) {
            Fd descriptor = gpus.descriptor_of(device, s.at);
            descriptor.keep_from_children();  // it keeps the memory allocated
            add(descriptor);
        }
    } catch (...) {
        withdraw();
        throw;
    }
}

void Offer::add(const Fd& fd) {
    session_.offer(name_.key + offered_, fd);
    ++offered_;
}

void Offer::withdraw() noexcept {
    shielded("withdrawing descriptors of GPU memory", [&] {
        const std::lock_guard lock(mutex_);
        while (offered_ > 0) session_.withdraw(name_.key + --offered_);
    });
}

void map_offered(Gpus& gpus, int device, std::byte* first, std::size_t offset, Session& session, Rank peer,
                 const Offered& offered, Deadline deadline) {
    const Mapping list = Mapping::of(session.fetch(peer, offered.key, deadline));
    const auto* const sizes = reinterpret_cast<const std::uint64_t*>(list.base());
    std::uint64_t left = offered.bytes;
    const auto refuse_unless = [&](bool fits) {
        if (!fits)
            fail(tuttiRemoteError, "rank %d offers %llu bytes in %llu segments, and others than it says", peer,
                 static_cast<unsigned long long>(offered.bytes), static_cast<unsigned long long>(offered.segments));
    };
    refuse_unless(offered.segments > 0 && offered.segments == list.size() / sizeof *sizes);
    for (std::uint64_t i = 0; i < offered.segments; ++i) {
        const std::uint64_t bytes = sizes[i];
        refuse_unless(bytes > 0 && bytes <= left);
        gpus.map(device, first, offset, {session.fetch(peer, offered.key + 1 + i, deadline), bytes});
        offset += bytes;
        left -= bytes;
    }
    refuse_unless(left == 0);
}

}  // namespace tutti::gpu
