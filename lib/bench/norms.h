// Benchmarks of what a decoder layer does besides products and attention: norms, residual additions, rotary embedding.
#pragma once
#include "lib/bench/bench.h"
#include "lib/bench/shape_list.h"
#include "lib/bench/work.h"

namespace scatterlm::bench {

struct NormShape {
  int64_t tokens = 0;  ///< T
  int64_t model = 0;   ///< D
  std::string name;    ///< of a published shape, else empty

  Sizes sizes() const { return {{"T", tokens}, {"D", model}}; }
};

struct QkNormShape {
  int64_t batch = 0, sequence = 0;         ///< B, S
  int64_t query_heads = 0, key_heads = 0;  ///< H, Hkv
  int64_t head_dim = 0;                    ///< P
  std::string name;                        ///< of a published shape, else empty

  int64_t tokens() const { return batch * sequence; }
  int64_t row_width() const { return (query_heads + 2 * key_heads) * head_dim; }
  Sizes sizes() const { return {{"B", batch}, {"S", sequence}, {"H", query_heads}, {"Hkv", key_heads}, {"P", head_dim}}; }
};

/// T,D or B,S,H,Hkv,P, a name of a published shape (the configurations configs/olmoe_1b_7b.yaml and configs/dense_124m.yaml) or
/// published for all; several with ';' between. Throws Error about --shapes.
std::vector<NormShape> parse_norm_shapes(std::string_view text);
std::vector<QkNormShape> parse_qk_norm_shapes(std::string_view text);

/// x and branch in, sum and y out; backward the gradients of both in, that of x out, and the sum once more.
Work add_rms_norm_work(const NormShape& shape, int64_t element_bytes);
/// Queries and keys in and out; backward all three gradients in and out, and with a norm queries and keys once more.
Work qk_norm_rope_forward_work(const QkNormShape& shape, int64_t element_bytes);
Work qk_norm_rope_backward_work(const QkNormShape& shape, bool norm, int64_t element_bytes);

/// A step of the residual stream, forward and backward, compared with at::add and at::rms_norm.
Measured measure_rms_norm(const NormShape& shape, const Conditions& conditions);

/// What lies between projection and attention with every kind of norm, one row each, compared with LibTorch's operations
/// (at::rms_norm, rotation, split) and with our single ops.
Measured measure_qk_norm_rope(const QkNormShape& shape, const Conditions& conditions);

}  // namespace scatterlm::bench
