#include "lib/bench/dense.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "lib/bench/plain.h"

namespace scatterlm::bench {

std::vector<Pass> dense_passes(const std::string& other, const at::Tensor& x, const std::vector<int64_t>& widths,
                               DenseKind kind, const std::optional<Ceilings>& ceilings) {
  std::vector<at::Tensor> leaves = {x.detach().requires_grad_()};
  double flops = 0;
  int64_t in = x.size(1);
  for (const int64_t out : widths) {
    leaves.push_back(at::randn({out, in}, x.options()).mul_(0.02).requires_grad_());
    flops += 2.0 * x.size(0) * in * out;
    in = kind == DenseKind::kSwiglu ? out / 2 : out;
  }
  const auto forward = [=] {
    auto y = at::mm(leaves[0], leaves[1].t());
    if (kind == DenseKind::kSwiglu) y = plain::swiglu(y);
    for (size_t i = 2; i < leaves.size(); ++i) y = at::mm(y, leaves[i].t());
    return y;
  };
  const auto dout = at::randn({x.size(0), widths.back()}, x.options()).mul_(0.2);
  return both_passes(
      other, [=] { forward(); }, [=] { torch::autograd::grad({forward()}, leaves, {dout}); },
      op_work({{.flops = flops}}, {{.flops = 2 * flops}}, ceilings));
}

}  // namespace scatterlm::bench
