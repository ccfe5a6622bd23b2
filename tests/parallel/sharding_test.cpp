#include "lib/parallel/sharding.h"

#include "lib/distributed/silent_comm.h"

#include "tests/catch.h"

using namespace scatterlm;

TEST_CASE("a rank updates all elements at ZeRO stage 0 and its slice from 1 on, and saves its slice at each") {
  SilentComm comm(1, 2);
  ParameterUnit unit("layer", at::kFloat);
  unit.param("up", {4, 32}, Init::normal(1), Decay::kYes, {4});
  unit.allocate(comm);
  for (const int64_t zero : {0, 1, 2}) {
    const Sharding sharding({.zero = zero}, comm);
    REQUIRE(sharding.state == (zero > 0));
    REQUIRE(sharding.gradients == (zero == 2));
    REQUIRE(sharding.updated(unit).begin == (zero > 0 ? 64 : 0));
    REQUIRE(sharding.updated(unit).end == 128);
    REQUIRE(sharding.saved(unit).begin == 64);
    REQUIRE(sharding.saved(unit).end == 128);
  }
  REQUIRE_FALSE(Sharding({.zero = 2}, *make_single_comm()).gradients);
}
