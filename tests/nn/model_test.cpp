#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>

#include <map>

#include "tests/nn/reference_model.h"
#include "tests/nn/tiny.h"

#include "tests/catch.h"

using namespace scatterlm;
using namespace scatterlm::test;

namespace {

const auto kDouble = at::TensorOptions().dtype(at::kDouble);

/// The variants that a model can be built from.
std::vector<ModelConfig> variants() {
  std::vector<ModelConfig> all{tiny_config()};
  auto add = [&](auto change) {
    all.push_back(tiny_config());
    change(all.back());
  };
  add([](ModelConfig& c) {
    c.tie_word_embeddings = false, c.attention.bias = true, c.attention.qk_norm = QkNorm::kHead, c.moa.qk_norm = QkNorm::kFull;
  });
  add([](ModelConfig& c) {
    c.attention.qk_norm = QkNorm::kFull, c.moa.qk_norm = QkNorm::kHead, c.moe.shared_intermediate_size = 5;
  });
  add([](ModelConfig& c) {
    c.router.score = RouterScore::kSigmoid, c.router.routed_scaling_factor = 1.7, c.moe.activation = Activation::kGeglu;
    c.moe.bias = true;
  });
  add([](ModelConfig& c) {
    c.router.norm_topk_prob = false, c.moe.activation = Activation::kRelu2, c.dense.activation = Activation::kGelu;
  });
  add([](ModelConfig& c) {
    c.router.topk_before_softmax = true, c.router.balance = Balance::kNone, c.dense.activation = Activation::kReglu;
  });
  add([](ModelConfig& c) { c.layers = "swa+moe, gqa+dense", c.attention.window = 2; });
  add([](ModelConfig& c) {
    c.layers = "gqa+dense, moa+moe", c.attention.qkv_bias = true, c.attention.clip_qkv = 0.8, c.attention.multiplier = 0.7;
    c.dense.bias = true, c.moe.output_bias = true, c.moa.output_bias = true;
    c.embedding_multiplier = 3, c.residual_multiplier = 0.4, c.logits_scaling = 1.7;
  });
  add([](ModelConfig& c) {
    c.moe.shared_intermediate_size = 5, c.moe.shared_gate = true;
    c.rope_scaling = {.type = RopeScaling::kYarn, .factor = 4, .original_max_position_embeddings = 40};
  });
  add([](ModelConfig& c) {
    c.rope_scaling = {.type = RopeScaling::kLlama3, .factor = 8, .original_max_position_embeddings = 30};
  });
  add([](ModelConfig& c) { c.rope_scaling = {.type = RopeScaling::kLinear, .factor = 3}; });
  add([](ModelConfig& c) { c.layers = "gqa+moe, moa+dense", c.moe.num_experts_per_tok = 4, c.moa.num_experts_per_tok = 1; });
  return all;
}

/// Loss and gradients of one step; returns the sums of its routers.
std::vector<RouterSums> require_equals_plain_operations(const ModelConfig& config, const Batch& batch) {
  const auto comm = make_single_comm();
  nn::Model model(config, kDouble);
  allocate(model.units(), *comm);
  initialise(model, 7);
  randomise_biases(model);
  ReferenceModel reference(model);
  RouterLosses losses(model);
  const auto loss = objective(model, batch, *comm, losses), expected = reference.objective(batch);
  REQUIRE(std::abs(loss.item<double>() - expected.item<double>()) < 1e-12);
  torch::autograd::backward({loss}, {});
  torch::autograd::backward({expected}, {});
  for (const auto& unit : model.units()) {
    for (const auto& p : unit->params()) {
      INFO(p.name);
      const auto wanted = reference.weights.at(p.name).grad();
      REQUIRE(wanted.norm().item<double>() > 1e-9);  // nothing is cut off from the loss
      REQUIRE((p.tensor.grad() - wanted).norm().item<double>() <= 1e-10 * wanted.norm().item<double>());
    }
  }
  return losses.routers();
}

std::map<std::string, at::Tensor> parameters_of(const nn::Model& model) {
  std::map<std::string, at::Tensor> parameters;
  for (const auto& unit : model.units())
    for (const auto& p : unit->params()) parameters[p.name] = p.tensor;
  return parameters;
}

/// `of` each parameter of a model whose mixtures of attention have one expert, under the names that dense attention has.
std::map<std::string, at::Tensor> as_dense_attention(const nn::Model& model, at::Tensor of(const at::Tensor&)) {
  std::map<std::string, at::Tensor> dense;
  const auto parameters = parameters_of(model);
  for (const auto& [name, parameter] : parameters) {
    const auto attention = name.substr(0, name.find(".experts."));
    if (name.ends_with(".experts.q_proj"))
      dense[attention + ".qkv_proj.weight"] = at::cat({of(parameter)[0], of(parameters.at(attention + ".kv_proj.weight"))});
    else if (name.ends_with(".experts.o_proj"))
      dense[attention + ".o_proj.weight"] = of(parameter)[0];
    else if (!name.ends_with(".kv_proj.weight") && !name.ends_with(".router.weight"))
      dense[name] = of(parameter);
  }
  return dense;
}

}  // namespace

