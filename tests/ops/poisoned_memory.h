// What kernels may not read before they write it.
#pragma once
#include <ATen/Context.h>

namespace scatterlm::test {

/// While it lives, at::empty gives NaN and the largest integers.
struct PoisonedMemory {
  PoisonedMemory() { set(true); }
  ~PoisonedMemory() { set(false); }
  static void set(bool on) {
    at::globalContext().setDeterministicAlgorithms(on, /*warn_only=*/false);
    at::globalContext().setDeterministicFillUninitializedMemory(on);
  }
};

}  // namespace scatterlm::test
