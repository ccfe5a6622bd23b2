#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "lib/config/config.h"
#include "lib/distributed/launch_env.h"

namespace scatterlm {

/// Where and in what precision a run computes.
struct ExecutionSetup {
  at::Device device;
  at::ScalarType dtype;  ///< of weights and activations
  bool deterministic;
  int64_t ranks = 1;  ///< each on such a device
  at::TensorOptions options() const { return at::TensorOptions().dtype(dtype).device(device); }
};

/// Resolves the `auto`s of a configuration for this rank of the world and sets threads and determinism of the process: ranks
/// of one machine have a GPU each, or share its cores. Throws Error if a GPU is asked for and there is none.
ExecutionSetup set_up_execution(const TrainConfig& config, const LaunchEnv& world = {});

/// Throws Error (exit code 2) if optimiser state or gradients would be less precise than the weights.
void require_dtypes(const Config& config, const ExecutionSetup& setup);

/// Which of the `count` GPUs that this process sees is the rank's: each rank of a machine has its own. Where someone has chosen
/// what the process sees (CUDA_VISIBLE_DEVICES; srun --gpus-per-task), a single GPU is the one meant for this rank.
int64_t gpu_index(const LaunchEnv& world, int64_t count, bool chosen);

/// "CPU, 2 threads, float32, deterministic", or the GPU's name in place of the threads; after "4 ranks, each on " if there are
/// several.
std::string describe(const ExecutionSetup& numerics);

}  // namespace scatterlm
