// Whether collectives give right values, and how fast they are.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "lib/distributed/comm.h"

namespace scatterlm {

/// Runs every collective in every type on integers, whose sums are exact, with `shard` elements per rank. All ranks must call
/// it. Throws Error naming the collective and the type on the ranks that got wrong values.
void check_collectives(Comm& comm, at::Device device, int64_t shard);

/// How long a collective takes. The traffic of each rank's link is 2 (n-1)/n of the tensor for all-reduce and (n-1)/n for the
/// others.
struct Bandwidth {
  std::string collective;
  int64_t bytes;  ///< of the whole tensor
  double seconds, link_bytes_per_s;
};

/// Measures all-reduce, reduce-scatter and all-gather of `bytes` in bf16, several rounds each: all-reduce as the median by the
/// host's clock, the other two as the mean of CommTimes, as in a training step. All ranks must call it.
std::vector<Bandwidth> measure_bandwidth(Comm& comm, at::Device device, int64_t bytes);

}  // namespace scatterlm
