// The kinds that `model.layers` can name; lib/config/model_config.h has their names and the keys that each reads.
#pragma once
#include "lib/nn/sub_layer.h"

namespace scatterlm::nn {

SubLayerKind gqa();    ///< gqa.cpp
SubLayerKind moa();    ///< moa.cpp
SubLayerKind swa();    ///< gqa.cpp
SubLayerKind dense();  ///< dense_mlp.cpp
SubLayerKind moe();    ///< moe_mlp.cpp

SubLayerKind sub_layer_kind(AttentionKind kind);
SubLayerKind sub_layer_kind(MlpKind kind);

}  // namespace scatterlm::nn
