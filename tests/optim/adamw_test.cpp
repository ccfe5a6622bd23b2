#include "lib/optim/adamw.h"

#include <ATen/ATen.h>

#include <cmath>

#include "lib/distributed/silent_comm.h"
#include "tests/catch.h"

using namespace scatterlm;

namespace {

struct Fixture {
  explicit Fixture(at::ScalarType dtype = at::kFloat) {
    auto& unit = *units.emplace_back(std::make_unique<ParameterUnit>("layer", dtype));
    unit.param("up", {6, 30}, Init::normal(1), Decay::kYes);
    unit.param("norm", {9}, Init::ones(), Decay::kNo);
    unit.allocate(*comm);
    unit.attach_grads(unit.make_grads());
  }
  std::unique_ptr<Optimizer> optimizer(const OptimConfig& config) {
    auto made = make_optimizer(config, units, *comm, Sharding({}, *comm));
    made->initialise(3);
    return made;
  }
  std::vector<at::Tensor> grads() { return {unit().flat_grads()}; }
  ParameterUnit& unit() { return *units.front(); }
  at::Tensor up() { return unit().params()[0].tensor.detach(); }
  at::Tensor norm() { return unit().params()[1].tensor.detach(); }

  std::unique_ptr<Comm> comm = make_single_comm();
  std::vector<std::unique_ptr<ParameterUnit>> units;
};

at::Tensor flag(double value) { return at::full({1}, value, at::kFloat); }

/// The formula of the paper, in fp64, for one tensor of constant-per-step gradients.
struct Formula {
  at::Tensor weights, m, v;
  int64_t updates = 0;
  void step(const at::Tensor& grad, const OptimConfig& c, double lr, double decay) {
    updates++;
    m = c.betas[0] * m + (1 - c.betas[0]) * grad;
    v = c.betas[1] * v + (1 - c.betas[1]) * grad.square();
    const auto m_hat = m / (1 - std::pow(c.betas[0], updates)), v_hat = v / (1 - std::pow(c.betas[1], updates));
    weights = weights - lr * decay * weights - lr * m_hat / (v_hat.sqrt() + c.eps);
  }
};

Formula formula_of(const at::Tensor& weights) {
  const auto w = weights.to(at::kDouble).clone();
  return {w, at::zeros_like(w), at::zeros_like(w)};
}

}  // namespace

TEST_CASE("AdamW follows its formula; norms do not decay") {
  Fixture f;
  const OptimConfig config{.lr = 0.01, .eps = 1e-6, .weight_decay = 0.3};
  auto optimizer = f.optimizer(config);
  auto up = formula_of(f.up()), norm = formula_of(f.norm());
  at::manual_seed(1);
  for (int step = 0; step < 4; step++) {
    const auto up_grad = at::randn({6, 30}), norm_grad = at::randn({9});
    f.unit().params()[0].tensor.mutable_grad().copy_(up_grad * 2);
    f.unit().params()[1].tensor.mutable_grad().copy_(norm_grad * 2);
    optimizer->step(f.grads(), 0.01, flag(2), flag(0));  // gradients are divided by the scale
    up.step(up_grad.to(at::kDouble), config, 0.01, 0.3);
    norm.step(norm_grad.to(at::kDouble), config, 0.01, 0);
    REQUIRE((f.up() - up.weights).abs().max().item<double>() < 2e-6);
    REQUIRE((f.norm() - norm.weights).abs().max().item<double>() < 2e-6);
  }
  REQUIRE(optimizer->updates().item<double>() == 4);
}

