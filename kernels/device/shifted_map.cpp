#include "kernels/device/tensor_map.h"

namespace scatterlm::kernels {

CUtensorMap shifted_rows_map(const char* op, const void* data, int64_t rows, int64_t columns) {
  const int64_t row_bytes = columns * 2;
  return tensor_map(op, DataType::kBfloat16, static_cast<const char*>(data) - 64 * row_bytes, {columns, 64, rows + 64},
                    {row_bytes, row_bytes}, {64, 64, 1});
}

CUtensorMap shifted_rows_map(const char* op, const void* data, int64_t rows, int64_t halves, int64_t columns) {
  const int64_t row_bytes = halves * columns * 2;
  return tensor_map(op, DataType::kBfloat16, static_cast<const char*>(data) - 64 * row_bytes, {columns, halves, 64, rows + 64},
                    {columns * 2, row_bytes, row_bytes}, {64, 1, 64, 1});
}

}  // namespace scatterlm::kernels
