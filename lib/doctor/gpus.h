#pragma once
#include <vector>

#include "lib/doctor/finding.h"

namespace scatterlm::doctor {

/// Versions of the program and of what it runs on, and each GPU with the memory that other processes use. Says why GPUs that
/// the machine has cannot be used.
std::vector<Finding> check_gpus();

}  // namespace scatterlm::doctor
