// The kinds that `model.layers` can name; lib/config/model_config.h has their names and the keys that each reads.
#pragma once
#include "lib/nn/sub_layer.h"

namespace scatterlm::nn {

SubLayerKind gqa();    ///< gqa.cpp
SubLayerKind moa();    ///< moa.cpp
SubLayerKind swa();    ///< gqa.cpp
SubLayerKind dense();  ///< dense_mlp.cpp
SubLayerKind moe();    ///< moe_mlp.cpp

inline SubLayerKind sub_layer_kind(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kGqa: return gqa();
    case AttentionKind::kMoa: return moa();
    case AttentionKind::kSwa: return swa();
  }
  __builtin_unreachable();
}

inline SubLayerKind sub_layer_kind(MlpKind kind) {
  switch (kind) {
    case MlpKind::kDense: return dense();
    case MlpKind::kMoe: return moe();
  }
  __builtin_unreachable();
}

}  // namespace scatterlm::nn
