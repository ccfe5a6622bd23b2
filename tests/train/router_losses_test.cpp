#include "lib/train/router_losses.h"

#include "tests/nn/tiny.h"

#include "tests/catch.h"

using namespace scatterlm;
using namespace scatterlm::test;

TEST_CASE("a batch in micro-batches gives the same loss, statistics and reported router losses") {
  const auto comm = make_single_comm();
  nn::Model model(tiny_config(), at::kDouble);
  allocate(model.units(), *comm);
  initialise(model, 4);
  RouterLosses losses(model);
  const auto batch = random_batch(4, 6, 11);
  std::vector<std::vector<double>> reported;
  for (int64_t parts : {1, 2, 4}) {
    losses.begin_step();
    double ce = 0;
    for (int64_t part = 0; part < parts; part++) {
      const int64_t count = 4 / parts;
      const Batch micro{batch.input_BS.narrow(0, part * count, count), batch.target_BS.narrow(0, part * count, count),
                        std::nullopt};
      std::vector<nn::RouterChoice> choices;
      nn::Context context{.router_choices = &choices};
      ce += model.cross_entropy_sum(micro, context).item<double>();
      losses.add(std::move(choices), static_cast<double>((part + 1) * count * 6), 24, *comm);
    }
    std::vector<double> row{ce};
    for (const auto& router : losses.routers()) {
      REQUIRE(router.counts.sum().item<double>() == 24 * 2);
      const auto both = router.losses(24);
      row.push_back(both[0].item<double>());
      row.push_back(both[1].item<double>());
    }
    reported.push_back(row);
  }
  for (size_t i = 0; i < reported[0].size(); i++) {
    REQUIRE(std::abs(reported[1][i] - reported[0][i]) < 1e-11 * std::abs(reported[0][i]));
    REQUIRE(std::abs(reported[2][i] - reported[0][i]) < 1e-11 * std::abs(reported[0][i]));
  }
}

TEST_CASE("the selection bias rises for idle experts and falls for busy ones, unless the step is skipped") {
  const auto comm = make_single_comm();
  auto config = tiny_config();
  config.router.balance = Balance::kBias;
  config.router.bias_update_rate = 0.25;
  nn::Model model(config, at::kDouble);
  allocate(model.units(), *comm);
  RouterLosses losses(model);
  losses.routers()[0].counts.copy_(at::tensor({5.0, 2.0, 2.0}));
  losses.update_biases(at::zeros({1}));
  const auto& bias = model.routers()[0]->bias;
  REQUIRE(bias.equal(at::zeros({3})));
  losses.update_biases(at::ones({1}));
  REQUIRE(bias.equal(at::tensor({-0.25f, 0.25f, 0.25f})));
}
