// Marks functions that nvcc compiles for the host and for the GPU.
#pragma once

#ifdef __CUDACC__
#pragma nv_diag_suppress 20014  // a function marked so may call device functions on paths that only a GPU takes
#define TUTTI_HOST_DEVICE __host__ __device__
#else
#define TUTTI_HOST_DEVICE
#endif
