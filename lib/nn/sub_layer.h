// A decoder layer is x + attention(norm(x)), then x + mlp(norm(x)). Attention and MLP are its sub-layers; each kind that
// `model.layers` can name is defined in one file and listed in layer_kinds.h.
#pragma once
#include <memory>
#include <string>

#include "lib/config/config.h"
#include "lib/nn/context.h"
#include "lib/nn/model_size.h"
#include "lib/nn/rope_table.h"
#include "lib/nn/router.h"
#include "lib/parallel/parameter_unit.h"

namespace scatterlm::nn {

/// Standard deviations of initial weights: `residual` for projections that write into the residual stream.
struct InitScale {
  double normal;
  double residual;
};

/// What a sub-layer is made of.
struct SubLayerOptions {
  const ModelConfig& config;
  std::string name;  ///< of the sub-layer, before the names of its parameters: "layers.3.mlp"
  InitScale init;
  ParameterUnit& unit;  ///< the sub-layer declares its parameters here
  RopeTables& rope;
  at::Device device;
};

class SubLayer {
 public:
  virtual ~SubLayer() = default;
  /// x [B, S, D] -> [B, S, D]
  virtual at::Tensor forward(const at::Tensor& x_BSD, Context& context) = 0;
  /// The router of its experts; null without experts.
  virtual Router* router() { return nullptr; }
};

/// What the model, the memory estimate and the FLOPs know of a kind of sub-layer.
struct SubLayerKind {
  std::unique_ptr<SubLayer> (*make)(const SubLayerOptions& options);
  /// Adds the parameters of one sub-layer.
  void (*add_parameters)(const ModelConfig& config, ParameterCount& count);
  /// FLOPs of QK^T and AV for one trained token, forward and backward; null for an MLP.
  double (*attention_flops)(const ModelConfig& config, int64_t sequence_length) = nullptr;
  /// Bytes that forward keeps per token for the backward pass of kernels on a GPU, apart from its input; activations have
  /// `element_bytes` each.
  double (*saved_bytes)(const ModelConfig& config, double element_bytes) = nullptr;
};

}  // namespace scatterlm::nn
