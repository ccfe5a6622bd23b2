#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "lib/distributed/silent_comm.h"
#include "lib/parallel/parameter_unit.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

/// Rank `rank` of three, which only waits: what it waited for is noted.
struct ThreeRanks final : SilentComm {
  explicit ThreeRanks(int64_t rank) : SilentComm(rank, 3) {}
  CollectiveHandle all_gather(at::Tensor) override { return 17; }
  void wait(CollectiveHandle ticket) override { waited.push_back(ticket); }
  std::vector<CollectiveHandle> waited;
};

ParameterUnit sample_unit(Comm& comm, at::ScalarType dtype = at::kFloat) {
  ParameterUnit unit("layer", dtype);
  unit.param("norm", {5}, Init::ones(), Decay::kNo);
  unit.param("up", {7, 10}, Init::normal(0.5), Decay::kYes);
  unit.param("bias", {3}, Init::zeros(), Decay::kNo);
  unit.param("down", {4, 4}, Init::normal(2), Decay::kYes);
  unit.allocate(comm);
  return unit;
}

}  // namespace

TEST_CASE("tensors with decay come first, each aligned to 64 elements, the unit padded for all ranks") {
  ThreeRanks comm(1);
  const auto unit = sample_unit(comm);
  std::vector<std::pair<std::string, int64_t>> layout;
  for (const auto& p : unit.params()) layout.emplace_back(p.name, p.offset);
  REQUIRE(layout == std::vector<std::pair<std::string, int64_t>>{{"up", 0}, {"down", 128}, {"norm", 192}, {"bias", 256}});
  REQUIRE(unit.decay_end() == 192);
  REQUIRE(unit.flat_params().numel() == 384);  // a multiple of lcm(3, 128)
  REQUIRE(unit.slice_begin() == 128);
  REQUIRE(unit.slice_end() == 256);
  REQUIRE(unit.own_slice(unit.flat_params()).data_ptr() == unit.flat_params().narrow(0, 128, 1).data_ptr());
}

TEST_CASE("parameters are waited for once after they were gathered") {
  ThreeRanks comm(0);
  auto unit = sample_unit(comm);
  unit.wait_params();
  REQUIRE(comm.waited.empty());
  unit.gather_params(comm);
  unit.wait_params();
  unit.wait_params();
  REQUIRE(comm.waited == std::vector<CollectiveHandle>{17});
}

TEST_CASE("a unit holds gradients only while they are attached") {
  auto unit = sample_unit(*make_single_comm());
  REQUIRE_FALSE(unit.params()[0].tensor.grad().defined());
  unit.attach_grads(unit.make_grads());
  REQUIRE(unit.params()[0].tensor.grad().defined());
  unit.attach_grads({});
  REQUIRE_FALSE(unit.params()[0].tensor.grad().defined());
  REQUIRE_FALSE(unit.flat_grads().defined());
}

TEST_CASE("tensors are views: a gradient lands in the flat buffer, in fp32 also for bf16 parameters") {
  for (auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    auto unit = sample_unit(*make_single_comm(), dtype);
    unit.attach_grads(unit.make_grads());
    REQUIRE(unit.flat_grads().scalar_type() == (dtype == at::kDouble ? at::kDouble : at::kFloat));
    for (int repeat = 1; repeat <= 2; repeat++) {
      const auto& up = unit.params()[0].tensor;
      torch::autograd::backward({(up * 3).sum()}, {});
      REQUIRE(unit.flat_grads().narrow(0, 0, 70).eq(3.0 * repeat).all().item<bool>());
      REQUIRE(unit.flat_grads().narrow(0, 70, 58).eq(0).all().item<bool>());
      REQUIRE(up.grad().data_ptr() == unit.flat_grads().data_ptr());
    }
  }
}

TEST_CASE("every rank's slice of the initial values is a slice of the whole") {
  ThreeRanks comm(0);
  const auto unit = sample_unit(comm);
  const auto whole = unit.initial_values(11, 0, 384);
  for (int64_t begin = 0; begin < 384; begin += 128) {
    REQUIRE(unit.initial_values(11, begin, begin + 128).equal(whole.narrow(0, begin, 128)));
  }
  REQUIRE(whole.narrow(0, 192, 5).eq(1).all().item<bool>());
  REQUIRE(whole.narrow(0, 70, 58).eq(0).all().item<bool>());  // padding
  REQUIRE(std::abs(whole.narrow(0, 0, 70).std().item<double>() - 0.5) < 0.1);
}
