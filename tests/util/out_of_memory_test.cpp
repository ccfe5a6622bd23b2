#include "lib/util/out_of_memory.h"

#include <ATen/ATen.h>

#include <new>
#include <stdexcept>

#include "lib/util/memory.h"
#include "tests/catch.h"

using namespace scatterlm;

/// AddressSanitizer would end the program instead; unused in other builds.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }

TEST_CASE("out_of_memory: LibTorch's allocators and that of C++ are told from other errors") {
  std::optional<std::string> said;
  try {
    at::empty({int64_t{1} << 50}, at::kByte);
  } catch (const std::exception& error) {
    said = failed_allocation(error);
  }
  REQUIRE(said == "tried to allocate 1024 TiB in the memory of this machine");
  const c10::OutOfMemoryError gpu({__func__, __FILE__, __LINE__},
                                  "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.81 GiB");
  REQUIRE(failed_allocation(gpu) == "tried to allocate 20.00 GiB on the GPU");
  REQUIRE(failed_allocation(std::runtime_error("CUDA error: out of memory\nstack")) ==
          "not enough memory for an allocation on the GPU");
  REQUIRE(failed_allocation(std::bad_alloc()) == "not enough memory for an allocation in the memory of this machine");
  REQUIRE_FALSE(failed_allocation(std::runtime_error("expected 2 tensors, tried to find them in memory")));
}

TEST_CASE("out_of_memory: a machine has some memory") {
  REQUIRE(total_memory_bytes(at::kCPU) > int64_t{1} << 28);
  REQUIRE(total_memory_bytes(at::kCPU) < int64_t{1} << 50);
}
