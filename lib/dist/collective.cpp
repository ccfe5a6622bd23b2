#include "lib/dist/collective.h"

#include "lib/util/error.h"

namespace scatterlm {

void check_shard(const char* operation, const at::Tensor& shard, const at::Tensor& full, int64_t world) {
  const bool fits = shard.numel() * world == full.numel() && shard.scalar_type() == full.scalar_type();
  if (!fits || !shard.is_contiguous() || !full.is_contiguous() || shard.device() != full.device()) {
    fail("[{}] {} ranks need a contiguous shard of a {}th of full, got {} {} on {} of {} {} on {}", operation, world, world,
         shard.numel(), c10::toString(shard.scalar_type()), shard.device().str(), full.numel(),
         c10::toString(full.scalar_type()), full.device().str());
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
