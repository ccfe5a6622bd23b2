// The keys are compared with fp64, the selection with a sort of the keys: exactly, ties included.
#include "kernels/token_rounding.h"

#include <numeric>

#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {
namespace {

struct Case {
  int tokens, experts, top_k;
  int distinct;  ///< tokens whose logits differ from all before; the others repeat them
  bool sigmoid = false, normalize = true;
};

/// Distinct experts per token, liked very differently; gates that are no function of the logits, with equal ones among them.
struct Router {
  explicit Router(const Case& c) : logits(size_t(c.tokens) * c.experts), counts(c.experts) {
    std::mt19937 generator(7);
    std::normal_distribution<float> normal;
    std::vector<float> liked(c.experts);
    for (float& x : liked) x = 2 * normal(generator);
    for (int t = 0; t < c.tokens; ++t) {
      const int same_as = t < c.distinct ? t : int(generator() % c.distinct);
      for (int e = 0; e < c.experts; ++e)
        logits[size_t(t) * c.experts + e] =
            same_as == t ? liked[e] + normal(generator) : logits[size_t(same_as) * c.experts + e];
      std::vector<int32_t> order(c.experts);
      std::iota(order.begin(), order.end(), 0);
      const float* z = logits.data() + size_t(t) * c.experts;
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return z[a] > z[b]; });
      for (int j = 0; j < c.top_k; ++j) {
        ids.push_back(order[j]);
        gates.push_back(float(generator() % 50) / 50);
        ++counts[order[j]];
      }
    }
  }

  /// Two experts, of which each token chose one; the share of expert 0 ascends with liking(t).
  template <class Chosen, class Liking>
  Router(int tokens, Chosen&& chooses_0, Liking&& liking) : counts(2) {
    for (int t = 0; t < tokens; ++t) {
      const float z = liking(t);
      logits.insert(logits.end(), {z, 0});
      ids.push_back(chooses_0(t) ? 0 : 1);
      gates.push_back(1 / (1 + std::exp(chooses_0(t) ? -z : z)));
      ++counts[ids.back()];
    }
  }
  std::vector<float> logits, gates;
  std::vector<int32_t> ids, counts;
};

double score(const Case& c, const float* z, int e) {
  double highest = z[0], sum = 0;
  for (int i = 0; i < c.experts; ++i) highest = std::max(highest, double(z[i]));
  const auto value = [&](int i) { return c.sigmoid ? 1 / (1 + std::exp(-double(z[i]))) : std::exp(z[i] - highest); };
  for (int i = 0; i < c.experts; ++i) sum += value(i);
  return value(e) / (c.sigmoid && !c.normalize ? 1 : sum);
}

float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

constexpr float kScale = 2.5f;
constexpr uint32_t kChosen = 0x80000000u;

void require_keys(const Case& c, const Router& router, const std::vector<uint32_t>& keys, int padded) {
  for (int t = 0; t < padded; ++t)
    for (int e = 0; e < c.experts; ++e) {
      const uint32_t key = keys[size_t(e) * padded + t];
      if (t >= c.tokens) {
        REQUIRE(key == 0);
        continue;
      }
      const auto* ids = router.ids.data() + size_t(t) * c.top_k;
      const auto* place = std::find(ids, ids + c.top_k, e);
      if (place != ids + c.top_k) {
        REQUIRE(key >= kChosen);
        REQUIRE(float_of(key & ~kChosen) == router.gates[place - router.ids.data()]);
      } else {
        const double expected = kScale * score(c, router.logits.data() + size_t(t) * c.experts, e);
        REQUIRE(key < kChosen);
        REQUIRE(std::abs(float_of(key) - expected) <= 2e-6 * expected);
      }
    }
}

struct Lists {
  std::vector<float> gates;
  std::vector<int32_t> experts, inverse, sorted, tokens, token_offsets, offsets{0}, tiles{0};
};

