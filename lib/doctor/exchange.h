#pragma once
#include "lib/doctor/finding.h"

namespace scatterlm::doctor {

/// Starts this program as `launch -n RANKS doctor comm`, one rank per GPU, or two on the CPU, and waits for at most timeout_s
/// seconds: whether the ranks meet, whether every collective is exact, by which way parameters move, and how fast.
Finding check_exchange(double timeout_s);

}  // namespace scatterlm::doctor
