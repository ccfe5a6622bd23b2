#include "lib/train/training_state.h"

#include <ATen/ATen.h>

#include <nlohmann/json.hpp>

#include "lib/config/load.h"
#include "lib/train/data_files.h"

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
      gradients(config.parallel, model.units(), comm),
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

void TrainingState::load_counters(const nlohmann::json& counters) {
  steps = counters.at("step").get<int64_t>();
  loader.seek(counters.at("data_position").get<int64_t>());
  optimizer->updates().fill_(counters.at("optimizer_updates").get<double>());
  skipped.load(counters.at("nonfinite").get<std::vector<double>>());
}

}  // namespace scatterlm
