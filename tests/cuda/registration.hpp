// What nvcc's host code calls, beside the runtime's API: CUDA's crt/host_runtime.h declares these, for that code alone.
#pragma once

#include <cuda_runtime_api.h>

extern "C" {
void** __cudaRegisterFatBinary(void* wrapper);
void __cudaRegisterFatBinaryEnd(void** binary);
void __cudaUnregisterFatBinary(void** binary);
char __cudaInitModule(void** binary);
void __cudaRegisterVar(void** binary, char* variable, char* address, const char* name, int ext, std::size_t bytes,
                       int constant, int global);
void __cudaRegisterFunction(void** binary, const char* stub, char* function, const char* name, int thread_limit,
                            uint3* thread, uint3* block, dim3* block_size, dim3* grid_size, int* warp_size);
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, CUstream_st* stream);
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream);
cudaError_t __cudaGetKernel(cudaKernel_t* out, const void* stub);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared,
                               cudaStream_t stream);
}
