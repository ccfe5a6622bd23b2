// Activations as loops over rows of a CPU tensor, and in LibTorch's own operations on any device.
#include <ATen/ATen.h>

#include "lib/ops/activation.h"
#include "lib/ops/cpu_loops.h"

namespace scatterlm::ops {
namespace {

template <class A>
struct ValueSlope {
  A value, slope;
};

struct Silu {
  template <class A>
  static ValueSlope<A> at(A x) {
    const auto s = sigmoid_of(x);
    return {x * s.value, s.value * (A(1) + x * s.complement)};
  }
};

/// 0.5 x (1 + tanh(u)) = x sigmoid(2u).
struct Gelu {
  template <class A>
  static ValueSlope<A> at(A x) {
    constexpr A kScale = A(2 * 0.79788456080286535588);  // 2 sqrt(2 / pi)
    const auto s = sigmoid_of(kScale * x * (A(1) + A(0.044715) * x * x));
    return {x * s.value, s.value * (A(1) + x * s.complement * kScale * (A(1) + A(3 * 0.044715) * x * x))};
  }
};

struct Relu {
  template <class A>
  static ValueSlope<A> at(A x) {
    return {x < A(0) ? A(0) : x, x > A(0) ? A(1) : A(0)};
  }
};

struct Relu2 {
  template <class A>
  static ValueSlope<A> at(A x) {
    const A r = x < A(0) ? A(0) : x;
    return {r * r, A(2) * r};
  }
};

template <class Visitor>
void visit_function(Activation kind, Visitor&& visit) {
  switch (kind) {
    case Activation::kSwiglu: return visit(Silu{});
    case Activation::kGeglu:
    case Activation::kGelu: return visit(Gelu{});
    case Activation::kReglu: return visit(Relu{});
    case Activation::kRelu2: return visit(Relu2{});
  }
}

/// One row. `up` is null where the activation has one half.
template <class Fn, class T>
SCATTERLM_VECTOR_CLONES void row_fwd(T* __restrict a, const T* __restrict gate, const T* __restrict up, int64_t width) {
  using A = acc_t<T>;
  if (up) {
    for (int64_t i = 0; i < width; ++i) a[i] = T(Fn::at(A(gate[i])).value * A(up[i]));
  } else {
    for (int64_t i = 0; i < width; ++i) a[i] = T(Fn::at(A(gate[i])).value);
  }
}

template <class Fn, class T>
SCATTERLM_VECTOR_CLONES void row_bwd(T* __restrict dgate, T* __restrict dup, const T* __restrict da, const T* __restrict gate,
                                     const T* __restrict up, int64_t width, acc_t<T> scale) {
  using A = acc_t<T>;
  if (up) {
    for (int64_t i = 0; i < width; ++i) {
      const auto f = Fn::at(A(gate[i]));
      const A d = scale * A(da[i]);
      dgate[i] = T(d * A(up[i]) * f.slope);
      dup[i] = T(d * f.value);
    }
  } else {
    for (int64_t i = 0; i < width; ++i) dgate[i] = T(scale * A(da[i]) * Fn::at(A(gate[i])).slope);
  }
}

/// Calls row(Fn, pointer into h, pointer to its second half or null, r) for every row of h.
template <class T, class Row>
void for_activation_rows(const at::Tensor& h, Activation kind, Row&& row) {
  const int64_t columns = h.size(1), half = is_gated(kind) ? columns / 2 : columns;
  const T* data = h.const_data_ptr<T>();
  visit_function(kind, [&](auto fn) {
    for_rows(h.size(0), columns, [&](int64_t first, int64_t last) {
      for (int64_t r = first; r < last; ++r) {
        const T* gate = data + r * columns;
        row(fn, gate, is_gated(kind) ? gate + half : nullptr, r);
      }
    });
  });
}

}  // namespace

at::Tensor cpu::activation_fwd(const at::Tensor& h, Activation kind) {
  auto a = at::empty({h.size(0), activation_width(h, kind)}, h.options());
  dispatch_float(h, "activation", [&](auto zero) {
    using T = decltype(zero);
    T* out = a.mutable_data_ptr<T>();
    const int64_t width = a.size(1);
    for_activation_rows<T>(h, kind, [&](auto fn, const T* gate, const T* up, int64_t r) {
      row_fwd<decltype(fn)>(out + r * width, gate, up, width);
    });
  });
  return a;
}

at::Tensor cpu::activation_bwd(const at::Tensor& da, const at::Tensor& h, Activation kind) {
  auto dh = at::empty_like(h);
  dispatch_float(h, "activation", [&](auto zero) {
    using T = decltype(zero);
    const T* in = da.const_data_ptr<T>();
    T* out = dh.mutable_data_ptr<T>();
    const int64_t width = da.size(1), columns = h.size(1);
    for_activation_rows<T>(h, kind, [&](auto fn, const T* gate, const T* up, int64_t r) {
      T* dgate = out + r * columns;
      row_bwd<decltype(fn)>(dgate, dgate + width, in + r * width, gate, up, width, acc_t<T>(1));
    });
  });
  return dh;
}

GatedActivationGrad cpu::gated_activation_bwd(const at::Tensor& da_ungated, const at::Tensor& h, const at::Tensor& gates_R,
                                              Activation kind) {
  GatedActivationGrad grad{.dh = at::empty_like(h), .a_gated = at::empty_like(da_ungated), .dgates = at::empty_like(gates_R)};
  dispatch_float(h, "activation", [&](auto zero) {
    using T = decltype(zero);
    using A = acc_t<T>;
    const int64_t width = da_ungated.size(1), columns = h.size(1);
    const A* gates = gates_R.const_data_ptr<A>();
    const T* da = da_ungated.const_data_ptr<T>();
    T *dh = grad.dh.mutable_data_ptr<T>(), *a_gated = grad.a_gated.mutable_data_ptr<T>();
    A* dgates = grad.dgates.mutable_data_ptr<A>();
    for_activation_rows<T>(h, kind, [&](auto fn, const T* gate, const T* up, int64_t r) {
      T *a_row = a_gated + r * width, *dgate = dh + r * columns;
      const T* da_row = da + r * width;
      row_fwd<decltype(fn)>(a_row, gate, up, width);
      dgates[r] = lane_sum<A>(width, [&](int64_t i) { return A(da_row[i]) * A(a_row[i]); });
      for (int64_t i = 0; i < width; ++i) a_row[i] = T(gates[r] * A(a_row[i]));
      row_bwd<decltype(fn)>(dgate, dgate + width, da_row, gate, up, width, gates[r]);
    });
  });
  return grad;
}

namespace ref {
namespace {

at::Tensor function(const at::Tensor& x, Activation kind) {
  switch (kind) {
    case Activation::kSwiglu: return at::silu(x);
    case Activation::kGeglu:
    case Activation::kGelu: return at::gelu(x, "tanh");
    case Activation::kReglu: return at::relu(x);
    case Activation::kRelu2: return at::relu(x).square();
  }
  fail("[activation] no such kind: {}", static_cast<int>(kind));
}

at::Tensor function_bwd(const at::Tensor& dy, const at::Tensor& x, Activation kind) {
  switch (kind) {
    case Activation::kSwiglu: return at::silu_backward(dy, x);
    case Activation::kGeglu:
    case Activation::kGelu: return at::gelu_backward(dy, x, "tanh");
    case Activation::kReglu: return at::threshold_backward(dy, x, 0);
    case Activation::kRelu2: return dy * at::relu(x) * 2;
  }
  fail("[activation] no such kind: {}", static_cast<int>(kind));
}

}  // namespace

at::Tensor activation(const at::Tensor& h, Activation kind) {
  if (!is_gated(kind)) return function(h, kind);
  const auto halves = h.chunk(2, -1);
  return function(halves[0], kind) * halves[1];
}

at::Tensor activation_bwd(const at::Tensor& da, const at::Tensor& h, Activation kind) {
  if (!is_gated(kind)) return function_bwd(da, h, kind);
  const auto halves = h.chunk(2, -1);
  return at::cat({function_bwd(da * halves[1], halves[0], kind), da * function(halves[0], kind)}, -1);
}

}  // namespace ref

}  // namespace scatterlm::ops
