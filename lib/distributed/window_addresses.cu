#include "lib/distributed/window_addresses.h"

#include <nccl_device.h>

namespace scatterlm {
namespace {

__global__ void write_addresses(ncclWindow_t window, int64_t* addresses) {
  const int rank = static_cast<int>(threadIdx.x);
  addresses[rank] = reinterpret_cast<int64_t>(ncclGetLsaPointer(window, 0, rank));
}

}  // namespace

cudaError_t window_addresses(ncclWindow_t window, int ranks, int64_t* addresses, cudaStream_t stream) {
  void* arguments[] = {&window, &addresses};
  return cudaLaunchKernel(write_addresses, 1, ranks, arguments, 0, stream);
}

}  // namespace scatterlm
