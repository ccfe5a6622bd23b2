#include "kernels/adamw.h"

#include "tests/catch.h"
#include "tests/kernels/elements.h"
#include "tests/kernels/tags.h"

namespace scatterlm::kernels::test {
namespace {

struct Hyperparameters {
  double lr = 0.01, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};

/// Weights and moments before and after, of one array.
template <class State, class Grad>
struct Arrays {
  Arrays(size_t count, unsigned seed)
      : grads(normal_numbers<Grad>(count, seed, 2)),
        weights(normal_numbers<State>(count, seed + 1, 1)),
        m(normal_numbers<State>(count, seed + 2, 0.5)),
        v(normal_numbers<State>(count, seed + 3, 0.5)) {
    for (auto& x : v) {
      if constexpr (std::is_same_v<State, float>)
        x = x * x;
      else
        x = to_bf16(to_float(x) * to_float(x));
    }
  }
  std::vector<Grad> grads;
  std::vector<State> weights, m, v;
};

template <class State, class Grad>
struct Run {
  Run(const Arrays<State, Grad>& in, int64_t num_decayed, float scale, float skip, float updates,
      const Hyperparameters& h = {}) {
    const Buffer<Grad> grads(in.grads);
    const Buffer<State> weights_out(in.weights), m_out(in.m), v_out(in.v);
    const Buffer<Bf16> params_out(in.weights.size());
    const Buffer<float> scalars(std::vector<float>{scale, skip, updates});
    adamw({.grads = grads.data(),
           .grads_type = kTypeOf<Grad>,
           .weights = weights_out.data(),
           .exp_avg = m_out.data(),
           .exp_avg_sq = v_out.data(),
           .state_type = kTypeOf<State>,
           .params = params_out.data(),
           .count = static_cast<int64_t>(in.weights.size()),
           .num_decayed = num_decayed,
           .lr = h.lr,
           .beta1 = h.beta1,
           .beta2 = h.beta2,
           .eps = h.eps,
           .weight_decay = h.weight_decay,
           .grad_scale = scalars.data(),
           .skip = scalars.data() + 1,
           .updates = scalars.data() + 2},
          nullptr);
    weights = weights_out.host();
    m = m_out.host();
    v = v_out.host();
    params = params_out.host();
  }
  std::vector<State> weights, m, v;
  std::vector<Bf16> params;
};

template <class State, class Grad>
void check_formula(size_t count, int64_t num_decayed, float updates) {
  const Hyperparameters h;
  const Arrays<State, Grad> in(count, 7);
  const float scale = 3;
  const Run<State, Grad> out(in, num_decayed, scale, 0, updates);
  for (size_t i = 0; i < count; ++i) {
    const double g = to_float(in.grads[i]) / static_cast<double>(scale), w = to_float(in.weights[i]);
    const double m = h.beta1 * to_float(in.m[i]) + (1 - h.beta1) * g, v = h.beta2 * to_float(in.v[i]) + (1 - h.beta2) * g * g;
    const double m_hat = m / (1 - std::pow(h.beta1, updates)), v_hat = v / (1 - std::pow(h.beta2, updates));
    const double decay = static_cast<int64_t>(i) < num_decayed ? h.weight_decay : 0;
    require_close(out.m[i], m, 1);
    require_close(out.v[i], v, 1);
    require_close(out.weights[i], w - h.lr * decay * w - h.lr * m_hat / (std::sqrt(v_hat) + h.eps), std::abs(w));
    if constexpr (std::is_same_v<State, float>)
      REQUIRE(out.params[i] == to_bf16(out.weights[i]));
    else
      REQUIRE(out.params[i] == out.weights[i]);
  }
}

}  // namespace

TEST_CASE("adamw: the formula, for every length, border of weight decay, type and number of updates", KERNEL_TAGS) {
  const auto count = GENERATE(size_t{1}, size_t{7}, size_t{8}, size_t{2047}, size_t{2048}, size_t{4109});
  for (const int64_t num_decayed : {int64_t{0}, static_cast<int64_t>(count) / 2, static_cast<int64_t>(count)}) {
    for (const float updates : {1.0f, 100000.0f}) {
      check_formula<float, float>(count, num_decayed, updates);
      check_formula<float, Bf16>(count, num_decayed, updates);
      check_formula<Bf16, float>(count, num_decayed, updates);
      check_formula<Bf16, Bf16>(count, num_decayed, updates);
    }
  }
}

TEST_CASE("adamw: a weight decay near the precision of 1 is not rounded to it", KERNEL_TAGS) {
  Arrays<float, float> in(20000, 3);
  std::fill(in.grads.begin(), in.grads.end(), 0.0f);
  std::fill(in.m.begin(), in.m.end(), 0.0f);
  const double lr_weight_decay = 5.5 / (1 << 24);  // 1 - this lies between 1 - 5/2^24 and 1 - 6/2^24, 9 % off, in fp32
  const Run<float, float> out(in, 20000, 1, 0, 1, {.lr = lr_weight_decay * 10, .weight_decay = 0.1});
  double before = 0, decayed = 0;
  for (size_t i = 0; i < in.weights.size(); ++i) {
    before += std::abs(in.weights[i]);
    decayed += std::abs(in.weights[i]) - std::abs(out.weights[i]);
  }
  REQUIRE(std::abs(decayed / before - lr_weight_decay) < 0.04 * lr_weight_decay);
}

TEST_CASE("adamw: a skipped update changes nothing, whatever the gradients are", KERNEL_TAGS) {
  Arrays<float, float> in(1000, 5);
  std::fill(in.grads.begin(), in.grads.end(), NAN);
  const Run<float, float> out(in, 500, NAN, 1, 3);
  REQUIRE((out.weights == in.weights && out.m == in.m && out.v == in.v));
  REQUIRE(out.params == std::vector<Bf16>(1000, 0xFFFF));  // as they were
}

TEST_CASE("adamw: nothing to do, and arrays that 16 bytes cannot be loaded from", KERNEL_TAGS) {
  adamw({}, nullptr);
  const Buffer<float> x(size_t{16});
  REQUIRE_THROWS_WITH(adamw({.grads = x.data(), .weights = x.data() + 1, .count = 8}, nullptr),
                      "[adamw] weights must be aligned to 16 bytes");
}

}  // namespace scatterlm::kernels::test
