#pragma once
#include <vector>

#include "lib/config/model_config.h"
#include "lib/hf/tensor_map.h"

namespace scatterlm {

/// The parameters of a model, from shapes alone. `scale` is the factor on the gates (routed_scaling_factor) for the tensors
/// behind which it could stand as well, and 1 for all others.
std::vector<hf::ModelTensor> model_tensors(const ModelConfig& config);

}  // namespace scatterlm
