// Checks and measurements that the implementations of Comm share.
#pragma once
#include "lib/distributed/comm.h"
#include "lib/distributed/rank_status.h"

namespace scatterlm {

/// The rank's part [n / world] of full [n]. Throws Error unless n can be divided by `world`.
at::Tensor part_of(const char* operation, const at::Tensor& full, int64_t rank, int64_t world);
/// Throws Error unless `part` is contiguous and has the shape, type and device of `wanted`, the rank's part of a tensor.
void check_part(const char* operation, const at::Tensor& part, const at::Tensor& wanted);

/// Adds a collective that took `ms` milliseconds to the sums of its kind.
void add_moved(CommTimes& times, const Call& call, int64_t world, double ms);

}  // namespace scatterlm
