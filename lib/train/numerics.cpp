#include "lib/train/numerics.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>

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

}  // namespace

Numerics set_up_numerics(const TrainConfig& config) {
  const bool gpu = use_gpu(config.device);
  const bool bf16 = config.dtype == TrainDtype::kBfloat16 || (config.dtype == TrainDtype::kAuto && gpu);
  const bool deterministic = config.deterministic == Toggle::kTrue || (config.deterministic == Toggle::kAuto && !gpu);
  if (config.threads > 0) at::set_num_threads(static_cast<int>(config.threads));
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);  // our code writes before it reads; filling every buffer is slow
  if (deterministic) context.setBenchmarkCuDNN(false);
  return {gpu ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU), bf16 ? at::kBFloat16 : at::kFloat, deterministic};
}

std::string describe(const Numerics& numerics) {
  const auto device = numerics.device.is_cuda() ? gpus().at(static_cast<size_t>(numerics.device.index())).name
                                                : fmt::format("CPU, {} threads", at::get_num_threads());
  return fmt::format("{}, {}{}", device, numerics.dtype == at::kBFloat16 ? "bfloat16" : "float32",
                     !numerics.deterministic     ? ""
                     : numerics.device.is_cuda() ? ", deterministic (without cuDNN attention)"
                                                 : ", deterministic");
}

}  // namespace scatterlm
