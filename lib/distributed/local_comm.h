#pragma once
#include "lib/distributed/comm.h"

namespace scatterlm {

/// Comm for ranks that are CPU processes of one machine. Each copies its part into shared memory and reads the parts of all in
/// order of rank, so that sums have the same bits on every rank and in every run. For laptops and tests. Throws Error (exit
/// code 2) if the ranks are on several machines.
std::unique_ptr<Comm> make_local_comm(const CommOptions& options);

}  // namespace scatterlm
