#include "kernels/muon.h"

#include "tests/catch.h"
#include "tests/kernels/elements.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {
namespace {

constexpr double kBeta = 0.9, kLr = 0.02, kWeightDecay = 0.1;

template <class State, class Grad>
void check_momentum(size_t count) {
  const auto grads = normal_numbers<Grad>(count, 1, 1);
  const auto before = normal_numbers<State>(count, 2, 1);
  const Buffer<Grad> grads_in(grads);
  const Buffer<State> momentum(before);
  const Buffer<Bf16> updates(count);
  const Buffer<float> scalars(std::vector<float>{3, 0});
  muon_momentum({.grads = grads_in.data(),
                 .grads_type = kTypeOf<Grad>,
                 .momentum = momentum.data(),
                 .state_type = kTypeOf<State>,
                 .updates = updates.data(),
                 .count = static_cast<int64_t>(count),
                 .beta = kBeta,
                 .grad_scale = scalars.data(),
                 .skip = scalars.data() + 1},
                nullptr);
  const auto m = momentum.host();
  const auto u = updates.host();
  for (size_t i = 0; i < count; ++i) {
    const double g = to_float(grads[i]) / 3.0, expected = kBeta * to_float(before[i]) + g;
    require_close(m[i], expected, 1);
    require_close(u[i], g + kBeta * expected, 1);
  }
}

template <class State>
void check_apply(size_t count, bool copies) {
  const auto updates = normal_numbers<Bf16>(count, 3, 1);
  const auto before = normal_numbers<State>(count, 4, 1);
  const Buffer<Bf16> updates_in(updates), params(count);
  const Buffer<State> weights(before);
  const Buffer<float> skip(std::vector<float>{0});
  muon_apply({.updates = updates_in.data(),
              .weights = weights.data(),
              .state_type = kTypeOf<State>,
              .params = copies ? params.data() : nullptr,
              .count = static_cast<int64_t>(count),
              .lr = kLr,
              .weight_decay = kWeightDecay,
              .skip = skip.data()},
             nullptr);
  const auto w = weights.host();
  const auto p = params.host();
  for (size_t i = 0; i < count; ++i) {
    const double old = to_float(before[i]);
    require_close(w[i], old - kLr * kWeightDecay * old - kLr * to_float(updates[i]), 1);
    if (!copies)
      REQUIRE(p[i] == Bf16{0xFFFF});  // as it was
    else if constexpr (std::is_same_v<State, float>)
      REQUIRE(p[i] == to_bf16(w[i]));
    else
      REQUIRE(p[i] == w[i]);
  }
}

}  // namespace

TEST_CASE("muon: the formulas, for every length and type", KERNEL_TAGS) {
  const auto count = GENERATE(size_t{1}, size_t{7}, size_t{8}, size_t{2047}, size_t{2048}, size_t{4109});
  check_momentum<float, float>(count);
  check_momentum<float, Bf16>(count);
  check_momentum<Bf16, float>(count);
  check_momentum<Bf16, Bf16>(count);
  for (const bool copies : {false, true}) {
    check_apply<float>(count, copies);
    check_apply<Bf16>(count, copies);
  }
}

TEST_CASE("muon: a skipped update changes nothing, whatever the gradients are", KERNEL_TAGS) {
  const Buffer<float> nans(std::vector<float>(1000, NAN)), state(std::vector<float>(1000, 2)), one(std::vector<float>{1});
  const Buffer<Bf16> updates(size_t{1000});
  muon_momentum(
      {nans.data(), DataType::kFloat32, state.data(), DataType::kFloat32, updates.data(), 1000, 0.9, nans.data(), one.data()},
      nullptr);
  muon_apply({updates.data(), state.data(), DataType::kFloat32, nullptr, 1000, 0.1, 0.1, one.data()}, nullptr);
  REQUIRE(state.host() == std::vector<float>(1000, 2));
}

TEST_CASE("muon: nothing to do, and arrays that 16 bytes cannot be loaded from", KERNEL_TAGS) {
  muon_momentum({}, nullptr);
  muon_apply({}, nullptr);
  const Buffer<float> x(size_t{16});
  REQUIRE_THROWS_WITH(muon_momentum({.grads = x.data() + 1, .count = 8}, nullptr),
                      "[muon_momentum] grads must be aligned to 16 bytes");
  REQUIRE_THROWS_WITH(muon_apply({.updates = x.data(), .weights = x.data() + 1, .count = 8}, nullptr),
                      "[muon_apply] weights must be aligned to 16 bytes");
}

}  // namespace scatterlm::kernels::test
