#include "lib/train/skipped_steps.h"

#include <ATen/ATen.h>

namespace scatterlm {
namespace {

constexpr int64_t kTotal = 0, kRow = 1, kLongestRow = 2;

}  // namespace

SkippedSteps::SkippedSteps(at::Device device)
    : values_(at::zeros({kSize}, at::TensorOptions().dtype(at::kDouble).device(device))) {}

void SkippedSteps::count(const at::Tensor& finite) {
  const auto value = [&](int64_t which) { return values_.narrow(0, which, 1); };
  const auto skipped = (1 - finite).to(at::kDouble);
  const auto row = (value(kRow) + 1) * skipped;
  values_ = at::cat({value(kTotal) + skipped, row, at::maximum(row, value(kLongestRow))});
}

void SkippedSteps::begin_report() { values_.narrow(0, kLongestRow, 1).copy_(values_.narrow(0, kRow, 1)); }

SkippedSteps::Counts SkippedSteps::counts_of(const double* values) {
  return {static_cast<int64_t>(values[kTotal]), static_cast<int64_t>(values[kLongestRow])};
}

std::vector<double> SkippedSteps::save() const {
  const auto read = values_.cpu();
  const double* first = read.const_data_ptr<double>();
  return {first, first + kSize};
}

void SkippedSteps::load(const std::vector<double>& saved) { values_.copy_(at::tensor(saved, at::kDouble)); }

}  // namespace scatterlm
