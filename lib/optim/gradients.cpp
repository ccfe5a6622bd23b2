#include "lib/optim/gradients.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace scatterlm {
namespace {

/// One reduction runs while the next unit's backward fills its buffer; more in flight would hold more buffers.
constexpr size_t kMostInFlight = 2;

}  // namespace

/// Runs after a parameter's gradient is complete.
struct Gradients::Hook final : torch::autograd::PostAccumulateGradHook {
  Hook(Gradients& gradients, UnitState& state) : gradients(gradients), state(state) {}
  void operator()(const at::Tensor&) override { gradients.note_ready(state); }
  Gradients& gradients;
  UnitState& state;
};

Gradients::Gradients(const ParallelConfig& config, const std::vector<std::unique_ptr<Unit>>& units, Comm& comm)
    : config_(config), comm_(comm), short_lived_(config.zero == 2 && comm.world() > 1) {
  units_.reserve(units.size());  // hooks hold references
  for (const auto& unit : units) {
    auto& state = units_.emplace_back(UnitState{.unit = unit.get()});
    if (short_lived_) {
      state.own = at::zeros({unit->slice_end() - unit->slice_begin()}, unit->make_grads().options());
    } else {
      unit->attach_grads(unit->make_grads());
      state.own = unit->own_slice(unit->flat_grads());
    }
    reduced_.push_back(config.zero == 0 ? unit->flat_grads() : state.own);
    for (const auto& p : unit->params()) {
      torch::autograd::impl::set_post_acc_grad_hooks(p.tensor, std::make_unique<Hook>(*this, state));
      if (short_lived_)
        state.hooks.push_back(p.tensor.register_hook([this, &state](const at::Tensor&) { provide_buffer(state); }));
    }
  }
}

Gradients::~Gradients() {
  for (auto& state : units_) {
    for (size_t i = 0; i < state.unit->params().size(); ++i) {
      const auto& tensor = state.unit->params()[i].tensor;
      torch::autograd::impl::set_post_acc_grad_hooks(tensor, nullptr);
      if (short_lived_) tensor.remove_hook(state.hooks[i]);
    }
    state.unit->attach_grads({});
  }
}

void Gradients::begin_step() {
  for (auto& state : units_) (short_lived_ ? state.own : state.unit->flat_grads()).zero_();
}

void Gradients::begin_micro_batch(bool last) {
  reducing_ = last || short_lived_;
  left_ = units_.size();
  for (auto& state : units_) state.waiting_for = std::ssize(state.unit->params());
  provide_buffer(units_.back());
}

void Gradients::provide_buffer(UnitState& state) {
  if (short_lived_ && !state.unit->flat_grads().defined()) state.unit->attach_grads(state.unit->make_grads());
}

void Gradients::note_ready(UnitState& state) {
  --state.waiting_for;
  if (!reducing_) return;
  while (left_ > 0 && units_[left_ - 1].waiting_for == 0) reduce_next();
}

void Gradients::end_micro_batch() {
  if (!reducing_) return;
  while (left_ > 0) reduce_next();  // a parameter of this one has no part in the loss
  while (!in_flight_.empty()) finish_oldest();
  for (const Ticket gather : gathers_) comm_.wait(gather);  // only now, so that they hold no backward up
  gathers_.clear();
}

void Gradients::reduce_next() {
  reduce(units_[--left_]);
  // Before the backward of this unit begins: kernels add to a gradient that is there, and make one of their own otherwise.
  if (left_ > 0) provide_buffer(units_[left_ - 1]);
}

void Gradients::reduce(UnitState& state) {
  if (in_flight_.size() == kMostInFlight) finish_oldest();
  auto full = state.unit->flat_grads();
  auto part = state.own;
  if (short_lived_) state.unit->attach_grads({});  // whose memory lives on in flight
  if (config_.reduce_dtype == ReduceDtype::kBfloat16 && comm_.world() > 1) full = full.to(at::kBFloat16);
  if (short_lived_ || full.scalar_type() != part.scalar_type()) part = at::empty_like(part, full.options());
  in_flight_.push_back({&state, comm_.reduce_scatter(full, part), full, part});
}

void Gradients::finish_oldest() {
  auto& [state, ticket, full, part] = in_flight_.front();
  comm_.wait(ticket);
  if (short_lived_) {
    state->own.add_(part);
  } else if (!part.is_same(state->own)) {
    state->own.copy_(part);
  }
  if (config_.zero == 0) gathers_.push_back(comm_.all_gather(state->own, state->unit->flat_grads()));
  in_flight_.pop_front();
}

at::Tensor Gradients::norm() const {
  std::vector<at::Tensor> norms;
  for (const auto& state : units_) {
    // One after the other, as on a CPU, millions of squares in fp32 are off by 1e-4; the tree of a GPU is not.
    const auto sum_type = state.own.is_cpu() ? at::kDouble : state.own.scalar_type();
    norms.push_back(at::linalg_vector_norm(state.own, 2, {}, false, sum_type));
  }
  auto squares = at::stack(norms).square().sum().to(at::kFloat).view({1});
  comm_.all_reduce(squares);
  return squares.sqrt();
}

}  // namespace scatterlm
