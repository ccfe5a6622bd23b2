// a / b, rounded up.
#pragma once
#include "kernels/device/host_device.h"

namespace scatterlm::kernels {

template <class A, class B>
SCATTERLM_HOST_DEVICE constexpr auto ceil_div(A a, B b) {
  return (a + b - 1) / b;
}

}  // namespace scatterlm::kernels
