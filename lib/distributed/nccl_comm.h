#pragma once
#include "lib/distributed/comm.h"

namespace scatterlm {

/// Comm for ranks that have a GPU each, on one machine or several, over NCCL. Collectives run on streams of their own,
/// asynchronously to the computation. How failures end the process: docs/distributed.md. Throws Error (exit code 2) in a
/// build without CUDA.
std::unique_ptr<Comm> make_nccl_comm(const CommOptions& options);

}  // namespace scatterlm
