#include "lib/train/memory_estimate.h"

#include <chrono>

#include "lib/config/load.h"
#include "lib/nn/model.h"
#include "lib/nn/model_size.h"
#include "lib/optim/optimizer.h"
#include "lib/parallel/gradient_reducer.h"
#include "lib/util/memory_meter.h"
#include "tests/catch.h"

using namespace scatterlm;

namespace {

Config config_with(const std::vector<std::string>& sets) { return load_config("configs/tiny_moe.yaml", sets); }

/// What model, gradients and optimiser of one rank really take on a CPU.
int64_t allocated(const Config& config, at::ScalarType dtype) {
  const auto comm = make_single_comm();
  const MemoryMeter meter(at::kCPU);
  const nn::Model model(config.model, dtype);
  allocate(model.units(), *comm);
  const GradientReducer gradients(config.parallel, model.units(), *comm, config.train.grad_dtype);
  const auto optimizer = make_optimizer(config.optim, model.units(), *comm, Sharding(config.parallel, *comm));
  return meter.peak_bytes();
}

}  // namespace

TEST_CASE("memory_estimate: what one rank allocates") {
  for (const auto& [sets, dtype] : {std::pair<std::vector<std::string>, at::ScalarType>{{}, at::kFloat},
                                    {{"train.dtype=bfloat16"}, at::kBFloat16},
                                    {{"train.dtype=bfloat16", "optim.state_dtype=bfloat16"}, at::kBFloat16},
                                    {{"train.dtype=bfloat16", "train.grad_dtype=bfloat16"}, at::kBFloat16},
                                    {{"optim.name=muon"}, at::kFloat},
                                    {{"parallel.zero=2"}, at::kFloat}}) {
    const auto config = config_with(sets);
    REQUIRE(static_cast<double>(estimate_memory(config, dtype, 1).total()) == Approx(allocated(config, dtype)).epsilon(0.002));
  }
}

TEST_CASE("memory_estimate: what a checkpoint holds") {
  for (const auto& [sets, dtype] : {std::pair<std::vector<std::string>, at::ScalarType>{{}, at::kFloat},
                                    {{"train.dtype=bfloat16"}, at::kBFloat16},
                                    {{"train.dtype=bfloat16", "optim.state_dtype=bfloat16"}, at::kBFloat16}}) {
    const auto config = config_with(sets);
    const auto comm = make_single_comm();
    const nn::Model model(config.model, dtype);
    allocate(model.units(), *comm);
    const GradientReducer gradients(config.parallel, model.units(), *comm, config.train.grad_dtype);
    const auto optimizer = make_optimizer(config.optim, model.units(), *comm, Sharding(config.parallel, *comm));
    size_t held = 0;  // what lib/train/checkpointing.cpp writes
    for (const auto& shard : optimizer->shards()) {
      held += shard.weights.nbytes();
      for (const auto& state : shard.state) held += state.values.nbytes();
    }
    const auto bytes = checkpoint_bytes(estimate_memory(config, dtype, 1), config.optim, dtype);
    REQUIRE(static_cast<double>(bytes) == Approx(static_cast<double>(held)).epsilon(0.01));
  }
}

TEST_CASE("memory_estimate: shares of ranks by the arithmetic of the ZeRO stages") {
  const auto parameters = static_cast<double>(nn::model_size(config_with({}).model).total);
  for (const int64_t ranks : {1, 4, 8}) {
    const double share = parameters / static_cast<double>(ranks);
    for (const int64_t zero : {0, 1, 2}) {
      const auto estimate = estimate_memory(config_with({fmt::format("parallel.zero={}", zero)}), at::kBFloat16, ranks);
      REQUIRE(static_cast<double>(estimate.weights) == Approx(2 * parameters).epsilon(0.01));
      REQUIRE(static_cast<double>(estimate.optimizer) == Approx(12 * (zero == 0 ? parameters : share)).epsilon(0.01));
      // Units of this model are a large part of it: their buffers come on top.
      REQUIRE(static_cast<double>(estimate.gradients) >= 4 * (zero == 2 ? share : parameters));
    }
  }
  const auto one = estimate_memory(config_with({"parallel.zero=1"}), at::kBFloat16, 4);
  const auto two = estimate_memory(config_with({"parallel.zero=2"}), at::kBFloat16, 4);
  REQUIRE((one.weights == two.weights && one.optimizer == two.optimizer && one.gradients > two.gradients));
}

TEST_CASE("memory_estimate: models of any size, at once") {
  const auto start = std::chrono::steady_clock::now();
  const auto olmoe = load_config("configs/olmoe_1b_7b.yaml");
  const auto parameters = static_cast<double>(nn::model_size(olmoe.model).total);
  const auto estimate = estimate_memory(olmoe, at::kBFloat16, 1);
  REQUIRE(static_cast<double>(estimate.total()) == Approx(18 * parameters).epsilon(0.001));
  const auto largest =
      config_with({"model.hidden_size=1048576", "model.moe.num_experts=64", "model.moe.moe_intermediate_size=131072"});
  REQUIRE(static_cast<double>(estimate_memory(largest, at::kBFloat16, 1).total()) > 1e15);
  REQUIRE_THROWS_WITH(estimate_memory(config_with({"model.hidden_size=1048576", "model.moe.num_experts=4096",
                                                   "model.moe.moe_intermediate_size=1048576", "model.layers=gqa+moe*4096"}),
                                      at::kFloat, 1),
                      "the model has more than 1e15 parameters; make the sizes in model smaller");
  REQUIRE(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));  // allocating these would take minutes, or fail
}

TEST_CASE("memory_estimate: words") {
  const int64_t gib = int64_t{1} << 30;
  const MemoryEstimate estimate{.weights = 2 * gib, .gradients = 4 * gib, .optimizer = 12 * gib};
  REQUIRE(
      describe(estimate, {.zero = 1}, 1) ==
      "weights 2 GiB, gradients 4 GiB, optimiser state 12 GiB: 18 GiB per rank (parallel.zero: 1, 1 rank), activations of a "
      "micro-batch on top");
  REQUIRE_THAT(describe(estimate, {.zero = 2}, 8), ContainsSubstring("(parallel.zero: 2, 8 ranks)"));
  REQUIRE_FALSE(explain_too_large({.weights = 1000}, at::kCPU, 8));
  const auto text = explain_too_large({.weights = 1 << 20}, at::kCPU, int64_t{1} << 32);
  REQUIRE(text);
  REQUIRE_THAT(*text, ContainsSubstring(
                          "weights, gradients and optimiser state need 4096 TiB for the 4294967296 ranks of this machine"));
  for (const char* key : {"train.micro_batch_size", "train.recompute", "parallel.zero", "train.grad_dtype", "optim.state_dtype",
                          "sizes in model"})
    REQUIRE_THAT(*text, ContainsSubstring(key));
}
