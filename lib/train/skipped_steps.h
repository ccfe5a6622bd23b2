#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace scatterlm {

/// Counts the steps that were skipped because their loss or gradients were not finite. The counts are on the device, so that
/// counting does not wait for it.
class SkippedSteps {
 public:
  struct Counts {
    int64_t total;        ///< since the run began
    int64_t longest_row;  ///< most of them in a row since the last report
  };

  explicit SkippedSteps(at::Device device);

  /// A step whose `finite` [1] is 1 if it was made and 0 if it was skipped.
  void count(const at::Tensor& finite);
  /// The longest row is from now on that of the steps to come, with the row that the last step may stand in.
  void begin_report();

  /// [kSize] fp64, to be read together with other statistics: what counts_of() understands.
  static constexpr int64_t kSize = 3;
  const at::Tensor& values() const { return values_; }
  static Counts counts_of(const double* values);

  /// For checkpoints. save() waits for the device.
  std::vector<double> save() const;
  void load(const std::vector<double>& saved);

 private:
  at::Tensor values_;  ///< steps in all, in the present row, in the longest row since the last report
};

}  // namespace scatterlm
