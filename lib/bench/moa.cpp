#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "lib/bench/accuracy.h"
#include "lib/bench/dense.h"
#include "lib/bench/layers.h"
#include "lib/bench/passes.h"
#include "lib/bench/plain.h"
#include "lib/io/safetensors.h"
#include "lib/ops/attention.h"
#include "lib/ops/rope.h"

namespace scatterlm::bench {
namespace {

using nlohmann::ordered_json;
using ops::RowOrder;

enum class Between { kNothing, kAttention };

struct MoaResult {
  at::Tensor q, out_TD;  ///< q [R, heads P] in slot order
  at::Tensor dx_TD, dwq, dwo, dgates_TK, dq;
};

/// The inputs as leaves of a graph, on the same memory.
MoaInputs as_leaves(MoaInputs in) {
  for (auto* tensor : {&in.x_TD, &in.wq, &in.wo, &in.gates_TK, &in.k, &in.v}) *tensor = leaf(*tensor);
  return in;
}

/// As lib/nn/moa.cpp does it. [T K, heads P] with heads in the order (slot, head) <-> [B, S, heads K, P] in the order
/// (head, slot), in which the K query heads of a key-value head stand together.
at::Tensor attend(const at::Tensor& q, const MoaInputs& in) {
  const auto& s = in.shape;
  constexpr int64_t kWidth = MoaShape::kHeadWidth;
  const auto grouped = q.view({s.batch, s.sequence, s.top_k, s.heads, kWidth}).transpose(2, 3);
  const auto mixed = ops::attention(ops::rope(grouped, in.cos, in.sin).flatten(2, 3), in.k, in.v);
  return mixed.reshape({s.batch, s.sequence, s.heads, s.top_k, kWidth}).transpose(2, 3).reshape(q.sizes());
}

struct Projected {
  at::Tensor q, out_TD;
};

Projected forward(const MoaInputs& leaves, Between between) {
  const auto routing = ops::make_routing(leaves.ids_TK, leaves.shape.experts);
  const auto q = ops::parallel_linear(leaves.x_TD, leaves.wq, routing, RowOrder::kToken, RowOrder::kToken);
  const auto mixed = between == Between::kAttention ? attend(q, leaves) : q;
  return {q, ops::parallel_linear(mixed, leaves.wo, routing, RowOrder::kToken, RowOrder::kToken, leaves.gates_TK)};
}

/// Of x, wq, wo and gates, with attention of k and v too, then of `also`.
std::vector<at::Tensor> backward(const MoaInputs& leaves, const at::Tensor& out_TD, Between between,
                                 const std::vector<at::Tensor>& also = {}) {
  std::vector<at::Tensor> inputs = {leaves.x_TD, leaves.wq, leaves.wo, leaves.gates_TK};
  if (between == Between::kAttention) inputs.insert(inputs.end(), {leaves.k, leaves.v});
  inputs.insert(inputs.end(), also.begin(), also.end());
  return torch::autograd::grad({out_TD}, inputs, {leaves.dout_TD});
}

/// Layers of a model, each with weights, gates, keys and values of its own.
std::function<void()> layers_of_model(const MoaInputs& in, Between between) {
  return [in, between, layers = layers_of(in, {&MoaInputs::wq, &MoaInputs::wo})] {
    auto x_TD = leaf(in.x_TD);
    for (auto layer : layers) {
      layer.x_TD = x_TD;
      layer.gates_TK = leaf(in.gates_TK);
      if (between == Between::kAttention) {
        layer.k = leaf(in.k);
        layer.v = leaf(in.v);
      }
      x_TD = forward(layer, between).out_TD;
    }
    torch::autograd::backward({x_TD}, {in.dout_TD});
  };
}

MoaResult ours(const MoaInputs& in, Between between) {
  const auto leaves = as_leaves(in);
  const auto [q, out_TD] = forward(leaves, between);
  const auto grads = backward(leaves, out_TD, between, {q});
  return {q.detach(), out_TD.detach(), grads[0], grads[1], grads[2], grads[3], grads.back()};
}

/// Queries rotated, keys and values repeated for every slot.
at::Tensor plain_attend(const at::Tensor& q, const MoaInputs& in) {
  const auto& s = in.shape;
  const auto heads_first = [&](const at::Tensor& x, int64_t repeats) { return x.repeat({1, 1, repeats, 1}).transpose(1, 2); };
  const auto queries = ops::ref::rope(q.view({s.batch, s.sequence, s.top_k * s.heads, MoaShape::kHeadWidth}), in.cos, in.sin);
  return at::scaled_dot_product_attention(heads_first(queries, 1), heads_first(in.k, s.top_k), heads_first(in.v, s.top_k), {},
                                          /*dropout_p=*/0.0, /*is_causal=*/true)
      .transpose(1, 2)
      .reshape(q.sizes());
}

plain::Linear plain_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& gates_TK) {
  return {x, weight, gates_TK, RowOrder::kToken, RowOrder::kToken};
}

Projected plain_forward(const MoaInputs& in) {
  const auto routing = ops::ref::make_routing(in.ids_TK, in.shape.experts);
  const auto q = plain::forward(plain_linear(in.x_TD, in.wq, {}), routing);
  return {q, plain::forward(plain_linear(q, in.wo, in.gates_TK), routing)};
}

MoaInputs converted(MoaInputs in, at::ScalarType dtype) {
  for (auto* tensor : {&in.x_TD, &in.wq, &in.wo, &in.k, &in.v, &in.dout_TD}) *tensor = tensor->to(dtype);
  if (dtype == at::kDouble) in.gates_TK = in.gates_TK.to(dtype);
  return in;
}

MoaResult plain_result(const MoaInputs& in, Between between) {
  const auto routing = ops::ref::make_routing(in.ids_TK, in.shape.experts);
  const auto query = plain_linear(in.x_TD, in.wq, {});
  auto q = plain::forward(query, routing), mixed = q;
  if (between == Between::kAttention) {
    q.requires_grad_();
    mixed = plain_attend(q, in);
  }
  const auto output = plain_linear(mixed.detach(), in.wo, in.gates_TK);
  const auto of_output = plain::backward(output, routing, in.dout_TD);
  const auto dq = mixed.requires_grad() ? torch::autograd::grad({mixed}, {q}, {of_output.dx})[0] : of_output.dx;
  const auto of_query = plain::backward(query, routing, dq);
  return {q.detach(), plain::forward(output, routing), of_query.dx, of_query.dweight, of_output.dweight, of_output.dgates_TK,
          dq};
}

double check(const MoaResult& actual, const MoaInputs& in, Between between) {
  const auto plain = plain_result(in, between),
             truth = plain_result(converted(in, higher_precision(in.x_TD.scalar_type())), between);
  return require_accurate(between == Between::kAttention ? "moa with attention" : "moa",
                          {{"q", actual.q, plain.q, truth.q},
                           {"out", actual.out_TD, plain.out_TD, truth.out_TD},
                           {"dx", actual.dx_TD, plain.dx_TD, truth.dx_TD},
                           {"dwq", actual.dwq, plain.dwq, truth.dwq},
                           {"dwo", actual.dwo, plain.dwo, truth.dwo},
                           {"dgates", actual.dgates_TK, plain.dgates_TK, truth.dgates_TK},
                           {"dq", actual.dq, plain.dq, truth.dq}});
}

void write_dump(const std::string& folder, const MoaInputs& in, const MoaResult& result) {
  write_safetensors(dump_path(folder, "moa", in.shape.sizes()), {{"x", in.x_TD},
                                                                 {"wq", in.wq},
                                                                 {"wo", in.wo},
                                                                 {"gates", in.gates_TK},
                                                                 {"ids", in.ids_TK},
                                                                 {"dq", result.dq},
                                                                 {"dout", in.dout_TD},
                                                                 {"q", result.q},
                                                                 {"out", result.out_TD},
                                                                 {"dx", result.dx_TD},
                                                                 {"dwq", result.dwq},
                                                                 {"dwo", result.dwo},
                                                                 {"dgates", result.dgates_TK}});
}

OpWork work_of(const MoaShape& shape, const Machine& machine, Between between) {
  const int64_t bytes = machine.element_bytes();
  auto forward = forward_work(shape, bytes), backward = backward_work(shape, bytes);
  if (between == Between::kAttention) {
    forward.push_back(attention_forward_work(shape, bytes));
    backward.push_back(attention_backward_work(shape, bytes));
  }
  return op_work(forward, backward, machine.ceilings);
}

std::vector<Pass> our_passes(const std::string& name, const MoaInputs& leaves, const Machine& machine, Between between) {
  return both_passes(
      name, [=] { forward(leaves, between); }, [=] { backward(leaves, forward(leaves, between).out_TD, between); },
      work_of(leaves.shape, machine, between));
}

/// Of ours, of ATen, of two dense products of equal FLOPs, and of ours with attention.
std::vector<Pass> passes_of(const MoaInputs& in, const Machine& machine) {
  const auto& shape = in.shape;
  const auto leaves = as_leaves(in);
  return all_of(
      {our_passes("", leaves, machine, Between::kNothing),
       both_passes(
           "aten", [=] { plain_forward(in); }, [=] { plain_result(in, Between::kNothing); },
           work_of(shape, machine, Between::kNothing)),
       dense_passes("dense", in.x_TD, {shape.top_k * shape.width(), shape.model}, DenseKind::kProducts, machine.ceilings),
       our_passes("with_attention", leaves, machine, Between::kAttention)});
}

}  // namespace

Measured measure_moa(const MoaInputs& in, const Conditions& conditions) {
  const auto& machine = conditions.machine;
  auto row = row_of(in.shape.sizes(), conditions);
  {
    const auto result = ours(in, Between::kNothing);
    if (!conditions.dump.empty()) write_dump(conditions.dump, in, result);
    row["max_err_ratio"] = check(result, in, Between::kNothing);
    row["with_attention"]["max_err_ratio"] = check(ours(in, Between::kAttention), in, Between::kAttention);
  }
  const auto leaves = as_leaves(in);
  const auto resources = [&](Between between, ordered_json& into) {
    return measure_resources(
        [&] { return [&leaves, between, out_TD = forward(leaves, between).out_TD] { backward(leaves, out_TD, between); }; },
        {layers_of_model(in, between)}, machine.device, into);
  };
  const auto alone = resources(Between::kNothing, row), with_attention = resources(Between::kAttention, row["with_attention"]);
  const auto text = time_passes(passes_of(in, machine), conditions, row);
  return {.rows = ordered_json::array({row}),
          .text = text + alone + (with_attention.empty() ? "" : "with attention: " + with_attention)};
}

}  // namespace scatterlm::bench
