// Bound by memory: a thread has eight columns.
#include "kernels/sum_parts.h"

#include "kernels/device/ceil_div.h"
#include "kernels/device/eight.cuh"
#include "kernels/device/launch.cuh"

namespace scatterlm::kernels {
namespace {

constexpr int kThreads = 256;

template <class T>
struct Params {
  const T* parts;
  T* out;
  int num_parts;
  int64_t count;
};

template <class T>
__global__ void __launch_bounds__(kThreads) sum_parts_kernel(const __grid_constant__ Params<T> p) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kEight;
  if (i >= p.count) return;
  float sum[kEight], part[kEight];
  load_eight(p.parts + i, sum);
#pragma unroll 4
  for (int r = 1; r < p.num_parts; ++r) {
    load_eight(p.parts + r * p.count + i, part);
#pragma unroll
    for (int j = 0; j < kEight; ++j) sum[j] += part[j];
  }
  store_eight(p.out + i, sum);
}

}  // namespace

void sum_parts(const SumPartsArgs& args, cudaStream_t stream) {
  if (args.count == 0) return;
  with_type(args.type, [&]<class T>(T) {
    const Params<T> params{static_cast<const T*>(args.parts), static_cast<T*>(args.out), args.num_parts, args.count};
    launch("sum_parts", sum_parts_kernel<T>, ceil_div(args.count, kThreads * kEight), kThreads, 0, params, stream);
  });
}

}  // namespace scatterlm::kernels
