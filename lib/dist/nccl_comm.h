#pragma once
#include "lib/dist/comm.h"

namespace scatterlm {

/// Ranks that have a GPU each, on one machine, over NCCL: collectives run on streams of their own, beside the computation.
/// Not run yet: written where there was no GPU, by measurements of NCCL's failures (CONTRIBUTING.md, "Ranks").
std::unique_ptr<Comm> make_nccl_comm(const CommOptions& options);

}  // namespace scatterlm
