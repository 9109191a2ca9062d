// The kernel of meetings, with a block per rank.
#include "kernels/cuda/interpret.hpp"
#include "kernels/cuda/meeting.hpp"

namespace tutti::gpu {
namespace {

__global__ void __launch_bounds__(meeting_threads) meet(const __grid_constant__ MeetingLaunch launch) {
    run_meeting(launch.jobs[blockIdx.y]);
}

}  // namespace

const void* meeting_kernel() {
    return reinterpret_cast<const void*>(meet);
}

}  // namespace tutti::gpu
