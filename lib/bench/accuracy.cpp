#include "lib/bench/accuracy.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>

#include "lib/util/error.h"

namespace scatterlm::bench {
namespace {

/// A rounding of bf16; what a few sums of fp32 in another order differ by.
double slack_of(at::ScalarType dtype) { return dtype == at::kBFloat16 ? 0x1p-8 : 0x1p-21; }

double ratio_of_errors(const std::string& what, const Comparison& result) {
  if (!at::isFloatingType(result.actual.scalar_type())) {
    if (!at::equal(result.actual, result.truth)) fail("[{}] {} is wrong: it differs from plain LibTorch", what, result.name);
    return 0;
  }
  const double error = worst_row_error(result.actual, result.truth), plain = worst_row_error(result.plain, result.truth),
               slack = slack_of(result.actual.scalar_type());
  if (!(error <= 2 * plain + slack))
    fail("[{}] {} is wrong: relative error {:.2e} of the worst row, {:.2e} in plain LibTorch; not timed", what, result.name,
         error, plain);
  return error / (plain > 0 ? plain : slack);
}

}  // namespace

double worst_row_error(const at::Tensor& actual, const at::Tensor& truth) {
  if (truth.numel() == 0) return 0;
  const auto rows = [](const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); };
  const auto squares = (rows(actual).to(truth.scalar_type()) - rows(truth)).square_().sum(1);
  const double worst = squares.max().item<double>(), mean = rows(truth).square().sum(1).mean().item<double>();
  if (!std::isfinite(worst) || !std::isfinite(mean)) return std::numeric_limits<double>::infinity();
  if (worst == 0) return 0;
  return std::sqrt(worst / mean);
}

double require_accurate(const std::string& what, const std::vector<Comparison>& results) {
  double largest = 0;
  for (const auto& result : results) largest = std::max(largest, ratio_of_errors(what, result));
  return largest;
}

at::ScalarType higher_precision(at::ScalarType dtype) { return dtype == at::kBFloat16 ? at::kFloat : at::kDouble; }

}  // namespace scatterlm::bench
