// What the implementations of Comm share.
#pragma once
#include "lib/dist/board.h"
#include "lib/dist/comm.h"

namespace scatterlm {

/// Throws Error unless `shard` can be a rank's part of `full`.
void check_shard(const char* operation, const at::Tensor& shard, const at::Tensor& full, int64_t world);

/// Adds a collective that took `ms` on its way.
void add_moved(CommTimes& times, const Call& call, int64_t world, double ms);

}  // namespace scatterlm
