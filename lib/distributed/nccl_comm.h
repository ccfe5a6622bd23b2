#pragma once
#include "lib/distributed/comm.h"

namespace scatterlm {

/// Ranks that have a GPU each, of one machine or several, over NCCL: collectives run on streams of their own, beside the
/// computation. What NCCL does under failures, and who ends the process: CONTRIBUTING.md, "Ranks".
std::unique_ptr<Comm> make_nccl_comm(const CommOptions& options);

}  // namespace scatterlm
