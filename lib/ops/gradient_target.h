// Where the backward pass of an op puts the gradient of a parameter.
//
// A parameter's gradient can be a buffer that is used in every step. To zero it first would cost two passes over its memory:
// the zeros, and their reading by the op that adds to them. Instead its owner marks it as unwritten: it holds arbitrary
// numbers, and the first op that takes it as a GradientTarget stores. Ops after that, of other micro-batches or other uses of
// the parameter, add. Before anything else adds to the gradient or reads it, its owner calls zero_if_unwritten().
#pragma once
#include <ATen/core/Tensor.h>

#include "kernels/device/gradient_update.h"

namespace scatterlm::ops {

/// Marks this tensor object, the `grad` of a leaf; other views of the same memory do not show the mark.
void mark_unwritten(const at::Tensor& grad);
/// Whether nothing was written since.
bool is_unwritten(const at::Tensor& grad);
/// Fills a gradient that is marked with zeros, and takes the mark away.
void zero_if_unwritten(const at::Tensor& grad);

/// The gradient of a leaf that has a contiguous float32 or bfloat16 gradient already, which counts as written from now on, if
/// this is the stream on which autograd accumulates it: nothing would order what ops on two streams write there. Otherwise a
/// new tensor of the parameter's shape and dtype, which autograd adds once it is there. The op writes all of tensor(), or adds
/// to all of it, as update() says.
class GradientTarget {
 public:
  explicit GradientTarget(const at::Tensor& parameter);

  const at::Tensor& tensor() const { return tensor_; }
  kernels::GradientUpdate update() const { return update_; }
  /// What the backward pass returns for this parameter: nothing if autograd has nothing left to add. (It still runs the
  /// post-accumulate hook.)
  at::Tensor result() const { return in_place_ ? at::Tensor() : tensor_; }

 private:
  bool in_place_;
  at::Tensor tensor_;
  kernels::GradientUpdate update_ = kernels::GradientUpdate::kStore;
};

}  // namespace scatterlm::ops
