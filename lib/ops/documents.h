#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace scatterlm::ops {

/// The documents that B sequences of S tokens are made of, in the forms that kernels of attention take. Every sequence begins a
/// document.
class Documents {
 public:
  /// number_BS [B, S], int32 on the CPU: neighbours of one sequence with equal numbers are one document. What kernels read is
  /// copied to `device` without waiting for it. Throws "[documents] ..." for another shape, dtype or device.
  Documents(const at::Tensor& number_BS, at::Device device);

  int64_t batch() const { return number_BS_.size(0); }
  int64_t length() const { return number_BS_.size(1); }
  /// Number of documents N, and tokens of the longest.
  int64_t count() const { return offsets_N1_.size(0) - 1; }
  int64_t longest() const { return longest_; }
  /// Whether no sequence has a second document, so that causal attention needs nothing else.
  bool one_per_sequence() const { return count() == batch(); }

  /// [N + 1] int32 on the device: document n is tokens offsets[n] .. offsets[n+1]-1 of the B S ("cumulative sequence lengths").
  const at::Tensor& offsets() const { return offsets_N1_; }

  /// bool [B, 1, S, S] on the device: whether the query of the row sees the key of the column, which is one of its own document
  /// up to itself. Made by the first call.
  const at::Tensor& mask() const;

 private:
  at::Tensor number_BS_;   ///< on the CPU
  at::Tensor offsets_N1_;  ///< on the device
  int64_t longest_ = 0;
  mutable at::Tensor mask_;  ///< undefined until it is asked for
};

}  // namespace scatterlm::ops
