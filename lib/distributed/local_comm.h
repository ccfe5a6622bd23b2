#pragma once
#include "lib/distributed/comm.h"

namespace scatterlm {

/// Ranks that are CPU processes of one machine: each copies its part into shared memory, and reads those of the others in rank
/// order, so that sums repeat their bits and are the same on every rank. For laptops and tests.
std::unique_ptr<Comm> make_local_comm(const CommOptions& options);

}  // namespace scatterlm
