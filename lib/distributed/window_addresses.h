#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>

namespace scatterlm {

/// Writes the addresses at which this GPU finds the window's memory of each rank to `addresses` [ranks] int64 on this GPU. All
/// ranks are on one machine. Enqueued into the stream; returns CUDA's error, if any. Only device code gets the addresses from
/// NCCL, on which folder `kernels` must not depend.
cudaError_t window_addresses(ncclWindow_t window, int ranks, int64_t* addresses, cudaStream_t stream);

}  // namespace scatterlm
