#include "kernels/activation_rows.h"

#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/oracle.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {

TEST_CASE("activation_rows: values and gradients of every activation", KERNEL_TAGS) {
  const auto kind =
      GENERATE(Activation::kSwiglu, Activation::kGeglu, Activation::kReglu, Activation::kRelu2, Activation::kGelu);
  const int rows = GENERATE(0, 1, 37), width = GENERATE(8, 264);
  INFO("activation " << static_cast<int>(kind) << ", R " << rows << ", F " << width);
  const auto h = randn(size_t(rows) * width * (is_gated(kind) ? 2 : 1), 1), da = randn(size_t(rows) * width, 2);
  const Buffer<Bf16> h_R(h), da_R(da), a(da.size()), dh(h.size());
  const ActivationRowsArgs args{kind, h_R.data(), rows, width};
  activation_rows_fwd(args, a.data(), nullptr);
  activation_rows_bwd(args, da_R.data(), dh.data(), nullptr);
  const auto values = a.host(), gradients = dh.host();
  if (rows == 0) return;
  std::vector<double> da_exact;
  for (const auto value : da) da_exact.push_back(to_float(value));
  const auto expected = oracle::activation_bwd(kind, h, da_exact, std::vector<float>(rows, 1.0f), width);
  REQUIRE(rounding_errors(values, oracle::activation(kind, h, width)) < 1.2);
  REQUIRE(rounding_errors(gradients, expected.dh) < 1.2);
}

TEST_CASE("activation_rows: F must be a multiple of 8", KERNEL_TAGS) {
  REQUIRE_THROWS_WITH(activation_rows_fwd({.num_rows = 1, .width = 12}, nullptr, nullptr),
                      "[activation_rows] rows of h must be multiples of 8 elements, got 12");
}

}  // namespace scatterlm::kernels::test
