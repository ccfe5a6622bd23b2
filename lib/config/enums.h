// Values that a key chooses from, and ranges of numbers.
#pragma once
#include <cstdint>
#include <limits>

#include "kernels/activation.h"
#include "kernels/device/data_type.h"

namespace scatterlm {

using kernels::Activation;
using kernels::DataType;
using kernels::is_gated;

/// Closed interval of allowed values.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
};

enum class QkNorm { kNone, kHead, kFull };
enum class RouterScore { kSoftmax, kSigmoid };
enum class Balance { kAux, kBias, kNone };
enum class Rounding { kNone, kNearest };
enum class RopeScaling { kNone, kLinear, kLlama3, kYarn };
enum class Schedule { kCosine, kLinear, kConstant, kWsd };
enum class TrainDtype { kAuto, kFloat32, kBfloat16 };
enum class OptimizerName { kAdamw, kMuon };
enum class DeviceChoice { kAuto, kCpu, kCuda };
/// What the backward pass computes again instead of keeping it: nothing, the outputs of norms, or whole layers.
enum class Recompute { kNone, kNorms, kLayer };
enum class Toggle { kAuto, kTrue, kFalse };
enum class TokenWidth { kAuto, kUint16, kUint32 };

/// YAML spellings, indexed by the enum's value.
template <class E>
struct EnumNames;
#define SCATTERLM_ENUM(E, ...)                             \
  template <>                                              \
  struct EnumNames<E> {                                    \
    static constexpr const char* values[] = {__VA_ARGS__}; \
  }
SCATTERLM_ENUM(Activation, "swiglu", "geglu", "reglu", "relu2", "gelu");
SCATTERLM_ENUM(QkNorm, "none", "head", "full");
SCATTERLM_ENUM(RouterScore, "softmax", "sigmoid");
SCATTERLM_ENUM(Balance, "aux", "bias", "none");
SCATTERLM_ENUM(Rounding, "none", "nearest");
SCATTERLM_ENUM(RopeScaling, "none", "linear", "llama3", "yarn");
SCATTERLM_ENUM(Schedule, "cosine", "linear", "constant", "wsd");
SCATTERLM_ENUM(TrainDtype, "auto", "float32", "bfloat16");
SCATTERLM_ENUM(OptimizerName, "adamw", "muon");
SCATTERLM_ENUM(DataType, "float32", "bfloat16");
SCATTERLM_ENUM(DeviceChoice, "auto", "cpu", "cuda");
SCATTERLM_ENUM(Recompute, "none", "norms", "layer");
SCATTERLM_ENUM(Toggle, "auto", "true", "false");
SCATTERLM_ENUM(TokenWidth, "auto", "uint16", "uint32");
#undef SCATTERLM_ENUM

template <class E>
const char* enum_name(E value) {
  return EnumNames<E>::values[static_cast<int>(value)];
}

}  // namespace scatterlm
