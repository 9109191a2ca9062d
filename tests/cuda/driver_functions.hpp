// Functions of the driver, found as the library finds them.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "harness/catch.hpp"

namespace tutti::on_hosts {

template <class Function>
Function function_named(const char* name) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    REQUIRE(cudaGetDriverEntryPointByVersion(name, &function, 12010, cudaEnableDefault, &found) == cudaSuccess);
    REQUIRE(function != nullptr);
    return reinterpret_cast<Function>(function);
}
#define DRIVER(name) tutti::on_hosts::function_named<decltype(&name)>(#name)

}  // namespace tutti::on_hosts
