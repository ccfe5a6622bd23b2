// A whole model whose experts, routers and projections run on the kernels, on CPU tensors: compiled for tests/kernels/emulated.
#include "tests/catch.h"
#include "tests/nn/reference_model.h"
#include "tests/nn/tiny.h"

namespace scatterlm::test {
namespace {

ModelConfig config() {
  auto c = tiny_config();
  c.vocab_size = 40;
  c.hidden_size = 64;
  c.layers = "moa+moe, gqa+moe";
  c.attention = {.num_attention_heads = 4, .num_key_value_heads = 2, .head_dim = 16};
  c.moa = {.num_experts = 4, .num_experts_per_tok = 2, .num_key_value_heads = 2, .head_dim = 32};
  c.moe = {.num_experts = 4, .num_experts_per_tok = 2, .moe_intermediate_size = 40};
  c.moe.bias = true;
  c.initializer_range = 0.1;
  return c;
}

}  // namespace

TEST_CASE("a bfloat16 model on the kernels: loss and every gradient close to fp64", "[model]") {
  const auto comm = make_single_comm();
  auto c = config();
  c.router.rounding = GENERATE(Rounding::kNone, Rounding::kNearest);
  nn::Model model(c, at::kBFloat16, *comm);
  initialise(model, 3);
  randomise_biases(model);
  ReferenceModel reference(model);
  for (auto& [name, weight] : reference.weights) weight = weight.detach().to(at::kDouble).requires_grad_();
  const auto batch = random_batch(4, 40, 40);
  const auto loss = objective(model, batch, *comm), expected = reference.objective(batch);
  REQUIRE(std::abs(loss.item<double>() - expected.item<double>()) < 0.02);
  torch::autograd::backward({loss}, {});
  torch::autograd::backward({expected}, {});
  for (const auto& unit : model.units()) {
    for (const auto& p : unit->params()) {
      INFO(p.name);
      const auto wanted = reference.weights.at(p.name).grad(), difference = p.tensor.grad().to(at::kDouble) - wanted;
      REQUIRE(p.tensor.grad().scalar_type() == at::kFloat);
      REQUIRE(wanted.norm().item<double>() > 1e-6);
      REQUIRE(difference.norm().item<double>() < 0.06 * wanted.norm().item<double>());
    }
  }
}

}  // namespace scatterlm::test
