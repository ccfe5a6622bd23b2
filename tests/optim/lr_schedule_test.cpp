#include "lib/optim/lr_schedule.h"

#include <cmath>

#include "tests/catch.h"

using namespace scatterlm;

namespace {
bool close(double a, double b) { return std::abs(a - b) < 1e-12; }
}  // namespace

TEST_CASE("warm-up rises in equal steps to the peak") {
  const OptimConfig config{.lr = 2, .warmup_steps = 4};
  REQUIRE(close(learning_rate(config, 1, 100), 0.5));
  REQUIRE(close(learning_rate(config, 4, 100), 2));
  REQUIRE(learning_rate(config, 5, 100) < 2);
}

TEST_CASE("every schedule ends where it says") {
  OptimConfig config{.lr = 2, .warmup_steps = 10, .decay_steps = 20, .min_lr_ratio = 0.1};
  config.schedule = Schedule::kCosine;
  REQUIRE(close(learning_rate(config, 60, 110), 1.1));  // half way
  REQUIRE(close(learning_rate(config, 110, 110), 0.2));
  config.schedule = Schedule::kLinear;
  REQUIRE(close(learning_rate(config, 60, 110), 1.1));
  REQUIRE(close(learning_rate(config, 35, 110), 1.55));
  REQUIRE(close(learning_rate(config, 110, 110), 0.2));
  config.schedule = Schedule::kWsd;
  REQUIRE(close(learning_rate(config, 90, 110), 2));
  REQUIRE(close(learning_rate(config, 100, 110), 1.1));
  REQUIRE(close(learning_rate(config, 110, 110), 0.2));
  config.schedule = Schedule::kConstant;
  REQUIRE(close(learning_rate(config, 110, 110), 2));
}
