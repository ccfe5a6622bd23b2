// ParallelLinear as its op calls the kernels, on CPU tensors: kernels compiled for tests/kernels/emulated.
#include "lib/ops/device.h"
#include "tests/catch.h"
#include "tests/ops/parallel_linear_forms.h"

namespace scatterlm {

using test::ExpertCase;
using namespace test::parallel_linear;

TEST_CASE("parallel_linear on kernels: values and gradients in every row order", "[parallel_linear]") {
  ops::assume_compute_capability(GENERATE(80, 90));
  const auto form = GENERATE(from_range(all_forms()));
  const auto c = GENERATE(
      ExpertCase{.name = "tile edges", .tokens = 129, .top_k = 2, .experts = 5, .model = 72, .width = 136},
      ExpertCase{
          .name = "idle", .tokens = 70, .top_k = 3, .experts = 8, .model = 264, .width = 40, .load = ExpertCase::kIdleExperts},
      ExpertCase{.name = "one token", .tokens = 1, .top_k = 1, .experts = 4, .model = 8, .width = 24});
  INFO(form.name << ", " << c.name);
  test::require_low_precision(op_for(c, form), reference_for(c, form), make_inputs(c, form),
                              {.dtype = at::kBFloat16, .wide = {2}});
}

TEST_CASE("parallel_linear on kernels: no tokens", "[parallel_linear]") {
  ops::assume_compute_capability(GENERATE(80, 90));
  const auto form = GENERATE(from_range(all_forms()));
  const ExpertCase c{.name = "", .tokens = 0, .top_k = 2, .experts = 3, .model = 8, .width = 16};
  auto inputs = make_inputs(c, form);
  for (int i = 0; i < 2; ++i) inputs[i] = inputs[i].to(at::kBFloat16);
  if (form.gated) inputs[2] = inputs[2].to(at::kFloat);
  const auto result = test::run(op_for(c, form), inputs);
  REQUIRE(result.value.sizes() == at::IntArrayRef({0, 16}));
  REQUIRE(test::max_abs(result.grads[1]) == 0);
}

}  // namespace scatterlm
