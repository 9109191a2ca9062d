// Which calls of a group have to run as one job.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace tutti {

/// Calls that share a communicator or a stream, directly or through others.
struct Component {
    /// What a call shares with others. nullptr is a stream as any other.
    struct Key {
        const void* comm;
        const void* stream;
    };
    std::vector<std::size_t> members;  // numbers of calls, in their order
};

/// In the order of their first calls. Takes time that is linear in the number of calls.
std::vector<Component> components_of(std::span<const Component::Key> calls);

}  // namespace tutti