Lists expected_lists(const Case& c, const Router& router, const std::vector<uint32_t>& keys, int padded, size_t num_slots) {
  std::vector<std::vector<int>> tokens_of(c.experts), experts_of(c.tokens);
  for (int e = 0; e < c.experts; ++e) {
    const uint32_t* key = keys.data() + size_t(e) * padded;
    std::vector<int> order(c.tokens);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return key[a] > key[b]; });
    const int count = router.counts[e], down = count / 128 * 128, up = (count + 127) / 128 * 128;
    order.resize(std::min(up - count < count - down ? up : down, c.tokens));
    std::sort(order.begin(), order.end());
    for (const int t : order) experts_of[t].push_back(e);
    tokens_of[e] = order;
  }
  Lists lists{.gates = std::vector<float>(num_slots),
              .experts = std::vector<int32_t>(num_slots),
              .inverse = std::vector<int32_t>(num_slots),
              .sorted = {},
              .tokens = std::vector<int32_t>(num_slots),
              .token_offsets = {0}};
  std::iota(lists.inverse.begin(), lists.inverse.end(), 0);
  lists.sorted = lists.inverse;
  for (int t = 0; t < c.tokens; ++t) lists.token_offsets.push_back(lists.token_offsets.back() + int(experts_of[t].size()));
  int row = 0;
  for (int e = 0; e < c.experts; ++e) {
    for (const int t : tokens_of[e]) {
      const auto& own = experts_of[t];
      const int slot = lists.token_offsets[t] + int(std::find(own.begin(), own.end(), e) - own.begin());
      lists.gates[slot] = float_of(keys[size_t(e) * padded + t] & ~kChosen);
      lists.experts[slot] = e;
      lists.tokens[row] = t;
      lists.sorted[row] = slot;
      lists.inverse[slot] = row++;
    }
    lists.offsets.push_back(row);
    lists.tiles.push_back(lists.tiles.back() + (int(tokens_of[e].size()) + 127) / 128);
  }
  lists.tiles.insert(lists.tiles.end(), {0, 0});
  return lists;
}

/// NaN is not equal to itself, its bits are.
std::vector<uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<uint32_t> bits(values.size());
  if (!bits.empty()) std::memcpy(bits.data(), values.data(), 4 * bits.size());
  return bits;
}

/// The keys; the lists are those that follow from them.
std::vector<uint32_t> require_lists(const Case& c, const Router& router) {
  const size_t num_slots = std::min(c.tokens * c.experts, c.tokens * c.top_k + c.experts * 64);
  const Buffer<float> logits(router.logits), gates(router.gates), gates_R(num_slots);
  const Buffer<int32_t> ids(router.ids), counts(router.counts), experts_R(num_slots), inverse(num_slots), sorted(num_slots),
      tokens(num_slots), token_offsets(size_t(c.tokens) + 1), offsets(size_t(c.experts) + 1), tiles(size_t(c.experts) + 3);
  TokenRoundingArgs args{.router = {.logits_TE = logits.data(),
                                    .num_tokens = c.tokens,
                                    .num_experts = c.experts,
                                    .top_k = c.top_k,
                                    .sigmoid = c.sigmoid,
                                    .softmax_of_chosen = false,
                                    .normalize = c.normalize,
                                    .scale = kScale},
                         .gates_TK = gates.data(),
                         .ids_TK = ids.data(),
                         .counts_E = counts.data(),
                         .num_slots = int64_t(num_slots),
                         .gates_R = gates_R.data(),
                         .experts_R = experts_R.data(),
                         .inverse_R = inverse.data(),
                         .sorted_R = sorted.data(),
                         .tokens_R = tokens.data(),
                         .token_offsets_T1 = token_offsets.data(),
                         .offsets_E1 = offsets.data(),
                         .tiles_E3 = tiles.data(),
                         .workspace = nullptr};
  const Buffer<uint32_t> workspace(size_t(token_rounding_workspace_bytes(args)) / 4);
  args.workspace = workspace.data();
  token_rounding_fwd(args, nullptr);

  const auto keys = workspace.host();
  const Lists lists = expected_lists(c, router, keys, int(token_rounding_key_stride(c.tokens)), num_slots);
  REQUIRE(offsets.host() == lists.offsets);
  REQUIRE(tiles.host() == lists.tiles);
  REQUIRE(token_offsets.host() == lists.token_offsets);
  REQUIRE(tokens.host() == lists.tokens);
  REQUIRE(sorted.host() == lists.sorted);
  REQUIRE(inverse.host() == lists.inverse);
  REQUIRE(experts_R.host() == lists.experts);
  REQUIRE(bits_of(gates_R.host()) == bits_of(lists.gates));
  return keys;
}

}  // namespace

