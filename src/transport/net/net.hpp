// Networks beside TCP. To add one, write a Net and its NetEndpoint and list it in nets() (transport.cpp). The engine
// introduces the two ends to each other over the link's first socket, which is authenticated. That socket stays open:
// it carries rare frames, and closes at once when the peer's process ends.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/types.hpp"
#include "transport/net/endpoint.hpp"

namespace tutti::net {

/// A network. One object for the process, never destroyed. Any thread.
class Net {
  public:
    virtual ~Net() = default;
    /// As users name the transport; less than 16 characters.
    virtual std::string_view name() const = 0;
    /// A number that is equal on ranks which the network joins. The first call looks for adapters. 0 if this machine
    /// has none.
    virtual std::uint64_t fabric() = 0;
    /// Why fabric() is 0, and what the user can do.
    virtual std::string absence() = 0;
    /// The cost of messages over it, for the tuner.
    virtual Line cost() const = 0;
    /// Why its adapters can't use slots in a GPU's memory; empty if they can. slots: registers these with the adapters,
    /// for as long as the slots last; nullptr: only asks whether that is possible at all.
    virtual std::string obstacle(DeviceSlots*) { return "network plugins get messages from host memory"; }
    /// Registers memory of this rank with those adapters that take it, so that peers' adapters write it. Whole pages
    /// that stay where they are, or a part of these.
    virtual std::vector<Registered> enlist(std::span<std::byte>) { return {}; }
    /// Whether calls of it and of its endpoints run foreign code that may not return. Then only the rank's thread and a
    /// thread aside call them.
    virtual bool may_hang() const { return false; }
    /// Opens this rank's end for a link. silence limit: how long a peer that owes an acknowledgement may be silent.
    /// Throws tuttiSystemError.
    virtual std::unique_ptr<NetEndpoint> open(Rank self, Rank peer, const LinkMemory& memory,
                                              std::chrono::milliseconds silence_limit) = 0;
    /// Opens another endpoint after some have failed, by other ports if there are any. Both ends begin anew, and what
    /// the peer has not got is queued again. broken: the union of their broken(); cleared if no other port is left.
    /// Throws if there is no other way. nullptr if no port is active now.
    virtual std::unique_ptr<NetEndpoint> detour(Rank, Rank, const LinkMemory&, std::chrono::milliseconds,
                                                [[maybe_unused]] std::uint64_t& broken) {
        fail(tuttiRemoteError, "there is no other way");
    }
};

/// All networks beside TCP, the most preferred first, whether this machine has them or not.
std::span<Net* const> nets();

}  // namespace tutti::net
