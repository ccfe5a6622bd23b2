// Descriptions of matrices in global memory for the copy engine (TMA).
#pragma once
#include <cuda.h>

#include <cstdint>
#include <initializer_list>

#include "kernels/device/data_type.h"

namespace scatterlm::kernels {

/// Dimensions innermost first (elements), byte steps of all but the first, box to copy (elements; the innermost is 128 bytes
/// wide); 128-byte swizzle, zeros outside. Throws KernelError with the op's name if the driver refuses it.
CUtensorMap tensor_map(const char* op, DataType type, const void* data, std::initializer_list<int64_t> dims,
                       std::initializer_list<int64_t> strides, std::initializer_list<int> box);

/// Rows [row, row + v) of a bf16 matrix [rows, columns] as the box of 64 rows at (x, 64 - v, row + v): see epilogue.cuh. From 8
/// columns on: cuda.h's sketch of the rules lets no stride, here 16 bytes, be less than a dimension, here 64, nor two strides
/// be equal, but the driver takes both and Hopper does it right (the tests' smallest widths, on an H200).
CUtensorMap shifted_rows_map(const char* op, const void* data, int64_t rows, int64_t columns);

/// The same of [rows, halves, columns]: the box of 64 rows of one half at (x, half, 64 - v, row + v).
CUtensorMap shifted_rows_map(const char* op, const void* data, int64_t rows, int64_t halves, int64_t columns);

}  // namespace scatterlm::kernels
