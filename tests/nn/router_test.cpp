#include "lib/nn/router.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lib/nn/layer_kinds.h"
#include "tests/nn/tiny.h"

#include "tests/catch.h"

using namespace scatterlm;
using namespace scatterlm::test;

namespace {

constexpr int64_t kHidden = 256, kExperts = 32, kExpertWidth = 24, kTokens = 512;

/// Standard deviation of what an MLP makes of rows that an RMSNorm has left, averaged over three seeds of its weights.
double output_std(const nn::SubLayerKind& kind, const ModelConfig& config) {
  const at::NoGradGuard no_grad;
  ParameterUnit unit("mlp", at::kFloat);
  nn::RopeTables rope({}, at::kCPU);
  const auto mlp = kind.make({config, "mlp", {.normal = 0.04, .residual = 0.01}, unit, rope, at::kCPU});
  unit.allocate(*make_single_comm());
  auto generator = at::make_generator<at::CPUGeneratorImpl>(uint64_t{5});
  const auto x = at::randn({1, kTokens, kHidden}, generator, at::kFloat);
  const auto normed = x * x.square().mean(-1, true).rsqrt();
  double variance = 0;
  for (const int64_t seed : {1, 2, 3}) {
    unit.flat_params().copy_(unit.initial_values(seed, 0, unit.size()));
    nn::Context context;
    variance += mlp->forward(normed, context).var().item<double>() / 3;
  }
  return std::sqrt(variance);
}

double moe_std(const RouterConfig& router, int64_t top_k) {
  const MoeConfig moe{.num_experts = kExperts, .num_experts_per_tok = top_k, .moe_intermediate_size = kExpertWidth};
  return output_std(nn::moe(), {.hidden_size = kHidden, .moe = moe, .router = router});
}

double dense_std(int64_t top_k) {
  return output_std(nn::dense(), {.hidden_size = kHidden, .dense = {.intermediate_size = top_k * kExpertWidth}});
}

}  // namespace

TEST_CASE("routed_scaling_factor auto: the output of an untrained MoE MLP is as large as a dense MLP of its active width") {
  const auto score = GENERATE(RouterScore::kSoftmax, RouterScore::kSigmoid);
  const bool normalised = GENERATE(true, false);
  const int64_t top_k = GENERATE(1, 2, 3, 4, 5, 6, 7, 8);
  INFO(enum_name(score) << ", norm_topk_prob " << normalised << ", top-" << top_k);
  RouterConfig router{.score = score, .norm_topk_prob = normalised, .balance = Balance::kNone};
  const double dense = dense_std(top_k);
  REQUIRE(std::abs(moe_std(router, top_k) / dense - 1) < 0.1);
  router.routed_scaling_factor = 0.5;
  if (top_k > 1 || !normalised) REQUIRE(moe_std(router, top_k) < 0.6 * dense);
}

TEST_CASE("routed_scaling_factor auto: a known case, and a number stays what it is") {
  // Nearly equal logits: K gates of 1/K, or of 1/E without normalisation.
  REQUIRE(std::abs(nn::gate_scale_at_init({.num_experts_per_tok = 8}, 64, 1e-4) - 8) < 0.01);
  REQUIRE(std::abs(nn::gate_scale_at_init({.num_experts_per_tok = 8, .norm_topk_prob = false}, 64, 1e-4) - 64) < 0.1);
  REQUIRE(nn::gate_scale_at_init({.num_experts_per_tok = 1}, 4096, 1.3) == 1);
  ParameterUnit unit("moe", at::kFloat);
  const RouterConfig config{.routed_scaling_factor = 2.5};
  REQUIRE(nn::Router(config, "router", 8, 2, 16, 0.02, unit, at::kCPU).options.routed_scaling_factor == 2.5);
}
