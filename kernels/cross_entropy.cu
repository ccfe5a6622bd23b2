// Bound by memory. A block keeps a row in shared memory between its two passes,
// for the maximum and the sum of exponentials and for the gradient, so memory
// is read once; what does not fit is read twice. A thread reads only what it
// copied itself: as soon as it has written a piece of the gradient, it copies
// the same piece of the block's next row, so that loads are in flight while
// gradients are computed. The exponentials take most instructions, hence their
// approximation.
#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cfloat>

#include "kernels/device/ceil_div.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/operand.h"
#include "kernels/device/vec8.cuh"
#include "kernels/device/warp.cuh"

namespace scatterlm::kernels {
namespace {

constexpr int kThreads = 1024, kVec4 = 4;
/// A piece of a row: four elements of each thread.
constexpr int kPiece = kThreads * kVec4, kPieceBytes = kPiece * sizeof(float);
/// Most pieces in shared memory: 224 of 227 KB.
constexpr int kMaxHeld = 14;

/// Relative error 2^-22 + 2^-23 |x|.
__device__ __forceinline__ float exp_approximate(float x) { return exp2_approximate(x * 1.44269504f); }

/// sum = sum over what was seen of exp(x - highest).
struct ExpSum {
  float highest = -FLT_MAX;  ///< finite: exp(-inf - highest) of a masked logit is 0
  float sum = 0;

  __device__ void add(const float (&x)[kVec4]) {
    float higher = highest;
#pragma unroll
    for (int i = 0; i < kVec4; ++i) higher = fmaxf(higher, x[i]);
    sum *= exp_approximate(highest - higher);
    highest = higher;
#pragma unroll
    for (int i = 0; i < kVec4; ++i) sum += exp_approximate(x[i] - highest);
  }

  static constexpr int kSharedFloats = 2 * kThreads / 32;

