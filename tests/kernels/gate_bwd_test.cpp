#include "kernels/gate_bwd.h"

#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {

TEST_CASE("gate_bwd: values", KERNEL_TAGS) {
  const int rows = GENERATE(1, 37), n = GENERATE(8, 264);
  const bool listed = GENERATE(false, true);
  INFO("rows " << rows << ", n " << n << ", rows of x listed " << listed);
  const auto da = randn(size_t(rows) * n, 1), x = randn(size_t(rows) * n, 2);
  const auto sorted = random_permutation(rows, 3);
  const auto gates = uniform(rows, 4);
  const Buffer<Bf16> da_R(da), x_R(x), dx(da.size()), x_gated(da.size());
  const Buffer<int32_t> sorted_R(sorted);
  const Buffer<float> gates_R(gates), dgates(gates.size());
  const int32_t* list = listed ? sorted_R.data() : nullptr;
  gate_bwd({.da = da_R.data(),
            .x = x_R.data(),
            .x_rows_R = list,
            .sorted_R = sorted_R.data(),
            .gates = gates_R.data(),
            .dx = dx.data(),
            .dx_rows_R = list,
            .x_gated = x_gated.data(),
            .dgates = dgates.data(),
            .num_rows = rows,
            .n = n},
           nullptr);

  std::vector<double> dx_expected(da.size()), x_gated_expected(da.size()), dgates_expected(rows);
  for (int m = 0; m < rows; ++m) {
    const int slot = sorted[m], at = listed ? slot : m;
    for (int i = 0; i < n; ++i) {
      const double d = to_float(da[size_t(m) * n + i]), v = to_float(x[size_t(at) * n + i]);
      dgates_expected[slot] += d * v;
      dx_expected[size_t(at) * n + i] = gates[slot] * d;
      x_gated_expected[size_t(m) * n + i] = gates[slot] * v;
    }
  }
  REQUIRE(rounding_errors(dx.host(), dx_expected) < 1.2);
  REQUIRE(rounding_errors(x_gated.host(), x_gated_expected) < 1.2);
  REQUIRE(relative_error(dgates.host(), dgates_expected) < 1e-5);
}

}  // namespace scatterlm::kernels::test
