#include "app/dry_run.h"

#include <ATen/ATen.h>

#include "lib/config/load.h"
#include "lib/train/checkpointing.h"
#include "lib/train/flops.h"
#include "lib/train/memory_estimate.h"
#include "lib/util/log/log.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

/// "1000 of 524288 tokens, 524M tokens in all"
std::string describe_steps(const TrainConfig& config) {
  const int64_t steps = total_steps(config);
  return fmt::format("{} of {} tokens, {} tokens in all", steps, config.global_batch_tokens,
                     format_count(static_cast<double>(steps) * static_cast<double>(config.global_batch_tokens)));
}

}  // namespace

void dry_run(const DryRun& run, const std::function<void(const char*, const std::string&)>& phase) {
  const auto& [config, setup, world, comm, loader, checkpoint, initial] = run;
  phase("model", describe_model(config));
  const auto memory = estimate_memory(config, setup.dtype, world.size);
  phase("memory", describe(memory, config.parallel, world.size));
  phase("steps", describe_steps(config.train));
  if (checkpoint) check_resumable(*checkpoint, config, loader);
  if (checkpoint) phase("resume", checkpoint->path());
  if (initial) check_initial_weights(*initial, nn::Model(config.model, at::device(at::kMeta).dtype(at::kFloat)));
  if (initial) phase("weights", initial->reader.path());
  if (const auto too_large = explain_too_large(memory, setup.device, world.local_size)) log_warning(*too_large);
}

}  // namespace scatterlm
