#include "lib/nn/recompute.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "lib/util/memory_meter.h"
#include "tests/nn/tiny.h"

#include "tests/catch.h"

using namespace scatterlm;
using namespace scatterlm::test;

namespace {

constexpr Recompute kAllModes[] = {Recompute::kNone, Recompute::kNorms, Recompute::kLayer};

/// Every kind of sub-layer, of router and of what a layer adds to its residual stream.
std::vector<ModelConfig> layers_to_recompute() {
  std::vector<ModelConfig> all;
  const auto add = [&](const char* layers, auto change) {
    all.push_back(tiny_config());
    all.back().layers = layers;
    change(all.back());
  };
  add("moa+moe, gqa+dense", [](ModelConfig& c) { c.tie_word_embeddings = true; });
  add("moa+moe, gqa+moe", [](ModelConfig& c) {
    c.router.score = RouterScore::kSigmoid, c.router.balance = Balance::kBias, c.moa.qk_norm = QkNorm::kFull;
  });
  add("gqa+moe, moa+moe", [](ModelConfig& c) { c.router.rounding = Rounding::kNearest, c.moe.bias = true; });
  add("gqa+moe, gqa+moe", [](ModelConfig& c) { c.moe.shared_intermediate_size = 5; });
  add("swa+moe, gqa+dense", [](ModelConfig& c) {
    c.attention.window = 7, c.attention.qk_norm = QkNorm::kHead, c.attention.clip_qkv = 0.8, c.attention.multiplier = 0.7;
    c.moe.shared_intermediate_size = 5, c.moe.shared_gate = true;
    c.residual_multiplier = 0.4, c.embedding_multiplier = 3, c.logits_scaling = 1.7;
  });
  return all;
}

/// Two micro-batches of four sequences of 40 tokens, which are three documents each in the second one.
std::vector<Batch> micro_batches(int64_t vocab, at::Device device) {
  std::vector<Batch> batches;
  for (const uint64_t seed : {3, 4}) {
    auto batch = random_batch(4, 40, vocab, seed);
    if (!batches.empty())
      batch.document_BS = at::arange(40, at::kInt).div(17, "floor").to(at::kInt).expand({4, 40}).contiguous();
    batches.push_back(batch.to(device));
  }
  return batches;
}

/// Whatever a step computes: losses, sums of the routers, gradients of all units.
std::vector<at::Tensor> results_of(nn::Model& model, const std::vector<Batch>& batches, Recompute recompute) {
  const auto comm = make_single_comm();
  std::vector<at::Tensor> results;
  for (const auto& unit : model.units()) unit->flat_grads().zero_();
  for (const auto& batch : batches) {
    RouterLosses losses(model);
    const auto loss = objective(model, batch, *comm, losses, recompute);
    torch::autograd::backward({loss}, {});
    results.push_back(loss.detach());
    for (const auto& router : losses.routers()) {
      results.insert(results.end(), {router.counts, router.prob_sum, router.lse_sq_sum});
      if (router.rounded.defined()) results.push_back(router.rounded);
    }
  }
  for (const auto& unit : model.units()) results.push_back(unit->flat_grads().clone());
  return results;
}

void require_same_bits(const ModelConfig& config, at::TensorOptions options) {
  const auto comm = make_single_comm();
  nn::Model model(config, options);
  allocate(model.units(), *comm);
  initialise(model, 7);
  for (auto* router : model.routers())
    if (router->bias.defined()) router->bias.copy_(at::linspace(-0.2, 0.2, router->num_experts));
  const auto batches = micro_batches(config.vocab_size, model.device());
  const auto expected = results_of(model, batches, Recompute::kNone);
  for (const auto recompute : kAllModes) {
    CAPTURE(config.layers, enum_name(recompute));
    const auto actual = results_of(model, batches, recompute);
    REQUIRE(actual.size() == expected.size());
    for (size_t i = 0; i < actual.size(); i++) REQUIRE(actual[i].equal(expected[i]));
  }
}

/// Most bytes of a forward and backward pass of so many layers on 2 x 256 tokens.
double peak_bytes(int64_t num_layers, Recompute recompute) {
  auto config = tiny_config();
  config.hidden_size = 64;
  config.num_hidden_layers = num_layers;
  config.layers = fmt::format("gqa+dense*{}", num_layers);
  config.dense.intermediate_size = 96;
  const auto comm = make_single_comm();
  nn::Model model(config, at::kFloat);
  allocate(model.units(), *comm);
  initialise(model, 7);
  const auto batch = random_batch(2, 256, config.vocab_size);
  RouterLosses losses(model);
  const MemoryMeter meter(at::kCPU);
  torch::autograd::backward({objective(model, batch, *comm, losses, recompute)}, {});
  return static_cast<double>(meter.peak_bytes());
}

}  // namespace

TEST_CASE("recompute: no bit of losses, router sums and gradients changes") {
  const auto dtype = GENERATE(at::kDouble, at::kFloat, at::kBFloat16);
  for (const auto& config : layers_to_recompute()) require_same_bits(config, dtype);
}

TEST_CASE("recompute: no bit changes on a GPU", "[.gpu]") {
  at::globalContext().setDeterministicAlgorithms(true, false);
  for (auto config : layers_to_recompute()) {
    config.hidden_size = 128;
    config.attention.head_dim = config.moa.head_dim = 64;
    config.dense.intermediate_size = config.moe.moe_intermediate_size = 64;
    if (config.moe.shared_intermediate_size > 0) config.moe.shared_intermediate_size = 64;
    config.initializer_range = 0.1;
    require_same_bits(config, at::device(at::kCUDA).dtype(at::kBFloat16));
  }
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST_CASE("recompute: what a further layer adds to the peak of memory") {
  constexpr double kHidden = 2 * 256 * 64 * 4;  // bytes of a hidden state of all tokens
  const auto of_a_layer = [](Recompute recompute) { return (peak_bytes(12, recompute) - peak_bytes(4, recompute)) / 8; };
  const double everything = of_a_layer(Recompute::kNone);
  REQUIRE(of_a_layer(Recompute::kNorms) == Approx(everything - 2 * kHidden).epsilon(0.01));
  REQUIRE(of_a_layer(Recompute::kLayer) == Approx(kHidden).epsilon(0.05));
}
