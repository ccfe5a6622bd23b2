// Marks a function that both g++ and nvcc compile, so that the host can test what the device runs.
#pragma once

#ifdef __CUDACC__
#define SCATTERLM_HOST_DEVICE __host__ __device__
#else
#define SCATTERLM_HOST_DEVICE
#endif
