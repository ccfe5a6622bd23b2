#include "lib/parallel/gradient_reducer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <array>
#include <cmath>
#include <map>

#include "lib/ops/gradient_target.h"
#include "tests/catch.h"

using namespace scatterlm;

namespace {

/// Rank 0 of two whose other rank has the same gradients; notes what is called. Reads and writes of a reduce-scatter come as
/// late as they may.
struct Twin final : Comm {
  int64_t rank() const override { return 0; }
  int64_t world() const override { return 2; }
  std::string transport() const override { return "nothing"; }
  void all_reduce(at::Tensor tensor) override { tensor *= 2; }
  void broadcast(at::Tensor) override {}
  void barrier() override {}
  void background_barrier(std::stop_token) override {}
  bool any(bool yes) override { return yes; }
  CollectiveHandle reduce_scatter(const at::Tensor& full, at::Tensor part) override {
    REQUIRE(part.scalar_type() == full.scalar_type());
    calls.push_back(fmt::format("reduce {}", full.numel()));
    dtype = full.scalar_type();
    under_way.insert({++last, {full, part}});
    return last;
  }
  CollectiveHandle all_gather(at::Tensor full) override {
    calls.push_back(fmt::format("gather {}", full.numel()));
    const auto parts = full.view({2, -1});
    parts[1].copy_(parts[0]);
    return kGather;
  }
  void wait(CollectiveHandle ticket) override {
    waits_for_gathers += ticket == kGather;
    if (const auto found = under_way.extract(ticket)) {
      const auto& [full, part] = found.mapped();
      part.copy_(2 * full.view({2, -1})[0]);
    }
  }
  static constexpr CollectiveHandle kGather = 1 << 20;
  CollectiveHandle last = 0;
  std::map<CollectiveHandle, std::pair<at::Tensor, at::Tensor>> under_way;
  int waits_for_gathers = 0;
  std::vector<std::string> calls;
  at::ScalarType dtype = at::kFloat;
};

struct Fixture {
  explicit Fixture(Comm& comm, const std::vector<int64_t>& numels = {256, 512}) {
    for (const int64_t numel : numels) {
      auto& unit = *units.emplace_back(std::make_unique<ParameterUnit>("layer", at::kFloat));
      unit.param("a", {numel}, Init::zeros(), Decay::kYes);
      unit.allocate(comm);
    }
  }
  at::Tensor param(size_t unit) { return units[unit]->params()[0].tensor; }
  std::vector<std::unique_ptr<ParameterUnit>> units;
};

void backward(GradientReducer& gradients, const at::Tensor& loss, bool last) {
  gradients.begin_micro_batch(last);
  torch::autograd::backward({loss}, {});
  gradients.end_micro_batch();
}

/// slope times the sum of a parameter; its gradient goes where that of an op with a kernel would.
struct InPlaceSum : torch::autograd::Function<InPlaceSum> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x, double slope) {
    ctx->save_for_backward({x});
    ctx->saved_data["slope"] = slope;
    return x.sum() * slope;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx, const torch::autograd::variable_list&) {
    const ops::GradientTarget target(ctx->get_saved_variables()[0]);
    const double slope = ctx->saved_data["slope"].toDouble();
    if (target.update() == kernels::GradientUpdate::kStore)
      target.tensor().fill_(slope);
    else
      target.tensor().add_(slope);
    return {target.result(), at::Tensor()};
  }
};

bool is_all(const at::Tensor& tensor, double value) { return tensor.eq(value).all().item<bool>(); }

using Calls = std::vector<std::string>;

}  // namespace

