#include "lib/parallel/gradient_reducer.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "lib/ops/gradient_target.h"
#include "lib/ops/sum_of_squares.h"

namespace scatterlm {
namespace {

/// One reduction runs while the next unit's backward fills its buffer.
constexpr size_t kBuffers = 2;

}  // namespace

/// Runs after a parameter's gradient is complete.
struct GradientReducer::Hook final : torch::autograd::PostAccumulateGradHook {
  Hook(GradientReducer& gradients, UnitState& state) : gradients(gradients), state(state) {}
  void operator()(const at::Tensor&) override { gradients.note_ready(state); }
  GradientReducer& gradients;
  UnitState& state;
};

GradientReducer::GradientReducer(const ParallelConfig& config, const std::vector<std::unique_ptr<ParameterUnit>>& units,
                                 Comm& comm, DataType dtype)
    : comm_(comm), sharding_(config, comm) {
  for (const auto& unit : units) unit->set_grad_dtype(dtype == DataType::kBfloat16 ? at::kBFloat16 : at::kFloat);
  const bool copied = comm.world() > 1 && config.reduce_dtype == DataType::kBfloat16 && dtype == DataType::kFloat32;
  int64_t largest = 0;
  for (const auto& unit : units) largest = std::max(largest, unit->size());
  auto options = units.front()->grad_options();
  if (copied) options = options.dtype(at::kBFloat16);
  if (sharding_.gradients || copied) {
    for (size_t i = 0; i < kBuffers; ++i) buffers_.push_back(at::empty({largest}, options));
  }
  comm.reserve(largest * static_cast<int64_t>(options.dtype().itemsize()));
  units_.reserve(units.size());  // hooks hold references
  for (const auto& unit : units) {
    auto& state = units_.emplace_back(UnitState{.unit = unit.get()});
    if (sharding_.gradients) {
      state.own = at::zeros({unit->slice_end() - unit->slice_begin()}, unit->grad_options());
    } else {
      unit->attach_grads(sharding_.state ? unit->make_grads() : comm.gather_buffer(unit->size(), unit->grad_options()));
      state.own = unit->own_slice(unit->flat_grads());
    }
    reduced_.push_back(sharding_.state ? state.own : unit->flat_grads());
    for (const auto& p : unit->params()) {
      torch::autograd::impl::set_post_acc_grad_hooks(p.tensor, std::make_unique<Hook>(*this, state));
      state.hooks.push_back(p.tensor.register_hook([&state, &p](const at::Tensor& grad) { prepare(state, p, grad); }));
    }
  }
}

GradientReducer::~GradientReducer() {
  for (auto& state : units_) {
    for (size_t i = 0; i < state.unit->params().size(); ++i) {
      const auto& tensor = state.unit->params()[i].tensor;
      torch::autograd::impl::set_post_acc_grad_hooks(tensor, nullptr);
      tensor.remove_hook(state.hooks[i]);
    }
    state.unit->attach_grads({});
  }
}

void GradientReducer::begin_step() {
  first_ = true;
  if (sharding_.gradients) return;
  for (auto& state : units_) state.unit->clear_grads();
}

void GradientReducer::begin_micro_batch(bool last) {
  reducing_ = last || sharding_.gradients;
  left_ = units_.size();
  for (auto& state : units_) state.waiting_for = std::ssize(state.unit->params());
  begin_next();
}

/// Before the backward of the unit begins: kernels write to a gradient that is there, and make one of their own otherwise.
void GradientReducer::begin_next() {
  if (!sharding_.gradients || left_ == 0) return;
  auto& state = units_[left_ - 1];
  if (state.unit->flat_grads().defined()) return;
  const auto buffer = sent(state);
  const bool fits = buffer.scalar_type() == state.own.scalar_type();
  state.unit->attach_grads(fits ? buffer : at::empty({state.unit->size()}, state.unit->grad_options()));
  state.unit->clear_grads();
}

/// Before autograd adds `grad`, if defined, to that of the parameter. It may come before those of the units above.
void GradientReducer::prepare(UnitState& state, const Param& p, const at::Tensor& grad) {
  if (!state.unit->flat_grads().defined()) state.unit->attach_grads(state.unit->make_grads());
  if (grad.defined()) ops::zero_if_unwritten(p.tensor.grad());
}

void GradientReducer::note_ready(UnitState& state) {
  --state.waiting_for;
  if (!reducing_) return;
  while (left_ > 0 && units_[left_ - 1].waiting_for == 0) reduce_next();
}

void GradientReducer::end_micro_batch() {
  if (!reducing_) return;
  while (left_ > 0) reduce_next();  // a parameter of this one has no part in the loss
  while (!in_flight_.empty()) finish_oldest();
  first_ = false;
  for (const CollectiveHandle gather : gathers_) comm_.wait(gather);  // only now, so that they hold no backward up
  gathers_.clear();
}

void GradientReducer::reduce_next() {
  auto& state = units_[--left_];
  state.unit->complete_grads();
  const auto full = sent(state);
  if (full.data_ptr() != state.unit->flat_grads().data_ptr()) full.copy_(state.unit->flat_grads());
  if (sharding_.gradients) state.unit->attach_grads({});
  const bool adds = sharding_.gradients && !first_, converts = full.scalar_type() != state.own.scalar_type();
  const auto part = adds || converts ? state.unit->own_slice(full) : state.own;
  in_flight_.push_back({&state, comm_.reduce_scatter(full, part), part});
  begin_next();
}

/// What the gradients of this unit travel from: no reduction under way reads it any more.
at::Tensor GradientReducer::sent(UnitState& state) {
  if (in_flight_.size() == kBuffers) finish_oldest();
  if (buffers_.empty()) return state.unit->flat_grads();
  return buffers_[static_cast<size_t>(&state - units_.data()) % kBuffers].narrow(0, 0, state.unit->size());
}

void GradientReducer::finish_oldest() {
  auto& [state, ticket, part] = in_flight_.front();
  comm_.wait(ticket);
  if (sharding_.gradients && !first_) {
    state->own.add_(part);
  } else if (!part.is_same(state->own)) {
    state->own.copy_(part);
  }
  if (!sharding_.state) gathers_.push_back(comm_.all_gather(state->unit->flat_grads()));
  in_flight_.pop_front();
}

at::Tensor GradientReducer::norm() const {
  std::vector<at::Tensor> slices;
  for (const auto& state : units_) slices.push_back(state.own);
  const auto squares = ops::sum_of_squares(slices);
  comm_.all_reduce(squares);
  return squares.sqrt();
}

}  // namespace scatterlm
