// What the CPU loops of the ops share: element types and threads over rows.
#pragma once
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <cstdint>

#include "lib/ops/vector_math.h"
#include "lib/util/error.h"

namespace scatterlm::ops {

/// Sums of bfloat16 are kept in float.
template <class T>
struct Accumulate {
  using type = T;
};
template <>
struct Accumulate<c10::BFloat16> {
  using type = float;
};
template <class T>
using acc_t = typename Accumulate<T>::type;

/// Calls f with a value of the tensor's element type: `dispatch_float(x, "rms_norm", [&](auto zero) { using T = decltype(zero);
/// ... })`.
template <class F>
void dispatch_float(const at::Tensor& x, const char* op, F&& f) {
  switch (x.scalar_type()) {
    case at::kFloat: return f(float{});
    case at::kDouble: return f(double{});
    case at::kBFloat16: return f(c10::BFloat16{});
    default: fail("[{}] dtype must be float32, float64 or bfloat16, got {}", op, c10::toString(x.scalar_type()));
  }
}

/// body(first, last) over the rows, in parallel where `width` elements per row make it worth a thread.
template <class F>
void for_rows(int64_t rows, int64_t width, F&& body) {
  constexpr int64_t kElementsPerThread = 8192;
  at::parallel_for(0, rows, std::max<int64_t>(1, kElementsPerThread / std::max<int64_t>(1, width)), std::forward<F>(body));
}

/// Rows in blocks of fixed borders: sums that are kept per block and added in order do not depend on the number of threads.
struct RowBlocks {
  static constexpr int64_t kCount = 16;
  int64_t rows;
  int64_t block_rows() const { return (rows + kCount - 1) / kCount; }

  /// body(block, first row, last row), blocks in parallel.
  template <class F>
  void run(int64_t width, F&& body) const {
    for_rows(kCount, block_rows() * width, [&](int64_t first, int64_t last) {
      for (int64_t b = first; b < last; ++b)
        if (b * block_rows() < rows) body(b, b * block_rows(), std::min(rows, (b + 1) * block_rows()));
    });
  }
};

}  // namespace scatterlm::ops
