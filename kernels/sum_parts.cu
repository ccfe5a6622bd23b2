// Bound by memory: a thread has eight columns.
#include "kernels/sum_parts.h"

#include "kernels/device/ceil_div.h"
#include "kernels/device/eight.cuh"
#include "kernels/device/launch.cuh"
#include "kernels/device/operand.h"

namespace scatterlm::kernels {
namespace {

constexpr int kThreads = 256;

template <class T>
struct Params {
  const T* others;
  const T* own;
  T* out;
  int64_t num_others;
  int64_t own_index;
  int64_t count;
};

template <class T>
__global__ void __launch_bounds__(kThreads) sum_parts_kernel(const __grid_constant__ Params<T> p) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kEight;
  if (i >= p.count) return;
  float sum[kEight], part[kEight];
#pragma unroll
  for (float& of_column : sum) of_column = -0.0F;  // what leaves every number as it is, 0 and -0 too
#pragma unroll 4
  for (int64_t r = 0; r <= p.num_others; ++r) {
    load_eight(r == p.own_index ? p.own + i : p.others + (r - (r > p.own_index)) * p.count + i, part);
#pragma unroll
    for (int j = 0; j < kEight; ++j) sum[j] += part[j];
  }
  store_eight(p.out + i, sum);
}

}  // namespace

void sum_parts(const SumPartsArgs& args, cudaStream_t stream) {
  if (args.count == 0) return;
  check_operand("sum_parts", "others", args.others, args.count);
  check_operand("sum_parts", "own", args.own, args.count);
  check_operand("sum_parts", "out", args.out, args.count);
  with_type(args.type, [&]<class T>(T) {
    const Params<T> params{static_cast<const T*>(args.others),
                           static_cast<const T*>(args.own),
                           static_cast<T*>(args.out),
                           args.num_others,
                           args.own_index,
                           args.count};
    launch("sum_parts", sum_parts_kernel<T>, ceil_div(args.count, kThreads * kEight), kThreads, 0, params, stream);
  });
}

}  // namespace scatterlm::kernels
