#pragma once
#include "lib/doctor/finding.h"

namespace scatterlm::doctor {

/// Writes, flushes and reads a file without a name in the folder of the checkpoints (or where it would be made), for about two
/// seconds and at most 512 MiB: its speed, and whether there is room for the checkpoints. Leaves nothing.
Finding check_storage(const Needs& needs);

}  // namespace scatterlm::doctor
