#include "lib/ops/normal.h"

#include <ATen/ATen.h>

#include <cmath>
#include <set>

#include "kernels/device/philox.h"
#include "lib/util/error.h"
#include "tests/catch.h"

namespace scatterlm::ops {
namespace {

at::Tensor normal(int64_t count, uint64_t stream, int64_t first = 0, float std = 1) {
  auto out = at::full({count}, NAN, at::kFloat);
  fill_normal(out, stream, first, std);
  return out;
}

TEST_CASE("Philox4x32-10 gives the published vectors") {
  struct Case {
    kernels::Philox4x32 counter;
    uint64_t key;
    std::array<uint32_t, 4> expected;
  };
  // kat_vectors of the authors' Random123: zeros, ones, digits of pi.
  const Case cases[] = {
      {{{0, 0, 0, 0}}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{{~0U, ~0U, ~0U, ~0U}}, ~uint64_t{0}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
       0x299f31d0a4093822,
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (const auto& c : cases) {
    const auto block = kernels::philox4x32_10(c.counter, c.key);
    for (int i = 0; i < 4; ++i) REQUIRE(block.word[i] == c.expected[i]);
  }
}

TEST_CASE("normal numbers have the moments of the normal distribution") {
  const int64_t count = 1 << 22;
  const auto x = normal(count, stream_of(7, "moments")).to(at::kDouble);
  const double error = 1 / std::sqrt(static_cast<double>(count));  // standard error of the mean; the bounds are five sigma
  REQUIRE(std::abs(x.mean().item<double>()) < 5 * error);
  REQUIRE(std::abs(x.square().mean().item<double>() - 1) < 5 * std::sqrt(2.) * error);
  REQUIRE(std::abs(x.pow(3).mean().item<double>()) < 5 * std::sqrt(15.) * error);
  REQUIRE(std::abs(x.pow(4).mean().item<double>() - (3 - 0.075)) < 5 * std::sqrt(96.) * error);
  // Neighbours are independent.
  REQUIRE(std::abs((x.slice(0, 1) * x.slice(0, 0, count - 1)).mean().item<double>()) < 5 * error);
  for (const double quantile : {1.0, 2.0, 3.0}) {
    const double share = (x > quantile).to(at::kDouble).mean().item<double>();
    REQUIRE(std::abs(share - 0.5 * std::erfc(quantile / std::sqrt(2.))) < 2e-3);
  }
}

TEST_CASE("a value depends on stream and index alone") {
  const auto stream = stream_of(1, "layers.0.weight");
  const auto whole = normal(100'000, stream);
  const auto part = normal(40'001, stream, 31'007);
  REQUIRE(at::equal(whole.slice(0, 31'007, 31'007 + 40'001), part));
  REQUIRE(normal(1, stream, (int64_t{1} << 32) + 5).item<float>() != whole[5].item<float>());
  REQUIRE(at::equal(normal(1000, stream, 0, 0.25), whole.slice(0, 0, 1000) * 0.25));
  REQUIRE(normal(0, stream).numel() == 0);
}

TEST_CASE("the first numbers never change") {
  // Weights of every model start from these bits; the values come from a Python program written apart.
  const auto stream = stream_of(1234, "embed.weight");
  REQUIRE(stream == 0x475be83accfb3fa3);
  REQUIRE(kernels::centred_sum(stream, 0) == -130489);
  REQUIRE(kernels::centred_sum(stream, 1) == -54595);
  REQUIRE(kernels::centred_sum(stream, (uint64_t{1} << 40) + 3) == 70730);
}

TEST_CASE("streams of different seeds and names differ") {
  std::set<uint64_t> streams;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (int layer = 0; layer < 100; ++layer) streams.insert(stream_of(seed, fmt::format("layers.{}.weight", layer)));
  }
  REQUIRE(streams.size() == 10'000);
  const auto a = normal(1 << 18, stream_of(1, "a")), b = normal(1 << 18, stream_of(1, "b"));
  REQUIRE(std::abs((a * b).mean().item<double>()) < 5. / 512);
}

TEST_CASE("fill_normal: a GPU's bits are the CPU's", "[.gpu]") {
  const int64_t count = GENERATE(0, 1, 100'003), first = GENERATE(int64_t{0}, (int64_t{1} << 32) - 5);
  auto on_gpu = at::full({count}, NAN, at::TensorOptions().device(at::kCUDA));
  fill_normal(on_gpu, 17, first, 0.02F);
  REQUIRE(on_gpu.cpu().equal(normal(count, 17, first, 0.02F)));
}

TEST_CASE("fill_normal refuses what it cannot fill") {
  REQUIRE_THROWS_WITH(fill_normal(at::empty({2, 2}), 0, 0, 1), ContainsSubstring("[fill_normal] out must be"));
  REQUIRE_THROWS_WITH(fill_normal(at::empty({2}, at::kDouble), 0, 0, 1), ContainsSubstring("[fill_normal] out must be"));
  REQUIRE_THROWS_WITH(fill_normal(at::empty({2}), 0, -1, 1), ContainsSubstring("[fill_normal] first must not be negative"));
}

}  // namespace
}  // namespace scatterlm::ops
