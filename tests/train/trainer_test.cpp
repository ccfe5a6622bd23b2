#include "lib/train/trainer.h"

#include <ATen/ATen.h>

#include <cmath>

#include "lib/train/checkpointing.h"
#include "tests/train/tiny_run.h"

#include "tests/catch.h"

using namespace scatterlm;

TEST_CASE("steps lower the loss and report what they did") {
  TinyRun run;
  run.trainer->step();
  const auto first = run.trainer->report();
  for (int i = 1; i < 20; i++) run.trainer->step();
  const auto last = run.trainer->report();
  REQUIRE(std::abs(first.loss - std::log(300.0)) < 0.1);
  REQUIRE(last.loss < first.loss);
  REQUIRE(last.step == 20);
  REQUIRE(last.tokens == 20 * 128);
  REQUIRE(last.routers.size() == 2);
  REQUIRE(last.routers[0].name == "layers.0.attention");
  REQUIRE(last.routers[1].name == "layers.0.mlp");
  REQUIRE(last.routers[1].drop == 0);
  REQUIRE(last.routers[1].entropy <= std::log(4.0) + 1e-9);
  REQUIRE(last.routers[1].aux_loss >= 0.9);
  REQUIRE(std::abs(last.aux_loss - (last.routers[0].aux_loss + last.routers[1].aux_loss) / 2) < 1e-12);
  REQUIRE(std::abs(last.z_loss - (last.routers[0].z_loss + last.routers[1].z_loss) / 2) < 1e-12);
}

TEST_CASE("a step that is not finite changes nothing, and is counted, also in a row") {
  TinyRun run([](Config& config) { config.model.router.balance = Balance::kBias; });
  for (int i = 0; i < 3; i++) run.trainer->step();
  auto broken = run.weight("norm.weight");
  const auto kept = broken.clone();
  broken.fill_(3e38f);  // finite, but what it is multiplied with overflows
  const auto before = run.tensors();
  run.trainer->step();
  run.trainer->step();
  const auto report = run.trainer->report();
  REQUIRE_FALSE(std::isfinite(report.loss));
  REQUIRE(report.nonfinite_steps == 2);
  REQUIRE(report.nonfinite_row == 2);
  REQUIRE(all_equal(run.tensors(), before));

  broken.copy_(kept);  // it recovers: the row is broken
  run.trainer->step();
  const auto recovered = run.trainer->report();
  REQUIRE(std::isfinite(recovered.loss));
  REQUIRE(recovered.nonfinite_row == 2);
  broken.fill_(3e38f);
  for (int i = 0; i < 3; i++) run.trainer->step();
  const auto again = run.trainer->report();
  REQUIRE(again.nonfinite_row == 3);
  REQUIRE(again.nonfinite_steps == 5);
  REQUIRE(run.trainer->report().nonfinite_row == 3);  // it goes on
}

TEST_CASE("a router whose logits are not finite skips the step and is named") {
  TinyRun run;
  run.trainer->step();
  REQUIRE(run.trainer->report().first_broken_router().empty());
  run.weight("layers.0.mlp.router.weight")[0].fill_(std::numeric_limits<double>::infinity());
  const auto before = run.tensors();
  run.trainer->step();
  const auto report = run.trainer->report();
  REQUIRE(report.nonfinite_steps == 1);
  REQUIRE(report.first_broken_router() == " (first in the router of layers.0.mlp)");
  REQUIRE(all_equal(run.tensors(), before));
}

TEST_CASE("a checkpoint never holds weights that are not finite") {
  TinyRun run;
  run.trainer->step();
  const auto run_dir = (run.folder / "run").string();
  save_training(run_dir, *run.state);
  run.trainer->step();
  run.weight("norm.weight")[0] = NAN;
  REQUIRE_THROWS_WITH(save_training(run_dir, *run.state), ContainsSubstring("'head' holds values that are not finite"));
  REQUIRE(list_checkpoints(run_dir) == std::vector<int64_t>{1});
}

TEST_CASE("a checkpoint brings back weights, moments, biases, counters and data position") {
  const auto bias = [](Config& config) { config.model.router.balance = Balance::kBias; };
  TinyRun run(bias), other(bias);
  for (int i = 0; i < 3; i++) run.trainer->step();
  const auto path = save_training((run.folder / "run").string(), *run.state);
  const auto at_three = run.tensors();
  run.trainer->step();
  other.config = run.config;
  resume_training(CheckpointReader(path), *other.state);
  REQUIRE(all_equal(other.tensors(), at_three));
  other.trainer->step();
  REQUIRE(all_equal(other.tensors(), run.tensors()));
  REQUIRE(other.trainer->report().loss == run.trainer->report().loss);
}

TEST_CASE("the gradient norm is clipped to clip_grad_norm") {
  // With moments at zero and no weight decay, Adam's first update hides the scale, but its first moment shows it.
  const double limit = 0.01;
  TinyRun run([&](Config& config) { config.optim.clip_grad_norm = limit; });
  run.trainer->step();
  const double norm = run.trainer->report().grad_norm;
  REQUIRE(norm > 2 * limit);
  double sum = 0;
  for (const auto& shard : run.state->optimizer->shards())
    sum += shard.state[0].values.to(at::kDouble).square().sum().item<double>();
  REQUIRE(std::abs(std::sqrt(sum) / (1 - run.config.optim.betas[0]) / limit - 1) < 1e-4);
}

TEST_CASE("recomputing activations changes no bit of several steps") {
  const auto train = [](Recompute recompute, bool rounds) {
    auto run = std::make_unique<TinyRun>([&](Config& config) {
      config.model.router.balance = rounds ? Balance::kAux : Balance::kBias;
      config.model.router.score = rounds ? RouterScore::kSoftmax : RouterScore::kSigmoid;
      config.model.router.rounding = rounds ? Rounding::kNearest : Rounding::kNone;
      config.model.router.z_loss_coef = 0.01;
      config.model.moe.shared_intermediate_size = 8;
      config.train.micro_batch_size = 4;  // two micro-batches
      config.train.recompute = recompute;
    });
    for (int i = 0; i < 4; i++) run->trainer->step();
    return run;
  };
  const bool rounds = GENERATE(false, true);
  const auto kept = train(Recompute::kNone, rounds);
  const auto expected = kept->trainer->report();
  for (const auto recompute : {Recompute::kNorms, Recompute::kLayer}) {
    CAPTURE(enum_name(recompute));
    const auto run = train(recompute, rounds);
    REQUIRE(all_equal(run->tensors(), kept->tensors()));
    const auto report = run->trainer->report();
    REQUIRE((report.loss == expected.loss && report.grad_norm == expected.grad_norm));
    REQUIRE((report.aux_loss == expected.aux_loss && report.z_loss == expected.z_loss));
    for (size_t i = 0; i < report.routers.size(); i++) {
      REQUIRE(report.routers[i].loads == expected.routers[i].loads);
      REQUIRE((report.routers[i].drop == expected.routers[i].drop && report.routers[i].fill == expected.routers[i].fill));
    }
  }
}
