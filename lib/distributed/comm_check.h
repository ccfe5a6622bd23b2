// Whether the ranks can talk to each other, and how fast.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "lib/distributed/comm.h"

namespace scatterlm {

/// Every collective in every type on integers, whose sums are exact, with `shard` elements a rank. All ranks call it; throws
/// Error naming the collective and the type on those that got something else.
void check_collectives(Comm& comm, at::Device device, int64_t shard);

/// Bytes of the whole tensor per second, and the share of them that passes through each rank's link: twice (n-1)/n for
/// all-reduce, (n-1)/n for the others.
struct Bandwidth {
  std::string collective;
  int64_t bytes;
  double seconds, link_bytes_per_s;
};

/// All-reduce, reduce-scatter and all-gather of `bytes` in bf16, several rounds each: the median by the host's clock, and the
/// mean of what CommTimes says of the other two, as it does in a step. All ranks call it.
std::vector<Bandwidth> measure_bandwidth(Comm& comm, at::Device device, int64_t bytes);

}  // namespace scatterlm
