// The grouped GEMMs with activations in their epilogues.
#include "kernels/grouped_gemm.h"
#include "tests/catch.h"
#include "tests/kernels/cases.h"
#include "tests/kernels/oracle.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {
namespace {

std::vector<Activation> activations() {
  return {Activation::kSwiglu, Activation::kGeglu, Activation::kReglu, Activation::kRelu2, Activation::kGelu};
}

struct Shape {
  int model, width;
};

constexpr int kTokens = 70;

/// A bf16 value may differ from the exact one by half a unit in its last place, and a product of two by the sum of theirs.
constexpr double kProductError = 4e-3;

/// x, w1, w2 and routing of a small layer; every slot of the tokens has a gate.
struct Layer {
  Layer(const Experts& experts, Activation kind, Shape shape)
      : experts(experts),
        kind(kind),
        shape(shape),
        halves(is_gated(kind) ? 2 : 1),
        rows(size_t(experts.num_rows())),
        tokens(random_rows(rows, kTokens, 3)),
        sorted(random_permutation(rows, 4)),
        x(randn(size_t(kTokens) * shape.model, 5)),
        w1(randn(size_t(experts.num_experts()) * halves * shape.width * shape.model, 6, 1 / std::sqrt(float(shape.model)))),
        w2(randn(size_t(experts.num_experts()) * shape.width * shape.model, 7, 1 / std::sqrt(float(shape.model)))),
        gates(uniform(rows, 8)) {}

  Experts experts;
  Activation kind;
  Shape shape;
  int halves;
  size_t rows;
  std::vector<int32_t> tokens, sorted;
  std::vector<Bf16> x, w1, w2;
  std::vector<float> gates;
};

}  // namespace

TEST_CASE("grouped_gemm_activation_fwd: values", KERNEL_TAGS) {
  const int capability = GENERATE(from_range(kFamilies));
  const auto kind = GENERATE(from_range(activations()));
  const auto shape = GENERATE(Shape{72, 8}, Shape{200, 136}, Shape{64, 256});
  const bool biased = GENERATE(false, true);
  const Layer layer(Experts({0, 130, 0, 64, 1, 127}), kind, shape);
  INFO("capability " << capability << ", activation " << int(kind) << ", D " << shape.model << ", F " << shape.width
                     << ", biased " << biased);
  const int columns = layer.halves * shape.width;
  const auto bias = randn(size_t(layer.experts.num_experts()) * columns, 9);
  const DeviceExperts device(layer.experts);
  const Buffer<Bf16> x(layer.x), w1(layer.w1), b1(bias), h(layer.rows * columns), act(layer.rows * shape.width);
  const Buffer<int32_t> tokens(layer.tokens);
  const GroupedProduct product{device.rows, x.data(), tokens.data(), w1.data(), shape.width, shape.model, 3, capability};
  grouped_gemm_activation_fwd({product, kind, h.data(), act.data(), biased ? b1.data() : nullptr}, nullptr);
  REQUIRE(device.is_as_before(layer.experts));
  auto expected = oracle::grouped_gemm(layer.experts, layer.x, layer.tokens, layer.w1, columns, shape.model, false);
  if (biased) oracle::add_bias(layer.experts, expected, bias, columns);
  REQUIRE(rounding_errors(h.host(), expected) < 1.2);
  REQUIRE(rounding_errors(act.host(), oracle::activation(kind, h.host(), shape.width)) < 1.5);
}

TEST_CASE("grouped_gemm_activation_bwd: values", KERNEL_TAGS) {
  const int capability = GENERATE(from_range(kFamilies));
  const auto kind = GENERATE(from_range(activations()));
  const auto shape = GENERATE(Shape{72, 8}, Shape{200, 136}, Shape{264, 520});
  const Layer layer(Experts({0, 130, 0, 64, 1, 127}), kind, shape);
  INFO("capability " << capability << ", activation " << int(kind) << ", D " << shape.model << ", F " << shape.width);
  const auto h_in = randn(layer.rows * layer.halves * shape.width, 9);
  const DeviceExperts device(layer.experts);
  const Buffer<Bf16> d_out(layer.x), w2(layer.w2), h(h_in), act_gated(layer.rows * shape.width);
  const Buffer<int32_t> tokens(layer.tokens), sorted(layer.sorted);
  const Buffer<float> gates(layer.gates), partial(layer.rows * dgates_partials(shape.width, capability));
  const GroupedProduct product{device.rows, d_out.data(), tokens.data(), w2.data(), shape.width, shape.model, 3, capability};
  grouped_gemm_activation_bwd({product, kind, h.data(), act_gated.data(), gates.data(), sorted.data(), partial.data()},
                              nullptr);
  REQUIRE(device.is_as_before(layer.experts));

  auto da = oracle::grouped_gemm(layer.experts, layer.x, layer.tokens, layer.w2, shape.width, shape.model, true);
  for (auto& value : da) value = oracle::round_bf16(value);
  std::vector<float> gates_R(layer.rows);
  for (size_t m = 0; m < layer.rows; ++m) gates_R[m] = layer.gates[layer.sorted[m]];
  const auto expected = oracle::activation_bwd(kind, h_in, da, gates_R, shape.width);
  REQUIRE(relative_error(h.host(), expected.dh) < kProductError);
  REQUIRE(relative_error(act_gated.host(), expected.act_gated) < kProductError);
  const auto partials = partial.host();
  std::vector<float> dgates(layer.rows);
  for (size_t i = 0; i < partials.size(); ++i) dgates[i / dgates_partials(shape.width, capability)] += partials[i];
  REQUIRE(relative_error(dgates, expected.dgates) < kProductError);
}

}  // namespace scatterlm::kernels::test
