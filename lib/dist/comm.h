// Everything that spans ranks goes through Comm: sample order, loss normalisation, clipping, statistics, checkpoints.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace scatterlm {

/// Collectives over the data-parallel ranks. All ranks call the same functions in the same order. In-place on contiguous
/// tensors.
class Comm {
 public:
  virtual ~Comm() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t world() const = 0;
  /// Sum over ranks, in place.
  virtual void all_reduce(at::Tensor tensor) = 0;
  /// shard [n / world] = the own part of the sum over ranks of full [n].
  virtual void reduce_scatter(const at::Tensor& full, at::Tensor shard) = 0;
  /// full [n] = the shards [n / world] of all ranks in rank order. `shard` may be the own part of `full`.
  virtual void all_gather(const at::Tensor& shard, at::Tensor full) = 0;
  /// Rank 0's tensor to all, in place.
  virtual void broadcast(at::Tensor tensor) = 0;
  virtual void barrier() = 0;
};

/// One rank: every collective is the identity.
std::unique_ptr<Comm> make_single_comm();

}  // namespace scatterlm
