#include "kernels/router_scores.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

struct Form {
  bool sigmoid, softmax_of_chosen, normalize;
  float scale;
  bool select_by_logits = false;  ///< where there is a bias
};

std::vector<Form> forms() {
  return {{false, true, true, 1, true},
          {false, false, false, 1},
          {false, true, true, 2.5f},
          {true, false, false, 0.5f},
          {true, false, true, 2.5f}};
}

std::vector<float> normals(size_t count, unsigned seed, float std = 1) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, std);
  std::vector<float> values(count);
  for (auto& value : values) value = normal(generator);
  return values;
}

struct Problem {
  int tokens, experts, top_k;
  Form form;
  std::vector<float> logits, bias;  ///< bias may be empty: none

  RouterScoresArgs args(const Buffer<float>& logits_TE) const {
    return {logits_TE.data(), tokens, experts, top_k, form.sigmoid, form.softmax_of_chosen, form.normalize, form.scale};
  }
};

struct Output {
  std::vector<float> gates;
  std::vector<int32_t> ids, counts;
  std::vector<float> prob_sum, lse_sq_sum;
  bool operator==(const Output&) const = default;
};

Output forward(const Problem& p) {
  const Buffer<float> logits(p.logits), bias(p.bias), gates(size_t(p.tokens) * p.top_k), prob_sum(size_t(p.experts)),
      lse_sq_sum(size_t{1});
  const Buffer<int32_t> ids(size_t(p.tokens) * p.top_k), counts(size_t(p.experts));
  const auto args = p.args(logits);
  const Buffer<char> workspace(static_cast<size_t>(router_scores_workspace_bytes(args)));
  router_scores_fwd(args,
                    {.bias_E = p.bias.empty() ? nullptr : bias.data(),
                     .select_by_logits = p.form.select_by_logits,
                     .gates_TK = gates.data(),
                     .ids_TK = ids.data(),
                     .counts_E = counts.data(),
                     .prob_sum_E = prob_sum.data(),
                     .lse_sq_sum = lse_sq_sum.data(),
                     .workspace = workspace.data()},
                    nullptr);
  workspace.host();  // looks at its guards
  return {gates.host(), ids.host(), counts.host(), prob_sum.host(), lse_sq_sum.host()};
}

/// One token in fp64: formulas of lib/ops/router.h.
struct Token {
  std::vector<double> scores, probability;
  double lse;

  Token(const std::vector<double>& z, bool sigmoid) : scores(z.size()), probability(z.size()) {
    const double highest = *std::max_element(z.begin(), z.end());
    double sum = 0, score_sum = 1e-20;
    for (const double x : z) sum += std::exp(x - highest);
    lse = highest + std::log(sum);
    for (size_t e = 0; e < z.size(); ++e) {
      scores[e] = sigmoid ? 1 / (1 + std::exp(-z[e])) : std::exp(z[e] - lse);
      score_sum += scores[e];
    }
    for (size_t e = 0; e < z.size(); ++e) probability[e] = sigmoid ? scores[e] / score_sum : scores[e];
  }

  std::vector<double> gates(const Form& form, const std::vector<double>& z, const int32_t* ids, int top_k) const {
    std::vector<double> gates(top_k);
    double sum = form.sigmoid ? 1e-20 : 0;
    for (int j = 0; j < top_k; ++j) sum += gates[j] = form.softmax_of_chosen ? std::exp(z[ids[j]] - z[ids[0]]) : scores[ids[j]];
    const bool shares = form.softmax_of_chosen || (form.sigmoid && form.normalize);
    for (auto& gate : gates) gate *= form.scale / (shares ? sum : 1);
    return gates;
  }
};

std::vector<double> logits_of(const Problem& p, int token) {
  const auto* row = p.logits.data() + size_t(token) * p.experts;
  return {row, row + p.experts};
}

std::vector<int32_t> chosen_of(const Problem& p, const std::vector<double>& z, const Token& token) {
  std::vector<std::pair<double, int32_t>> order;
  for (int e = 0; e < p.experts; ++e) {
    const double score = p.bias.empty() || p.form.select_by_logits ? z[e] : token.scores[e];
    order.emplace_back(-(p.bias.empty() ? score : score + p.bias[e]), e);
  }
  std::sort(order.begin(), order.end());
  std::vector<int32_t> ids;
  for (int j = 0; j < p.top_k; ++j) ids.push_back(order[j].second);
  return ids;
}

