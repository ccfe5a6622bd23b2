// Attention of one new position over cached keys and values, which it also stores there: one step of decoding.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device/data_type.h"

namespace scatterlm::kernels {

/// Of sequence b, with n the new position and h' = h / (H / Hkv):
///   K[n] <- k     V[n] <- v     out[h] = sum over the positions p that are seen of softmax_p(<q[h], K[p, h']> / sqrt(P)) V[p,
///   h']
/// (Vaswani et al., arXiv 1706.03762). Seen are n and those before it, or the last `window` of these.
struct DecodeAttentionArgs {
  DataType type;               ///< of everything but the counters
  const void* q;               ///< [B, H, P]
  const void* k;               ///< [B, Hkv, P], sequences k_stride apart
  const void* v;               ///< [B, Hkv, P], sequences v_stride apart
  void* k_cache;               ///< [B, C, Hkv, P]
  void* v_cache;               ///< [B, C, Hkv, P]
  const int64_t* position;     ///< n, in device memory, 0 to C - 1: one for all sequences
  void* out;                   ///< [B, H, P]
  void* workspace;             ///< decode_attention_workspace_bytes()
  int32_t* arrivals;           ///< [B, H] zeros, which they are again at the end
  int64_t batch, capacity;     ///< B, C
  int64_t query_heads;         ///< H, a multiple of Hkv
  int64_t key_heads;           ///< Hkv
  int64_t head_dim;            ///< P, a multiple of 8 up to kDecodeMaxHeadDim
  int64_t k_stride, v_stride;  ///< in elements, multiples of 8
  int64_t window;              ///< 0: all positions are seen
};

constexpr int64_t kDecodeMaxHeadDim = 256;

int64_t decode_attention_workspace_bytes(const DecodeAttentionArgs& args);

/// One launch, whose time and bits depend on the positions that are seen, not on the capacity. Same bits in every run.
void decode_attention(const DecodeAttentionArgs& args, cudaStream_t stream);

}  // namespace scatterlm::kernels