TEST_CASE("a model equals plain tensor operations, in value and in every gradient") {
  int variant = 0;
  for (const auto& config : variants()) {
    INFO("variant " << variant++);
    require_equals_plain_operations(config, random_batch(2, 5, config.vocab_size));
  }
}

TEST_CASE("a mixture of attention of one expert is dense attention") {
  const auto comm = make_single_comm();
  auto moa_config = tiny_config();
  moa_config.layers = "moa+dense, moa+dense";
  moa_config.moa = {.num_experts = 1, .num_experts_per_tok = 1, .num_key_value_heads = 3, .head_dim = 4};
  moa_config.moa.qk_norm = GENERATE(QkNorm::kNone, QkNorm::kHead, QkNorm::kFull);
  moa_config.router.balance = Balance::kNone;
  moa_config.router.z_loss_coef = 0;
  auto gqa_config = moa_config;
  gqa_config.layers = "gqa+dense, gqa+dense";
  gqa_config.attention = {.num_attention_heads = 3, .num_key_value_heads = 3, .head_dim = 4};
  gqa_config.attention.qk_norm = moa_config.moa.qk_norm;

  nn::Model moa(moa_config, kDouble), gqa(gqa_config, kDouble);
  allocate(moa.units(), *comm);
  allocate(gqa.units(), *comm);
  initialise(moa, 7);
  initialise(gqa, 8);
  const auto gqa_parameters = parameters_of(gqa);
  const auto weights = as_dense_attention(moa, [](const at::Tensor& parameter) { return parameter.detach(); });
  REQUIRE(weights.size() == gqa_parameters.size());
  for (const auto& [name, weight] : weights) gqa_parameters.at(name).detach().copy_(weight);

  const auto batch = random_batch(2, 6, moa_config.vocab_size);
  const auto loss = objective(moa, batch, *comm), expected = objective(gqa, batch, *comm);
  REQUIRE(std::abs(loss.item<double>() - expected.item<double>()) < 1e-12);
  torch::autograd::backward({loss}, {});
  torch::autograd::backward({expected}, {});
  for (const auto& [name, grad] : as_dense_attention(moa, [](const at::Tensor& parameter) { return parameter.grad(); })) {
    INFO(name);
    const auto wanted = gqa_parameters.at(name).grad();
    REQUIRE(wanted.norm().item<double>() > 1e-9);
    REQUIRE((grad - wanted).norm().item<double>() <= 1e-10 * wanted.norm().item<double>());
  }
}

TEST_CASE("without router losses gradients reach the router through the gates") {
  auto config = tiny_config();
  config.layers = "moa+moe, gqa+moe";
  config.router.balance = Balance::kBias;
  config.router.aux_loss_coef = 0;
  config.router.z_loss_coef = 0;
  config.router.score = GENERATE(RouterScore::kSoftmax, RouterScore::kSigmoid);
  config.router.norm_topk_prob = GENERATE(true, false);
  config.router.topk_before_softmax = GENERATE(true, false);
  if (config.router.topk_before_softmax && !(config.router.score == RouterScore::kSoftmax && config.router.norm_topk_prob))
    return;  // the form needs the others
  require_equals_plain_operations(config, random_batch(2, 5, config.vocab_size));
}

TEST_CASE("token rounding in a model equals plain tensor operations") {
  auto config = tiny_config();
  config.layers = "moa+moe, gqa+moe";
  config.router.rounding = Rounding::kNearest;
  config.router.score = GENERATE(RouterScore::kSoftmax, RouterScore::kSigmoid);
  const auto batch = random_batch(4, 40, config.vocab_size);
  const auto routers = require_equals_plain_operations(config, batch);
  REQUIRE_FALSE(routers[0].rounded.defined());                                                // that of attention
  REQUIRE((routers[1].rounded + routers[2].rounded).min().item<double>() > 0);                // dropped and filled
  for (const int mlp : {1, 2}) REQUIRE(routers[mlp].counts.sum().item<double>() == 160 * 2);  // those of the top-k
}

