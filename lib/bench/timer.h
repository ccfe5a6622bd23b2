// Timing runs that differ little: in turn, in shuffled order, with a cold cache, by the device's own clock.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace scatterlm::bench {

/// Times of one variant in ms.
struct Spread {
  double median = 0;
  double p10 = 0, p90 = 0;  ///< percentiles
};
Spread spread_of(std::vector<double> times);

/// What is timed. `prepare` runs before each run, outside of its time.
struct Variant {
  std::function<void()> run;
  std::function<void()> prepare = [] {};
};

/// Runs of each variant: `asked`, or as many as fill 0.3 s of the slowest, from 10 to 100, if asked is 0.
int64_t num_rounds(int64_t asked, double slowest_ms);

/// One spread for each variant, in their order. Every round runs all of them once, in another order. On a GPU: between two
/// events of the current stream, after 256 MB were zeroed, which leaves nothing else in L2; gaps between launches count.
std::vector<Spread> time_interleaved(const std::vector<Variant>& variants, int64_t asked_rounds, at::Device device);

/// Time in us in which the host enqueues a run right after another one, as the layers of a step follow each other; median
/// of 21. Together they must fit into the queue of a GPU, a thousand launches.
double enqueue_us(const Variant& variant, at::Device device);

}  // namespace scatterlm::bench
