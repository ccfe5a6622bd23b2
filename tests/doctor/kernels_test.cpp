#include "lib/doctor/kernels.h"

#include "tests/catch.h"

using namespace scatterlm;

TEST_CASE("doctor: the ops of this machine are as exact as plain LibTorch, and every family is named") {
  const auto findings = doctor::check_kernels();
  REQUIRE(findings.size() == 1);
  INFO(findings[0].text);
  REQUIRE(findings[0].health == doctor::Health::kOk);
  for (const char* family :
       {"activation", "rms_norm", "rope", "cross_entropy", "reduce_partials", "moe_mlp", "inference", "router",
        "token_rounding", "moa", "parallel_linear", "adamw", "grouped_gemm", "gather_sum", "routing"})
    REQUIRE_THAT(findings[0].text, ContainsSubstring(family));
}
