// Collectives by multicast (NVLink SHARP): which calls go that way. Their algorithm, in lists of TUTTI_ALGO, is called
// nvls, as NCCL's. It is no program, as a switch adds in an order of its own; so it is used only where a list names it.
#pragma once

#include <optional>
#include <string_view>

#include "kernels/cuda/multicast_plan.hpp"
#include "plan/operation.hpp"

namespace tutti {

inline constexpr std::string_view nvls = "nvls";

/// Whether there are calls of the collective that go by multicast.
bool has_multicast(Collective collective);

/// What a switch is to do for the operation; the elements and the pre-multiplied sum's scalar do not matter to a
/// gather. nullopt: it can't, whatever the buffers.
std::optional<gpu::MulticastSum> multicast_sum(const Operation& operation);

/// Whether the sums of such a call may differ from run to run.
bool in_any_order(const Operation& operation);

/// How many blocks of each rank share the call. bytes: of a rank's larger buffer. most: what the rank can run.
std::uint32_t multicast_blocks_for(std::size_t bytes, int ranks, int most);

}  // namespace tutti
