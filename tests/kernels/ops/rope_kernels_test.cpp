// Rotary embedding as its op calls the kernel, on CPU tensors: compiled for tests/kernels/emulated.
#include "lib/ops/rope.h"

#include "tests/ops/reference.h"

#include "tests/ops/check_op.h"

namespace scatterlm {
namespace {

using test::Tensors;

/// The rotation of this view of the input.
test::Op rope_of(int64_t positions, int64_t width, const std::function<at::Tensor(const at::Tensor&)>& view) {
  const auto [cos, sin] = ops::rope_tables(positions, width, 1e4, at::kCPU);
  return [=, cos = cos, sin = sin](const Tensors& x) { return ops::rope(view(x[0]), cos, sin); };
}

void require_right(at::IntArrayRef shape, const std::function<at::Tensor(const at::Tensor&)>& view) {
  const auto x = test::randn(shape, 1), viewed = view(x);
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    test::require_low_precision(rope_of(viewed.size(1), viewed.size(-1), view),
                                [&](const Tensors& in) { return reference::rope(view(in[0]), 1e4); }, {x}, {.dtype = dtype});
}

}  // namespace

TEST_CASE("rope on kernels: values and gradients", "[rope]") {
  const auto shape = GENERATE(values<std::vector<int64_t>>({{1, 1, 1, 16}, {2, 5, 3, 48}, {2, 3, 2, 2, 32}, {2, 5, 3, 24}}));
  require_right(shape, [](const at::Tensor& x) { return x; });
}

TEST_CASE("rope on kernels: a slice of a projection, heads outside, heads that are not aligned", "[rope]") {
  require_right({2, 5, 3, 4, 16}, [](const at::Tensor& x) { return x.select(2, 1); });
  require_right({2, 3, 5, 32}, [](const at::Tensor& x) { return x.transpose(1, 2); });
  require_right({2, 5, 3, 33}, [](const at::Tensor& x) { return x.slice(3, 1); });
}

TEST_CASE("rope on kernels: heads to be reordered, aligned or not", "[rope]") {
  require_right({2, 5, 2, 3, 16}, [](const at::Tensor& x) { return x.transpose(2, 3); });
  require_right({2, 5, 2, 3, 17}, [](const at::Tensor& x) { return x.slice(4, 1).transpose(2, 3); });
}

}  // namespace scatterlm
