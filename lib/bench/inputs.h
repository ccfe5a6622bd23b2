// The data of a benchmark of expert kernels.
#pragma once
#include <ATen/core/Tensor.h>

#include "lib/bench/moa_shape.h"
#include "lib/bench/moe_shape.h"

namespace scatterlm::bench {

/// Which experts the tokens take.
enum class RoutingPattern {
  kRandom,     ///< top-K of standard normal logits: nearly balanced
  kBalanced,   ///< slot i takes expert i mod E
  kSkewed,     ///< top-K of normal logits less log(1 + e): few experts take most rows
  kCollapsed,  ///< top-K of normal logits less e / 2, as early in training: nearly all tokens choose the same K
  kOne,        ///< every slot takes expert 0
};

/// Throws Error about --routing.
RoutingPattern parse_routing(const std::string& name);
const char* routing_name(RoutingPattern pattern);

struct Choice {
  at::Tensor ids_TK;    ///< int32
  at::Tensor gates_TK;  ///< fp32, softmax over the chosen logits
};
/// logits_TE fp32 standard normal.
Choice choose_experts(RoutingPattern pattern, const at::Tensor& logits_TE, int64_t top_k);

struct MoeInputs {
  MoeShape shape;
  at::Tensor x_TD, w1, w2;      ///< [T, D], [E, 2F, D] gate rows first, [E, D, F]
  at::Tensor gates_TK, ids_TK;  ///< fp32, int32
  at::Tensor dout_TD;           ///< gradient of the output
};

/// bfloat16 on a GPU, float32 on a CPU. x and dout 0.2 N(0, 1), weights 0.02 N(0, 1), drawn with seed 0 in the order x, w1, w2,
/// logits, dout: the data of the ScatterMoE and SonicMoE figures that this project compares itself with.
MoeInputs make_inputs(const MoeShape& shape, RoutingPattern pattern, at::Device device);

struct MoaInputs {
  MoaShape shape;
  at::Tensor x_TD, wq, wo;      ///< [T, D], [E, heads P, D], [E, D, heads P]
  at::Tensor gates_TK, ids_TK;  ///< as above
  at::Tensor k, v;              ///< [B, S, heads, P], of attention between the projections; k as if rotated
  at::Tensor cos, sin;          ///< [S, P/2] fp32, rotary positions of the queries
  at::Tensor dout_TD;
};

/// x 0.2 N(0, 1), weights 0.02 N(0, 1), keys, values and dout N(0, 1), drawn with seed 0 in the order x, wq, wo, logits, k, v,
/// dout: likewise.
MoaInputs make_inputs(const MoaShape& shape, RoutingPattern pattern, at::Device device);

}  // namespace scatterlm::bench
