#include "lib/train/execution_setup.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <cstdlib>

#include "lib/util/error.h"
#include "lib/util/gpu.h"

namespace scatterlm {
namespace {

bool use_gpu(DeviceChoice choice) {
  const bool present = at::hasCUDA();
  if (choice == DeviceChoice::kCuda && !present) {
    fail_user(
        "train.device is cuda, but no GPU is usable or this program was built without CUDA; use train.device: cpu or auto");
  }
  return present && choice != DeviceChoice::kCpu;
}

/// This rank's GPU, made the current one.
at::Device own_gpu(const LaunchEnv& world) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const int64_t index = gpu_index(world, static_cast<int64_t>(gpus().size()), visible != nullptr);
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(index));
  c10::impl::VirtualGuardImpl(at::kCUDA).setDevice(device);
  return device;
}

}  // namespace

int64_t gpu_index(const LaunchEnv& world, int64_t count, bool chosen) {
  if (count == 1 && chosen) return 0;
  if (world.local_rank >= count) {
    fail_user("rank {} is number {} on its machine, which has {} GPUs: start one rank per GPU", world.rank, world.local_rank,
              count);
  }
  return world.local_rank;
}

ExecutionSetup set_up_execution(const TrainConfig& config, const LaunchEnv& world) {
  const bool gpu = use_gpu(config.device);
  const bool bf16 = config.dtype == TrainDtype::kBfloat16 || (config.dtype == TrainDtype::kAuto && gpu);
  const bool deterministic = config.deterministic == Toggle::kTrue || (config.deterministic == Toggle::kAuto && !gpu);
  const int64_t share = std::max<int64_t>(1, at::get_num_threads() / world.local_size);
  if (config.threads > 0 || world.local_size > 1)
    at::set_num_threads(static_cast<int>(config.threads > 0 ? config.threads : share));
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);  // our code writes before it reads; filling every buffer is slow
  if (deterministic) context.setBenchmarkCuDNN(false);
  return {gpu ? own_gpu(world) : at::Device(at::kCPU), bf16 ? at::kBFloat16 : at::kFloat, deterministic, world.size};
}

void require_dtypes(const Config& config, const ExecutionSetup& setup) {
  const auto require = [&](const char* key, DataType dtype) {
    if (dtype == DataType::kFloat32 || setup.dtype == at::kBFloat16) return;
    fail_user(
        "{}: bfloat16 needs weights in bfloat16, and train.dtype: auto is float32 on a CPU; set train.dtype: bfloat16, or leave "
        "out {}",
        key, key);
  };
  require("optim.state_dtype", config.optim.state_dtype);
  require("train.grad_dtype", config.train.grad_dtype);
}

std::string describe(const ExecutionSetup& numerics) {
  const auto threads = at::get_num_threads();
  const auto device = numerics.device.is_cuda() ? gpus().at(static_cast<size_t>(numerics.device.index())).name
                                                : fmt::format("CPU, {} thread{}", threads, threads == 1 ? "" : "s");
  const auto ranks = numerics.ranks > 1 ? fmt::format("{} ranks, each on ", numerics.ranks) : "";
  return fmt::format("{}{}, {}{}", ranks, device, numerics.dtype == at::kBFloat16 ? "bfloat16" : "float32",
                     !numerics.deterministic     ? ""
                     : numerics.device.is_cuda() ? ", deterministic (without cuDNN attention)"
                                                 : ", deterministic");
}

}  // namespace scatterlm
