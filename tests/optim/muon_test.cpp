#include "lib/optim/muon.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <barrier>
#include <cmath>
#include <map>
#include <thread>

#include "lib/distributed/silent_comm.h"
#include "lib/ops/newton_schulz.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

using Units = std::vector<std::unique_ptr<ParameterUnit>>;

/// Rank `rank` of several that are threads of this process.
struct ThreadComm final : SilentComm {
  struct Meeting {
    explicit Meeting(int64_t world) : buffers(static_cast<size_t>(world)), all(world) {}
    std::vector<at::Tensor> buffers;
    std::barrier<> all;
  };
  ThreadComm(int64_t rank, Meeting& meeting) : SilentComm(rank, std::ssize(meeting.buffers)), meeting_(meeting) {}
  std::string transport() const override { return "threads"; }
  CollectiveHandle all_gather(at::Tensor full) override {
    meeting_.buffers[static_cast<size_t>(rank())] = full;
    meeting_.all.arrive_and_wait();
    const int64_t size = full.numel() / world();
    for (int64_t r = 0; r < world(); ++r) {
      if (r != rank()) full.narrow(0, r * size, size).copy_(meeting_.buffers[static_cast<size_t>(r)].narrow(0, r * size, size));
    }
    meeting_.all.arrive_and_wait();
    return 0;
  }

  Meeting& meeting_;
};

/// A layer with all that Muon treats in its own way: stacked matrices, experts, a router, a norm; and an embedding.
Units make_units(Comm& comm, at::ScalarType dtype = at::kFloat) {
  Units units;
  auto& embedding = *units.emplace_back(std::make_unique<ParameterUnit>("embedding", dtype));
  embedding.param("embedding", {11, 6}, Init::normal(1), Decay::kNo);
  auto& layer = *units.emplace_back(std::make_unique<ParameterUnit>("layer", dtype));
  layer.param("norm", {6}, Init::ones(), Decay::kNo);
  layer.param("qkv", {12, 6}, Init::normal(1), Decay::kYes, {8, 2, 2});
  layer.param("router", {3, 6}, Init::normal(1), Decay::kYes);
  layer.param("experts.up", {3, 10, 6}, Init::normal(1), Decay::kYes, {5, 5});
  layer.param("experts.down", {3, 6, 5}, Init::normal(1), Decay::kYes, {6});
  for (auto& unit : units) unit->allocate(comm);
  return units;
}

at::Tensor scalar(double value) { return at::full({1}, value, at::kFloat); }

/// Gradients of a step, per unit, of all elements or of a rank's slice.
std::vector<at::Tensor> gradients(const Units& units, int64_t step, bool slice = false) {
  std::vector<at::Tensor> grads;
  for (const auto& unit : units) {
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(100 * step + std::ssize(grads)));
    auto whole = at::randn({1024}, generator).narrow(0, 0, unit->params().back().offset + unit->params().back().numel);
    whole = at::constant_pad_nd(whole, {0, unit->size() - whole.numel()});
    grads.push_back(slice ? unit->own_slice(whole) : whole);
  }
  return grads;
}

/// LibTorch's AdamW writes the gradients, divided by their scale, over those it is given.
std::vector<at::Tensor> copies(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> all;
  for (const auto& tensor : tensors) all.push_back(tensor.clone());
  return all;
}

at::Tensor of_param(const at::Tensor& flat, const Param& p) { return flat.narrow(0, p.offset, p.numel).view(p.shape); }

/// The formula of lib/optim/muon.h for one matrix, in fp64, by plain products.
struct MuonFormula {
  at::Tensor weights, momentum;

  static at::Tensor orthogonal(at::Tensor x, int64_t iterations) {
    x = x / x.norm();
    for (int64_t i = 0; i < iterations; ++i) {
      const auto a = x.matmul(x.t());
      x = 3.4445 * x + (-4.7750 * a + 2.0315 * a.matmul(a)).matmul(x);
    }
    return x;
  }
  void step(const at::Tensor& grad, const OptimConfig& c, double lr) {
    momentum = c.momentum * momentum + grad;
    const double scale = 0.2 * std::sqrt(static_cast<double>(std::max(grad.size(0), grad.size(1))));
    weights = weights - lr * (scale * orthogonal(grad + c.momentum * momentum, 5) + c.weight_decay * weights);
  }
};

