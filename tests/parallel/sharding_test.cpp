#include "lib/parallel/sharding.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

/// Rank 1 of so many, which exchange nothing.
struct SecondRank final : Comm {
  explicit SecondRank(int64_t world) : world_(world) {}
  int64_t rank() const override { return 1; }
  int64_t world() const override { return world_; }
  std::string transport() const override { return "nothing"; }
  void all_reduce(at::Tensor) override {}
  void broadcast(at::Tensor) override {}
  void barrier() override {}
  void background_barrier(std::stop_token) override {}
  bool any(bool yes) override { return yes; }
  CollectiveHandle reduce_scatter(const at::Tensor&, at::Tensor) override { return 0; }
  CollectiveHandle all_gather(at::Tensor) override { return 0; }
  void wait(CollectiveHandle) override {}
  int64_t world_;
};

}  // namespace

TEST_CASE("a rank updates all elements at ZeRO stage 0 and its slice from 1 on, and saves its slice at each") {
  SecondRank comm(2);
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
