// What the implementations of Comm share.
#pragma once
#include "lib/distributed/comm.h"
#include "lib/distributed/rank_status.h"

namespace scatterlm {

/// The part of full [n] that is the rank's. Throws Error unless n can be divided by `world`.
at::Tensor part_of(const char* operation, const at::Tensor& full, int64_t rank, int64_t world);
/// Throws Error unless `part` can take what `wanted`, the rank's part of a tensor, holds.
void check_part(const char* operation, const at::Tensor& part, const at::Tensor& wanted);

/// Adds a collective that took `ms` on its way.
void add_moved(CommTimes& times, const Call& call, int64_t world, double ms);

}  // namespace scatterlm