void require_forward(const Problem& p, const Output& out) {
  std::vector<double> gates, prob_sum(p.experts), lse_sq_sum(1);
  std::vector<int32_t> ids, counts(p.experts);
  for (int t = 0; t < p.tokens; ++t) {
    const auto z = logits_of(p, t);
    const Token token(z, p.form.sigmoid);
    const auto chosen = chosen_of(p, z, token);
    for (const double gate : token.gates(p.form, z, chosen.data(), p.top_k)) gates.push_back(gate);
    for (const int32_t id : chosen) ++counts[id];
    ids.insert(ids.end(), chosen.begin(), chosen.end());
    for (int e = 0; e < p.experts; ++e) prob_sum[e] += token.probability[e];
    lse_sq_sum[0] += token.lse * token.lse;
  }
  REQUIRE(out.ids == ids);
  REQUIRE(out.counts == counts);
  REQUIRE(relative_error(out.gates, gates) < 1e-6);
  REQUIRE(relative_error(out.prob_sum, prob_sum) < 1e-6);
  REQUIRE(relative_error(out.lse_sq_sum, lse_sq_sum) < 1e-6);
}

/// Against central differences in fp64 of what the gradients belong to, the chosen experts fixed.
void require_backward(const Problem& p, const std::vector<int32_t>& ids) {
  const auto dgates = normals(ids.size(), 5), dprob_sum = normals(p.experts, 6), dlse_sq_sum = normals(1, 7);
  const Buffer<float> logits_TE(p.logits), dgates_TK(dgates), dprob_sum_E(dprob_sum), dlse_sq(dlse_sq_sum),
      dlogits_TE(p.logits.size());
  const Buffer<int32_t> ids_TK(ids);
  router_scores_bwd(p.args(logits_TE), {ids_TK.data(), dgates_TK.data(), dprob_sum_E.data(), dlse_sq.data(), dlogits_TE.data()},
                    nullptr);

  std::vector<double> expected;
  for (int t = 0; t < p.tokens; ++t) {
    auto z = logits_of(p, t);
    const auto objective = [&] {
      const Token token(z, p.form.sigmoid);
      const auto gates = token.gates(p.form, z, ids.data() + size_t(t) * p.top_k, p.top_k);
      double sum = dlse_sq_sum[0] * token.lse * token.lse;
      for (int j = 0; j < p.top_k; ++j) sum += dgates[size_t(t) * p.top_k + j] * gates[j];
      for (int e = 0; e < p.experts; ++e) sum += dprob_sum[e] * token.probability[e];
      return sum;
    };
    for (auto& x : z) {
      constexpr double kStep = 1e-5;
      const double middle = x;
      x = middle + kStep;
      const double above = objective();
      x = middle - kStep;
      expected.push_back((above - objective()) / (2 * kStep));
      x = middle;
    }
  }
  REQUIRE(relative_error(dlogits_TE.host(), expected) < 2e-6);
}

Problem problem(int tokens, int experts, int top_k, const Form& form, bool biased) {
  return {tokens,
          experts,
          top_k,
          form,
          normals(size_t(tokens) * experts, 1),
          biased ? normals(experts, 2, 0.3f) : std::vector<float>()};
}

/// ids of tokens whose scores are their logits, one row each.
std::vector<int32_t> order_of(const std::vector<float>& logits, int experts) {
  return forward({int(logits.size()) / experts, experts, experts, forms()[0], logits, {}}).ids;
}

}  // namespace

TEST_CASE("router_scores: values and gradients of every form", KERNEL_TAGS) {
  struct Size {
    int tokens, experts, top_k;
  };
  const auto size = GENERATE(Size{5, 1, 1}, Size{37, 7, 2}, Size{3, 33, 33}, Size{3, 100, 5}, Size{20, 200, 64},
                             Size{2, 300, 8}, Size{2, 1024, 8});
  const auto form = GENERATE(from_range(forms()));
  const bool biased = GENERATE(false, true);
  INFO("T " << size.tokens << ", E " << size.experts << ", K " << size.top_k << ", sigmoid " << form.sigmoid << ", scale "
            << form.scale << ", biased " << biased);
  const auto p = problem(size.tokens, size.experts, size.top_k, form, biased);
  const auto out = forward(p);
  require_forward(p, out);
  require_backward(p, out.ids);
}

TEST_CASE("router_scores: more tokens than blocks have warps, the same bits twice", KERNEL_TAGS) {
  const auto p = problem(2100, 64, 8, forms()[1], false);
  const auto out = forward(p);
  require_forward(p, out);
  require_backward(p, out.ids);
  REQUIRE(forward(p) == out);
}

TEST_CASE("router_scores: NaN ranks above infinity, ties go to the lower index", KERNEL_TAGS) {
  REQUIRE(order_of({1, kNan, 3, 2, kInfinity, kNan, kInfinity, -kInfinity, -kInfinity, 0, kNan, -kNan}, 4) ==
          std::vector<int32_t>{1, 2, 3, 0, 1, 0, 2, 3, 2, 3, 1, 0});
  REQUIRE(order_of({-0.0f, 0, -1e-45f, 0, -0.0f, 1e-45f}, 6) == std::vector<int32_t>{5, 0, 1, 3, 4, 2});
  std::vector<float> equal(64, 0.5f);
  equal[35] = equal[63] = 1;
  const auto ids = order_of(equal, 64);
  std::vector<int32_t> expected{35, 63};
  for (int e = 0; e < 63; ++e)
    if (e != 35) expected.push_back(e);
  REQUIRE(ids == expected);
}

