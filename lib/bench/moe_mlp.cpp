#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "lib/bench/accuracy.h"
#include "lib/bench/kernels_alone.h"
#include "lib/bench/plain.h"
#include "lib/io/safetensors.h"
#include "lib/ops/moe_mlp.h"
#include "lib/util/error.h"

namespace scatterlm::bench {
namespace {

using nlohmann::ordered_json;

struct Result {
  at::Tensor out_TD;
  plain::Gradients grads;
};

/// The inputs as leaves of a graph, on the same memory.
MoeInputs as_leaves(MoeInputs in) {
  for (auto* tensor : {&in.x_TD, &in.w1, &in.w2, &in.gates_TK}) *tensor = tensor->detach().requires_grad_();
  return in;
}

at::Tensor forward(const MoeInputs& leaves) {
  const auto routing = ops::make_routing(leaves.ids_TK, leaves.shape.experts);
  return ops::moe_mlp(leaves.x_TD, leaves.w1, leaves.w2, leaves.gates_TK, routing, Activation::kSwiglu);
}

plain::Gradients backward(const MoeInputs& leaves, const at::Tensor& out_TD) {
  const auto grads = torch::autograd::grad({out_TD}, {leaves.x_TD, leaves.w1, leaves.w2, leaves.gates_TK}, {leaves.dout_TD});
  return {grads[0], grads[1], grads[2], grads[3]};
}

Result ours(const MoeInputs& leaves) {
  const auto out_TD = forward(leaves);
  return {out_TD.detach(), backward(leaves, out_TD)};
}

Result plain_result(const MoeInputs& in, at::ScalarType dtype) {
  MoeInputs converted = in;
  for (auto* tensor : {&converted.x_TD, &converted.w1, &converted.w2, &converted.dout_TD}) *tensor = tensor->to(dtype);
  if (dtype == at::kDouble) converted.gates_TK = in.gates_TK.to(dtype);
  const auto routing = ops::ref::make_routing(in.ids_TK, in.shape.experts);
  const auto result = plain::forward(converted, routing);
  return {result.out_TD, plain::backward(converted, routing, result.h)};
}

double check(const Result& actual, const MoeInputs& in) {
  const auto dtype = in.x_TD.scalar_type();
  const auto plain = plain_result(in, dtype), truth = plain_result(in, higher_precision(dtype));
  return require_accurate("moe_mlp", {{"out", actual.out_TD, plain.out_TD, truth.out_TD},
                                      {"dx", actual.grads.dx_TD, plain.grads.dx_TD, truth.grads.dx_TD},
                                      {"dw1", actual.grads.dw1, plain.grads.dw1, truth.grads.dw1},
                                      {"dw2", actual.grads.dw2, plain.grads.dw2, truth.grads.dw2},
                                      {"dgates", actual.grads.dgates_TK, plain.grads.dgates_TK, truth.grads.dgates_TK}});
}

void write_dump(const std::string& folder, const MoeInputs& in, const Result& result) {
  const auto& s = in.shape;
  const auto path =
      fmt::format("{}/moe_mlp_{}_{}_{}_{}_{}.safetensors", folder, s.tokens, s.model, s.width, s.experts, s.top_k);
  write_safetensors(path, {{"x", in.x_TD},
                           {"w1", in.w1},
                           {"w2", in.w2},
                           {"gates", in.gates_TK},
                           {"ids", in.ids_TK},
                           {"dout", in.dout_TD},
                           {"out", result.out_TD},
                           {"dx", result.grads.dx_TD},
                           {"dw1", result.grads.dw1},
                           {"dw2", result.grads.dw2},
                           {"dgates", result.grads.dgates_TK}});
}

/// x V1 and V2 [F K, D] with SwiGLU between: the FLOPs of the experts of a token, without routing.
struct DenseMlp {
  explicit DenseMlp(const MoeInputs& in)
      : x_TD(in.x_TD.detach().requires_grad_()),
        v1(at::randn({2 * in.shape.width * in.shape.top_k, in.shape.model}, in.x_TD.options()).mul_(0.02).requires_grad_()),
        v2(at::randn({in.shape.model, in.shape.width * in.shape.top_k}, in.x_TD.options()).mul_(0.02).requires_grad_()) {}

  at::Tensor forward() const { return at::mm(plain::swiglu(at::mm(x_TD, v1.t())), v2.t()); }
  void forward_backward(const at::Tensor& dout_TD) const { torch::autograd::grad({forward()}, {x_TD, v1, v2}, {dout_TD}); }

