#include "lib/train/batch_plan.h"

#include "tests/catch.h"

using namespace scatterlm;

TEST_CASE("ranks share the batch, and each rank's part is cut into micro-batches") {
  const TrainConfig config{.sequence_length = 32, .global_batch_tokens = 32 * 24, .micro_batch_size = 3};
  const BatchPlan one(config), four(config, 4);
  REQUIRE(one.sequences == 24);
  REQUIRE(one.per_pass == 3);
  REQUIRE(one.micro_batch == 3);
  REQUIRE(four.sequences == 24);
  REQUIRE(four.per_pass == 3);
  REQUIRE(four.micro_batch == 12);
  auto whole = config;
  whole.micro_batch_size = 0;
  REQUIRE(BatchPlan(whole, 4).per_pass == 6);
  REQUIRE(BatchPlan(whole, 4).micro_batch == 24);
}

TEST_CASE("what cannot be shared equally is said, with a way out") {
  const TrainConfig config{.sequence_length = 32, .global_batch_tokens = 32 * 24, .micro_batch_size = 5};
  REQUIRE_THROWS_WITH(BatchPlan(config, 5),
                      "train.global_batch_tokens 768 is 24 sequences, which 5 ranks cannot share equally; "
                      "give a multiple of 160");
  REQUIRE_THROWS_WITH(
      BatchPlan(config, 2),
      "train.micro_batch_size 5 does not divide the 12 sequences that each of 2 ranks has in a step; give a divisor");
}
