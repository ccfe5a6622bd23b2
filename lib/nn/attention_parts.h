// What several kinds of attention are made of.
#pragma once
#include <string>
#include <utility>

#include "lib/nn/sub_layer.h"

namespace scatterlm::nn {

/// RMSNorm of queries and keys before the rotary embedding: over each head, or over the whole projection.
struct QkNormLayer {
  QkNormLayer(QkNorm kind, int64_t query_width, int64_t key_width, int64_t head_dim, const SubLayerOptions& options);
  /// Adds the parameters of such a layer; none if `kind` is none.
  static void count(QkNorm kind, int64_t query_width, int64_t key_width, int64_t head_dim, ParameterCount& count);

  /// x [..., heads * P] of queries or keys -> same shape.
  at::Tensor query(const at::Tensor& x) const { return apply(x, query_weight); }
  at::Tensor key(const at::Tensor& x) const { return apply(x, key_weight); }

  QkNorm kind;
  int64_t head_dim;
  double eps;
  at::Tensor query_weight, key_weight;  ///< [P] or [heads * P]

 private:
  at::Tensor apply(const at::Tensor& x, const at::Tensor& weight) const;
};

/// cos, sin [S, P/2] for the S = `length` positions of this pass.
std::pair<at::Tensor, at::Tensor> rope_angles(RopeTable& table, Context& context, int64_t length);

/// Attention of q [B, S, H, P] to the keys and values [B, S, Hkv, P] of this pass, and to those that a cache holds for the
/// layer, to which it adds them. Window: see ops::attention.
at::Tensor attend(const Context& context, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t window = 0);

}  // namespace scatterlm::nn
