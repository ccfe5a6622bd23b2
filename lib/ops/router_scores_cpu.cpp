// Scores, selection and gates as loops over the tokens of a CPU tensor, and in LibTorch's own operations on any device.
#include <ATen/ATen.h>

#include <bit>

#include "lib/ops/cpu_loops.h"
#include "lib/ops/router_autograd.h"
#include "lib/ops/router_scores.h"

namespace scatterlm::ops {
namespace {

/// What one token computes from its logits z[E]; buffers are reused for the next token.
template <class A>
struct TokenScores {
  TokenScores(int64_t num_experts, const RouterOptions& options)
      : options(options),
        num_experts(num_experts),
        p(num_experts),
        q(num_experts),
        slope(num_experts),
        gates(options.num_experts_per_tok) {}

  const RouterOptions& options;
  const int64_t num_experts;
  A lse = 0;             ///< log sum exp z
  A q_sum = 0;           ///< sigmoid only
  A chosen_sum = 0;      ///< sigmoid with norm_topk_prob: sum of the chosen q + eps
  std::vector<A> p;      ///< softmax of z
  std::vector<A> q;      ///< sigmoid only: scores
  std::vector<A> slope;  ///< sigmoid only: dq/dz
  std::vector<A> gates;  ///< of the chosen, before the scaling factor

  bool sigmoid() const { return options.score == RouterScore::kSigmoid; }
  bool softmax_of_chosen() const { return !sigmoid() && (options.topk_before_softmax || options.norm_topk_prob); }

  void set_scores(const A* z) {
    const A highest = *std::max_element(z, z + num_experts);
    A sum = 0;
    for (int64_t e = 0; e < num_experts; ++e) sum += p[e] = exp_of(z[e] - highest);
    for (auto& value : p) value /= sum;
    lse = highest + std::log(sum);
    if (!sigmoid()) return;
    q_sum = 0;
    for (int64_t e = 0; e < num_experts; ++e) {
      const auto s = sigmoid_of(z[e]);
      q_sum += q[e] = s.value;
      slope[e] = s.value * s.complement;
    }
  }

  void set_gates(const A* z, const int32_t* ids) {
    const int64_t top_k = options.num_experts_per_tok;
    if (softmax_of_chosen()) {
      A highest = z[ids[0]], sum = 0;
      for (int64_t j = 1; j < top_k; ++j) highest = std::max(highest, z[ids[j]]);
      for (int64_t j = 0; j < top_k; ++j) sum += gates[j] = exp_of(z[ids[j]] - highest);
      for (auto& gate : gates) gate /= sum;
      return;
    }
    const auto& scores = sigmoid() ? q : p;
    for (int64_t j = 0; j < top_k; ++j) gates[j] = scores[ids[j]];
    if (!sigmoid() || !options.norm_topk_prob) return;
    chosen_sum = A(kSigmoidEps);
    for (const A gate : gates) chosen_sum += gate;
    for (auto& gate : gates) gate /= chosen_sum;
  }

  /// dz += gradient through the gates; dgates[K] with respect to the unscaled gates.
  void add_gates_grad(const int32_t* ids, const A* dgates, A* dz) const {
    A dot = 0;
    for (size_t j = 0; j < gates.size(); ++j) dot += gates[j] * dgates[j];
    for (size_t j = 0; j < gates.size(); ++j) {
      const int32_t e = ids[j];
      if (!sigmoid()) {
        dz[e] += gates[j] * (softmax_of_chosen() ? dgates[j] - dot : dgates[j]);
      } else {
        dz[e] += slope[e] * (options.norm_topk_prob ? (dgates[j] - dot) / chosen_sum : dgates[j]);
      }
    }
    if (sigmoid() || softmax_of_chosen()) return;
    for (int64_t e = 0; e < num_experts; ++e) dz[e] -= p[e] * dot;
  }

  /// dz += gradient through the balance probabilities (p, or q over its sum) and the squared lse.
  void add_loss_grad(const A* dprob, A dlse_sq, A* dz) const {
    A dot = 0;
    for (int64_t e = 0; e < num_experts; ++e) dot += probability(e) * dprob[e];
    for (int64_t e = 0; e < num_experts; ++e) {
      const A centered = dprob[e] - dot;
      dz[e] += (sigmoid() ? centered / q_sum * slope[e] : centered * p[e]) + A(2) * dlse_sq * lse * p[e];
    }
  }

