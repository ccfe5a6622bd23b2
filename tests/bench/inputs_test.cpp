#include "lib/bench/inputs.h"

#include <ATen/ATen.h>

#include "tests/catch.h"

namespace scatterlm::bench {
namespace {

at::Tensor logits_TE(int64_t tokens, int64_t experts) {
  return at::randn({tokens, experts}, at::make_generator<at::CPUGeneratorImpl>(7), at::kFloat);
}

std::vector<int64_t> counts(const Choice& choice, int64_t experts) {
  const auto counted = at::bincount(choice.ids_TK.flatten(), {}, experts);
  return {counted.const_data_ptr<int64_t>(), counted.const_data_ptr<int64_t>() + experts};
}

}  // namespace

TEST_CASE("inputs: gates and experts of every pattern", "[inputs]") {
  const auto pattern = GENERATE(RoutingPattern::kRandom, RoutingPattern::kBalanced, RoutingPattern::kSkewed,
                                RoutingPattern::kCollapsed, RoutingPattern::kOne);
  const auto choice = choose_experts(pattern, logits_TE(100, 16), 4);
  REQUIRE(choice.ids_TK.scalar_type() == at::kInt);
  REQUIRE(choice.gates_TK.scalar_type() == at::kFloat);
  REQUIRE(choice.ids_TK.sizes() == at::IntArrayRef({100, 4}));
  REQUIRE(at::allclose(choice.gates_TK.sum(1), at::ones({100})));
  REQUIRE((choice.ids_TK.min().item<int>() >= 0 && choice.ids_TK.max().item<int>() < 16));
  if (pattern == RoutingPattern::kOne) return;
  for (int64_t t = 0; t < 100; ++t) REQUIRE(std::get<0>(at::_unique(choice.ids_TK[t])).numel() == 4);
}

TEST_CASE("inputs: how the patterns spread the rows", "[inputs]") {
  const auto logits = logits_TE(1000, 16);
  const auto most = [&](RoutingPattern pattern) {
    const auto rows = counts(choose_experts(pattern, logits, 4), 16);
    return *std::max_element(rows.begin(), rows.end());
  };
  REQUIRE(most(RoutingPattern::kBalanced) == 250);
  REQUIRE(most(RoutingPattern::kOne) == 4000);
  REQUIRE((most(RoutingPattern::kRandom) > 250 && most(RoutingPattern::kRandom) < 320));
  REQUIRE((most(RoutingPattern::kSkewed) > 600 && most(RoutingPattern::kSkewed) <= 1000));
  auto rows = counts(choose_experts(RoutingPattern::kCollapsed, logits, 4), 16);
  std::sort(rows.begin(), rows.end(), std::greater<>());
  REQUIRE(rows[0] > 900);
  REQUIRE(rows[12] < 20);
  REQUIRE(rows[0] + rows[1] + rows[2] + rows[3] > 3100);
}

TEST_CASE("inputs: random experts have the largest logits", "[inputs]") {
  const auto logits = at::tensor({1.0F, 3.0F, 2.0F, 0.0F}).view({1, 4});
  const auto choice = choose_experts(RoutingPattern::kRandom, logits, 2);
  REQUIRE(at::equal(choice.ids_TK, at::tensor({1, 2}, at::kInt).view({1, 2})));
  REQUIRE(choice.gates_TK[0][0].item<float>() == Approx(std::exp(1.0) / (1 + std::exp(1.0))));
}

TEST_CASE("inputs: sizes, scales and the same data every time", "[inputs]") {
  const MoeShape shape{.tokens = 64, .model = 32, .width = 24, .experts = 8, .top_k = 2};
  const auto in = make_inputs(shape, RoutingPattern::kRandom, at::kCPU),
             again = make_inputs(shape, RoutingPattern::kRandom, at::kCPU);
  REQUIRE(in.w1.sizes() == at::IntArrayRef({8, 48, 32}));
  REQUIRE(in.w2.sizes() == at::IntArrayRef({8, 32, 24}));
  REQUIRE(in.x_TD.std().item<float>() == Approx(0.2).epsilon(0.1));
  REQUIRE(in.w1.std().item<float>() == Approx(0.02).epsilon(0.1));
  REQUIRE(in.dout_TD.std().item<float>() == Approx(0.2).epsilon(0.1));
  REQUIRE((at::equal(in.dout_TD, again.dout_TD) && at::equal(in.ids_TK, again.ids_TK)));
  REQUIRE_FALSE(at::equal(in.dout_TD, in.x_TD));
}

TEST_CASE("inputs: names of the patterns", "[inputs]") {
  REQUIRE(parse_routing("skewed") == RoutingPattern::kSkewed);
  REQUIRE(parse_routing("collapsed") == RoutingPattern::kCollapsed);
  REQUIRE(std::string(routing_name(RoutingPattern::kOne)) == "one");
  REQUIRE_THROWS_WITH(parse_routing("all"),
                      ContainsSubstring("--routing: got 'all', must be random, balanced, skewed, collapsed or one"));
}

}  // namespace scatterlm::bench
