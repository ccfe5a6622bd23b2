// The machine itself: that it sees the mistakes which the tests of kernels rely on.
#include "tests/kernels/emulated/machine.h"

#include "kernels/device/launch.cuh"
#include "kernels/device/mma.cuh"
#include "kernels/device/ptx.cuh"
#include "kernels/device/shared_matrix.cuh"
#include "kernels/device/tensor_map.h"
#include "tests/catch.h"
#include "tests/kernels/cases.h"

namespace scatterlm::kernels::test {
namespace {

struct CopyParams {
  CUtensorMap from, to;
  bool wait_before_reuse;
};

/// Stores a box, overwrites its buffer with 2, stores that to the next row.
void store_twice(CopyParams p) {
  const uint32_t buffer = shared_address(dynamic_shared<void>());
  for (int row = 0; row < 2; ++row) {
    if (row && p.wait_before_reuse) tma_store_wait_read<0>();
    for (int i = 0; i < 8; ++i) {
      const uint16_t value = to_bf16(float(row + 1));
      for (int x = 0; x < 8; ++x) std::memcpy(emulated::shared(buffer + i * 16 + x * 2), &value, 2);
    }
    tma_store(p.to, buffer, 0, row, 0);
    tma_store_commit();
  }
  tma_store_wait<0>();
}

void forget_to_arrive(int) {
  const uint32_t barrier = shared_address(dynamic_shared<void>());
  if (threadIdx.x == 0) barrier_init(barrier, 2);
  __syncthreads();
  if (threadIdx.x == 0) barrier_arrive(barrier);
  barrier_wait(barrier, 0);
}

struct LoadParams {
  CUtensorMap map;
  Bf16* out;
};

/// Element (3, 20) of a box, read through the swizzle, zero where the box leaves the matrix.
void load_and_read(LoadParams p) {
  const uint32_t box = shared_address(dynamic_shared<void>()), barrier = box + 16384;
  barrier_init(barrier, 1);
  barrier_arrive_expect(barrier, 8 * 128);
  tma_load(box, p.map, barrier, 8, 4);
  barrier_wait(barrier, 0);
  std::memcpy(p.out, emulated::shared(box + swizzled(3, 20 / 8) + 20 % 8 * 2), 2);
  std::memcpy(p.out + 1, emulated::shared(box + swizzled(3, 7)), 2);
}

struct GroupParams {
  const char* from;
  int* seen;  ///< after waits that leave 2, 1 and 0 groups
};

/// Two groups of one copy each.
void copy_in_groups(GroupParams p) {
  const uint32_t buffer = shared_address(dynamic_shared<void>());
  store_shared_zeros(buffer);
  store_shared_zeros(buffer + 16);
  for (int i = 0; i < 2; ++i) {
    copy_16_bytes_async(buffer + i * 16, p.from, 16);
    copies_commit();
  }
  const auto arrived = [&] { return *emulated::shared(buffer) + *emulated::shared(buffer + 16); };
  copies_wait<2>();
  p.seen[0] = arrived();
  copies_wait<1>();
  p.seen[1] = arrived();
  copies_wait<0>();
  p.seen[2] = arrived();
}

/// D = A B of one warp, from and to fragments as device/mma.cuh lays them out.
void multiply_once(double* error) {
  const int lane = static_cast<int>(threadIdx.x), g = lane / 4, t = lane % 4 * 2;
  const auto a_of = [](int row, int k) { return float((row * 5 + k * 3) % 7 - 3); };
  const auto b_of = [](int k, int n) { return float((k * 2 + n * 5) % 9 - 4); };
  uint32_t a[4], b[2];
  for (int i = 0; i < 4; ++i) {
    const int row = g + i % 2 * 8, k = t + i / 2 * 8;
    a[i] = pack_bf16(a_of(row, k), a_of(row, k + 1));
  }
  for (int i = 0; i < 2; ++i) b[i] = pack_bf16(b_of(t + i * 8, g), b_of(t + i * 8 + 1, g));
  float d[4] = {1, 1, 1, 1};
  mma_m16n8k16(d, a, b[0], b[1]);
  __syncwarp();
  for (int i = 0; i < 4; ++i) {
    double sum = 1;
    for (int k = 0; k < 16; ++k) sum += a_of(g + i / 2 * 8, k) * b_of(k, t + i % 2);
    *error += std::abs(sum - d[i]);
  }
}

}  // namespace

TEST_CASE("machine: cp.async arrives when its group is waited for, not before", "[machine]") {
  const std::vector<char> from(16, 1);
  std::vector<int> seen(3);
  launch<GroupParams>("test", copy_in_groups, 1, 1, 128, {from.data(), seen.data()}, nullptr);
  REQUIRE(seen == std::vector<int>{0, 1, 2});
}

TEST_CASE("machine: the product of a warp", "[machine]") {
  double error = 0;
  launch<double*>("test", multiply_once, 1, 32, 128, &error, nullptr);
  REQUIRE(error == 0);
}

TEST_CASE("machine: a buffer that is reused too early has the wrong values", "[machine]") {
  for (const bool wait : {true, false}) {
    std::vector<Bf16> out(2 * 64);
    const auto map = tensor_map("test", DataType::kBfloat16, out.data(), {64, 2, 1}, {128, 256}, {64, 1, 1});
    launch<CopyParams>("test", store_twice, 1, 1, 128, {map, map, wait}, nullptr);
    REQUIRE(to_float(out[0]) == (wait ? 1.0f : 2.0f));
    REQUIRE(to_float(out[64]) == 2.0f);
  }
}

TEST_CASE("machine: a barrier that is never complete is reported", "[machine]") {
  REQUIRE_THROWS_WITH(launch<int>("test", forget_to_arrive, 1, 64, 128, 0, nullptr),
                      ContainsSubstring("all threads wait for ever:\n  thread 0: barrier at 1024, parity 0"));
}

TEST_CASE("machine: boxes are swizzled and clipped", "[machine]") {
  std::vector<Bf16> matrix(16 * 64), out(2);
  for (size_t i = 0; i < matrix.size(); ++i) matrix[i] = static_cast<Bf16>(i);
  const auto map = tensor_map("test", DataType::kBfloat16, matrix.data(), {64, 16}, {128}, {64, 8});
  launch<LoadParams>("test", load_and_read, 1, 1, 20000, {map, out.data()}, nullptr);
  REQUIRE(out[0] == (4 + 3) * 64 + 8 + 20);
  REQUIRE(out[1] == 0);  // column 8 + 56 is outside
}

}  // namespace scatterlm::kernels::test