TEST_CASE("evaluation uses plain top-k") {
  const auto comm = make_single_comm();
  auto config = tiny_config();
  const auto batch = random_batch(4, 40, config.vocab_size);
  std::vector<at::Tensor> trained, evaluated;
  for (const auto rounding : {Rounding::kNone, Rounding::kNearest}) {
    config.router.rounding = rounding;
    nn::Model model(config, kDouble);
    allocate(model.units(), *comm);
    initialise(model, 7);
    trained.push_back(objective(model, batch, *comm));
    nn::Context context;
    evaluated.push_back(model.cross_entropy_sum(batch, context));
  }
  REQUIRE(evaluated[0].equal(evaluated[1]));
  REQUIRE_FALSE(trained[0].equal(trained[1]));
}

TEST_CASE("gradients of a model equal finite differences") {
  const auto comm = make_single_comm();
  nn::Model model(tiny_config(), kDouble);
  allocate(model.units(), *comm);
  initialise(model, 5);
  const auto batch = random_batch(2, 4, 11);
  torch::autograd::backward({objective(model, batch, *comm)}, {});
  const double h = 1e-6;
  for (const auto& unit : model.units()) {
    for (const auto& p : unit->params()) {
      double* values = unit->flat_params().mutable_data_ptr<double>() + p.offset;
      const double* grads = unit->flat_grads().const_data_ptr<double>() + p.offset;
      for (int64_t i = 0; i < p.numel; i += std::max<int64_t>(1, p.numel / 5)) {
        const double kept = values[i];
        values[i] = kept + h;
        const double up = objective(model, batch, *comm).item<double>();
        values[i] = kept - h;
        const double down = objective(model, batch, *comm).item<double>();
        values[i] = kept;
        INFO(p.name << "[" << i << "]");
        REQUIRE(std::abs((up - down) / (2 * h) - grads[i]) < 1e-7);
      }
    }
  }
}

TEST_CASE("the gradients of a tied embedding are summed in fp32") {
  const auto comm = make_single_comm();
  auto config = tiny_config();
  config.tie_word_embeddings = true;
  nn::Model model(config, at::kBFloat16);
  allocate(model.units(), *comm);
  initialise(model, 5);
  torch::autograd::backward({objective(model, random_batch(2, 4, 11), *comm)}, {});
  const auto grads = model.units()[0]->flat_grads();
  REQUIRE(grads.scalar_type() == at::kFloat);
  REQUIRE_FALSE(grads.equal(grads.to(at::kBFloat16).to(at::kFloat)));
}

TEST_CASE("initial weights depend on seed and name alone") {
  const auto comm = make_single_comm();
  auto config = tiny_config();
  const nn::Model model(config, at::kFloat);
  allocate(model.units(), *comm);
  config.layers = "moa+moe, gqa+moe";  // the first layer keeps its names and shapes
  const nn::Model deeper(config, at::kFloat);
  allocate(deeper.units(), *comm);
  const auto values = [](const nn::Model& m, int64_t seed) {
    return m.units()[1]->initial_values(seed, 0, m.units()[1]->size());
  };
  REQUIRE(values(model, 1).equal(values(deeper, 1)));
  REQUIRE_FALSE(values(model, 1).equal(values(model, 2)));
}

TEST_CASE("projections into the residual stream start smaller by sqrt(2 * layers)") {
  const auto comm = make_single_comm();
  auto config = tiny_config();
  config.hidden_size = 256;
  config.dense.intermediate_size = 256;
  nn::Model model(config, at::kFloat);
  allocate(model.units(), *comm);
  initialise(model, 1);
  for (const auto& p : model.units()[2]->params()) {
    if (p.name == "layers.1.mlp.up_proj.weight") REQUIRE(std::abs(p.tensor.std().item<double>() / 0.4 - 1) < 0.02);
    if (p.name == "layers.1.mlp.down_proj.weight") REQUIRE(std::abs(p.tensor.std().item<double>() / 0.2 - 1) < 0.02);
  }
}

