// A whole model whose experts, routers and projections run on the kernels, on CPU tensors: compiled for tests/kernels/emulated.
#include <ATen/core/grad_mode.h>

#include "lib/ops/device.h"
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
  c.attention.qk_norm = QkNorm::kFull;
  c.moa = {.num_experts = 4, .num_experts_per_tok = 2, .num_key_value_heads = 2, .head_dim = 32};
  c.moa.qk_norm = QkNorm::kHead;
  c.moe = {.num_experts = 4, .num_experts_per_tok = 2, .moe_intermediate_size = 40};
  c.moe.bias = true;
  c.initializer_range = 0.1;
  return c;
}

constexpr int kNoKernels = 75;  ///< a compute capability below all that have kernels

struct LossAndGrads {
  double loss;
  std::map<std::string, at::Tensor> grads;
};

/// Of a new bfloat16 model on a chip of this compute capability.
LossAndGrads run(nn::Model& model, const Batch& batch, Comm& comm, int capability, Recompute recompute = Recompute::kNone) {
  ops::assume_compute_capability(capability);
  initialise(model, 6);  // with which near ties of the routers fall the same way on the kernels and without
  randomise_biases(model);
  RouterLosses losses(model);
  const auto loss = objective(model, batch, comm, losses, recompute);
  torch::autograd::backward({loss}, {});
  LossAndGrads result{loss.item<double>(), {}};
  for (const auto& unit : model.units()) {
    for (const auto& p : unit->params()) {
      REQUIRE(p.tensor.grad().scalar_type() == at::kFloat);
      result.grads[p.name] = p.tensor.grad().to(at::kDouble);
    }
  }
  return result;
}

}  // namespace

TEST_CASE("a bfloat16 model on the kernels: loss and gradients within twice the error of plain LibTorch", "[model]") {
  const auto comm = make_single_comm();
  const int capability = GENERATE(80, 90);
  auto c = config();
  c.router.rounding = GENERATE(Rounding::kNone, Rounding::kNearest);
  c.router.score = GENERATE(RouterScore::kSoftmax, RouterScore::kSigmoid);
  nn::Model model(c, at::kBFloat16);
  allocate(model.units(), *comm);
  const auto batch = random_batch(4, 40, 40);
  const auto actual = run(model, batch, *comm, capability), plain = run(model, batch, *comm, kNoKernels);
  ReferenceModel reference(model);
  for (auto& [name, weight] : reference.weights) weight = weight.detach().to(at::kDouble).requires_grad_();
  const auto expected = reference.objective(batch);
  torch::autograd::backward({expected}, {});
  const double loss = expected.item<double>(), ulp = std::ldexp(1, -8);
  REQUIRE(std::abs(actual.loss - loss) <= 2 * std::abs(plain.loss - loss) + ulp * loss);
  for (const auto& [name, weight] : reference.weights) {
    const auto error_of = [&](const LossAndGrads& result) {
      return ((result.grads.at(name) - weight.grad()).norm() / weight.grad().norm()).item<double>();
    };
    INFO(name << ", relative error " << error_of(actual) << ", of plain LibTorch " << error_of(plain));
    REQUIRE(weight.grad().norm().item<double>() > 1e-6);
    REQUIRE(error_of(actual) <= 2 * error_of(plain) + 5 * ulp);  // five: the plain error of some is small by luck
  }
}

TEST_CASE("a bfloat16 model on the kernels: recomputing changes no bit", "[model]") {
  const auto comm = make_single_comm();
  const int capability = GENERATE(80, 90);
  auto c = config();
  c.layers = "moa+moe, gqa+moe, gqa+dense";
  c.num_hidden_layers = 3;
  c.router.rounding = GENERATE(Rounding::kNone, Rounding::kNearest);
  nn::Model model(c, at::kBFloat16);
  allocate(model.units(), *comm);
  const auto batch = random_batch(4, 40, 40);
  const auto expected = run(model, batch, *comm, capability);
  for (const auto recompute : {Recompute::kNorms, Recompute::kLayer}) {
    const auto actual = run(model, batch, *comm, capability, recompute);
    REQUIRE(actual.loss == expected.loss);
    for (const auto& [name, grad] : expected.grads) {
      CAPTURE(name, enum_name(recompute));
      REQUIRE(actual.grads.at(name).equal(grad));
    }
  }
}

TEST_CASE("cached generation on the kernels sees what a full pass sees", "[model]") {
  const at::NoGradGuard no_grad;
  ops::assume_compute_capability(90);
  auto c = config();
  c.layers = GENERATE("moa+moe, gqa+moe", "swa+dense, gqa+moe");
  c.attention.window = 3;
  nn::Model model(c, at::kFloat);
  allocate(model.units(), *make_single_comm());
  initialise(model, 6);
  randomise_biases(model);
  const auto tokens = random_batch(2, 9, 40).input_BS;
  nn::Context whole;
  const auto expected = model.forward(tokens, whole);
  nn::KvCache cache(2, at::kCPU);
  cache.reserve(9);
  for (int64_t done = 0; done < 9;) {
    const int64_t count = done == 0 ? 4 : 1;
    nn::Context context{.cache = &cache};
    const auto hidden = model.forward(tokens.narrow(1, done, count), context);
    REQUIRE((hidden - expected.narrow(1, done, count)).abs().max().item<double>() < 1e-5);
    cache.advance(count);
    done += count;
  }
}

}  // namespace scatterlm::test