TEST_CASE("a unit is reduced while the backward pass goes on, the last one first, once a step") {
  for (const int64_t zero : {0, 1, 2}) {
    Twin comm;
    Fixture f(comm);
    GradientReducer gradients({.zero = zero}, f.units, comm);
    Calls before_first_unit;
    bool had_buffer = false;
    auto first = f.param(0).sum();  // its backward comes last
    first.register_hook([&](const at::Tensor&) {
      before_first_unit = comm.calls;
      had_buffer = f.units[0]->flat_grads().defined();
    });
    gradients.begin_step();
    backward(gradients, first * 3 + (f.param(1) * 5).sum(), true);
    REQUIRE(before_first_unit == Calls{"reduce 512"});
    REQUIRE(had_buffer);
    REQUIRE(std::count(comm.calls.begin(), comm.calls.end(), "reduce 256") == 1);
    REQUIRE(is_all(gradients.reduced()[0].narrow(0, 0, 128), 2 * 3));
    REQUIRE(is_all(gradients.reduced()[1].narrow(0, 0, 256), 2 * 5));
    REQUIRE(gradients.reduced()[1].numel() == (zero == 0 ? 512 : 256));
  }
}

TEST_CASE("zero 0 gathers while the backward pass goes on, and waits for it at the end") {
  Twin comm;
  Fixture f(comm, {256, 512, 768, 1024});
  GradientReducer gradients({.zero = 0}, f.units, comm);
  auto first = f.param(0).sum();
  Calls before_first_unit;
  int waits = -1;
  first.register_hook([&](const at::Tensor&) {
    before_first_unit = comm.calls;
    waits = comm.waits_for_gathers;
  });
  gradients.begin_step();
  backward(gradients, first + f.param(1).sum() + f.param(2).sum() + f.param(3).sum(), true);
  REQUIRE(before_first_unit == Calls{"reduce 1024", "reduce 768", "gather 1024", "reduce 512"});
  REQUIRE(waits == 0);
  REQUIRE(comm.waits_for_gathers == 4);
}

TEST_CASE("zero 0 and 1 reduce in the last micro-batch, zero 2 in each, with no buffer in between: sums are the same") {
  const auto wire = GENERATE(DataType::kFloat32, DataType::kBfloat16);
  for (const int64_t zero : {0, 1, 2}) {
    Twin comm;
    Fixture f(comm);
    GradientReducer gradients({.zero = zero, .reduce_dtype = wire}, f.units, comm);
    for (int step = 1; step <= 2; step++) {
      comm.calls.clear();
      gradients.begin_step();
      for (const int slope : {1, 8, 16}) backward(gradients, (f.param(0).sum() + f.param(1).sum()) * slope * step, slope == 16);
      REQUIRE(is_all(gradients.reduced()[0].narrow(0, 0, 128), 2 * 25 * step));
      REQUIRE(comm.calls.size() == std::array<size_t, 3>{4, 2, 6}[static_cast<size_t>(zero)]);
      REQUIRE(f.units[0]->flat_grads().defined() == (zero < 2));
    }
  }
}

TEST_CASE("units take two buffers in turn, in either wire type, and a gradient that comes early is kept") {
  for (const auto wire : {DataType::kFloat32, DataType::kBfloat16}) {
    Twin comm;
    Fixture f(comm, {256, 512, 768, 1024, 512});
    GradientReducer gradients({.zero = 2, .reduce_dtype = wire}, f.units, comm);
    for (int step = 1; step <= 2; step++) {
      gradients.begin_step();
      auto loss = f.param(1).sum();
      for (size_t unit = 2; unit < 5; ++unit) loss = loss + f.param(unit).sum() * static_cast<double>(unit);
      backward(gradients, loss + f.param(0).sum() * 3, true);  // what comes last has its backward first
      REQUIRE(comm.calls == Calls{"reduce 512", "reduce 1024", "reduce 768", "reduce 512", "reduce 256"});
      REQUIRE(is_all(gradients.reduced()[0].narrow(0, 0, 128), 2 * 3));
      for (size_t unit = 1; unit < 5; ++unit) REQUIRE(is_all(gradients.reduced()[unit], 2.0 * static_cast<double>(unit)));
      comm.calls.clear();
    }
  }
}

