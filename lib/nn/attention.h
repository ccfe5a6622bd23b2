#pragma once
#include <memory>
#include <optional>
#include <string>

#include "lib/config/config.h"
#include "lib/nn/context.h"
#include "lib/nn/rope_table.h"
#include "lib/nn/router.h"
#include "lib/parallel/parameter_unit.h"

namespace scatterlm::nn {

/// Scales of initial weights: `residual` for projections that write into the residual stream.
struct InitScale {
  double normal;
  double residual;
};

/// RMSNorm of queries and keys before the rotary embedding: over each head, or over the whole projection.
struct QkNormLayer {
  QkNormLayer(QkNorm kind, const std::string& name, int64_t query_width, int64_t key_width, int64_t head_dim, double eps,
              ParameterUnit& unit);
  /// x [..., heads * P] of queries or keys -> same shape.
  at::Tensor query(const at::Tensor& x) const { return apply(x, query_weight); }
  at::Tensor key(const at::Tensor& x) const { return apply(x, key_weight); }

  QkNorm kind;
  int64_t head_dim;
  double eps;
  at::Tensor query_weight, key_weight;  ///< [P] or [heads * P]; undefined without normalisation

 private:
  at::Tensor apply(const at::Tensor& x, const at::Tensor& weight) const;
};

/// Grouped-query attention. Ainslie et al., arXiv 2305.13245. With a window above 0, a query sees so many positions, itself
/// included; the cache of generation holds all of them all the same.
struct GqaAttention {
  GqaAttention(const AttentionConfig& config, const std::string& name, int64_t hidden, double norm_eps, InitScale init,
               ParameterUnit& unit, std::shared_ptr<RopeTable> rope, int64_t window);
  /// x [B, S, D] -> [B, S, D]
  at::Tensor forward(const at::Tensor& x_BSD, Context& context);

  AttentionConfig config;
  int64_t window;
  std::shared_ptr<RopeTable> rope;
  at::Tensor qkv_weight;  ///< [(H + 2 Hkv) P, D]: query rows, key rows, value rows
  std::optional<at::Tensor> qkv_bias, o_bias;
  at::Tensor o_weight;  ///< [D, H P]
  std::optional<QkNormLayer> qk_norm;
};

/// Mixture of attention as in JetMoE: query and output projections per expert, keys and values shared, one routing decision for
/// both. Zhang et al., arXiv 2210.05144; Shen et al., 2404.07413.
struct MoaAttention {
  MoaAttention(const MoaConfig& config, const RouterConfig& router_config, const std::string& name, int64_t hidden,
               double norm_eps, InitScale init, ParameterUnit& unit, std::shared_ptr<RopeTable> rope, at::Device device);
  at::Tensor forward(const at::Tensor& x_BSD, Context& context);

  MoaConfig config;
  std::shared_ptr<RopeTable> rope;
  Router router;
  at::Tensor q_weight;   ///< [E, n P, D], n = num_key_value_heads
  at::Tensor kv_weight;  ///< [2 n P, D]: key rows, value rows
  at::Tensor o_weight;   ///< [E, D, n P]
  std::optional<QkNormLayer> qk_norm;
};

}  // namespace scatterlm::nn
