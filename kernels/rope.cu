// Bound by memory. A block per position of a sequence, for all of its heads; a thread rotates eight neighbouring pairs.
#include "kernels/rope.h"

#include <algorithm>

#include "kernels/device/ceil_div.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/vec8.cuh"

namespace scatterlm::kernels {
namespace {

constexpr int kMaxThreads = 256;

template <class Element>
__global__ void __launch_bounds__(kMaxThreads) rope_kernel(const __grid_constant__ RopeArgs p) {
  const int64_t row = blockIdx.x, b = row / p.positions, s = row % p.positions, half = p.head_dim / 2;
  const auto* x = static_cast<const Element*>(p.x) + b * p.stride_b + s * p.stride_s;
  const int heads = static_cast<int>(p.heads), all_heads = static_cast<int>(p.groups) * heads;
  auto* y = static_cast<Element*>(p.y) + row * all_heads * p.head_dim;
  const int chunks = static_cast<int>(half / kVec8), work = all_heads * chunks;
  const float sign = p.back ? -1.0f : 1.0f;
  for (int n = threadIdx.x; n < work; n += blockDim.x) {
    const int head = n / chunks, column = n % chunks * kVec8;
    const auto* from = x + head / heads * p.stride_g + head % heads * p.stride_h + column;
    auto* to = y + head * p.head_dim + column;
    float low[kVec8], high[kVec8], cosine[kVec8], sine[kVec8];
    load_vec8(from, low);
    load_vec8(from + half, high);
    load_vec8(p.cos + s * half + column, cosine);
    load_vec8(p.sin + s * half + column, sine);
#pragma unroll
    for (int i = 0; i < kVec8; ++i) {
      const float l = low[i], h = high[i], turn = sign * sine[i];
      low[i] = l * cosine[i] - h * turn;
      high[i] = h * cosine[i] + l * turn;
    }
    store_vec8(to, low);
    store_vec8(to + half, high);
  }
}

}  // namespace

void rope(const RopeArgs& args, cudaStream_t stream) {
  if (args.head_dim < 2 * kVec8 || args.head_dim % (2 * kVec8) != 0)
    throw KernelError("[rope] P must be a multiple of 16, got " + std::to_string(args.head_dim));
  if (args.batch == 0 || args.positions == 0 || args.groups == 0 || args.heads == 0) return;
  const int64_t work = args.groups * args.heads * args.head_dim / (2 * kVec8);
  const int threads = static_cast<int>(std::min<int64_t>(kMaxThreads, ceil_div(work, 32) * 32));
  with_type(args.type, [&](auto element) {
    launch("rope", rope_kernel<decltype(element)>, args.batch * args.positions, threads, 0, args, stream);
  });
}

}  // namespace scatterlm::kernels
