#include "kernels/router_logits.h"

#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {

TEST_CASE("router_logits: values", KERNEL_TAGS) {
  const int tokens = GENERATE(0, 1, 3, 8), experts = GENERATE(1, 7, 64), width = GENERATE(8, 264, 2048, 2312);
  INFO("T " << tokens << ", E " << experts << ", D " << width);
  const auto x = randn(size_t(tokens) * width, 1), weight = randn(size_t(experts) * width, 2);
  const Buffer<Bf16> x_TD(x), weight_ED(weight);
  const Buffer<float> logits_TE(size_t(tokens) * experts);
  router_logits({x_TD.data(), weight_ED.data(), logits_TE.data(), tokens, experts, width}, nullptr);
  std::vector<double> expected;
  for (int t = 0; t < tokens; ++t)
    for (int e = 0; e < experts; ++e) {
      double sum = 0;
      for (int i = 0; i < width; ++i)
        sum += double(to_float(x[size_t(t) * width + i])) * to_float(weight[size_t(e) * width + i]);
      expected.push_back(sum);
    }
  const auto actual = logits_TE.host();
  if (tokens > 0) REQUIRE(relative_error(actual, expected) < 1e-6);
}

TEST_CASE("router_logits: errors", KERNEL_TAGS) {
  RouterLogitsArgs args{.num_tokens = 9, .num_experts = 2, .width = 16};
  REQUIRE_THROWS_WITH(router_logits(args, nullptr), "[router_logits] T must be at most 8, got 9");
  args.width = 12;
  REQUIRE_THROWS_WITH(router_logits(args, nullptr), "[router_logits] rows of x must be multiples of 8 elements, got 12");
}

}  // namespace scatterlm::kernels::test
