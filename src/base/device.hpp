// Functions that run on a GPU too, when nvcc compiles them.
#pragma once

#ifdef __CUDACC__
#define TUTTI_HOST_DEVICE __host__ __device__
#else
#define TUTTI_HOST_DEVICE
#endif