TEST_CASE("routers have a learning rate of their own, whatever lies beside them and wherever a rank's slice cuts them") {
  for (const int64_t rank : {0, 1, 2}) {
    SilentComm comm(rank, 3);
    std::vector<std::unique_ptr<ParameterUnit>> units;
    auto& unit = *units.emplace_back(std::make_unique<ParameterUnit>("layer", at::kFloat));
    unit.param("up", {6, 30}, Init::normal(1), Decay::kYes);
    unit.param("router", {4, 30}, Init::normal(1), Decay::kYes, {}, LrGroup::kRouter);
    unit.param("second_router", {4, 30}, Init::normal(1), Decay::kYes, {}, LrGroup::kRouter);
    unit.param("down", {30, 6}, Init::normal(1), Decay::kYes);
    unit.param("norm", {9}, Init::ones(), Decay::kNo);
    unit.allocate(comm);
    const OptimConfig config{.router_lr_scale = 0.1, .weight_decay = 0.3};
    const auto optimizer = make_optimizer(config, units, comm, Sharding({}, comm));
    optimizer->initialise(3);
    const auto before = unit.flat_params().to(at::kDouble).clone();
    const auto& shard = optimizer->shards()[0];
    optimizer->step({at::ones({shard.elements.size()})}, 0.01, flag(1), flag(0));
    auto expected = before.clone();  // a first update moves every element by the learning rate
    for (const auto& p : unit.params()) {
      const double lr = p.lr_group == LrGroup::kRouter ? 0.001 : 0.01, decay = p.decay == Decay::kYes ? 0.3 : 0;
      const auto values = before.narrow(0, p.offset, p.numel);
      expected.narrow(0, p.offset, p.numel).copy_(values - lr * decay * values - lr);
    }
    for (const auto& p : unit.params()) {
      const int64_t begin = std::max(p.offset, shard.elements.begin), end = std::min(p.offset + p.numel, shard.elements.end);
      if (begin >= end) continue;
      CAPTURE(rank, p.name);
      const auto error = unit.flat_params().slice(0, begin, end) - expected.slice(0, begin, end);
      REQUIRE(error.abs().max().item<double>() < 2e-6);
    }
  }
}

TEST_CASE("a skipped step changes nothing, not even the bias correction") {
  Fixture f;
  auto optimizer = f.optimizer({.lr = 0.1});
  f.unit().flat_grads().fill_(1);
  optimizer->step(f.grads(), 0.1, flag(1), flag(0));
  const auto weights = f.unit().flat_params().clone(), moment = optimizer->shards()[0].state[0].values.clone();
  f.unit().flat_grads().fill_(NAN);
  optimizer->step(f.grads(), 0.1, flag(NAN), flag(1));
  REQUIRE(f.unit().flat_params().equal(weights));
  REQUIRE(optimizer->shards()[0].state[0].values.equal(moment));
  REQUIRE(optimizer->updates().item<double>() == 1);
}

TEST_CASE("bf16 parameters follow an fp32 master copy, which starts unrounded") {
  Fixture half(at::kBFloat16), full;
  auto optimizer = half.optimizer({.lr = 1e-4, .weight_decay = 0}), reference = full.optimizer({.lr = 1e-4, .weight_decay = 0});
  const auto& master = optimizer->shards()[0].weights;
  REQUIRE(master.equal(full.unit().flat_params()));
  for (int step = 0; step < 20; step++) {
    half.unit().flat_grads().fill_(0.5);
    full.unit().flat_grads().fill_(0.5);
    optimizer->step(half.grads(), 1e-4, flag(1), flag(0));
    reference->step(full.grads(), 1e-4, flag(1), flag(0));
  }
  REQUIRE(master.equal(full.unit().flat_params()));
  REQUIRE(half.unit().flat_params().equal(master.to(at::kBFloat16)));
}

TEST_CASE("state_dtype bfloat16 keeps no master copy") {
  Fixture f(at::kBFloat16);
  auto optimizer = f.optimizer({.lr = 0.1, .state_dtype = DataType::kBfloat16});
  const auto& shard = optimizer->shards()[0];
  REQUIRE(shard.weights.data_ptr() == f.unit().flat_params().data_ptr());
  REQUIRE(shard.state[0].values.scalar_type() == at::kBFloat16);
  const auto before = f.up().clone();
  f.unit().flat_grads().fill_(1);
  optimizer->step(f.grads(), 0.1, flag(1), flag(0));
  REQUIRE((before - f.up()).mean().item<double>() > 0.05);
}