TEST_CASE("cached generation sees what a full pass sees") {
  const auto comm = make_single_comm();
  at::NoGradGuard no_grad;
  auto configs = variants();
  configs.push_back(tiny_config());
  configs.back().layers = "swa+moe, swa+dense";
  configs.back().attention.window = 3;
  const auto config = GENERATE_COPY(from_range(configs));
  const int64_t prompt = GENERATE(1, 4);
  INFO(config.layers);
  nn::Model model(config, kDouble);
  allocate(model.units(), *comm);
  initialise(model, 9);
  randomise_biases(model);
  const auto tokens = random_batch(2, 9, 11).input_BS;
  nn::Context whole;
  const auto expected = model.forward(tokens, whole);
  nn::KvCache cache(2, at::kCPU);
  for (int text = 0; text < 2; text++) {  // the second over what is left of the first
    cache.clear();
    cache.reserve(9);
    for (int64_t done = 0; done < 9;) {
      const int64_t count = done == 0 ? prompt : 1;  // the prompt at once, then token by token
      nn::Context context{.cache = &cache};
      const auto hidden = model.forward(tokens.narrow(1, done, count), context);
      REQUIRE((hidden - expected.narrow(1, done, count)).abs().max().item<double>() < 1e-12);
      cache.advance(count);
      done += count;
    }
    REQUIRE(cache.length() == 9);
  }
}

TEST_CASE("a cache grows in steps of 256 positions, at least to twice as many, and keeps what it holds") {
  const auto comm = make_single_comm();
  at::NoGradGuard no_grad;
  nn::Model model(tiny_config(), kDouble);
  allocate(model.units(), *comm);
  initialise(model, 9);
  nn::KvCache cache(2, at::kCPU);
  REQUIRE(cache.reserve(10));
  REQUIRE_FALSE(cache.reserve(256));
  const auto tokens = random_batch(1, 258, 11).input_BS;
  nn::Context context{.cache = &cache};
  model.forward(tokens.narrow(1, 0, 256), context);
  cache.advance(256);
  REQUIRE(cache.reserve(257));
  REQUIRE_FALSE(cache.reserve(512));
  nn::Context whole;
  const auto expected = model.forward(tokens, whole);
  for (int64_t done = 256; done < 258; done++) {
    nn::Context step{.cache = &cache};
    const auto hidden = model.forward(tokens.narrow(1, done, 1), step);
    REQUIRE((hidden - expected.narrow(1, done, 1)).abs().max().item<double>() < 1e-12);
    cache.advance(1);
  }
  REQUIRE(cache.reserve(2000));
  REQUIRE_FALSE(cache.reserve(2048));
}

TEST_CASE("a prompt behind other positions is refused") {
  const auto comm = make_single_comm();
  at::NoGradGuard no_grad;
  nn::Model model(tiny_config(), kDouble);
  allocate(model.units(), *comm);
  initialise(model, 9);
  nn::KvCache cache(2, at::kCPU);
  cache.reserve(4);
  cache.advance(1);
  nn::Context context{.cache = &cache};
  REQUIRE_THROWS_WITH(model.forward(random_batch(1, 2, 11).input_BS, context),
                      "[attend] a prompt of 2 positions must come first");
}

TEST_CASE("documents do not see each other") {
  const auto comm = make_single_comm();
  at::NoGradGuard no_grad;
  nn::Model model(tiny_config(), kDouble);
  allocate(model.units(), *comm);
  initialise(model, 9);
  auto tokens = random_batch(1, 8, 11).input_BS;
  nn::Context masked{.document_BS = at::tensor({0, 0, 0, 1, 1, 1, 1, 1}, at::kInt).view({1, 8})};
  const auto before = model.forward(tokens, masked).clone();
  tokens[0][1] = (tokens[0][1].item<int64_t>() + 1) % 11;
  const auto after = model.forward(tokens, masked);
  // Not bit for bit: the token may choose another expert, and a matrix product's bits depend on its number of rows.
  const auto change = (after - before).abs().amax(at::IntArrayRef{0, 2});
  REQUIRE(change.narrow(0, 3, 5).max().item<double>() < 1e-12);
  REQUIRE(change.narrow(0, 1, 2).min().item<double>() > 1e-3);
}

TEST_CASE("a window of swa layers reaches back through the layers, not further") {
  const auto comm = make_single_comm();
  at::NoGradGuard no_grad;
  auto config = tiny_config();
  config.layers = "swa+dense, swa+dense";
  config.attention.window = 3;
  nn::Model model(config, kDouble);
  allocate(model.units(), *comm);
  initialise(model, 9);
  auto tokens = random_batch(1, 9, 11).input_BS;
  nn::Context context;
  const auto before = model.forward(tokens, context).clone();
  tokens[0][1] = (tokens[0][1].item<int64_t>() + 1) % 11;
  const auto change = (model.forward(tokens, context) - before).abs().amax(at::IntArrayRef{0, 2});
  REQUIRE(change.narrow(0, 1, 5).min().item<double>() > 1e-6);  // two layers: 1 to 1 + 2 * (3 - 1)
  REQUIRE(change.narrow(0, 6, 3).max().item<double>() == 0);
}