  at::Tensor x_TD, v1, v2;
};

/// Forward and forward with backward of ours, of ATen and of a dense MLP, in this order.
std::vector<Figure> time_op(const MoeInputs& in, const Conditions& conditions) {
  const auto& machine = conditions.machine;
  const auto leaves = as_leaves(in);
  const DenseMlp dense(in);
  const auto routing = [&] { return ops::ref::make_routing(in.ids_TK, in.shape.experts); };
  const std::vector<std::string> names = {"fwd", "fwd+bwd", "fwd, ATen", "fwd+bwd, ATen", "fwd, dense", "fwd+bwd, dense"};
  const auto times = time_interleaved({{[&] { forward(leaves); }},
                                       {[&] { ours(leaves); }},
                                       {[&] { plain::forward(in, routing()); }},
                                       {[&] { plain_result(in, in.x_TD.scalar_type()); }},
                                       {[&] { dense.forward(); }},
                                       {[&] { dense.forward_backward(in.dout_TD); }}},
                                      conditions.rounds, machine.device);
  std::vector<Figure> figures;
  for (size_t i = 0; i < times.size(); ++i) {
    const bool training = i % 2 == 1;
    Figure figure{
        .name = names[i], .ms = times[i], .work = {.flops = training ? training_flops(in.shape) : forward_flops(in.shape)}};
    if (machine.ceilings)
      figure.bound_ms = (training ? training_bound_ms : forward_bound_ms)(in.shape, machine.element_bytes(), *machine.ceilings);
    figures.push_back(figure);
  }
  return figures;
}

/// Each kernel of the op alone.
std::vector<Figure> time_kernels(const MoeInputs& in, const Conditions& conditions) {
  const at::NoGradGuard no_grad;
  auto tensors = run_all_kernels(in);
  std::vector<Variant> variants;
  for (const auto kernel : kAllKernels) {
    check_kernel(kernel, tensors);
    variants.push_back(variant_of(kernel, tensors));
  }
  const auto times = time_interleaved(variants, conditions.rounds, conditions.machine.device);
  std::vector<Figure> figures;
  for (size_t i = 0; i < times.size(); ++i)
    figures.push_back(figure_of(kAllKernels[i], kernel_name(kAllKernels[i]), times[i], in.shape, conditions.machine));
  return figures;
}

/// saved_mib, peak_mib and host_us; null on a CPU.
ordered_json memory_and_host_time(const MoeInputs& in, at::Device device) {
  if (!device.is_cuda()) return {{"saved_mib", nullptr}, {"peak_mib", nullptr}, {"host_us", nullptr}};
  const auto leaves = as_leaves(in);
  const auto memory =
      memory_use([&] { return forward(leaves); }, [&](const at::Tensor& out_TD) { backward(leaves, out_TD); }, device);
  return {
      {"saved_mib", memory.saved_mib}, {"peak_mib", memory.peak_mib}, {"host_us", enqueue_us([&] { ours(leaves); }, device)}};
}

}  // namespace

Measured measure_moe_mlp(const MoeInputs& in, const Conditions& conditions, const std::string& dump) {
  const auto& ceilings = conditions.machine.ceilings;
  double error_ratio = 0;
  {
    const auto result = ours(as_leaves(in));
    if (!dump.empty()) write_dump(dump, in, result);
    error_ratio = check(result, in);
  }
  const auto resources = memory_and_host_time(in, conditions.machine.device);
  const auto op = time_op(in, conditions), kernels = time_kernels(in, conditions);

  Measured measured{.text = title_of("moe_mlp", in.shape) + "\n" + format_figures(op, ceilings) +
                            format_figures(kernels, ceilings)};
  if (conditions.machine.device.is_cuda())
    measured.text += fmt::format("saved {:.0f} MiB, peak {:.0f} MiB, host {:.0f} us a forward and backward\n",
                                 resources["saved_mib"].get<double>(), resources["peak_mib"].get<double>(),
                                 resources["host_us"].get<double>());
  auto row = row_of(in, conditions);
  const auto fwd = to_json(op[0], ceilings), fwdbwd = to_json(op[1], ceilings);
  for (const auto& [key, value] : fwd.items()) row["fwd_" + key] = value;
  for (const auto& [key, value] : fwdbwd.items()) row["fwdbwd_" + key] = value;
  row.update(resources);
  row["max_err_ratio"] = error_ratio;
  row["aten"] = {{"fwd", to_json(op[2], ceilings)}, {"fwdbwd", to_json(op[3], ceilings)}};
  row["dense"] = {{"fwd", to_json(op[4], ceilings)}, {"fwdbwd", to_json(op[5], ceilings)}};
  for (const auto& kernel : kernels) row["kernels"][kernel.name] = to_json(kernel, ceilings);
  measured.rows.push_back(row);
  return measured;
}

}  // namespace scatterlm::bench
