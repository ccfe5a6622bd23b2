// The sum over ranks as its op calls the kernel, on CPU tensors: compiled for tests/kernels/emulated.
#include "lib/ops/sum_parts.h"

#include <ATen/ATen.h>

#include "tests/catch.h"

namespace scatterlm {

TEST_CASE("sum_parts on kernels: the bits of the order of the parts, also where kernels cannot load", "[sum_parts]") {
  const int64_t parts = GENERATE(1, 2, 8), count = GENERATE(8, 12, 2056);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto x = (at::randn({parts, count}) * 100).to(dtype);
    auto sum = x[0].to(at::kFloat, false, true), out = at::full({count}, NAN, dtype);
    for (int64_t r = 1; r < parts; ++r) sum += x[r];
    ops::sum_parts(x, out);
    REQUIRE(out.equal(sum.to(dtype)));
  }
}

}  // namespace scatterlm