TEST_CASE("token_rounding: keys, and the lists that follow from them", KERNEL_TAGS) {
  const auto c = GENERATE(Case{0, 3, 2, 0}, Case{1, 1, 1, 1}, Case{200, 1, 1, 200}, Case{192, 1, 1, 192}, Case{127, 3, 3, 127},
                          Case{128, 5, 2, 1}, Case{300, 40, 2, 300}, Case{700, 6, 2, 9}, Case{1100, 4, 1, 30},
                          Case{130, 40, 33, 20}, Case{300, 5, 2, 40, true}, Case{300, 5, 2, 40, true, false},
                          Case{17, 520, 40, 17}, Case{1023, 2, 1, 1023}, Case{1024, 3, 1, 30}, Case{8193, 2, 1, 200});
  INFO("T " << c.tokens << ", E " << c.experts << ", K " << c.top_k << ", distinct " << c.distinct);
  const Router router(c);
  require_keys(c, router, require_lists(c, router), int(token_rounding_key_stride(c.tokens)));
}

TEST_CASE("token_rounding: all pairs equal, or all NaN", KERNEL_TAGS) {
  struct Choice {
    int tokens, chosen;  ///< by expert 0: the first, and the last two
  };
  const auto c =
      GENERATE(Choice{127, 0}, Choice{127, 127}, Choice{320, 64}, Choice{320, 100}, Choice{320, 130}, Choice{320, 192});
  const float z = GENERATE(0.0f, NAN);
  INFO("T " << c.tokens << ", chosen " << c.chosen << ", z " << z);
  const auto chooses_0 = [&](int t) { return t < c.chosen - 2 || t >= c.tokens - std::min(c.chosen, 2); };
  require_lists({c.tokens, 2, 1, 1}, Router(c.tokens, chooses_0, [&](int) { return z; }));
}

TEST_CASE("token_rounding: so many tokens that a lane has two words of an expert", KERNEL_TAGS) {
  require_lists({33000, 2, 1, 1}, Router(
                                      33000, [](int t) { return t % 330 == 0; }, [](int t) { return float(t % 100); }));
}

/// Of 128 groups of tokens 20 hold the highest, and more are looked for: all others are below them.
TEST_CASE("token_rounding: few groups of tokens hold many of the highest and of the lowest", KERNEL_TAGS) {
  const int tokens = 6044;
  const Router router(
      tokens, [](int t) { return t % 60 == 59; },
      [](int t) { return float(t * 37 % 6044) / 6044 + (t % 128 < 20 ? 1.0f : 0); });
  REQUIRE(router.counts == std::vector<int32_t>{100, 5944});  // 28 come in, 56 are dropped
  require_lists({tokens, 2, 1, tokens}, router);
}

TEST_CASE("token_rounding: limits", KERNEL_TAGS) {
  TokenRoundingArgs args{};
  args.router.num_experts = 1025;
  args.router.top_k = 2;
  REQUIRE_THROWS_WITH(token_rounding_fwd(args, nullptr),
                      "[token_rounding] E must be at most 1024 and K at most 64, got E 1025 and K 2");
  args.router.num_experts = 8;
  args.num_slots = int64_t{1} << 31;
  REQUIRE_THROWS_WITH(token_rounding_fwd(args, nullptr), "[token_rounding] slots must be below 2^31, got 2147483648");
}

}  // namespace scatterlm::kernels::test
