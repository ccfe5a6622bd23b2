#include "lib/train/execution_setup.h"

#include "lib/util/error.h"

#include "tests/catch.h"

using namespace scatterlm;

TEST_CASE("each rank of a machine has the GPU of its number, or the only one that it was given") {
  const LaunchEnv world{.rank = 6, .size = 8, .local_rank = 2, .local_size = 4};
  for (const bool chosen : {false, true}) {
    REQUIRE(gpu_index(world, 4, chosen) == 2);
    REQUIRE_THROWS_WITH(gpu_index(world, 2, chosen),
                        "rank 6 is number 2 on its machine, which has 2 GPUs: start one rank per GPU");
  }
  REQUIRE(gpu_index(world, 1, true) == 0);
  REQUIRE_THROWS_AS(gpu_index(world, 1, false), Error);
}
