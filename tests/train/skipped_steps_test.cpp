#include "lib/train/skipped_steps.h"

#include <ATen/ATen.h>

#include "tests/catch.h"

using namespace scatterlm;

namespace {

SkippedSteps::Counts counts(const SkippedSteps& skipped) { return SkippedSteps::counts_of(skipped.save().data()); }

}  // namespace

TEST_CASE("skipped steps are counted in all and in a row, which a report does not break") {
  SkippedSteps skipped(at::kCPU);
  const auto count = [&](double finite) { skipped.count(at::full({1}, finite, at::kFloat)); };
  for (const double finite : {0, 0, 1, 0}) count(finite);
  REQUIRE(counts(skipped).total == 3);
  REQUIRE(counts(skipped).longest_row == 2);
  skipped.begin_report();
  REQUIRE(counts(skipped).longest_row == 1);
  count(0);
  REQUIRE(counts(skipped).longest_row == 2);
  count(1);
  skipped.begin_report();
  REQUIRE(counts(skipped).longest_row == 0);
  REQUIRE(counts(skipped).total == 4);

  SkippedSteps other(at::kCPU);
  other.load(skipped.save());
  REQUIRE(other.values().equal(skipped.values()));
}
