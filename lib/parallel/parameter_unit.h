// Parameters in flat buffers. A unit is what is reduced, updated, gathered and saved together: one layer, the embedding, or the
// head.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lib/distributed/comm.h"

namespace scatterlm {

/// Initial values of one tensor: normal with this deviation, or constant.
struct Init {
  float std = 0;
  float constant = 0;
  static Init normal(double std) { return {static_cast<float>(std), 0}; }
  static Init ones() { return {0, 1}; }
  static Init zeros() { return {}; }
};

enum class Decay { kNo, kYes };
/// What a learning rate may be given for of its own, relative to all others.
enum class LrGroup { kBase, kRouter };

/// Elements begin .. end-1 of a unit's flat buffers.
struct ElementRange {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
};

/// A tensor inside a unit.
struct Param {
  std::string name;
  std::vector<int64_t> shape;
  int64_t numel = 0;
  Init init;
  Decay decay = Decay::kYes;
  /// Rows of the linear maps that the tensor holds one below the other (queries, keys and values; gate and up), which an
  /// optimiser of whole matrices takes one by one, in each expert. Empty where none of its dimensions is a linear map's output
  /// that should be treated so: embeddings, head, routers, norms, biases.
  std::vector<int64_t> matrix_rows;
  LrGroup lr_group = LrGroup::kBase;
  int64_t offset = 0;  ///< first element in the flat buffer
  at::Tensor tensor;   ///< leaf; a view of the flat parameters, its grad a view of the flat gradients while there are any
};

/// One flat parameter buffer and, while training, one flat gradient buffer. Tensors with weight decay come first, so that
/// the optimiser sees at most two ranges; each tensor starts at a multiple of 64 elements. Every rank has a slice of the unit,
/// as long as those of the others and a multiple of 16 elements, so that an element is computed alike in every sharing.
class ParameterUnit {
 public:
  ParameterUnit(std::string name, at::TensorOptions options) : name_(std::move(name)), options_(options) {}

  /// Declares a tensor. It has storage after allocate(). `matrix_rows`: see Param; they add up to the last dimension but one.
  at::Tensor param(const std::string& name, std::vector<int64_t> shape, Init init, Decay decay,
                   std::vector<int64_t> matrix_rows = {}, LrGroup lr_group = LrGroup::kBase);

  /// Lays out and allocates the parameters; every tensor becomes a view and may require a gradient.
  void allocate(Comm& comm);

  /// From now on gradients add up in `flat` [size()] of grad_options(), or, if it is not defined, nowhere.
  void attach_grads(at::Tensor flat);
  /// What the attached gradients hold is forgotten. Small ones are zero; large ones are marked for the first op to store
  /// (lib/ops/gradient_target.h), and until then, or until complete_grads(), hold arbitrary numbers.
  void clear_grads();
  /// Zeroes what no op has written to since then.
  void complete_grads();
  /// A buffer to attach: zeros, in float32 or what set_grad_dtype() says (float64 for float64 parameters).
  at::Tensor make_grads() const;
  at::TensorOptions grad_options() const;
  /// Of gradients that are attached from now on: float32, as without this, or bfloat16.
  void set_grad_dtype(at::ScalarType dtype) { grad_dtype_ = dtype; }

  const std::string& name() const { return name_; }
  const std::vector<Param>& params() const { return params_; }
  at::Tensor flat_params() const { return flat_params_; }
  at::Tensor flat_grads() const { return flat_grads_; }
  int64_t size() const { return flat_params_.numel(); }

  /// This rank's slice of the flat buffers.
  int64_t slice_begin() const { return slice_begin_; }
  int64_t slice_end() const { return slice_end_; }
  at::Tensor own_slice(const at::Tensor& flat) const { return flat.narrow(0, slice_begin_, slice_end_ - slice_begin_); }

  /// Every rank's slice of the parameters to all ranks. It may go on meanwhile: who reads parameters calls wait_params()
  /// before.
  void gather_params(Comm& comm);
  void wait_params();

  /// Elements before this one belong to tensors with weight decay.
  int64_t decay_end() const { return decay_end_; }

  /// Initial values of flat elements begin..end-1 in fp32; a function of (seed, tensor names) alone.
  at::Tensor initial_values(int64_t seed, int64_t begin, int64_t end) const;

 private:
  std::string name_;
  at::TensorOptions options_;
  at::ScalarType grad_dtype_ = at::kFloat;
  std::vector<Param> params_;
  at::Tensor flat_params_, flat_grads_;
  int64_t slice_begin_ = 0, slice_end_ = 0, decay_end_ = 0;
  struct Gathering {
    Comm* comm;
    CollectiveHandle ticket;
  };
  std::optional<Gathering> gathering_;
};

/// Lays out and allocates every unit of a model.
void allocate(const std::vector<std::unique_ptr<ParameterUnit>>& units, Comm& comm);

}  // namespace scatterlm
