// Which calls of a group have to run as one job, and which meet each other. All in time that is linear in the number of
// calls.
#pragma once

#include <cstddef>
#include <cstdint>
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

/// In the order of their first calls.
std::vector<Component> components_of(std::span<const Component::Key> calls);

/// What a call has to do with what its rank sends itself.
struct CallToSelf {
    enum class Kind { none, send, receive };
    const void* comm;
    Kind kind;
};

/// Of each call the number of the one that it meets: the first send on a communicator meets the first receive there,
/// and so on. `unmet`: there is none.
inline constexpr std::size_t unmet = SIZE_MAX;
std::vector<std::size_t> meetings_of(std::span<const CallToSelf> calls);

}  // namespace tutti
