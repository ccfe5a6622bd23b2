#include "lib/ops/gemm.h"

#include <ATen/ATen.h>

#include "lib/ops/accumulate_type.h"

namespace at::native {
/// out = alpha a b + beta out by oneDNN. LibTorch exports it without a header; weak, so that a LibTorch without it still links.
__attribute__((weak)) void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& out, float beta, float alpha);
}  // namespace at::native

namespace scatterlm::ops {
namespace {

/// ATen's fp32 products go to MKL, which stays with AVX2 on AMD processors: 102 GFLOP/s a core at 4096 x 128 x 128 on an EPYC
/// 9005, oneDNN with AVX-512 237. Below 2^20 multiplications its set-up costs more than that. ATEN_CPU_CAPABILITY=default keeps
/// to MKL, whose bits can be pinned (MKL_CBWR).
bool prefers_onednn(const at::Tensor& a, const at::Tensor& b) {
  return gemm_compiles_shapes(a) && a.size(0) * a.size(1) * b.size(1) >= 1 << 20;
}

}  // namespace

bool gemm_compiles_shapes(const at::Tensor& a) {
  static const bool has_onednn = at::native::mkldnn_matmul != nullptr && at::get_cpu_capability() == "AVX512";
  return has_onednn && a.is_cpu() && a.scalar_type() == at::kFloat;
}

void gemm(at::Tensor out, const at::Tensor& a, const at::Tensor& b) {
  if (prefers_onednn(a, b)) {
    at::native::mkldnn_matmul(a, b, out, /*beta=*/0, /*alpha=*/1);
  } else {
    at::mm_out(out, a, b);
  }
}

void gemm_add(at::Tensor out, const at::Tensor& a, const at::Tensor& b) {
  if (prefers_onednn(a, b)) {
    at::native::mkldnn_matmul(a, b, out, /*beta=*/1, /*alpha=*/1);
  } else {
    out.addmm_(a, b);
  }
}

at::Tensor wide_gemm(const at::Tensor& a, const at::Tensor& b) {
  const auto wide = accumulate_type(a);
  if (a.is_cuda() && a.scalar_type() == b.scalar_type() && a.scalar_type() != wide) return at::mm(a, b, wide);
  auto out = at::empty({a.size(0), b.size(1)}, a.options().dtype(wide));
  gemm(out, a.to(wide), b.to(wide));
  return out;
}

void update_gemm(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, kernels::GradientUpdate update) {
  const bool adds = update == kernels::GradientUpdate::kAdd;
  if (out.scalar_type() == a.scalar_type()) return adds ? gemm_add(out, a, b) : gemm(out, a, b);
  if (a.is_cuda()) {
    auto in_place = out;
    at::addmm_out(in_place, out, a, b, out.scalar_type(), /*beta=*/adds ? 1 : 0, /*alpha=*/1);
  } else if (adds) {
    out.add_(wide_gemm(a, b));
  } else {
    out.copy_(wide_gemm(a, b));
  }
}

}  // namespace scatterlm::ops
