// The formulas of the ops written as plainly as possible, with autograd; run in fp64 they are the truth of the tests. Slow on
// purpose.
#pragma once
#include <ATen/ATen.h>

#include <cmath>
#include <optional>
#include <tuple>
#include <vector>

#include "lib/ops/activation.h"
#include "lib/ops/moe_mlp.h"
#include "lib/ops/parallel_linear.h"
#include "lib/ops/router.h"

namespace scatterlm::reference {

inline at::Tensor gelu_tanh(const at::Tensor& x) {
  return 0.5 * x * (1 + at::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

inline at::Tensor activation(const at::Tensor& h, Activation kind) {
  const int64_t half = h.size(-1) / 2;
  const auto gate = h.narrow(-1, 0, half), up = h.narrow(-1, half, half);
  switch (kind) {
    case Activation::kSwiglu: return gate * at::sigmoid(gate) * up;
    case Activation::kGeglu: return gelu_tanh(gate) * up;
    case Activation::kReglu: return at::relu(gate) * up;
    case Activation::kRelu2: return at::relu(h) * at::relu(h);
    case Activation::kGelu: return gelu_tanh(h);
  }
  return {};
}

inline at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  return x / at::sqrt((x * x).mean(-1, true) + eps) * weight;
}

/// Pair (i, i + P/2) as a complex number times exp(i angle).
inline at::Tensor rope(const at::Tensor& x, double theta) {
  const int64_t positions = x.size(1), width = x.size(-1), half = width / 2;
  std::vector<at::Tensor> columns(width);
  for (int64_t i = 0; i < half; ++i) {
    auto shape = std::vector<int64_t>(x.dim() - 1, 1);
    shape[1] = positions;
    const auto angle = (at::arange(positions, at::kDouble) * std::pow(theta, -2.0 * i / width)).view(shape).to(x.options());
    const auto a = x.select(-1, i), b = x.select(-1, i + half);
    columns[i] = a * at::cos(angle) - b * at::sin(angle);
    columns[i + half] = a * at::sin(angle) + b * at::cos(angle);
  }
  return at::stack(columns, -1);
}

/// q [B, Sq, H, P]; query s stands at position Sk - Sq + s.
inline at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::optional<at::Tensor>& document, int64_t window = 0) {
  const int64_t queries = q.size(1), keys = k.size(1), heads = q.size(2), groups = heads / k.size(2);
  auto allowed = at::ones({q.size(0), queries, keys}, at::kBool);
  auto sees = allowed.accessor<bool, 3>();
  for (int64_t b = 0; b < q.size(0); ++b)
    for (int64_t s = 0; s < queries; ++s)
      for (int64_t t = 0; t < keys; ++t) {
        const int64_t position = keys - queries + s;
        bool see = t <= position && (window == 0 || position - t < window);
        if (document) see = see && document->accessor<int, 2>()[b][t] == document->accessor<int, 2>()[b][position];
        sees[b][s][t] = see;
      }
  std::vector<at::Tensor> outputs;
  for (int64_t h = 0; h < heads; ++h) {
    const auto scores =
        at::matmul(q.select(2, h), k.select(2, h / groups).transpose(1, 2)) / std::sqrt(static_cast<double>(q.size(3)));
    const auto masked = scores.masked_fill(~allowed.to(q.device()), -INFINITY);
    outputs.push_back(at::matmul(at::softmax(masked, -1), v.select(2, h / groups)));
  }
  return at::stack(outputs, 2);
}

/// Logits in fp32 at least, as the op has them.
inline at::Tensor linear_cross_entropy(const at::Tensor& h, const at::Tensor& weight, const at::Tensor& target) {
  const auto wide = h.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto logits = at::matmul(h.to(wide), weight.to(wide).t());
  return (at::logsumexp(logits, 1) - logits.gather(1, target.unsqueeze(1)).squeeze(1)).sum();
}

/// Expert of slot (t, j).
inline int64_t expert(const at::Tensor& ids_TK, int64_t t, int64_t j) { return ids_TK[t][j].item<int64_t>(); }

inline at::Tensor moe_mlp(const at::Tensor& x, const at::Tensor& w1, const at::Tensor& w2, const at::Tensor& gates,
                          const at::Tensor& ids, Activation kind, const ops::MoeMlpBias& bias = {}) {
  const auto up = w1.unbind(0), down = w2.unbind(0);
  const auto biased = [](const at::Tensor& y, const std::optional<at::Tensor>& b, int64_t e) { return b ? y + (*b)[e] : y; };
  std::vector<at::Tensor> tokens;
  for (int64_t t = 0; t < x.size(0); ++t) {
    auto sum = at::zeros({x.size(1)}, gates.options());
    for (int64_t j = 0; j < ids.size(1); ++j) {
      const int64_t e = expert(ids, t, j);
      sum = sum + gates[t][j] *
                      biased(at::mv(down[e], reference::activation(biased(at::mv(up[e], x[t]), bias.b1, e), kind)), bias.b2, e);
    }
    tokens.push_back(sum.to(x.scalar_type()));
  }
  return at::stack(tokens);
}

/// sorted_R gives the order of rows where one of the sides is in expert order.
inline at::Tensor parallel_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& ids,
                                  const ops::Routing& routing, ops::RowOrder in_order, ops::RowOrder out_order,
                                  const std::optional<at::Tensor>& gates) {
  const int64_t tokens = ids.size(0), top_k = ids.size(1);
  const bool per_token = in_order == ops::RowOrder::kToken && x.size(0) == tokens;
  const auto experts = weight.unbind(0);
  std::vector<at::Tensor> rows(tokens * top_k);
  for (int64_t m = 0; m < tokens * top_k; ++m) {
    const int64_t slot = routing.sorted_R[m].item<int64_t>(), t = slot / top_k, j = slot % top_k;
    const auto input = x[in_order == ops::RowOrder::kExpert ? m : (per_token ? t : slot)];
    rows[out_order == ops::RowOrder::kExpert ? m : slot] = at::mv(experts[expert(ids, t, j)], input);
  }
  const auto result = at::stack(rows);
  if (!gates) return result;
  return (result.view({tokens, top_k, -1}) * gates->unsqueeze(2)).sum(1).to(x.scalar_type());
}

