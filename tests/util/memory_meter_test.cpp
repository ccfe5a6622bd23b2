#include "lib/util/memory_meter.h"

#include <ATen/ATen.h>

#include <cmath>
#include <thread>

#include "lib/util/memory.h"
#include "tests/catch.h"

using namespace scatterlm;

namespace {

constexpr int64_t kMib = 1 << 20;

at::Tensor mebibytes(int64_t count) { return at::empty({count * kMib}, at::kByte); }

/// malloc rounds up, by a page at most.
double in_mebibytes(const MemoryMeter& meter) { return std::round(10.0 * static_cast<double>(meter.peak_bytes()) / kMib) / 10; }

}  // namespace

TEST_CASE("memory_meter: the most at one time, not the sum and not what is left", "[memory_meter]") {
  const auto before = mebibytes(64);  // not counted
  const MemoryMeter meter(at::kCPU);
  REQUIRE(meter.peak_bytes() == 0);
  const auto kept = mebibytes(3);
  mebibytes(5);
  std::thread([] { mebibytes(7); }).join();
  REQUIRE(in_mebibytes(meter) == 10);
}

TEST_CASE("memory_meter: starts anew, and tensors may outlive it", "[memory_meter]") {
  at::Tensor outlives;
  {
    const MemoryMeter meter(at::kCPU);
    outlives = mebibytes(9);
    mebibytes(2);
    REQUIRE(in_mebibytes(meter) == 11);
  }
  const auto between = mebibytes(20);
  const MemoryMeter meter(at::kCPU);
  mebibytes(4);
  REQUIRE(in_mebibytes(meter) == 4);
  outlives = outlives.clone();  // 9 more while the first is still there
  REQUIRE(in_mebibytes(meter) == 9);
  REQUIRE(outlives.numel() == 9 * kMib);
}

TEST_CASE("memory_meter: on the meta device it counts what is never allocated", "[memory_meter]") {
  const auto tebibytes = [](int64_t count) { return at::zeros({count << 40}, at::device(at::kMeta).dtype(at::kByte)); };
  const MemoryMeter meter(at::kMeta);
  const auto kept = tebibytes(3);
  tebibytes(5);
  REQUIRE(meter.peak_bytes() == int64_t{8} << 40);
  const auto view = kept.narrow(0, 0, 7), copy = at::zeros_like(view);
  REQUIRE(meter.peak_bytes() == int64_t{8} << 40);
}

TEST_CASE("memory_meter: a GPU that nothing has used yet", "[memory_meter][.gpu]") {
  const at::Device device(at::kCUDA, 0);
  release_cached_memory(device);
  REQUIRE((peak_memory_gib(device) == 0 && allocator_retries(device) == 0));
  const MemoryMeter meter(device);
  const auto bytes = at::empty({int64_t{3} << 20}, at::TensorOptions(device).dtype(at::kByte));
  REQUIRE(in_mebibytes(meter) == 3);
}
