// One process that drives many devices, step by step.
#pragma once

#include <span>

#include "dp/options.hpp"
#include "tutti/dp.h"

namespace tutti::dp {

/// See tuttiDpDataParallel. comms and streams have as many elements.
void data_parallel(std::span<const tuttiComm_t> comms, std::span<const tuttiStream_t> streams,
                   const std::vector<Parameter>& parameters, const tuttiDpBatch_t& batch, tuttiDpWork_t work,
                   void* user);

}  // namespace tutti::dp