/// The matrices of a tensor, each a view.
std::vector<at::Tensor> matrices_of(const at::Tensor& tensor, const std::vector<int64_t>& rows) {
  std::vector<at::Tensor> all;
  for (const auto& expert : tensor.dim() == 3 ? tensor.unbind(0) : std::vector{tensor}) {
    for (const auto& matrix : expert.split_with_sizes(rows, 0)) all.push_back(matrix);
  }
  return all;
}

const OptimConfig kConfig{.name = OptimizerName::kMuon, .momentum = 0.9, .weight_decay = 0.3};

}  // namespace

TEST_CASE("five iterations bring the singular values near 1 and keep the singular vectors, wide or tall") {
  at::manual_seed(3);
  for (const auto& shape : {std::vector<int64_t>{4, 16, 24}, {4, 24, 16}, {1, 16, 16}}) {
    const auto x = at::randn(shape, at::kDouble);
    auto made = x.to(at::kFloat) * 1e3;
    ops::newton_schulz_(made, 5, 0.5);
    made = made.to(at::kDouble) * 2;
    const auto [u, s, vh] = at::linalg_svd(x, /*full_matrices=*/false);
    const auto rotated = u.mT().matmul(made).matmul(vh.mT());
    const auto values = at::diagonal(rotated, 0, 1, 2);
    REQUIRE((rotated - at::diag_embed(values)).abs().max().item<double>() < 2e-3);
    const auto plain = values.masked_select(s > 0.02 * s.square().sum({1}, true).sqrt());
    REQUIRE(plain.numel() > 0.9 * static_cast<double>(values.numel()));
    REQUIRE(plain.min().item<double>() > 0.6);
    REQUIRE(plain.max().item<double>() < 1.25);
  }
  const auto zeros = at::zeros({2, 3, 4});
  ops::newton_schulz_(zeros, 5, 1);
  REQUIRE(zeros.eq(0).all().item<bool>());
}

TEST_CASE("Muon follows its formula in each matrix and each expert; the router, norms and embeddings follow AdamW") {
  const auto comm = make_single_comm();
  const auto units = make_units(*comm), others = make_units(*comm);
  const auto muon = make_optimizer(kConfig, units, *comm, Sharding({}, *comm));
  auto adamw_config = kConfig;
  adamw_config.name = OptimizerName::kAdamw;
  const auto adamw = make_optimizer(adamw_config, others, *comm, Sharding({}, *comm));
  muon->initialise(5);
  adamw->initialise(5);

  std::vector<MuonFormula> formulas;
  for (const auto& p : units[1]->params()) {
    for (const auto& m : matrices_of(p.tensor.detach(), p.matrix_rows.empty() ? std::vector{p.shape[0]} : p.matrix_rows)) {
      if (!p.matrix_rows.empty()) formulas.push_back({m.to(at::kDouble).clone(), at::zeros_like(m, at::kDouble)});
    }
  }
  REQUIRE(formulas.size() == 3 + 6 + 3);
  for (int64_t step = 1; step <= 4; ++step) {
    auto grads = gradients(units, step);
    for (auto& grad : grads) grad = grad * 4;  // divided by the scale
    muon->step(copies(grads), 0.02, scalar(4), scalar(0));
    adamw->step(copies(grads), 0.02, scalar(4), scalar(0));
    size_t next = 0;
    for (size_t i = 0; i < units[1]->params().size(); ++i) {
      const auto& p = units[1]->params()[i];
      if (p.matrix_rows.empty()) {
        REQUIRE(p.tensor.equal(others[1]->params()[i].tensor));
        continue;
      }
      const auto now = matrices_of(p.tensor.detach(), p.matrix_rows),
                 grad = matrices_of(of_param(grads[1] / 4, p), p.matrix_rows);
      for (size_t m = 0; m < now.size(); ++m, ++next) {
        formulas[next].step(grad[m].to(at::kDouble), kConfig, 0.02);
        REQUIRE((now[m] - formulas[next].weights).abs().max().item<double>() < 2e-5);
      }
    }
    REQUIRE(units[0]->flat_params().equal(others[0]->flat_params()));
  }
  REQUIRE(muon->updates().item<double>() == 4);
}

TEST_CASE("a rank's state is one momentum for matrices, two moments for the rest") {
  const auto comm = make_single_comm();
  const auto units = make_units(*comm);
  const auto muon = make_optimizer(kConfig, units, *comm, Sharding({}, *comm));
  std::map<std::string, int64_t> elements;
  for (const auto& state : muon->shards()[1].state) elements[state.name] += state.elements.size();
  REQUIRE(elements["momentum"] + elements["exp_avg"] == units[1]->size());
  REQUIRE(elements["exp_avg"] == elements["exp_avg_sq"]);
  REQUIRE(elements["momentum"] >= 12 * 6 + 3 * 10 * 6 + 3 * 6 * 5);
  REQUIRE(muon->shards()[0].state.size() == 2);
}

