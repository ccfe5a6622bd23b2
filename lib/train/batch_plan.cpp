#include "lib/train/batch_plan.h"

#include "lib/util/error.h"

namespace scatterlm {

BatchPlan::BatchPlan(const TrainConfig& config, int64_t ranks)
    : sequences(config.global_batch_tokens / config.sequence_length) {
  if (sequences % ranks != 0) {
    fail_user("train.global_batch_tokens {} is {} sequences, which {} ranks cannot share equally; give a multiple of {}",
              config.global_batch_tokens, sequences, ranks, ranks * config.sequence_length);
  }
  per_pass = config.micro_batch_size > 0 ? config.micro_batch_size : sequences / ranks;
  if (sequences / ranks % per_pass != 0) {
    fail_user("train.micro_batch_size {} does not divide the {} sequences that each of {} ranks has in a step; give a divisor",
              per_pass, sequences / ranks, ranks);
  }
  micro_batch = per_pass * ranks;
}

}  // namespace scatterlm
