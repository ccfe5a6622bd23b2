#include "lib/train/sampling.h"

#include <ATen/ATen.h>

#include "tests/catch.h"

using namespace scatterlm;

namespace {

const at::Tensor kLogits = at::tensor({0.0f, 2.0f, 1.0f, -1.0f});

/// How often each token comes up over evenly spread uniforms.
std::vector<double> shares(const SamplingOptions& options, const at::Tensor& logits = kLogits) {
  std::vector<double> share(4);
  for (int i = 0; i < 10000; i++) share[sample_token(logits, options, (i + 0.5) / 10000)] += 1e-4;
  return share;
}

}  // namespace

TEST_CASE("sampling follows the softmax at a temperature") {
  for (double temperature : {1.0, 0.5}) {
    const auto expected = (kLogits.to(at::kDouble) / temperature).softmax(0);
    const auto share = shares({.temperature = temperature});
    for (int i = 0; i < 4; i++) REQUIRE(std::abs(share[i] - expected[i].item<double>()) < 2e-4);
  }
}

TEST_CASE("temperature 0 takes the likeliest, the first of equals") {
  REQUIRE(shares({.temperature = 0})[1] > 0.999);
  REQUIRE(sample_token(at::tensor({1.0f, 3.0f, 3.0f}), {.temperature = 0}, 0.9) == 1);
}

TEST_CASE("sampling is that of a sort of the whole vocabulary") {
  const int64_t size = GENERATE(1, 2, 63, 64, 65, 5000);
  const double spread = GENERATE(0.0, 0.01, 1.0, 5.0);
  auto logits = at::randn({size}, at::make_generator<at::CPUGeneratorImpl>(uint64_t{3})) * spread;
  logits = logits.mul(8).round().div(8);  // many are equal, among them 0 and -0
  const auto order = std::get<1>(at::sort(logits, /*stable=*/true, 0, /*descending=*/true));
  for (const int64_t top_k : {0, 1, 70, 9000}) {
    for (const double top_p : {1.0, 0.9, 0.1}) {
      const int64_t most = top_k == 0 ? size : std::min(top_k, size);
      const auto weights = ((logits.take(order).narrow(0, 0, most) - logits.max()).to(at::kDouble) / 0.7).exp();
      const auto sums = weights.cumsum(0);
      const auto below = (sums < top_p * sums[-1]).sum().item<int64_t>();
      const int64_t count = top_p < 1 ? std::min(below + 1, most) : most;
      for (int i = 0; i < 50; i++) {
        const double uniform = (i + 0.437) / 50;
        const auto rank = (sums.narrow(0, 0, count) <= uniform * sums[count - 1]).sum().item<int64_t>();
        CAPTURE(size, spread, top_k, top_p, i);
        REQUIRE(sample_token(logits, {.temperature = 0.7, .top_k = top_k, .top_p = top_p}, uniform) ==
                order[std::min(rank, count - 1)].item<int64_t>());
      }
    }
  }
}

TEST_CASE("top-k and top-p cut the tail and renormalise") {
  const auto top_k = shares({.top_k = 2});
  REQUIRE(top_k[0] + top_k[3] == 0);
  REQUIRE(std::abs(top_k[1] - 1 / (1 + std::exp(-1.0))) < 2e-4);
  // probabilities: 0.644, 0.237, 0.087, 0.032
  REQUIRE(shares({.top_p = 0.6})[1] > 0.999);
  const auto top_p = shares({.top_p = 0.65});
  REQUIRE(top_p[2] > 0.2);
  REQUIRE(top_p[0] + top_p[3] == 0);
}