struct RouterParts {
  at::Tensor gates, ids, counts, prob_sum, lse_sq_sum;
};

/// Selection by a full sort per token in plain C++.
inline RouterParts router(const at::Tensor& x, const at::Tensor& weight, const std::optional<at::Tensor>& bias,
                          const ops::RouterOptions& o) {
  const int64_t tokens = x.size(0), experts = weight.size(0), top_k = o.num_experts_per_tok;
  const auto z = at::matmul(x, weight.t());
  const auto scores = o.score == RouterScore::kSoftmax ? at::softmax(z, 1) : at::sigmoid(z);
  auto selection = (bias && !o.topk_before_softmax ? scores : z).detach();
  if (bias) selection = selection + *bias;
  RouterParts out{.gates = {},
                  .ids = at::empty({tokens, top_k}, at::kLong),
                  .counts = at::zeros({experts}, at::kLong),
                  .prob_sum = {},
                  .lse_sq_sum = {}};
  for (int64_t t = 0; t < tokens; ++t) {
    std::vector<std::pair<double, int64_t>> order;
    for (int64_t e = 0; e < experts; ++e) order.emplace_back(-selection[t][e].item<double>(), e);
    std::sort(order.begin(), order.end());
    for (int64_t j = 0; j < top_k; ++j) {
      out.ids[t][j] = order[j].second;
      out.counts[order[j].second] += 1;
    }
  }
  auto gates = o.topk_before_softmax ? at::softmax(z.gather(1, out.ids), 1) : scores.gather(1, out.ids);
  if (o.norm_topk_prob && !o.topk_before_softmax) gates = gates / gates.sum(1, true);
  out.gates = gates * o.routed_scaling_factor;
  out.prob_sum = (scores / scores.sum(1, true)).sum(0);
  out.lse_sq_sum = at::logsumexp(z, 1).square().sum();
  return out;
}

}  // namespace scatterlm::reference
