#include "lib/train/training_state.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "lib/config/load.h"
#include "lib/io/json.h"
#include "lib/train/data_files.h"
#include "lib/util/error.h"

namespace scatterlm {
namespace {

nn::Model make_model(const Config& config, at::TensorOptions options, Comm& comm) {
  nn::Model model(config.model, options, config.optim.decay_embeddings ? Decay::kYes : Decay::kNo);
  allocate(model.units(), comm);
  return model;
}

}  // namespace

TrainingState::TrainingState(const Config& config, at::TensorOptions options, Comm& comm, Loader& loader)
    : config(config),
      comm(comm),
      loader(loader),
      model(make_model(config, options, comm)),
      optimizer(make_optimizer(config.optim, model.units(), comm, Sharding(config.parallel, comm))),
      gradients(config.parallel, model.units(), comm, config.train.grad_dtype),
      skipped(model.device()) {}

int64_t TrainingState::total_steps() const { return scatterlm::total_steps(config.train); }

nlohmann::json TrainingState::counters() const {
  return {{"step", steps},
          {"tokens", tokens()},
          {"seed", config.train.seed},
          {"data_position", loader.position()},
          {"data_files", to_json(loader.fingerprint())},
          {"optimizer_updates", optimizer->updates().item<double>()},
          {"nonfinite", skipped.save()}};
}

void TrainingState::load_counters(const nlohmann::json& counters, int64_t step, const std::string& where) {
  const JsonFields fields{counters, where};
  const auto expect = [&](const char* key, int64_t value) {
    if (const int64_t found = fields.count(key); found != value)
      fail_user("{}: '{}' is {}, at step {} it is {}; use another checkpoint", where, key, found, step, value);
  };
  int64_t tokens = 0;
  if (__builtin_mul_overflow(step, config.train.global_batch_tokens, &tokens))
    fail_user("{}: step {} is more than a run can have; use another checkpoint", where, step);
  expect("step", step);
  expect("tokens", tokens);
  expect("data_position", tokens / config.train.sequence_length);
  const double updates = fields.number("optimizer_updates");
  if (!(updates >= 0 && updates <= static_cast<double>(step)))
    fail_user("{}: 'optimizer_updates' is {}, of {} steps; use another checkpoint", where, updates, step);
  std::vector<double> nonfinite;
  for (const auto& count : fields.list("nonfinite")) {
    nonfinite.push_back(fields.as_number(count, "nonfinite"));
    if (!(nonfinite.back() >= 0 && nonfinite.back() <= static_cast<double>(step)))
      fail_user("{}: 'nonfinite' holds {}, of {} steps; use another checkpoint", where, nonfinite.back(), step);
  }
  if (std::ssize(nonfinite) != SkippedSteps::kSize)
    fail_user("{}: 'nonfinite' has {} numbers, not {}; use another checkpoint", where, nonfinite.size(), SkippedSteps::kSize);
  steps = step;
  loader.seek(tokens / config.train.sequence_length);
  optimizer->updates().fill_(updates);
  skipped.load(nonfinite);
}

}  // namespace scatterlm