TEST_CASE("a parameter without a part in the loss has a gradient of zero, and does not keep its unit from being reduced") {
  for (const int64_t zero : {0, 1, 2}) {
    Twin comm;
    Fixture f(comm);
    GradientReducer gradients({.zero = zero}, f.units, comm);
    gradients.begin_step();
    backward(gradients, f.param(0).sum(), true);
    REQUIRE(comm.calls[0] == "reduce 512");
    REQUIRE(is_all(gradients.reduced()[0].narrow(0, 0, 128), 2));
    REQUIRE(is_all(gradients.reduced()[1], 0));
  }
}

TEST_CASE("large gradients are stored by the first op that has one, whatever was there before") {
  const auto wire = GENERATE(DataType::kFloat32, DataType::kBfloat16);
  for (const int64_t zero : {0, 1, 2}) {
    Twin comm;
    constexpr int64_t kLarge = 1 << 18, kSmall = 60, kRounded = 64;  // with padding behind the small ones
    std::vector<std::unique_ptr<ParameterUnit>> units;
    for (int i = 0; i < 3; ++i) {
      auto& unit = *units.emplace_back(std::make_unique<ParameterUnit>("layer", at::kFloat));
      for (const auto* name : {"in_place", "autograd", "both", "late", "unused"})
        unit.param(name, {kLarge}, Init::zeros(), Decay::kYes);
      unit.param("small", {kSmall}, Init::zeros(), Decay::kYes);
      unit.param("end", {kSmall}, Init::zeros(), Decay::kNo);
      unit.allocate(comm);
    }
    GradientReducer gradients({.zero = zero, .reduce_dtype = wire}, units, comm);
    for (int step = 1; step <= 2; ++step) {
      gradients.begin_step();
      int stored = 0;
      for (int micro = 0; micro < 2; ++micro) {
        at::Tensor loss = at::zeros({});
        for (const auto& unit : units) {
          const auto p = [&](size_t i) { return unit->params()[i].tensor; };
          loss = loss + InPlaceSum::apply(p(0), step) + 2 * step * p(1).sum() + InPlaceSum::apply(p(2), 3 * step) + p(2).sum() +
                 4 * step * p(5).sum() + p(6).sum();
          if (micro == 1) loss = loss + InPlaceSum::apply(p(3), 8 * step);
          if (zero < 2) {
            stored += ops::is_unwritten(p(0).grad());
            if (micro == 1) REQUIRE(ops::is_unwritten(p(3).grad()));
          }
        }
        backward(gradients, loss, micro == 1);
      }
      REQUIRE(stored == (zero < 2 ? 3 : 0));
      // A rank has half of each unit: in_place, autograd and half of both, or everything with zero 0.
      for (const auto& all : gradients.reduced()) {
        const double twice = 2 * 2;  // ranks, micro-batches
        REQUIRE(is_all(all.narrow(0, 0, kLarge), twice * step));
        REQUIRE(is_all(all.narrow(0, kLarge, kLarge), twice * 2 * step));
        REQUIRE(is_all(all.narrow(0, 2 * kLarge, kLarge / 2), twice * (3 * step + 1)));
        if (zero == 0) REQUIRE(all.numel() == 5 * kLarge + 2 * kRounded);
      }
      if (zero == 2) continue;
      // What this rank made of the rest of its unit, before the other's sum replaced it.
      const auto rest = units[0]->flat_grads();
      if (zero == 1 && wire == DataType::kFloat32) {
        REQUIRE(is_all(rest.narrow(0, 3 * kLarge, kLarge), 8 * step));
        REQUIRE(is_all(rest.narrow(0, 4 * kLarge, kLarge), 0));
        REQUIRE(is_all(rest.narrow(0, 5 * kLarge, kSmall), 2 * 4 * step));
        REQUIRE(is_all(rest.narrow(0, 5 * kLarge + kSmall, 4), 0));
        REQUIRE(is_all(rest.narrow(0, 5 * kLarge + kRounded, kSmall), 2));
        REQUIRE(is_all(rest.narrow(0, 5 * kLarge + kRounded + kSmall, 4), 0));
      }
    }
  }
}

