// The two passes of Muon (Jordan et al., 2024; Liu et al., arXiv 2502.16982) over elements, before and after its matrices are
// orthogonalised. Of gradients g, momentum m, weights w and what orthogonalisation made of u, o:
//
//   muon_momentum   g = grads / grad_scale,   m = beta m + g,   u = g + beta m
//   muon_apply      w = w - lr weight_decay w - lr o
//
// computed in fp32; what is bf16 is rounded to nearest when stored.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device/data_type.h"

namespace scatterlm::kernels {

/// Arrays start at multiples of 16 bytes and have any length.
struct MuonMomentumArgs {
  const void* grads;  ///< [count]
  DataType grads_type;
  void* momentum;  ///< [count] m
  DataType state_type;
  void* updates;  ///< bf16 [count] u
  int64_t count;
  double beta;
  const float* grad_scale;  ///< [1]
  const float* skip;        ///< [1]: if 1, nothing changes
};
void muon_momentum(const MuonMomentumArgs& args, cudaStream_t stream);

/// Arrays as above.
struct MuonApplyArgs {
  const void* updates;  ///< bf16 [count] o
  void* weights;        ///< [count]
  DataType state_type;
  void* params;  ///< bf16 [count]: the new weights, rounded; nullptr: not wanted
  int64_t count;
  double lr, weight_decay;
  const float* skip;  ///< [1]: if 1, nothing changes
};
void muon_apply(const MuonApplyArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels
