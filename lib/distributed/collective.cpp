#include "lib/distributed/collective.h"

#include <ATen/ATen.h>

#include "lib/ops/shape.h"
#include "lib/util/error.h"

namespace scatterlm {

at::Tensor part_of(const char* operation, const at::Tensor& full, int64_t rank, int64_t world) {
  if (full.dim() != 1 || full.numel() % world != 0)
    fail("[{}] {} ranks cannot have equal parts of {}", operation, world, ops::shape_of(full));
  const int64_t numel = full.numel() / world;
  return full.narrow(0, rank * numel, numel);
}

void check_part(const char* operation, const at::Tensor& part, const at::Tensor& wanted) {
  if (part.sizes() != wanted.sizes() || part.scalar_type() != wanted.scalar_type() || part.device() != wanted.device() ||
      !part.is_contiguous()) {
    fail("[{}] needs a contiguous part {} {} on {}, got {} {} on {}", operation, wanted.toString(), ops::shape_of(wanted),
         wanted.device().str(), part.toString(), ops::shape_of(part), part.device().str());
  }
}

void add_moved(CommTimes& times, const Call& call, int64_t world, double ms) {
  const auto bytes = static_cast<double>(call.numel) * static_cast<double>(c10::elementSize(call.dtype));
  const auto add = [&](CommTimes::Moved& moved) {
    moved.ms += ms;
    moved.link_bytes += bytes * static_cast<double>(world - 1) / static_cast<double>(world);
  };
  if (call.operation == Operation::kReduceScatter) add(times.reduce_scatter);
  if (call.operation == Operation::kAllGather) add(times.all_gather);
}

}  // namespace scatterlm
