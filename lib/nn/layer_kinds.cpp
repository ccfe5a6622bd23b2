#include "lib/nn/layer_kinds.h"

namespace scatterlm::nn {

SubLayerKind sub_layer_kind(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kGqa: return gqa();
    case AttentionKind::kMoa: return moa();
    case AttentionKind::kSwa: return swa();
  }
  __builtin_unreachable();
}

SubLayerKind sub_layer_kind(MlpKind kind) {
  switch (kind) {
    case MlpKind::kDense: return dense();
    case MlpKind::kMoe: return moe();
  }
  __builtin_unreachable();
}

}  // namespace scatterlm::nn
