#include "lib/bench/passes.h"

#include <ATen/ATen.h>

#include "lib/bench/dense.h"
#include "tests/catch.h"

namespace scatterlm::bench {
namespace {

std::vector<std::string> keys_of(const nlohmann::ordered_json& row) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : row.items()) keys.push_back(key);
  return keys;
}

}  // namespace

TEST_CASE("passes: ours and a rival's in the row and in the table", "[passes]") {
  const Machine machine;
  const Conditions conditions{.machine = machine, .routing = RoutingPattern::kRandom, .rounds = 2};
  nlohmann::ordered_json row;
  int ours = 0, rivals = 0;
  const auto text =
      time_passes({{"", "fwd", [&] { ++ours; }, {.flops = 1e9}, {}}, {"aten", "fwd", [&] { ++rivals; }, {.bytes = 8}, {}}},
                  conditions, row);
  REQUIRE((ours >= 2 && ours == rivals));
  REQUIRE(keys_of(row) == std::vector<std::string>{"fwd_ms", "fwd_p10_ms", "fwd_p90_ms", "fwd_tflops", "fwd_ceiling_percent",
                                                   "fwd_roofline_percent", "aten"});
  REQUIRE(row["aten"]["fwd"]["gbps"].is_number());
  REQUIRE_THAT(text, ContainsSubstring("fwd, aten "));
}

TEST_CASE("dense: FLOPs and shapes of one product, of two and of an MLP", "[passes]") {
  const auto x = at::randn({3, 8});
  const auto flops = [&](const std::vector<int64_t>& widths, DenseKind kind) {
    const auto passes = dense_passes("dense", x, widths, kind, Ceilings{.gemm_tflops = 1, .copy_tbps = 1});
    for (const auto& pass : passes) pass.run();  // throws where widths do not fit
    REQUIRE(passes[1].work.flops == 3 * passes[0].work.flops);
    REQUIRE(*passes[0].bound_ms == Approx(passes[0].work.flops / 1e9));
    return passes[0].work.flops;
  };
  REQUIRE(flops({16}, DenseKind::kProducts) == 2 * 3 * 8 * 16);
  REQUIRE(flops({16, 4}, DenseKind::kProducts) == 2 * 3 * (8 * 16 + 16 * 4));
  REQUIRE(flops({16, 8}, DenseKind::kSwiglu) == 2 * 3 * (8 * 16 + 8 * 8));
}

}  // namespace scatterlm::bench