  /// Of all threads, in all threads. Calls that follow each other use different
  /// floats of shared memory, so one barrier each is enough.
  __device__ void reduce_block(float* shared) {
    float *highests = shared, *sums = shared + kThreads / 32;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const float of_warp = warp_max(highest);
    const float sum_of_warp = warp_sum(sum * exp_approximate(highest - of_warp));
    if (lane == 0) {
      highests[warp] = of_warp;
      sums[warp] = sum_of_warp;
    }
    __syncthreads();
    highest = warp_max(highests[lane]);
    sum = warp_sum(sums[lane] * exp_approximate(highests[lane] - highest));
  }
};

__device__ __forceinline__ void unpack(uint4 packed, float (&x)[kVec4]) {
  x[0] = float_of_bits(packed.x);
  x[1] = float_of_bits(packed.y);
  x[2] = float_of_bits(packed.z);
  x[3] = float_of_bits(packed.w);
}
__device__ __forceinline__ void store_vec4(float* to, const float (&x)[kVec4]) {
  const uint4 packed{float_bits(x[0]), float_bits(x[1]), float_bits(x[2]), float_bits(x[3])};
  *reinterpret_cast<uint4*>(to) = packed;
}
__device__ __forceinline__ void store_vec4(Bf16* to, const float (&x)[kVec4]) {
  const uint2 packed{pack_bf16(x[0], x[1]), pack_bf16(x[2], x[3])};
  *reinterpret_cast<uint2*>(to) = packed;
}

/// Subtracts 1 from element i if there is one; most threads only compare.
__device__ __forceinline__ void subtract_one(float (&x)[kVec4], int i) {
  if (static_cast<unsigned>(i) >= kVec4) return;
#pragma unroll
  for (int j = 0; j < kVec4; ++j) x[j] -= j == i ? 1.0f : 0.0f;
}

struct Params {
  CrossEntropyArgs args;
  int held;  ///< pieces of a row in shared memory
};

template <class Gradient>
__global__ void __launch_bounds__(kThreads, 1) cross_entropy_kernel(const __grid_constant__ Params params) {
  const auto& p = params.args;
  auto* shared = dynamic_shared<float>();
  const uint32_t held_pieces = shared_address(shared + 2 * ExpSum::kSharedFloats) + threadIdx.x * sizeof(uint4);
  const int first = static_cast<int>(threadIdx.x) * kVec4;
  const int pieces = ceil_div(static_cast<int>(p.vocab) - first, kPiece);  // of this thread
  const int held = min(pieces, params.held);
#pragma unroll 1
  for (int piece = 0; piece < held; ++piece) {
    copy_16_bytes_async(held_pieces + piece * kPieceBytes, p.logits + blockIdx.x * p.vocab + first + piece * kPiece, 16);
    copies_commit();
  }
  int64_t target = p.target[blockIdx.x];
  int turn = 0;
  for (int64_t token = blockIdx.x; token < p.num_tokens; token += gridDim.x) {
    const int64_t begin = token * p.vocab + first;
    const float* logits = p.logits + begin;
    const bool valid = target >= 0 && target < p.vocab;
    const float of_target = valid ? logits[target - first] : NAN;  // the gradient may be written over it
    // With empty groups of copies, here and below, kMaxHeld - 1 groups follow that of any piece.
#pragma unroll 1
    for (int piece = held; piece < kMaxHeld; ++piece) copies_commit();
    ExpSum all;
#pragma unroll 2
    for (int piece = 0; piece < held; ++piece) {
      copies_wait<kMaxHeld - 1>();
      float x[kVec4];
      unpack(load_shared(held_pieces + piece * kPieceBytes), x);
      all.add(x);
      copies_commit();
    }
#pragma unroll 4
    for (int piece = held; piece < pieces; ++piece) {
      float x[kVec4];
      unpack(*reinterpret_cast<const uint4*>(logits + piece * kPiece), x);
      all.add(x);
    }
    all.reduce_block(shared + turn);
    turn ^= ExpSum::kSharedFloats;
    if (threadIdx.x == 0) p.loss[token] = all.highest - of_target + logf(all.sum);

    const float scale = 1.0f / all.sum;
    int one = valid ? static_cast<int>(target) - first : -1;
    const bool more = token + gridDim.x < p.num_tokens;
    if (more) target = p.target[token + gridDim.x];
    // Running variables: the compiler would compute addresses from the number of the piece anew for every use.
    int64_t at = begin;
    const auto store_gradient = [&](uint4 packed) {
      float x[kVec4];
      unpack(packed, x);
#pragma unroll
      for (float& e : x) e = exp_approximate(e - all.highest) * scale;
      subtract_one(x, one);
      store_vec4(static_cast<Gradient*>(p.dlogits) + at, x);
      one -= kPiece;
    };
    uint32_t shared_at = held_pieces;
    const float* next = p.logits + begin + gridDim.x * p.vocab;
#pragma unroll 2
    for (int piece = 0; piece < held; ++piece, at += kPiece, shared_at += kPieceBytes, next += kPiece) {
      if (p.dlogits) store_gradient(load_shared(shared_at));
      if (more) copy_16_bytes_async(shared_at, next, 16);
      copies_commit();
    }
    if (p.dlogits) {
#pragma unroll 4
      for (int piece = held; piece < pieces; ++piece, at += kPiece)
        store_gradient(*reinterpret_cast<const uint4*>(p.logits + at));
    }
  }
}

}  // namespace

void cross_entropy(const CrossEntropyArgs& args, cudaStream_t stream) {
  check_operand("cross_entropy", "logits", args.logits, args.vocab);
  check_operand("cross_entropy", "dlogits", args.dlogits, args.vocab);
  if (args.num_tokens == 0) return;
  constexpr int64_t kSharedFloatBytes = 2 * ExpSum::kSharedFloats * sizeof(float);
  const int64_t fit = (max_shared_bytes("cross_entropy") - kSharedFloatBytes) / kPieceBytes;
  const int64_t held = std::min({ceil_div(args.vocab, int64_t{kPiece}), fit, int64_t{kMaxHeld}});
  with_type(args.dlogits_type, [&](auto element) {
    launch("cross_entropy", cross_entropy_kernel<decltype(element)>, std::min(args.num_tokens, args.num_sms), kThreads,
           kSharedFloatBytes + held * kPieceBytes, Params{args, static_cast<int>(held)}, stream);
  });
}

}  // namespace scatterlm::kernels
