#include "lib/report/router_health.h"

#include <cmath>

#include "tests/catch.h"

using namespace scatterlm;

namespace {

/// One reported step of a model with two routers of 16 experts, of which a token takes 4 (or 1).
StepReport routed(int64_t step, double first_load, double second_load, int64_t second_dead = 0, int64_t top_k = 4) {
  const double limit = 16.0 / static_cast<double>(top_k);
  return {.step = step,
          .routers = {{.name = "layers.1.attention", .load_max_mean = first_load, .load_limit = limit, .num_experts = 16},
                      {.name = "layers.1.mlp",
                       .load_max_mean = second_load,
                       .load_limit = limit,
                       .num_experts = 16,
                       .dead_experts = second_dead}}};
}

RouterHealth health(Balance balance = Balance::kAux) {
  Config config;
  config.model.router.balance = balance;
  config.optim.warmup_steps = 100;
  return RouterHealth(config);
}

}  // namespace

/// What is said after reports of this step and of the one 50 later.
std::optional<RouterHealth::Message> after_50_steps(RouterHealth watch, const StepReport& report) {
  REQUIRE_FALSE(watch.observe(report));
  auto later = report;
  later.step += 50;
  return watch.observe(later);
}

TEST_CASE("a router that sends nearly all tokens to the same experts is remarked after 50 steps, warm-up not counted") {
  auto watch = health();
  for (const int64_t step : {1, 60, 100, 101, 150}) REQUIRE_FALSE(watch.observe(routed(step, 1.2, 4)));
  const auto message = watch.observe(routed(151, 1.2, 4));
  REQUIRE(message);
  REQUIRE(message->warning);
  REQUIRE(
      message->text ==
      "step 151: for 50 steps some router has not spread its tokens; now the router of layers.1.mlp sends nearly every token to "
      "the same experts (maximal load 4.00, 4.00 is the worst possible); lower optim.lr, or raise model.router.aux_loss_coef");
  REQUIRE_FALSE(watch.observe(routed(152, 4, 4)));  // once
  REQUIRE_THAT(after_50_steps(health(), routed(101, 3.7, 4))->text,
               ContainsSubstring("the router of layers.1.attention sends") &&
                   ContainsSubstring("and 1 more are like it, first that of layers.1.mlp"));
  REQUIRE(after_50_steps(health(Balance::kBias), routed(101, 1, 4))->text.ends_with("or raise model.router.bias_update_rate"));
  REQUIRE(
      after_50_steps(health(Balance::kNone), routed(101, 1, 4))->text.ends_with("or set model.router.balance to aux or bias"));
  REQUIRE_FALSE(after_50_steps(health(), routed(101, 1.2, 3.5)));
  REQUIRE_FALSE(after_50_steps(health(), routed(101, 1.3, 1.3, 0, 12)));  // 12 of 16: most tokens go to each of them anyway
  REQUIRE_FALSE(after_50_steps(health(), routed(101, std::nan(""), 1)));
}

TEST_CASE("an overloaded expert is remarked after 50 steps, warm-up not counted") {
  auto watch = health();
  for (const int64_t step : {1, 60, 100, 101, 150}) REQUIRE_FALSE(watch.observe(routed(step, 1, 8, 0, 1)));
  const auto message = watch.observe(routed(151, 1, 9, 0, 1));
  REQUIRE(message);
  REQUIRE_THAT(
      message->text,
      ContainsSubstring(
          "step 151: for 50 steps some router has not spread its tokens; now the router of layers.1.mlp sends 9.0 times the mean to one of its experts; lower"));

  auto recovers = health();
  for (const int64_t step : {101, 140}) REQUIRE_FALSE(recovers.observe(routed(step, 1, 8, 0, 1)));
  REQUIRE_FALSE(recovers.observe(routed(145, 1, 7.9, 0, 1)));
  REQUIRE_FALSE(recovers.observe(routed(151, 1, 8, 0, 1)));
}

TEST_CASE("dead experts are remarked, and that they have come back") {
  auto watch = health();
  REQUIRE_FALSE(watch.observe(routed(200, 1, 2, 3)));
  REQUIRE_FALSE(watch.observe(routed(260, 1, 2, 4)));  // a quarter of 16, from here on
  REQUIRE_FALSE(watch.observe(routed(300, 1, 2, 4)));
  REQUIRE_THAT(
      watch.observe(routed(310, 1, 2, 5))->text,
      ContainsSubstring(
          "for 50 steps some router has not spread its tokens; now the router of layers.1.mlp sends no token to 5 of its 16 experts"));
  REQUIRE_FALSE(watch.observe(routed(320, 1, 2, 3)));
  REQUIRE_FALSE(watch.observe(routed(330, 1, 2, 4)));
  REQUIRE_FALSE(watch.observe(routed(340, 1, 2, 0)));
  const auto message = watch.observe(routed(390, 1, 2, 0));
  REQUIRE(message);
  REQUIRE_FALSE(message->warning);
  REQUIRE(message->text == "step 390: all routers have spread their tokens again for 50 steps");
  REQUIRE_FALSE(watch.observe(routed(400, 1, 2, 8)));
  REQUIRE(watch.observe(routed(450, 1, 2, 8)));  // news again
}
