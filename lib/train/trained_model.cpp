#include "lib/train/trained_model.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "lib/train/checkpointing.h"
#include "lib/train/open_checkpoint.h"
#include "lib/train/run_tokenizer.h"

namespace scatterlm {

TrainedModel load_trained_model(const std::string& path, std::optional<int64_t> threads, const LaunchEnv& world) {
  const auto reader = open_checkpoint(path);
  auto config = checkpoint_config(reader);
  config.train.device = DeviceChoice::kAuto;  // trained on a GPU, evaluated on a laptop
  config.train.threads = threads.value_or(std::min<int64_t>(config.train.threads, at::get_num_threads()));
  config.train.deterministic = Toggle::kAuto;
  const auto numerics = set_up_execution(config.train, world);
  auto model = std::make_unique<nn::Model>(config.model, numerics.options());
  allocate(model->units(), *make_single_comm());
  load_weights(reader, *model);
  return {reader.path(), std::move(config), numerics, std::move(model), checkpoint_tokenizer(reader)};
}

}  // namespace scatterlm
