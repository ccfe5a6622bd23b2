#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "lib/bench/accuracy.h"
#include "lib/bench/dense.h"
#include "lib/bench/kernels_alone.h"
#include "lib/bench/layers.h"
#include "lib/bench/plain.h"
#include "lib/io/safetensors.h"
#include "lib/ops/graph.h"
#include "lib/ops/moe_mlp.h"
#include "lib/util/error.h"

namespace scatterlm::bench {
namespace {

using nlohmann::ordered_json;

struct MoeMlpResult {
  at::Tensor out_TD;
  plain::Gradients grads;
};

/// The inputs as leaves of a graph, on the same memory.
MoeInputs as_leaves(MoeInputs in) {
  for (auto* tensor : {&in.x_TD, &in.w1, &in.w2, &in.gates_TK}) *tensor = leaf(*tensor);
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

MoeMlpResult ours(const MoeInputs& leaves) {
  const auto out_TD = forward(leaves);
  return {out_TD.detach(), backward(leaves, out_TD)};
}

/// MLPs of a model, each with weights and gates of its own.
Variant layers_of_model(const MoeInputs& in) {
  const auto layers = std::make_shared<std::vector<MoeInputs>>(layers_of(in, {&MoeInputs::w1, &MoeInputs::w2}));
  const auto prepare = [in, layers] {  // in a model a router gives the gates: leaves are no work of a layer
    for (auto& layer : *layers) layer.gates_TK = leaf(in.gates_TK);
  };
  const auto run = [in, layers] {
    auto x_TD = leaf(in.x_TD);
    for (auto& layer : *layers) {
      layer.x_TD = x_TD;
      x_TD = forward(layer);
      layer.x_TD.reset();
    }
    torch::autograd::backward({x_TD}, {in.dout_TD});
  };
  return {run, prepare};
}

MoeInputs converted(MoeInputs in, at::ScalarType dtype) {
  for (auto* tensor : {&in.x_TD, &in.w1, &in.w2, &in.dout_TD}) *tensor = tensor->to(dtype);
  if (dtype == at::kDouble) in.gates_TK = in.gates_TK.to(dtype);
  return in;
}

at::Tensor plain_forward(const MoeInputs& in) {
  return plain::forward(in, ops::ref::make_routing(in.ids_TK, in.shape.experts)).out_TD;
}

MoeMlpResult plain_result(const MoeInputs& in) {
  const auto routing = ops::ref::make_routing(in.ids_TK, in.shape.experts);
  const auto result = plain::forward(in, routing);
  return {result.out_TD, plain::backward(in, routing, result.h)};
}

double check(const MoeMlpResult& actual, const MoeInputs& in) {
  const auto plain = plain_result(in), truth = plain_result(converted(in, higher_precision(in.x_TD.scalar_type())));
  return require_accurate("moe_mlp", {{"out", actual.out_TD, plain.out_TD, truth.out_TD},
                                      {"dx", actual.grads.dx_TD, plain.grads.dx_TD, truth.grads.dx_TD},
                                      {"dw1", actual.grads.dw1, plain.grads.dw1, truth.grads.dw1},
                                      {"dw2", actual.grads.dw2, plain.grads.dw2, truth.grads.dw2},
                                      {"dgates", actual.grads.dgates_TK, plain.grads.dgates_TK, truth.grads.dgates_TK}});
}

void write_dump(const std::string& folder, const MoeInputs& in, const MoeMlpResult& result) {
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
  const int64_t bytes = machine.element_bytes();
  const auto work = op_work(forward_work(shape, bytes), backward_work(shape, bytes), machine.ceilings);
  const auto dense = [&](const std::string& name, int64_t width) {
    return dense_passes(name, in.x_TD, {2 * width, shape.model}, DenseKind::kSwiglu, machine.ceilings);
  };
  const auto leaves = as_leaves(in);
  const auto op = both_passes(
                 "", [=] { forward(leaves); }, [=] { ours(leaves); }, work),
             aten = both_passes(
                 "aten", [=] { plain_forward(in); }, [=] { plain_result(in); }, work);
  const auto passes = all_of({op, aten, dense("dense", shape.top_k * shape.width)});
  return shape.beside_all_dense ? all_of({passes, dense("dense_all", shape.experts * shape.width)}) : passes;
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
  const auto resources = measure_resources([&] { return [&leaves, out_TD = forward(leaves)] { backward(leaves, out_TD); }; },
                                           layers_of_model(in), machine.device, row);
  auto text = time_passes(passes_of(in, machine), conditions, row);
  const auto kernels = time_kernels(in, conditions);
  for (const auto& kernel : kernels) row["kernels"][kernel.name] = to_json(kernel, machine.ceilings);
  text += format_figures(kernels, machine.ceilings) + resources;
  return {.rows = ordered_json::array({row}), .text = text};
}

Measured measure_inference(const MoeInputs& in, const Conditions& conditions) {
  const at::NoGradGuard no_grad;
  const auto& machine = conditions.machine;
  auto row = row_of(in.shape.sizes(), conditions);
  row["max_err_ratio"] = require_accurate(
      "inference",
      {{"out", forward(in), plain_forward(in), plain_forward(converted(in, higher_precision(in.x_TD.scalar_type())))}});
  const int64_t touched = std::get<0>(at::_unique(in.ids_TK)).numel();
  row["touched_experts"] = touched;

  const auto weights = op_work({weights_of(in.shape, touched, machine.element_bytes())}, {}, machine.ceilings);
  const auto layers = [&] {
    for (int64_t i = 0; i < kNumLayers; ++i) forward(in);
  };
  const auto resources = measure_resources([&] { return [out_TD = forward(in)] {}; }, {layers}, machine.device, row);
  const auto pass = [&](const char* other, const std::function<void()>& run) {
    return Pass{other, "fwd", run, weights.forward, weights.forward_bound_ms};
  };
  const std::function<void()> ours = [&] { forward(in); };
  const auto text = time_passes(
      {pass("", ours), pass("graph", ops::captured(ours, machine.device)), pass("aten", [&] { plain_forward(in); })},
      conditions, row);
  return {.rows = ordered_json::array({row}), .text = text + resources};
}

}  // namespace scatterlm::bench
