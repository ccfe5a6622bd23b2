#include "lib/ops/gradient_target.h"

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

namespace scatterlm::ops {
namespace {

/// LibTorch keeps such an object with a tensor for backends other than its own.
struct UnwrittenMark final : c10::BackendMeta {};

/// Whether autograd would add to this leaf's gradient on the current stream.
bool accumulates_on_this_stream(const at::Tensor& leaf) {
  if (leaf.is_cpu()) return true;
  const auto accumulator = torch::autograd::impl::try_get_grad_accumulator(leaf);
  const auto stream = accumulator ? accumulator->stream() : std::nullopt;
  return !stream || *stream == c10::impl::VirtualGuardImpl(leaf.device().type()).getStream(leaf.device());
}

bool can_be_target(const at::Tensor& parameter) {
  if (!parameter.is_leaf() || !parameter.grad().defined() || !parameter.grad().is_contiguous()) return false;
  const auto dtype = parameter.grad().scalar_type();
  return (dtype == at::kFloat || dtype == at::kBFloat16) && accumulates_on_this_stream(parameter);
}

void mark_written(const at::Tensor& grad) { grad.unsafeGetTensorImpl()->set_backend_meta(nullptr); }

}  // namespace

void mark_unwritten(const at::Tensor& grad) {
  grad.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<UnwrittenMark>());
}

bool is_unwritten(const at::Tensor& grad) {
  return dynamic_cast<UnwrittenMark*>(grad.unsafeGetTensorImpl()->get_backend_meta()) != nullptr;
}

void zero_if_unwritten(const at::Tensor& grad) {
  if (!is_unwritten(grad)) return;
  grad.zero_();
  mark_written(grad);
}

GradientTarget::GradientTarget(const at::Tensor& parameter)
    : in_place_(can_be_target(parameter)), tensor_(in_place_ ? parameter.grad() : at::empty_like(parameter)) {
  if (!in_place_) return;
  if (is_unwritten(tensor_)) {
    mark_written(tensor_);
  } else {
    update_ = kernels::GradientUpdate::kAdd;
  }
}

}  // namespace scatterlm::ops
