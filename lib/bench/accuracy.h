// Only correct results are timed: their error against a higher precision, compared with that of plain LibTorch.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace scatterlm::bench {

/// One result three times: ours, of plain LibTorch in the same precision, and of plain LibTorch in a higher one. Integers must
/// be equal.
struct Comparison {
  std::string name;
  at::Tensor actual, plain, truth;
};

/// Largest norm of actual - truth of a row [..., n], over the root mean square norm of the rows of truth. So that one wrong row
/// among millions is seen. Infinite if a value is not finite.
double worst_row_error(const at::Tensor& actual, const at::Tensor& truth);

/// The largest error of a result in units of plain LibTorch's. Throws Error "[what] name is wrong: ..." if one is more than
/// twice as large, plus a few units in the last place.
double require_accurate(const std::string& what, const std::vector<Comparison>& results);

/// The precision to compare with: fp32 for bfloat16, fp64 for fp32.
at::ScalarType higher_precision(at::ScalarType dtype);

}  // namespace scatterlm::bench
