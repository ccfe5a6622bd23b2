#include "lib/train/tracer.h"

#include <ATen/DeviceAccelerator.h>
#include <kineto/ActivityType.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

#include "lib/util/file_error.h"
#include "lib/util/gpu.h"
#include "lib/util/log/log.h"

namespace scatterlm {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

const torch::profiler::impl::ProfilerConfig kProfiler(torch::profiler::impl::ProfilerState::KINETO);

std::set<ActivityType> activities(at::Device device) {
  if (device.is_cuda()) return {ActivityType::CPU, ActivityType::CUDA};
  return {ActivityType::CPU};
}

/// On a GPU annotations and synchronisation are events of the device too, but no work.
bool is_work(const profiler::KinetoEvent& event, at::Device device) {
  using enum libkineto::ActivityType;
  const auto type = static_cast<libkineto::ActivityType>(event.activityType());
  return device.is_cuda() ? type == CONCURRENT_KERNEL || type == GPU_MEMCPY || type == GPU_MEMSET : type == CPU_OP;
}

void wait_for(at::Device device) {
  if (device.is_cuda()) at::accelerator::synchronizeDevice(device.index());
}

int64_t now_ns() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace

Tracer::Tracer(int64_t step, int64_t steps_done, at::Device device, const std::string& run_dir)
    : step_(step), device_(device), path_(fmt::format("{}/trace_step_{:08}.json", run_dir, step)) {
  if (step > 0 && step < steps_done + 3) {
    log_info(fmt::format("log.trace_step: {} is not traced: the run continues from step {}, and two steps prepare a trace",
                         step, steps_done));
    step_ = 0;
  }
}

Tracer::~Tracer() {
  if (tracing_) profiler::disableProfiler();
}

std::optional<Trace> Tracer::before_update(int64_t step) {
  if (step == step_ - 2) prepare();
  if (step == step_ - 1) begin();
  if (step != step_) return std::nullopt;
  return end();
}

void Tracer::prepare() const {
  // LibTorch's profiler would print an ERROR on a machine without a GPU.
  if (device_.is_cpu()) setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0);
  profiler::prepareProfiler(kProfiler, activities(device_));
}

void Tracer::begin() {
  wait_for(device_);
  profiler::enableProfiler(kProfiler, activities(device_));
  tracing_ = true;
  begin_ns_ = now_ns();
}

Trace Tracer::end() {
  wait_for(device_);
  const double wall_ms = static_cast<double>(now_ns() - begin_ns_) / 1e6;
  tracing_ = false;
  const auto result = profiler::disableProfiler();
  result->save(path_ + ".tmp");  // what goes wrong there is only logged
  std::error_code error;
  std::filesystem::rename(path_ + ".tmp", path_, error);
  if (error) {
    std::error_code ignored;
    std::filesystem::remove(path_ + ".tmp", ignored);
    fail_file(path_, "write", error.value());
  }

  Trace trace{.step = step_, .device = "CPU", .wall_ms = wall_ms, .path = path_};
  if (device_.is_cuda()) trace.device = gpus().at(static_cast<size_t>(device_.index())).name;
  for (const auto& event : result->events()) {
    if (!is_work(event, device_)) continue;
    trace.work.push_back({.name = event.name(),
                          .begin_ns = static_cast<int64_t>(event.startNs()),
                          .end_ns = static_cast<int64_t>(event.endNs()),
                          .lane = device_.is_cuda() ? event.deviceResourceId() : static_cast<int64_t>(event.startThreadId())});
  }
  return trace;
}

}  // namespace scatterlm
