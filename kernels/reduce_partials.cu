// Bound by memory: a thread has eight columns.
#include "kernels/reduce_partials.h"

#include "kernels/device/ceil_div.h"
#include "kernels/device/launch.cuh"
#include "kernels/device/operand.h"
#include "kernels/device/vec8.cuh"

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
__global__ void __launch_bounds__(kThreads) reduce_partials_kernel(const __grid_constant__ Params<T> p) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kVec8;
  if (i >= p.count) return;
  float sum[kVec8], part[kVec8];
#pragma unroll
  for (float& of_column : sum) of_column = -0.0F;  // what leaves every number as it is, 0 and -0 too
#pragma unroll 4
  for (int64_t r = 0; r <= p.num_others; ++r) {
    load_vec8(r == p.own_index ? p.own + i : p.others + (r - (r > p.own_index)) * p.count + i, part);
#pragma unroll
    for (int j = 0; j < kVec8; ++j) sum[j] += part[j];
  }
  store_vec8(p.out + i, sum);
}

}  // namespace

void reduce_partials(const ReducePartialsArgs& args, cudaStream_t stream) {
  if (args.count == 0) return;
  check_operand("reduce_partials", "others", args.others, args.count);
  check_operand("reduce_partials", "own", args.own, args.count);
  check_operand("reduce_partials", "out", args.out, args.count);
  with_type(args.type, [&]<class T>(T) {
    const Params<T> params{static_cast<const T*>(args.others),
                           static_cast<const T*>(args.own),
                           static_cast<T*>(args.out),
                           args.num_others,
                           args.own_index,
                           args.count};
    launch("reduce_partials", reduce_partials_kernel<T>, ceil_div(args.count, kThreads * kVec8), kThreads, 0, params, stream);
  });
}

}  // namespace scatterlm::kernels
