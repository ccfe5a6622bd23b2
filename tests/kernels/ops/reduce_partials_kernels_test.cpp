// The sum over ranks as its op calls the kernel, on CPU tensors: compiled for tests/kernels/emulated.
#include "lib/ops/reduce_partials.h"

#include <ATen/ATen.h>

#include "tests/catch.h"

namespace scatterlm {

TEST_CASE("reduce_partials on kernels: the bits of the order of the parts, also where kernels cannot load",
          "[reduce_partials]") {
  const int64_t num_others = GENERATE(1, 2, 7), count = GENERATE(8, 12, 2056);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto others = (at::randn({num_others, count}) * 100).to(dtype), own = (at::randn({count}) * 100).to(dtype);
    for (int64_t own_index = 0; own_index <= num_others; ++own_index) {
      const auto parts = at::cat({others.slice(0, 0, own_index), own.view({1, count}), others.slice(0, own_index)});
      auto sum = parts[0].to(at::kFloat, false, true), out = at::full({count}, NAN, dtype);
      for (int64_t r = 1; r <= num_others; ++r) sum += parts[r];
      ops::reduce_partials(others, own, own_index, out);
      REQUIRE(out.equal(sum.to(dtype)));
    }
  }
}

}  // namespace scatterlm
