#include "lib/data/sample_order.h"

#include <cmath>
#include <set>

#include "tests/catch.h"

using namespace scatterlm;

TEST_CASE("permutation: every number once, for sizes around powers of two and four") {
  for (int64_t size : {1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 257, 1000, 4097}) {
    for (uint64_t key : {uint64_t{0}, uint64_t{1}, ~uint64_t{0}}) {
      const Permutation order(size, key);
      std::set<int64_t> seen;
      for (int64_t i = 0; i < size; ++i) seen.insert(order(i));
      REQUIRE(static_cast<int64_t>(seen.size()) == size);
      REQUIRE(*seen.begin() == 0);
      REQUIRE(*seen.rbegin() == size - 1);
    }
  }
}

TEST_CASE("permutation: looks random and depends on the key") {
  constexpr int64_t kSize = 10000;
  const Permutation one(kSize, 1);
  const Permutation two(kSize, 2);
  double products = 0;
  int64_t rising = 0;
  int64_t agreements = 0;
  for (int64_t i = 0; i < kSize; ++i) {
    products += (static_cast<double>(i) / kSize - 0.5) * (static_cast<double>(one(i)) / kSize - 0.5);
    rising += i > 0 && one(i) > one(i - 1);
    agreements += one(i) == two(i);
  }
  // Standard deviations of a random order: correlation 1/sqrt(n) = 0.01, rises sqrt(n/12) = 29; coincidences are Poisson(1).
  REQUIRE(std::abs(products / kSize * 12) < 0.05);
  REQUIRE(std::abs(rising - kSize / 2) < 150);
  REQUIRE(agreements < 8);
}

TEST_CASE("permutation: each of the orders of three elements comes up about equally often") {
  std::map<std::vector<int64_t>, int> counts;
  constexpr int kTrials = 6000;
  for (int trial = 0; trial < kTrials; ++trial) {
    const Permutation order(3, epoch_key(trial, 0, 0));
    ++counts[{order(0), order(1), order(2)}];
  }
  REQUIRE(counts.size() == 6);
  for (const auto& [order, count] : counts) REQUIRE(std::abs(count - kTrials / 6) < 150);
}

TEST_CASE("permutation: huge ranges cost nothing") {
  const int64_t size = (int64_t{1} << 62) + 12345;
  const Permutation order(size, 7);
  for (int64_t i : {int64_t{0}, int64_t{1}, size / 2, size - 1}) {
    REQUIRE(order(i) >= 0);
    REQUIRE(order(i) < size);
  }
  REQUIRE(order(0) != order(1));
}

TEST_CASE("blend: each source gets its own samples in order, and any prefix its share") {
  const std::vector<std::vector<double>> cases = {
      {1}, {1, 1}, {0.7, 0.3}, {5, 3, 2}, {1, 1e-3, 1, 7, 0.25}, {1, 2, 3, 4, 5, 6, 7, 8}};
  for (const std::vector<double>& weights : cases) {
    const Blend blend(weights);
    std::vector<int64_t> counts(weights.size(), 0);
    const double levels = std::ceil(std::log2(static_cast<double>(weights.size())));
    double worst = 0;
    for (int64_t sample = 0; sample < 20000; ++sample) {
      const Blend::Turn turn = blend(sample);
      int64_t& count = counts[static_cast<size_t>(turn.source)];
      REQUIRE(turn.index == count);
      ++count;
      for (size_t i = 0; i < weights.size(); ++i)
        worst = std::max(worst, std::abs(static_cast<double>(counts[i]) - blend.share(static_cast<int64_t>(i)) * (sample + 1)));
    }
    REQUIRE(worst <= std::max(levels, 1e-9));
  }
}

TEST_CASE("blend: far positions are exact") {
  const Blend blend({1, 2});
  const int64_t far = int64_t{1} << 60;
  for (int64_t sample = far; sample < far + 9; ++sample) {
    const Blend::Turn turn = blend(sample);
    const double expected = static_cast<double>(sample) * (turn.source == 0 ? 1 : 2) / 3;
    REQUIRE(std::abs(static_cast<double>(turn.index) - expected) / expected < 1e-12);
    const Blend::Turn next = blend(sample + 1);
    if (next.source == turn.source) REQUIRE(next.index == turn.index + 1);
  }
}

TEST_CASE("epoch key: differs by seed, source and epoch") {
  std::set<uint64_t> keys;
  for (int64_t seed = 0; seed < 10; ++seed)
    for (int64_t source = 0; source < 10; ++source)
      for (int64_t epoch = 0; epoch < 10; ++epoch) keys.insert(epoch_key(seed, source, epoch));
  REQUIRE(keys.size() == 1000);
}
