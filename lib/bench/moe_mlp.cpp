#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "lib/bench/accuracy.h"
#include "lib/bench/dense.h"
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
  write_safetensors(dump_path(folder, "moe_mlp", in.shape.sizes()), {{"x", in.x_TD},
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

/// Of ours, of ATen, of a dense MLP as wide as the experts of a token and, where the shape asks for it, as wide as all.
std::vector<Pass> passes_of(const MoeInputs& in, const Machine& machine) {
  const auto& shape = in.shape;
  const auto leaves = as_leaves(in);
  const auto work =
      op_work(forward_work(shape, machine.element_bytes()), backward_work(shape, machine.element_bytes()), machine.ceilings);
  auto passes = both_passes(
      "", [=] { forward(leaves); }, [=] { ours(leaves); }, work);
  const auto add = [&](const std::vector<Pass>& more) { passes.insert(passes.end(), more.begin(), more.end()); };
  add(both_passes(
      "aten", [=] { plain::forward(in, ops::ref::make_routing(in.ids_TK, in.shape.experts)); },
      [=] { plain_result(in, in.x_TD.scalar_type()); }, work));
  const auto add_dense = [&](const std::string& rival, int64_t width) {
    add(dense_passes(rival, in.x_TD, {2 * width, shape.model}, DenseKind::kSwiglu, machine.ceilings));
  };
  add_dense("dense", shape.top_k * shape.width);
  if (shape.beside_all_dense) add_dense("dense_all", shape.experts * shape.width);
  return passes;
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

}  // namespace

Measured measure_moe_mlp(const MoeInputs& in, const Conditions& conditions) {
  const auto& machine = conditions.machine;
  auto row = row_of(in.shape.sizes(), conditions);
  {
    const auto result = ours(as_leaves(in));
    if (!conditions.dump.empty()) write_dump(conditions.dump, in, result);
    row["max_err_ratio"] = check(result, in);
  }
  const auto leaves = as_leaves(in);
  const auto resources = measure_resources([&] { return forward(leaves); },
                                           [&](const at::Tensor& out_TD) { backward(leaves, out_TD); }, machine.device, row);
  auto text = time_passes(passes_of(in, machine), conditions, row);
  const auto kernels = time_kernels(in, conditions);
  for (const auto& kernel : kernels) row["kernels"][kernel.name] = to_json(kernel, machine.ceilings);
  text += format_figures(kernels, machine.ceilings) + resources;
  return {.rows = ordered_json::array({row}), .text = text};
}

}  // namespace scatterlm::bench
