#include "lib/bench/timer.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/Event.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <random>

namespace scatterlm::bench {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) { return std::chrono::duration<double, std::milli>(Clock::now() - start).count(); }

/// Linear between neighbours of sorted values.
double percentile(const std::vector<double>& sorted, double fraction) {
  const double at = fraction * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at), high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

/// One run between two events; its time is known when the device has passed both.
struct GpuRun {
  c10::Event start{at::kCUDA, c10::EventFlag::BACKEND_DEFAULT}, end{at::kCUDA, c10::EventFlag::BACKEND_DEFAULT};
};

/// Runs every variant `rounds` times; the times of each.
std::vector<std::vector<double>> run_rounds(const std::vector<Variant>& variants, int64_t rounds, at::Device device,
                                            std::mt19937& random) {
  constexpr int64_t kFlushBytes = 256 << 20;
  const auto flush = device.is_cuda() ? at::empty({kFlushBytes}, at::TensorOptions(device).dtype(at::kByte)) : at::Tensor();
  std::vector<std::vector<double>> times(variants.size());
  std::vector<std::vector<GpuRun>> gpu_runs(variants.size());
  std::vector<size_t> order(variants.size());
  std::iota(order.begin(), order.end(), 0);
  for (int64_t round = 0; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t i : order) {
      variants[i].prepare();
      if (device.is_cuda()) {
        const auto stream = at::accelerator::getCurrentStream(device.index());
        flush.zero_();
        auto& run = gpu_runs[i].emplace_back();
        run.start.record(stream);
        variants[i].run();
        run.end.record(stream);
      } else {
        const auto start = Clock::now();
        variants[i].run();
        times[i].push_back(ms_since(start));
      }
    }
  }
  if (device.is_cuda()) at::accelerator::synchronizeDevice(device.index());
  for (size_t i = 0; i < variants.size(); ++i)
    for (const auto& run : gpu_runs[i]) times[i].push_back(run.start.elapsedTime(run.end));
  return times;
}

}  // namespace

Spread spread_of(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return {.median = percentile(times, 0.5), .p10 = percentile(times, 0.1), .p90 = percentile(times, 0.9)};
}

int64_t num_rounds(int64_t asked, double slowest_ms) {
  return asked > 0 ? asked : static_cast<int64_t>(std::clamp(std::ceil(300 / slowest_ms), 10.0, 100.0));
}

std::vector<Spread> time_interleaved(const std::vector<Variant>& variants, int64_t asked_rounds, at::Device device) {
  std::mt19937 random(0);
  run_rounds(variants, 1, device, random);  // the first run allocates
  double slowest_ms = 0, round_ms = 0;
  for (const auto& times : run_rounds(variants, 1, device, random)) {
    slowest_ms = std::max(slowest_ms, times[0]);
    round_ms += times[0];
  }
  constexpr double kWarmUpMs = 100;  // clocks and caches settle
  run_rounds(variants, static_cast<int64_t>(std::min(kWarmUpMs / round_ms, 100.0)), device, random);
  std::vector<Spread> spreads;
  for (auto& times : run_rounds(variants, num_rounds(asked_rounds, slowest_ms), device, random))
    spreads.push_back(spread_of(std::move(times)));
  return spreads;
}

double enqueue_us(const Variant& variant, at::Device device) {
  constexpr int kRuns = 21;
  std::vector<double> times;
  for (int i = 0; i < kRuns; ++i) {
    at::accelerator::synchronizeDevice(device.index());
    variant.prepare();
    variant.run();
    variant.prepare();
    const auto start = Clock::now();
    variant.run();
    times.push_back(1e3 * ms_since(start));
  }
  at::accelerator::synchronizeDevice(device.index());
  return spread_of(std::move(times)).median;
}

}  // namespace scatterlm::bench
