#include "lib/ops/muon.h"

#include <ATen/ATen.h>

#include "lib/ops/shape.h"
#include "lib/util/error.h"

namespace scatterlm::ops {
namespace {

void require_alike(const at::Tensor& x, const at::Tensor& y) {
  if (x.dim() == 1 && x.sizes() == y.sizes() && x.is_contiguous() && y.is_contiguous()) return;
  fail("[muon] tensors must be contiguous vectors of one length, got {} and {}", shape_of(x), shape_of(y));
}

}  // namespace

void ref::muon_momentum(const MuonMomentum& t, const at::Tensor& grad_scale, const at::Tensor& skip) {
  const auto skipped = skip.to(at::kBool);
  const auto grads = at::where(skipped, 0, t.grads / grad_scale);
  const auto momentum = t.momentum.to(at::kFloat);
  momentum.mul_(at::where(skipped, at::ones_like(skip), at::full_like(skip, t.beta))).add_(grads);
  if (!momentum.is_same(t.momentum)) t.momentum.copy_(momentum);
  t.updates.copy_(grads.add(momentum, t.beta));
}

void ref::muon_apply(const MuonApply& t, const at::Tensor& skip) {
  const auto rate = (1 - skip) * t.lr;  // [1] float32, so that what follows is computed in it whatever the dtypes
  const auto step = at::where(skip.to(at::kBool), 0, t.updates * rate);
  t.weights.copy_(t.weights * (1 - rate * t.weight_decay) - step);
  if (t.params.data_ptr() != t.weights.data_ptr()) t.params.copy_(t.weights);
}

void muon_momentum(const MuonMomentum& t, const at::Tensor& grad_scale, const at::Tensor& skip) {
  require_alike(t.momentum, t.grads);
  require_alike(t.momentum, t.updates);
  if (!cuda::muon_momentum(t, grad_scale, skip)) ref::muon_momentum(t, grad_scale, skip);
}

void muon_apply(const MuonApply& t, const at::Tensor& skip) {
  require_alike(t.weights, t.updates);
  require_alike(t.weights, t.params);
  if (!cuda::muon_apply(t, skip)) ref::muon_apply(t, skip);
}

}  // namespace scatterlm::ops
