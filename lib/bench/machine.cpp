#include "lib/bench/machine.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include "lib/bench/timer.h"
#include "lib/ops/device.h"
#include "lib/util/error.h"
#include "lib/util/gpu.h"

namespace scatterlm::bench {
namespace {

constexpr int kPortable = 80, kHopper = 90;  // compute capabilities from which the families are

/// Asks the driver's library, which comes with the driver and is not linked.
std::string driver_version() {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
  if (!library) return "unknown";
  const auto init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
  const auto version = reinterpret_cast<int (*)(char*, unsigned)>(dlsym(library, "nvmlSystemGetDriverVersion"));
  char text[80] = "";
  const bool known = init && version && init() == 0 && version(text, sizeof(text)) == 0;
  return known ? text : "unknown";
}

Ceilings measure_ceilings(at::Device device) {
  constexpr int64_t kSide = 8192, kCopyBytes = int64_t{2} << 30, kRounds = 30;
  const auto bf16 = at::TensorOptions(device).dtype(at::kBFloat16), bytes = bf16.dtype(at::kByte);
  const auto a = at::randn({kSide, kSide}, bf16), b = at::randn({kSide, kSide}, bf16), from = at::zeros({kCopyBytes}, bytes);
  auto c = at::empty({kSide, kSide}, bf16), to = at::empty({kCopyBytes}, bytes);
  const auto times = time_interleaved({{[&] { at::mm_out(c, a, b); }}, {[&] { to.copy_(from); }}}, kRounds, device);
  return {.gemm_tflops = tflops(2.0 * kSide * kSide * kSide, times[0].median),
          .copy_tbps = gbps(2.0 * kCopyBytes, times[1].median) / 1e3};
}

}  // namespace

Machine find_machine(const std::string& family) {
  if (gpus().empty()) {
    if (!family.empty()) fail_user("--family {}: the kernels are for GPUs, and there is none", family);
    return {};
  }
  const Gpu& gpu = gpus().front();
  const int cuda = ops::kernels_cuda_version();
  if (cuda == 0) fail_user("this program was built with -DSCATTERLM_KERNELS=OFF: it has no kernels to bench");
  const auto capability = fmt::format("{}.{}", gpu.compute_capability / 10, gpu.compute_capability % 10);
  if (gpu.compute_capability < kPortable)
    fail_user("{}: the kernels need compute capability 8.0, this GPU has {}; CUDA_VISIBLE_DEVICES= benches the CPU", gpu.name,
              capability);
  const std::string own = gpu.compute_capability == kHopper ? "hopper" : "portable";
  if (family == "hopper" && own != family)
    fail_user("--family hopper: these kernels are for compute capability 9.0, {} has {}: leave the flag out", gpu.name,
              capability);
  if (family == "portable") ops::assume_compute_capability(kPortable);
  const at::Device device(at::kCUDA, 0);
  return {.device = device,
          .gpu = gpu.name,
          .driver = driver_version(),
          .cuda = fmt::format("{}.{}", cuda / 1000, cuda % 1000 / 10),
          .family = family.empty() ? own : family,
          .ceilings = measure_ceilings(device)};
}

double measure_copy_tbps(at::Device device) {
  constexpr int64_t kBytes = 256 << 20;
  const auto from = at::zeros({kBytes}, at::TensorOptions(device).dtype(at::kByte));
  auto to = at::empty_like(from);
  const auto times = time_interleaved({{[&] { to.copy_(from); }}}, /*asked_rounds=*/0, device);
  return gbps(2.0 * kBytes, times[0].median) / 1e3;
}

MemoryUse memory_use(const Forward& forward, at::Device device) {
  constexpr double kMib = 1 << 20;
  const auto allocated = [&] { return at::accelerator::getDeviceStats(device.index()).allocated_bytes[0]; };
  at::accelerator::synchronizeDevice(device.index());
  at::accelerator::resetPeakStats(device.index());
  const int64_t before = allocated().current;
  const auto backward = forward();
  const int64_t kept = allocated().current;
  backward();
  at::accelerator::synchronizeDevice(device.index());
  return {.saved_mib = static_cast<double>(kept - before) / kMib,
          .peak_mib = static_cast<double>(allocated().peak - before) / kMib};
}

}  // namespace scatterlm::bench
