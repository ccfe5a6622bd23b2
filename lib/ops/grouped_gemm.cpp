#include "lib/ops/grouped_gemm.h"

#include <ATen/ATen.h>

#include <bit>

#include "lib/ops/gemm.h"

namespace scatterlm::ops {
namespace {

/// at::_grouped_mm reads its offsets on the device, but takes only bfloat16 with rows of whole 16-byte pieces.
bool has_device_gemm(const at::Tensor& a, const at::Tensor& b) {
  return a.is_cuda() && a.scalar_type() == at::kBFloat16 && a.size(-1) % 8 == 0 && b.size(-1) % 8 == 0;
}

/// body(e, first, last) for the rows of every expert that has some; brings the offsets to the host. An expert has another
/// number of rows in each step; where shapes are compiled they come in pieces of 2^n >= 64 rows and a rest.
template <class F>
void for_experts(const at::Tensor& x_RN, const at::Tensor& offsets_E1, F&& body) {
  const bool in_pieces = gemm_compiles_shapes(x_RN);
  const auto host = offsets_E1.cpu();
  const auto* offsets = host.const_data_ptr<int32_t>();
  for (int64_t e = 0; e + 1 < host.numel(); ++e) {
    int64_t first = offsets[e];
    const int64_t last = offsets[e + 1];
    while (first < last) {
      const auto left = static_cast<uint64_t>(last - first);
      const int64_t rows = static_cast<int64_t>(in_pieces && left >= 64 ? std::bit_floor(left) : left);
      body(e, first, first + rows);
      first += rows;
    }
  }
}

}  // namespace

at::Tensor grouped_gemm_fwd(const at::Tensor& x_RN, const at::Tensor& weight, const at::Tensor& offsets_E1) {
  if (has_device_gemm(x_RN, weight)) return at::_grouped_mm(x_RN, weight.transpose(1, 2), offsets_E1.slice(0, 1));
  auto y = at::empty({x_RN.size(0), weight.size(1)}, x_RN.options());
  for_experts(x_RN, offsets_E1, [&](int64_t e, int64_t first, int64_t last) {
    gemm(y.slice(0, first, last), x_RN.slice(0, first, last), weight.select(0, e).t());
  });
  return y;
}

at::Tensor grouped_gemm_dgrad(const at::Tensor& dy_RN, const at::Tensor& weight, const at::Tensor& offsets_E1) {
  if (has_device_gemm(dy_RN, weight)) return at::_grouped_mm(dy_RN, weight, offsets_E1.slice(0, 1));
  auto dx = at::empty({dy_RN.size(0), weight.size(2)}, dy_RN.options());
  for_experts(dy_RN, offsets_E1, [&](int64_t e, int64_t first, int64_t last) {
    gemm(dx.slice(0, first, last), dy_RN.slice(0, first, last), weight.select(0, e));
  });
  return dx;
}

at::Tensor grouped_gemm_wgrad(const at::Tensor& dy_RN, const at::Tensor& x_RN, const at::Tensor& offsets_E1) {
  if (has_device_gemm(dy_RN, x_RN)) return at::_grouped_mm(dy_RN.t(), x_RN, offsets_E1.slice(0, 1));
  auto dweight = at::zeros({offsets_E1.size(0) - 1, dy_RN.size(1), x_RN.size(1)}, dy_RN.options());
  for_experts(x_RN, offsets_E1, [&](int64_t e, int64_t first, int64_t last) {
    gemm_add(dweight.select(0, e), dy_RN.slice(0, first, last).t(), x_RN.slice(0, first, last));
  });
  return dweight;
}

}  // namespace scatterlm::ops
