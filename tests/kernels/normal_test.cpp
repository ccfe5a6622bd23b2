#include "kernels/normal.h"

#include "kernels/device/philox.h"
#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {

TEST_CASE("fill_normal: the host's bits, wherever a stream is entered", KERNEL_TAGS) {
  const auto count = GENERATE(size_t{0}, size_t{1}, size_t{255}, size_t{1025});
  const auto first = GENERATE(uint64_t{0}, uint64_t{7}, (uint64_t{1} << 32) - 3);
  constexpr uint64_t kStream = 0x475be83accfb3fa3;
  const Buffer<float> out(count);
  fill_normal({out.data(), static_cast<int64_t>(count), kStream, first, 0.02f * kInverseSigma}, nullptr);
  std::vector<float> expected;
  for (size_t i = 0; i < count; ++i) expected.push_back(normal(kStream, first + i, 0.02f * kInverseSigma));
  REQUIRE(out.host() == expected);
}

}  // namespace scatterlm::kernels::test
