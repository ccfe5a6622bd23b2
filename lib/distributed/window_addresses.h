#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>

namespace scatterlm {

/// addresses [ranks] int64, on this GPU: where it finds the window's memory of each rank, all of which are on one machine.
/// Enqueued; says whether that went well. Only device code gets them from NCCL, of which folder `kernels` knows nothing.
cudaError_t window_addresses(ncclWindow_t window, int ranks, int64_t* addresses, cudaStream_t stream);

}  // namespace scatterlm
