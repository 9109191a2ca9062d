// Which calls of a group have to run as one job, and which sends and receives of a rank to itself match. All functions
// take time linear in the number of calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti {

/// Calls that share a communicator or a stream, directly or through others.
struct Component {
    /// What a call may share with others. A null stream counts like any other.
    struct Key {
        const void* comm;
        const void* stream;
    };
    std::vector<std::size_t> members;  // indexes of calls, ascending
};

/// The components of `calls`, in the order of their first calls.
std::vector<Component> components_of(std::span<const Component::Key> calls);

/// Whether a call sends to its own rank, receives from it, or neither.
struct CallToSelf {
    enum class Kind { none, send, receive };
    const void* comm;
    Kind kind;
};

/// For each call the index of its counterpart: the first send on a communicator matches the first receive there, and so
/// on. `unmet` if there is none.
inline constexpr std::size_t unmet = SIZE_MAX;
std::vector<std::size_t> meetings_of(std::span<const CallToSelf> calls);

}  // namespace tutti