TEST_CASE("a step that is skipped changes no bit of weights and state") {
  const auto comm = make_single_comm();
  const auto units = make_units(*comm);
  const auto muon = make_optimizer(kConfig, units, *comm, Sharding({}, *comm));
  muon->initialise(5);
  muon->step(gradients(units, 1), 0.02, scalar(1), scalar(0));
  const auto all = [&] {
    std::vector<at::Tensor> tensors{muon->updates().clone()};
    for (const auto& shard : muon->shards()) {
      tensors.push_back(shard.weights.clone());
      for (const auto& state : shard.state) tensors.push_back(state.values.clone());
    }
    return tensors;
  };
  const auto before = all();
  auto grads = gradients(units, 2);
  for (auto& grad : grads) grad = grad * NAN;
  muon->step(grads, 0.02, scalar(NAN), scalar(1));
  const auto after = all();
  for (size_t i = 0; i < before.size(); ++i) REQUIRE(after[i].equal(before[i]));
}

TEST_CASE("ranks whose slices cut matrices update as one rank does, whatever they share") {
  const auto alone = make_single_comm();
  const auto whole = make_units(*alone);
  const auto reference = make_optimizer(kConfig, whole, *alone, Sharding({}, *alone));
  reference->initialise(5);
  for (int64_t step = 1; step <= 3; ++step) reference->step(gradients(whole, step), 0.02, scalar(1), scalar(0));

  for (const int64_t world : {2, 4}) {
    for (const int64_t zero : {0, 1}) {
      ThreadComm::Meeting meeting(world);
      std::vector<Units> units(static_cast<size_t>(world));
      {
        std::vector<std::jthread> ranks;
        for (int64_t rank = 0; rank < world; ++rank) {
          ranks.emplace_back([&, rank] {
            ThreadComm comm(rank, meeting);
            auto& own = units[static_cast<size_t>(rank)] = make_units(comm);
            const auto muon = make_optimizer(kConfig, own, comm, Sharding({.zero = zero}, comm));
            muon->initialise(5);
            for (int64_t step = 1; step <= 3; ++step) muon->step(gradients(own, step, zero > 0), 0.02, scalar(1), scalar(0));
          });
        }
      }
      for (const auto& own : units) {
        for (size_t i = 0; i < own.size(); ++i) {
          for (size_t k = 0; k < own[i]->params().size(); ++k) {
            const auto difference = own[i]->params()[k].tensor.detach() - whole[i]->params()[k].tensor.detach();
            REQUIRE(difference.abs().max().item<double>() < 1e-5);
          }
        }
      }
    }
  }
}

TEST_CASE("bf16 parameters follow an fp32 master copy; with state_dtype bfloat16 there is none") {
  const auto comm = make_single_comm();
  const auto full = make_units(*comm), half = make_units(*comm, at::kBFloat16), bare = make_units(*comm, at::kBFloat16);
  auto bare_config = kConfig;
  bare_config.state_dtype = DataType::kBfloat16;
  const auto reference = make_optimizer(kConfig, full, *comm, Sharding({}, *comm));
  const auto master = make_optimizer(kConfig, half, *comm, Sharding({}, *comm));
  const auto rounded = make_optimizer(bare_config, bare, *comm, Sharding({}, *comm));
  for (const auto* optimizer : {&reference, &master, &rounded}) (*optimizer)->initialise(5);
  for (int64_t step = 1; step <= 3; ++step) {
    reference->step(gradients(full, step), 0.02, scalar(1), scalar(0));
    master->step(gradients(half, step), 0.02, scalar(1), scalar(0));
    rounded->step(gradients(bare, step), 0.02, scalar(1), scalar(0));
  }
  REQUIRE(master->shards()[1].weights.equal(full[1]->flat_params()));
  REQUIRE(half[1]->flat_params().equal(full[1]->flat_params().to(at::kBFloat16)));
  REQUIRE(rounded->shards()[1].weights.data_ptr() == bare[1]->flat_params().data_ptr());
  REQUIRE((bare[1]->flat_params() - full[1]->flat_params()).abs().max().item<double>() < 0.05);
}
