// Functions that run on a GPU too, when nvcc compiles them.
#pragma once

#ifdef __CUDACC__
#pragma nv_diag_suppress 20014  // they may call what only a GPU has, where only a GPU calls them
#define TUTTI_HOST_DEVICE __host__ __device__
#else
#define TUTTI_HOST_DEVICE
#endif
