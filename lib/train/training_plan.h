// What a training needs on GPUs that this machine need not have: memory, arithmetic, traffic and time.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lib/config/config.h"

namespace scatterlm {

/// A kind of GPU.
struct PlannedGpu {
  std::string name;         ///< as on the command line: "h200"
  std::string driver_name;  ///< as peak_bfloat16() knows it
  double memory_bytes;
};

/// By its name on the command line. Throws Error (exit code 2) that lists the names.
PlannedGpu planned_gpu(const std::string& name);

struct PlanRequest {
  PlannedGpu gpu;
  int64_t gpus = 1;   ///< ranks, one on each
  double tokens = 0;  ///< of the whole training; 0: those of the configuration
  double mfu = 0.4;   ///< share of peak_bfloat16() that model FLOPs are assumed to reach
};

struct TrainingPlan {
  int64_t total_parameters = 0, active_parameters = 0;
  double flops_per_token = 0;
  // Bytes of one rank.
  double weights = 0, gradients = 0, optimizer = 0;  ///< gradients with the buffers in which ranks exchange them
  double activations = 0, head = 0;                  ///< of a micro-batch, see estimate_activations()
  int64_t micro_batch_size = 0;                      ///< of the configuration, sequences
  /// The most sequences that divide those of a rank in a step and fit into kUsable of the GPU's memory; 0 if not even one does.
  int64_t largest_micro_batch_size = 0;
  /// The same for each value of train.recompute, indexed by it.
  std::vector<int64_t> largest_by_recompute;
  /// Bytes through the link of each rank in a step: gradients and weights, (n-1)/n of each for n ranks, as in
  /// docs/distributed.md.
  double link_bytes_per_step = 0;
  double tokens = 0, tokens_per_second = 0, step_seconds = 0, hours = 0;  ///< at the assumed MFU on all GPUs

  double memory() const { return weights + gradients + optimizer + activations + head; }
};

/// What a plan leaves for the CUDA context, NCCL and fragmentation.
inline constexpr double kUsable = 0.95;

/// Nothing is allocated. Throws Error (exit code 2) if the ranks cannot share a batch, as the training would.
TrainingPlan plan_training(const Config& config, const PlanRequest& request);

/// Bytes that a rank of a training on GPUs takes at most, as in plan_training(): TrainingPlan::memory() for this dtype.
double planned_memory(const Config& config, at::ScalarType dtype, int64_t ranks);

/// "memory: 44.3 GiB at peak, 44.1 GiB planned (+0.5 %)"
std::string measured_and_planned(double measured_gib, double planned_gib);

std::string plan_text(const TrainingPlan& plan, const Config& config, const PlanRequest& request);

/// The fields of the plan, memory in bytes, and of the request: config, gpu, gpu_memory, gpus, mfu, peak_flops.
nlohmann::ordered_json plan_json(const TrainingPlan& plan, const Config& config, const PlanRequest& request);

}  // namespace scatterlm
