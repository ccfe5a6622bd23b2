#include "kernels/cross_entropy.h"

#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {
namespace {

std::vector<float> normal_logits(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> logits(count);
  for (auto& logit : logits) logit = normal(generator);
  return logits;
}

struct Expected {
  std::vector<double> loss, dlogits;
};

Expected expected_of(const std::vector<float>& logits, const std::vector<int64_t>& target, int vocab) {
  Expected out{{}, std::vector<double>(logits.size())};
  for (size_t t = 0; t < target.size(); ++t) {
    const float* row = logits.data() + t * vocab;
    const double highest = *std::max_element(row, row + vocab);
    double sum = 0;
    for (int i = 0; i < vocab; ++i) sum += std::exp(row[i] - highest);
    for (int i = 0; i < vocab; ++i) out.dlogits[t * vocab + i] = std::exp(row[i] - highest) / sum - (i == target[t]);
    out.loss.push_back(highest + std::log(sum) - row[target[t]]);
  }
  return out;
}

void check_values(int tokens, int vocab) {
  const auto logits = normal_logits(size_t(tokens) * vocab, 1);
  std::vector<int64_t> target;
  for (int t = 0; t < tokens; ++t) target.push_back(t == 0 ? vocab - 1 : t == 1 ? 0 : t * 7919 % vocab);
  const auto expected = expected_of(logits, target, vocab);
  const Buffer<float> logits_TV(logits), loss(target.size()), loss_alone(target.size());
  const Buffer<int64_t> target_T(target);
  const Buffer<Bf16> dlogits(logits.size());
  CrossEntropyArgs args{.logits = logits_TV.data(),
                        .target = target_T.data(),
                        .loss = loss_alone.data(),
                        .num_tokens = tokens,
                        .vocab = vocab,
                        .num_sms = 2};
  cross_entropy(args, nullptr);
  args.loss = loss.data();
  args.dlogits = dlogits.data();
  args.dlogits_type = DataType::kBfloat16;
  cross_entropy(args, nullptr);
  args.dlogits = logits_TV.data();
  args.dlogits_type = DataType::kFloat32;
  cross_entropy(args, nullptr);
  REQUIRE(loss.host() == loss_alone.host());
  if (tokens == 0) return;
  REQUIRE(relative_error(loss.host(), expected.loss) < 1e-6);
  REQUIRE(rounding_errors(dlogits.host(), expected.dlogits) < 1.2);
  REQUIRE(relative_error(logits_TV.host(), expected.dlogits) < 1e-6);
}

}  // namespace

TEST_CASE("cross_entropy: loss and gradient in either type", KERNEL_TAGS) {
  // Two blocks have several rows each. 57344 is the longest row that fits into shared memory, 50304 that of GPT-2.
  const int tokens = GENERATE(0, 1, 5), vocab = GENERATE(8, 264, 4096, 8 * 1024 + 40, 50304, 57344, 57352, 78104);
  INFO("T " << tokens << ", V " << vocab);
  check_values(tokens, vocab);
}

#ifdef SCATTERLM_EMULATED
TEST_CASE("cross_entropy: a row of which shared memory holds a part, or nothing", KERNEL_TAGS) {
  const auto hopper = std::exchange(emulated::max_shared_bytes, GENERATE(1 << 10, 99 << 10));
  check_values(5, 5 * 8192 + 264);
  emulated::max_shared_bytes = hopper;
}
#endif

TEST_CASE("cross_entropy: the same bits from any number of blocks", KERNEL_TAGS) {
  const int tokens = 60, vocab = 50304;
  const auto logits = normal_logits(size_t{tokens} * vocab, 2);
  const Buffer<float> logits_TV(logits), loss(size_t{tokens});
  const Buffer<int64_t> target_T(std::vector<int64_t>(tokens, 50000));
  const Buffer<Bf16> dlogits(logits.size());
  const auto run = [&](int64_t num_sms) {
    cross_entropy({.logits = logits_TV.data(),
                   .target = target_T.data(),
                   .loss = loss.data(),
                   .dlogits = dlogits.data(),
                   .dlogits_type = DataType::kBfloat16,
                   .num_tokens = tokens,
                   .vocab = vocab,
                   .num_sms = num_sms},
                  nullptr);
    return std::pair(loss.host(), dlogits.host());
  };
  const auto alone = run(tokens);
  REQUIRE(run(7) == alone);
  REQUIRE(run(7) == alone);
}

TEST_CASE("cross_entropy: extreme and masked logits, targets out of range", KERNEL_TAGS) {
  const int vocab = 16, tokens = 5;
  std::vector<float> logits(tokens * vocab, -INFINITY);
  logits[15] = logits[vocab + 15] = -1e4f;
  logits[vocab] = 1e4f;
  logits[2 * vocab + 3] = NAN;
  std::fill(logits.begin() + 3 * vocab, logits.end(), 1.0f);
  const Buffer<float> logits_TV(logits), loss(size_t{tokens}), dlogits(logits.size());
  const Buffer<int64_t> target_T(std::vector<int64_t>{15, 15, 0, -1, 16});
  cross_entropy({.logits = logits_TV.data(),
                 .target = target_T.data(),
                 .loss = loss.data(),
                 .dlogits = dlogits.data(),
                 .dlogits_type = DataType::kFloat32,
                 .num_tokens = tokens,
                 .vocab = vocab,
                 .num_sms = 2},
                nullptr);
  const auto losses = loss.host(), gradient = dlogits.host();
  REQUIRE(losses[0] == 0);
  REQUIRE(losses[1] == 2e4f);
  for (const int t : {2, 3, 4}) REQUIRE(std::isnan(losses[t]));
  for (int i = 0; i < vocab; ++i) REQUIRE(gradient[i] == 0);
  REQUIRE(gradient[vocab] == 1);
  REQUIRE(gradient[vocab + 15] == -1);
  for (int i = 3 * vocab; i < tokens * vocab; ++i) REQUIRE(gradient[i] == 1.0f / vocab);  // none has a target to subtract
}

TEST_CASE("cross_entropy: V must be a multiple of 8", KERNEL_TAGS) {
  REQUIRE_THROWS_WITH(cross_entropy({.num_tokens = 1, .vocab = 12}, nullptr),
                      "[cross_entropy] rows of logits must be multiples of 8 elements, got 12");
}

}  // namespace scatterlm::kernels::test
