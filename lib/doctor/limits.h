// What the operating system grants this process.
#pragma once
#include <vector>

#include "lib/doctor/finding.h"

namespace scatterlm::doctor {

/// Open files, processes and threads, size of a file, locked memory, main memory, shared memory, locale and clock.
std::vector<Finding> check_limits(const Needs& needs);

}  // namespace scatterlm::doctor