TEST_CASE("router_scores: huge logits give finite gates and exact limits", KERNEL_TAGS) {
  const auto out = forward({2, 3, 2, forms()[2], {3e4f, -3e4f, 0, 1e-30f, 3e4f, 3e4f}, {}});
  REQUIRE(out.gates == std::vector<float>{2.5f, 0, 1.25f, 1.25f});
  REQUIRE(out.ids == std::vector<int32_t>{0, 2, 1, 2});
}

TEST_CASE("router_scores: no tokens", KERNEL_TAGS) {
  const auto out = forward({0, 4, 2, forms()[0], {}, {}});
  REQUIRE(out.counts == std::vector<int32_t>(4));
  REQUIRE(out.prob_sum == std::vector<float>(4));
  REQUIRE(out.lse_sq_sum == std::vector<float>(1));
}

TEST_CASE("router_scores: limits", KERNEL_TAGS) {
  RouterScoresArgs args{.num_tokens = 1, .num_experts = 1025, .top_k = 1};
  REQUIRE_THROWS_WITH(router_scores_fwd(args, {}, nullptr),
                      "[router_scores] E must be 1..1024 and K 1..min(E, 64), got E 1025 and K 1");
  args.num_experts = 5;
  args.top_k = 6;
  REQUIRE_THROWS_WITH(router_scores_bwd(args, {}, nullptr),
                      "[router_scores] E must be 1..1024 and K 1..min(E, 64), got E 5 and K 6");
}

TEST_CASE("router_scores: the routing of few tokens in the same launch", KERNEL_TAGS) {
  struct Size {
    int tokens, experts, top_k;
  };
  const auto c = GENERATE(Size{1, 1, 1}, Size{1, 64, 8}, Size{2, 300, 64}, Size{8, 5, 2}, Size{8, 1024, 16}, Size{5, 33, 3});
  INFO("T " << c.tokens << ", E " << c.experts << ", K " << c.top_k);
  const Problem p{c.tokens, c.experts, c.top_k, forms()[0], normals(size_t(c.tokens) * c.experts, 3), {}};
  const size_t slots = size_t(c.tokens) * c.top_k;
  const Buffer<float> logits(p.logits), gates(slots), prob_sum(size_t(c.experts)), lse_sq_sum(size_t{1});
  const Buffer<int32_t> ids_TK(slots), counts(size_t(c.experts)), sorted(slots), tokens(slots), inverse(slots),
      offsets(size_t(c.experts) + 1), tiles(size_t(c.experts) + 3);
  const RoutingArgs routing{ids_TK.data(), int64_t(slots), c.top_k,        c.experts,    sorted.data(),
                            tokens.data(), inverse.data(), offsets.data(), tiles.data(), nullptr};
  const auto args = p.args(logits);
  const Buffer<char> workspace(static_cast<size_t>(router_scores_workspace_bytes(args)));
  REQUIRE(router_scores_routes(args));
  router_scores_fwd(args,
                    {.gates_TK = gates.data(),
                     .ids_TK = ids_TK.data(),
                     .counts_E = counts.data(),
                     .prob_sum_E = prob_sum.data(),
                     .lse_sq_sum = lse_sq_sum.data(),
                     .workspace = workspace.data(),
                     .routing = &routing},
                    nullptr);
  const auto ids = ids_TK.host();
  require_forward(p, {gates.host(), ids, counts.host(), prob_sum.host(), lse_sq_sum.host()});
  std::vector<int32_t> order(slots), token(slots), row(slots);
  std::vector<int> count(size_t(c.experts));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return ids[size_t(a)] < ids[size_t(b)]; });
  for (size_t m = 0; m < slots; ++m) {
    token[m] = order[m] / c.top_k;
    row[size_t(order[m])] = int(m);
    ++count[size_t(ids[m])];
  }
  const Experts experts(count);
  REQUIRE(sorted.host() == order);
  REQUIRE(tokens.host() == token);
  REQUIRE(inverse.host() == row);
  REQUIRE(offsets.host() == experts.offsets);
  REQUIRE(tiles.host() == experts.tiles);
}

TEST_CASE("router_scores: no routing of many tokens or slots", KERNEL_TAGS) {
  const RoutingArgs routing{};
  RouterScoresArgs args{.num_tokens = 9, .num_experts = 64, .top_k = 2};
  REQUIRE_FALSE(router_scores_routes(args));
  REQUIRE_THROWS_WITH(router_scores_fwd(args, {.routing = &routing}, nullptr),
                      "[router_scores] makes the routing of up to 8 tokens and 128 slots, got T 9 and K 2");
  args.num_tokens = 3;
  args.top_k = 43;
  REQUIRE_FALSE(router_scores_routes(args));
}

}  // namespace scatterlm::kernels::test
