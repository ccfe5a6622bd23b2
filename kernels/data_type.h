// What the numbers of a matrix are, for kernels that take more than one type.
#pragma once

namespace scatterlm::kernels {

enum class DataType { kBf16, kFp32 };

}  // namespace scatterlm::kernels
