// The parts of torch that the extension uses, and what differs between its versions (1.13 and later).
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/version.h>

#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>

#define TUTTI_TORCH_AT_LEAST(major, minor) \
    (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if TUTTI_TORCH_AT_LEAST(2, 0)
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif

// What torch declares virtual since a version.
#if TUTTI_TORCH_AT_LEAST(2, 1)
#define TUTTI_OVERRIDE_SINCE_2_1 override
#else
#define TUTTI_OVERRIDE_SINCE_2_1
#endif
#if TUTTI_TORCH_AT_LEAST(2, 7)
#define TUTTI_OVERRIDE_SINCE_2_7 override
#else
#define TUTTI_OVERRIDE_SINCE_2_7
#endif
#if TUTTI_TORCH_AT_LEAST(2, 8)
#define TUTTI_OVERRIDE_SINCE_2_8 override
#else
#define TUTTI_OVERRIDE_SINCE_2_8
#endif
#if TUTTI_TORCH_AT_LEAST(2, 9)
#define TUTTI_OVERRIDE_SINCE_2_9 override
#else
#define TUTTI_OVERRIDE_SINCE_2_9
#endif
#if TUTTI_TORCH_AT_LEAST(2, 3)
#define TUTTI_CONST_BEFORE_2_3
#define TUTTI_OVERRIDE_SINCE_2_3 override
#else
#define TUTTI_CONST_BEFORE_2_3 const
#define TUTTI_OVERRIDE_SINCE_2_3
#endif

namespace tutti_torch {

// Since 2.0 a ProcessGroup has a Backend for each kind of device; before, backends were ProcessGroups.
#if TUTTI_TORCH_AT_LEAST(2, 0)
using Base = c10d::Backend;
using BackendError = c10::DistBackendError;
#else
using Base = c10d::ProcessGroup;
using BackendError = c10::Error;
#endif

}  // namespace tutti_torch
