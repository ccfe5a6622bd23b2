#pragma once
#include <vector>

#include "lib/doctor/finding.h"

namespace scatterlm::doctor {

/// Every family of ops on odd shapes, values and gradients, against the same maths in plain LibTorch, by the rule of the tests:
/// at most twice its error, integers and sums of ranks exactly. On a GPU that is each family of its kernels; without one the
/// loops for the CPU. One finding, and one more for each family that is wrong.
std::vector<Finding> check_kernels();

}  // namespace scatterlm::doctor
