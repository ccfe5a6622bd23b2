#pragma once
#include <functional>
#include <optional>
#include <vector>

#include "lib/nn/sub_layer.h"

namespace scatterlm::nn {

/// W_down act(W_up x), or with biases W_down act(W_up x + b_up) + b_down. Gated activations have gate rows first in W_up.
class DenseMlp final : public SubLayer {
 public:
  /// Declares its parameters under `name`, which may be that of a part of the sub-layer that `options` describes.
  DenseMlp(const DenseConfig& config, const std::string& name, const SubLayerOptions& options);

  /// x [..., D] -> same shape
  at::Tensor forward(const at::Tensor& x, Context& context) override;

  /// other(x) + forward(x) for rows x [T, D], without biases. The products of this MLP add the outputs, and the gradients of x;
  /// `other` must return a tensor of its own.
  at::Tensor forward_beside(const at::Tensor& x_TD, const std::function<at::Tensor(const at::Tensor&)>& other);

 private:
  Activation activation_;
  at::Tensor up_weight_;    ///< [2F, D] or [F, D]
  at::Tensor down_weight_;  ///< [D, F]
  std::optional<at::Tensor> up_bias_, down_bias_;
};

/// Rows of W_up.
int64_t up_rows(Activation activation, int64_t width);
/// Rows of the linear maps that W_up holds: gate and up, or up alone.
std::vector<int64_t> up_matrices(Activation activation, int64_t width);

/// Elements of W_up and W_down together.
int64_t mlp_elements(Activation activation, int64_t hidden, int64_t width);

/// Bytes per token that the backward pass needs of forward: W_up x, before and after the activation.
double dense_saved_bytes(Activation activation, int64_t width, double element_bytes);

}  // namespace scatterlm::nn
