// The element types of matrices, for kernels and for settings: the one enum of types in this program.
#pragma once

namespace scatterlm::kernels {

enum class DataType { kFloat32, kBfloat16 };

/// Bytes of one element.
constexpr int size_of(DataType type) { return type == DataType::kFloat32 ? 4 : 2; }

}  // namespace scatterlm::kernels
