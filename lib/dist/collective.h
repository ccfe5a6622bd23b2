// What the implementations of Comm share.
#pragma once
#include "lib/dist/board.h"
#include "lib/dist/comm.h"

namespace scatterlm {

/// The part of `full` that rank `rank` has. Throws Error unless each rank can have one of the same size.
at::Tensor part_of(const char* operation, const at::Tensor& full, int64_t rank, int64_t world);

/// Adds a collective that took `ms` on its way.
void add_moved(CommTimes& times, const Call& call, int64_t world, double ms);

}  // namespace scatterlm