  A probability(int64_t e) const { return sigmoid() ? q[e] / q_sum : p[e]; }
};

/// Integers that order as the numbers do, NaN above all of them.
template <class A>
using Key = std::conditional_t<sizeof(A) == 4, int32_t, int64_t>;

template <class A>
Key<A> ordered_key(A x) {
  constexpr auto kHighest = std::numeric_limits<Key<A>>::max();
  if (std::isnan(x)) return kHighest;
  const auto bits = std::bit_cast<Key<A>>(x + A(0));  // -0 becomes 0
  return bits < 0 ? bits ^ kHighest : bits;
}

/// ids of the K largest keys in descending order, ties to the lower index. Each next one is the largest behind the last one in
/// that order, so nothing is marked or moved.
template <class K>
void choose(const std::vector<K>& keys, int64_t top_k, int32_t* ids) {
  const auto num_experts = static_cast<int64_t>(keys.size());
  K last_key = std::numeric_limits<K>::max();
  int64_t last = -1;
  for (int64_t j = 0; j < top_k; ++j) {
    int64_t best = -1;
    for (int64_t e = 0; e < num_experts; ++e)
      if ((keys[e] < last_key || (keys[e] == last_key && e > last)) && (best < 0 || keys[e] > keys[best])) best = e;
    ids[j] = static_cast<int32_t>(best);
    last_key = keys[best];
    last = best;
  }
}

template <class A>
void scores_fwd(const at::Tensor& logits_TE, const std::optional<at::Tensor>& bias_E, const RouterOptions& options,
                RouterOutput& out) {
  const int64_t num_experts = logits_TE.size(1), top_k = options.num_experts_per_tok;
  const A* logits = logits_TE.const_data_ptr<A>();
  const auto bias_A = bias_E ? bias_E->to(logits_TE.scalar_type()).contiguous() : at::Tensor();
  const A* bias = bias_E ? bias_A.template const_data_ptr<A>() : nullptr;
  A* gates = out.gates_TK.mutable_data_ptr<A>();
  auto* ids = out.ids_TK.mutable_data_ptr<int32_t>();
  auto counts_BE = at::zeros({RowBlocks::kCount, num_experts}, out.ids_TK.options());
  auto prob_sum_BE = at::zeros({RowBlocks::kCount, num_experts}, logits_TE.options());
  auto lse_sq_B = at::zeros({RowBlocks::kCount}, logits_TE.options());
  RowBlocks{.rows = logits_TE.size(0)}.run(16 * num_experts, [&](int64_t block, int64_t first, int64_t last) {
    auto* counts = counts_BE.mutable_data_ptr<int32_t>() + block * num_experts;
    A* prob_sum = prob_sum_BE.template mutable_data_ptr<A>() + block * num_experts;
    A& lse_sq = lse_sq_B.template mutable_data_ptr<A>()[block];
    TokenScores<A> token(num_experts, options);
    std::vector<Key<A>> keys(num_experts);
    for (int64_t t = first; t < last; ++t) {
      const A* z = logits + t * num_experts;
      int32_t* chosen = ids + t * top_k;
      token.set_scores(z);
      const A* scores = options.topk_before_softmax || !bias ? z : (token.sigmoid() ? token.q : token.p).data();
      for (int64_t e = 0; e < num_experts; ++e) keys[e] = ordered_key(bias ? scores[e] + bias[e] : scores[e]);
      choose(keys, top_k, chosen);
      token.set_gates(z, chosen);
      for (int64_t j = 0; j < top_k; ++j) {
        gates[t * top_k + j] = token.gates[j] * A(options.routed_scaling_factor);
        ++counts[chosen[j]];
      }
      for (int64_t e = 0; e < num_experts; ++e) prob_sum[e] += token.probability(e);
      lse_sq += token.lse * token.lse;
    }
  });
  out.counts_E = counts_BE.sum(0, /*keepdim=*/false, at::kInt);
  out.prob_sum_E = prob_sum_BE.sum(0);
  out.lse_sq_sum = lse_sq_B.sum();
}

template <class A>
at::Tensor scores_bwd(const at::Tensor& logits_TE, const at::Tensor& ids_TK, const RouterOptions& options,
                      const at::Tensor& dgates_TK, const at::Tensor& dprob_sum_E, const at::Tensor& dlse_sq_sum) {
  const int64_t num_experts = logits_TE.size(1), top_k = options.num_experts_per_tok;
  const A *logits = logits_TE.const_data_ptr<A>(), *dgates = dgates_TK.const_data_ptr<A>(),
          *dprob = dprob_sum_E.const_data_ptr<A>();
  const A dlse_sq = dlse_sq_sum.item<A>();
  const auto* ids = ids_TK.const_data_ptr<int32_t>();
  auto dlogits_TE = at::zeros_like(logits_TE);
  A* dlogits = dlogits_TE.template mutable_data_ptr<A>();
  for_rows(logits_TE.size(0), 16 * num_experts, [&](int64_t first, int64_t last) {
    TokenScores<A> token(num_experts, options);
    std::vector<A> dtoken(top_k);
    for (int64_t t = first; t < last; ++t) {
      const A* z = logits + t * num_experts;
      A* dz = dlogits + t * num_experts;
      token.set_scores(z);
      token.set_gates(z, ids + t * top_k);
      for (int64_t j = 0; j < top_k; ++j) dtoken[j] = dgates[t * top_k + j] * A(options.routed_scaling_factor);
      token.add_gates_grad(ids + t * top_k, dtoken.data(), dz);
      token.add_loss_grad(dprob, dlse_sq, dz);
    }
  });
  return dlogits_TE;
}

struct Loops {
  static void fwd(const at::Tensor& logits_TE, const std::optional<at::Tensor>& bias_E, const RouterOptions& options,
                  RouterOutput& out) {
    const bool fp64 = logits_TE.scalar_type() == at::kDouble;
    (fp64 ? scores_fwd<double> : scores_fwd<float>)(logits_TE, bias_E, options, out);
  }

