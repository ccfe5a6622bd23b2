#include "tests/ops/qk_norm_rope_cases.h"

namespace scatterlm {

TEST_CASE("qk_norm_rope: values and gradients of every norm, clipped and not", "[qk_norm_rope]") {
  const auto norm = GENERATE(test::HeadNorm::kNone, test::HeadNorm::kHead, test::HeadNorm::kFull);
  const double clip = GENERATE(0.0, 0.7);
  const test::HeadSizes sizes{2, 3, 4, 2, 6};
  const auto op = test::qk_norm_rope_op(sizes, norm, clip), reference = test::qk_norm_rope_reference(sizes, norm, clip);
  test::require_equals_reference(op, reference, test::qk_norm_rope_inputs(sizes, norm), 1e-6);  // the tables are fp32
  if (clip == 0) test::require_finite_differences(op, test::qk_norm_rope_inputs(sizes, norm));
}

TEST_CASE("qk_norm_rope: errors", "[qk_norm_rope]") {
  const auto [cos, sin] = ops::rope_tables(4, 8, 1e4, at::kCPU);
  const auto call = [&, cos = cos, sin = sin](at::IntArrayRef shape, std::optional<at::Tensor> query,
                                              std::optional<at::Tensor> key) {
    ops::qk_norm_rope(at::ones(shape), {.query_heads = 2, .key_heads = 1, .query_weight = query, .key_weight = key}, cos, sin);
  };
  REQUIRE_THROWS_WITH(call({1, 4, 24}, {}, {}),
                      ContainsSubstring("[qk_norm_rope] qkv must be [B, S, (H + 2 Hkv) P=32], got [1, 4, 24]"));
  REQUIRE_THROWS_WITH(call({1, 4, 32}, at::ones({8}), {}), ContainsSubstring("weights of queries and of keys, or none"));
  REQUIRE_THROWS_WITH(call({1, 4, 32}, at::ones({16}), at::ones({16})),
                      ContainsSubstring("[P=8] twice, or [H P=16] and [Hkv P=8], got [16] and [16]"));
  REQUIRE_THROWS_WITH(call({1, 5, 32}, {}, {}), ContainsSubstring("[rope] cos and sin must be float [S=5, P/2=4]"));
}

TEST_CASE("qk_norm_rope: on a GPU", "[qk_norm_rope][.gpu]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const auto norm = GENERATE(test::HeadNorm::kNone, test::HeadNorm::kHead, test::HeadNorm::kFull);
  // The widths of OLMoE, of a small dense model, of lanes without columns, of values that the kernel leaves to single ops.
  const auto sizes = GENERATE(values<test::HeadSizes>(
      {{2, 65, 16, 16, 128}, {2, 129, 12, 12, 64}, {1, 33, 8, 2, 96}, {3, 31, 4, 1, 256}, {2, 17, 4, 2, 24}}));
  test::require_qk_norm_rope(sizes, norm, {.dtype = dtype, .device = at::kCUDA});
}

}  // namespace scatterlm
