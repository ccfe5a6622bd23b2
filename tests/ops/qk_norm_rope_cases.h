// Sizes and inputs of the tests of qk_norm_rope, on kernels and without.
#pragma once
#include "lib/ops/qk_norm_rope.h"
#include "lib/ops/rope.h"

#include "tests/ops/reference.h"

#include "tests/ops/check_op.h"

namespace scatterlm::test {

struct HeadSizes {
  int64_t batch, positions, query_heads, key_heads, width;
};
enum class HeadNorm { kNone, kHead, kFull };

struct QkNormRopeCall {
  ops::QkNormRopeOptions options;
  at::Tensor cos, sin;
};

/// `in`: qkv and the weights that the norm has.
inline QkNormRopeCall qk_norm_rope_call(const HeadSizes& s, HeadNorm norm, const Tensors& in) {
  const auto [cos, sin] = ops::rope_tables(s.positions, s.width, 1e4, in[0].device());
  QkNormRopeCall call{{.query_heads = s.query_heads, .key_heads = s.key_heads, .eps = 1e-5}, cos, sin};
  if (norm != HeadNorm::kNone) {
    call.options.query_weight = in[1];
    call.options.key_weight = in[2];
  }
  return call;
}

inline Tensors qk_norm_rope_inputs(const HeadSizes& s, HeadNorm norm) {
  Tensors in = {3 * randn({s.batch, s.positions, (s.query_heads + 2 * s.key_heads) * s.width}, 1)};
  if (norm == HeadNorm::kNone) return in;
  for (const int64_t heads : {s.query_heads, s.key_heads})
    in.push_back(1 + 0.1 * randn({norm == HeadNorm::kHead ? s.width : heads * s.width}, in.size() + 1));
  return in;
}

/// Queries, keys and values as one tensor [B, S, H + 2 Hkv, P].
inline Op qk_norm_rope_op(const HeadSizes& s, HeadNorm norm, double clip = 0) {
  return [=](const Tensors& in) {
    auto call = qk_norm_rope_call(s, norm, in);
    call.options.clip = clip;
    const auto [q, k, v] = ops::qk_norm_rope(in[0], call.options, call.cos, call.sin);
    return at::cat({q, k, v}, 2);
  };
}
inline Op qk_norm_rope_reference(const HeadSizes& s, HeadNorm norm, double clip = 0) {
  return [=](const Tensors& in) {
    const auto section = [&](int64_t head, int64_t heads, int input, bool is_value) {
      auto x = in[0].narrow(2, head * s.width, heads * s.width);
      if (norm == HeadNorm::kFull && !is_value) x = reference::rms_norm(x, in[size_t(input)], 1e-5);
      x = x.unflatten(2, {heads, s.width});
      if (norm == HeadNorm::kHead && !is_value) x = reference::rms_norm(x, in[size_t(input)], 1e-5);
      if (clip > 0) x = x.clamp(-clip, clip);
      return is_value ? x : reference::rope(x, 1e4);
    };
    return at::cat({section(0, s.query_heads, 1, false), section(s.query_heads, s.key_heads, 2, false),
                    section(s.query_heads + s.key_heads, s.key_heads, 0, true)},
                   2);
  };
}

inline void require_qk_norm_rope(const HeadSizes& sizes, HeadNorm norm, const Precision& precision) {
  require_low_precision(qk_norm_rope_op(sizes, norm), qk_norm_rope_reference(sizes, norm), qk_norm_rope_inputs(sizes, norm),
                        precision);
}

}  // namespace scatterlm::test
