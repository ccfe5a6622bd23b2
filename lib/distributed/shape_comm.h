#pragma once
#include <memory>

#include "lib/distributed/comm.h"

namespace scatterlm {

/// Rank 0 of `world` ranks without the others: what is declared with it on LibTorch's meta device has the sizes of one rank's
/// share. Exchanges nothing.
std::unique_ptr<Comm> make_shape_comm(int64_t world);

}  // namespace scatterlm
