#include "lib/parallel/parameter_unit.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <numeric>

#include "lib/ops/gradient_target.h"
#include "lib/ops/normal.h"

namespace scatterlm {
namespace {

/// Elements of a gradient that is not zeroed together with those beside it: below, one more kernel costs more than 1 MiB of
/// zeros.
constexpr int64_t kLargeGradient = int64_t{1} << 18;

int64_t round_up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

}  // namespace

at::Tensor ParameterUnit::param(const std::string& name, std::vector<int64_t> shape, Init init, Decay decay,
                                std::vector<int64_t> matrix_rows, LrGroup lr_group) {
  Param p;
  p.name = name;
  p.numel = c10::multiply_integers(shape);
  p.shape = std::move(shape);
  p.init = init;
  p.decay = decay;
  p.matrix_rows = std::move(matrix_rows);
  p.lr_group = lr_group;
  p.tensor = at::empty({0}, options_);  // allocate() gives it storage
  params_.push_back(p);
  return p.tensor;
}

void ParameterUnit::allocate(Comm& comm) {
  std::stable_partition(params_.begin(), params_.end(), [](const Param& p) { return p.decay == Decay::kYes; });
  int64_t size = 0;
  for (auto& p : params_) {
    p.offset = size;
    size = round_up(size + p.numel, 64);
    if (p.decay == Decay::kYes) decay_end_ = size;
  }
  size = round_up(size, std::lcm(16 * comm.world(), int64_t{128}));
  const int64_t slice = size / comm.world();
  slice_begin_ = comm.rank() * slice;
  slice_end_ = slice_begin_ + slice;

  flat_params_ = comm.gather_buffer(size, options_);
  for (auto& p : params_) {
    p.tensor.set_data(flat_params_.narrow(0, p.offset, p.numel).view(p.shape));
    p.tensor.requires_grad_();
    p.tensor.set_grad_dtype(std::nullopt);  // a bf16 tensor accumulates into its fp32 view
  }
}

void ParameterUnit::attach_grads(at::Tensor flat) {
  flat_grads_ = std::move(flat);
  for (auto& p : params_) {
    p.tensor.mutable_grad() = flat_grads_.defined() ? flat_grads_.narrow(0, p.offset, p.numel).view(p.shape) : at::Tensor();
  }
}

void ParameterUnit::clear_grads() {
  int64_t done = 0;  // elements before this one are cleared
  const auto zero_until = [&](int64_t end) {
    if (end > done) flat_grads_.slice(0, done, end).zero_();
  };
  for (const auto& p : params_) {
    if (p.numel < kLargeGradient) continue;
    zero_until(p.offset);
    ops::mark_unwritten(p.tensor.grad());
    done = p.offset + p.numel;
  }
  zero_until(size());
}

void ParameterUnit::complete_grads() {
  for (const auto& p : params_) ops::zero_if_unwritten(p.tensor.grad());
}

at::Tensor ParameterUnit::make_grads() const { return at::zeros({size()}, grad_options()); }

at::TensorOptions ParameterUnit::grad_options() const {
  return options_.dtype(options_.dtype() == at::kDouble ? at::kDouble : grad_dtype_);
}

void ParameterUnit::gather_params(Comm& comm) { gathering_ = {&comm, comm.all_gather(flat_params_)}; }

void ParameterUnit::wait_params() {
  if (gathering_) gathering_->comm->wait(gathering_->ticket);
  gathering_.reset();
}

at::Tensor ParameterUnit::initial_values(int64_t seed, int64_t begin, int64_t end) const {
  auto values = at::zeros({end - begin}, options_.dtype(at::kFloat));
  for (const auto& p : params_) {
    const int64_t from = std::max(begin, p.offset), to = std::min(end, p.offset + p.numel);
    if (from >= to) continue;
    auto slice = values.narrow(0, from - begin, to - from);
    if (p.init.std > 0) {
      ops::fill_normal(slice, ops::stream_of(static_cast<uint64_t>(seed), p.name), from - p.offset, p.init.std);
    } else {
      slice.fill_(p.init.constant);
    }
  }
  return values;
}

void allocate(const std::vector<std::unique_ptr<ParameterUnit>>& units, Comm& comm) {
  for (const auto& unit : units) unit->allocate(comm);
}

}  // namespace scatterlm