TEST_CASE("zero 2: a large gradient without a part in the loss, and padding, are zero in buffers that other units used") {
  Twin comm;
  constexpr int64_t kLarge = 1 << 18;
  std::vector<std::unique_ptr<ParameterUnit>> units;
  for (int i = 0; i < 4; ++i) {
    auto& unit = *units.emplace_back(std::make_unique<ParameterUnit>("layer", at::kFloat));
    if (i < 2) unit.param("small", {60}, Init::zeros(), Decay::kYes);
    unit.param("unused", {kLarge}, Init::zeros(), Decay::kYes);
    unit.param("used", {kLarge + 2}, Init::zeros(), Decay::kYes);
    unit.allocate(comm);
  }
  GradientReducer gradients({.zero = 2}, units, comm);
  gradients.begin_step();
  auto loss = at::zeros({});
  for (int i = 0; i < 4; ++i) {
    for (const auto& p : units[static_cast<size_t>(i)]->params())
      if (p.name == "used" || i >= 2) loss = loss + InPlaceSum::apply(p.tensor, NAN);
  }
  backward(gradients, loss, true);
  for (const size_t i : {0, 1}) REQUIRE(is_all(gradients.reduced()[i].narrow(0, 0, kLarge), 0));
}

TEST_CASE("reduce_dtype is what travels; one rank keeps full precision") {
  Twin comm;
  Fixture f(comm), alone(*make_single_comm());
  const ParallelConfig config{.zero = 1, .reduce_dtype = DataType::kBfloat16};
  GradientReducer gradients(config, f.units, comm);
  gradients.begin_step();
  backward(gradients, (f.param(0) * 1.001).sum(), true);
  REQUIRE(comm.dtype == at::kBFloat16);
  REQUIRE(is_all(gradients.reduced()[0], 2));
  const auto single = make_single_comm();
  GradientReducer unrounded(config, alone.units, *single);
  unrounded.begin_step();
  backward(unrounded, (alone.param(0) * 1.001).sum(), true);
  REQUIRE(is_all(unrounded.reduced()[0], 1.001f));
}

TEST_CASE("gradients in bfloat16: their sums are, and so they travel") {
  Twin comm;
  for (const int64_t zero : {0, 1, 2}) {
    Fixture f(comm);
    GradientReducer gradients({.zero = zero}, f.units, comm, DataType::kBfloat16);
    gradients.begin_step();
    backward(gradients, (f.param(0) * 1.001).sum(), true);
    REQUIRE(comm.dtype == at::kBFloat16);
    REQUIRE(gradients.reduced()[0].scalar_type() == at::kBFloat16);
    REQUIRE(is_all(gradients.reduced()[0], 2));  // 1.001 is 1 in bfloat16
  }
}

TEST_CASE("the norm spans units and ranks") {
  Twin comm;
  Fixture f(comm);
  GradientReducer gradients({}, f.units, comm);
  gradients.begin_step();
  backward(gradients, (f.param(0) * 0.25).sum() + f.param(1).sum(), true);
  REQUIRE(std::abs(gradients.norm().item<double>() - std::sqrt(256 * 0.25 + 512 * 4)) < 1e-3);
}

TEST_CASE("after its end the units have neither hooks nor gradients") {
  Twin comm;
  Fixture f(comm);
  for (const int64_t zero : {1, 2}) {
    { const GradientReducer gradients({.zero = zero}, f.units, comm); }
    torch::autograd::backward({f.param(0).sum()}, {});
    REQUIRE_FALSE(f.units[0]->flat_grads().defined());
    REQUIRE(comm.calls.empty());
    f.param(0).mutable_grad() = at::Tensor();
  }
}
