// Which tensors of a Hugging Face model make up which tensor of ours. Every tensor of ours is theirs one after another in
// memory, so both directions copy bytes.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "lib/hf/family.h"

namespace scatterlm::hf {

/// A parameter of our model.
struct ModelTensor {
  std::string name;
  std::vector<int64_t> shape;
  /// Rows of the linear maps that it holds one below the other (lib/parallel/parameter_unit.h), for biases as for their
  /// weights.
  std::vector<int64_t> matrix_rows;
  double scale = 1;  ///< export multiplies it by this
};

struct HfTensor {
  std::string name;
  std::vector<int64_t> shape;
  int64_t numel() const;
};

/// What `tensor` is made of in a model of `family`, in order; none if the family has no such tensor.
std::vector<HfTensor> parts_of(const ModelTensor& tensor, const Family& family);

}  // namespace scatterlm::hf