  static at::Tensor bwd(const at::Tensor& logits_TE, const at::Tensor& ids_TK, const RouterOptions& options,
                        const at::Tensor& dgates_TK, const at::Tensor& dprob_sum_E, const at::Tensor& dlse_sq_sum) {
    const bool fp64 = logits_TE.scalar_type() == at::kDouble;
    return (fp64 ? scores_bwd<double> : scores_bwd<float>)(logits_TE, ids_TK, options, dgates_TK, dprob_sum_E, dlse_sq_sum);
  }
};

/// What the experts are chosen by; never part of the gradient.
at::Tensor selection_scores(const at::Tensor& logits_TE, const at::Tensor& scores_TE, const std::optional<at::Tensor>& bias_E,
                            const RouterOptions& options) {
  if (!bias_E) return logits_TE.detach();
  return (options.topk_before_softmax ? logits_TE : scores_TE).detach() + *bias_E;
}

}  // namespace

RouterOutput cpu::router_scores(const at::Tensor& logits_TE, const std::optional<at::Tensor>& bias_E,
                                const RouterOptions& options) {
  return run_router_scores<Loops>(logits_TE, bias_E, options);
}

RouterOutput ref::router_scores(const at::Tensor& logits_TE, const std::optional<at::Tensor>& bias_E,
                                const RouterOptions& options) {
  const bool softmax = options.score == RouterScore::kSoftmax;
  const auto scores_TE = softmax ? at::softmax(logits_TE, 1) : at::sigmoid(logits_TE);
  const auto selection_TE = selection_scores(logits_TE, scores_TE, bias_E, options);
  const auto order_TE = std::get<1>(at::sort(selection_TE, /*stable=*/true, /*dim=*/1, /*descending=*/true));
  const auto ids_TK = order_TE.slice(1, 0, options.num_experts_per_tok);

  at::Tensor gates_TK;
  if (softmax && (options.topk_before_softmax || options.norm_topk_prob)) {
    gates_TK = at::softmax(logits_TE.gather(1, ids_TK), 1);  // P over the sum of the chosen P, without its underflow
  } else {
    gates_TK = scores_TE.gather(1, ids_TK);
    if (options.norm_topk_prob) gates_TK = gates_TK / (gates_TK.sum(1, true) + kSigmoidEps);
  }
  RouterOutput out;
  out.logits_TE = logits_TE;
  out.gates_TK = gates_TK * options.routed_scaling_factor;
  out.ids_TK = ids_TK.to(at::kInt);
  out.counts_E = at::zeros({logits_TE.size(1)}, out.ids_TK.options())
                     .scatter_add_(0, ids_TK.flatten(), at::ones({ids_TK.numel()}, out.ids_TK.options()));
  out.prob_sum_E = (softmax ? scores_TE : scores_TE / (scores_TE.sum(1, true) + kSigmoidEps)).sum(0);
  out.lse_sq_sum = at::logsumexp(logits_TE, 1).square().sum();
  return out;
}

}  // namespace scatterlm::ops
