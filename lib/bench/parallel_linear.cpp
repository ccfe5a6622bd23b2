#include "lib/ops/parallel_linear.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include "lib/bench/accuracy.h"
#include "lib/bench/dense.h"
#include "lib/bench/layers.h"
#include "lib/bench/passes.h"
#include "lib/bench/plain.h"

namespace scatterlm::bench {
namespace {

using ops::RowOrder;

/// What each is for in the papers: MoA's query, the MLP's two projections, and a layer between them.
struct Form {
  const char* name;
  RowOrder in, out;
  bool gated = false;
};
constexpr Form kForms[] = {{"token_to_token", RowOrder::kToken, RowOrder::kToken},
                           {"token_to_expert", RowOrder::kToken, RowOrder::kExpert},
                           {"expert_to_token", RowOrder::kExpert, RowOrder::kToken, true},
                           {"expert_to_expert", RowOrder::kExpert, RowOrder::kExpert}};

/// One form with the weights and the routing of the query.
struct Case {
  plain::Linear linear;
  ops::Routing routing;
  at::Tensor dout;
};

Case make_case(const Form& form, const MoaInputs& in) {
  const auto routing = ops::make_routing(in.ids_TK, in.shape.experts);
  const bool shared = form.in == RowOrder::kToken;
  const int64_t out_rows = form.gated ? in.shape.tokens() : in.shape.rows();
  return {.linear = {.x = shared ? in.x_TD : plain::gather(in.x_TD, routing),
                     .weight = in.wq,
                     .gates_TK = form.gated ? in.gates_TK : at::Tensor(),
                     .in_order = form.in,
                     .out_order = form.out},
          .routing = routing,
          .dout = at::randn({out_rows, in.shape.width()}, in.x_TD.options())};
}

Case as_leaves(Case c) {
  for (auto* tensor : {&c.linear.x, &c.linear.weight, &c.linear.gates_TK})
    if (tensor->defined()) *tensor = leaf(*tensor);
  return c;
}

at::Tensor forward(const Case& leaves) {
  const auto& l = leaves.linear;
  const auto gates = l.gates_TK.defined() ? std::optional(l.gates_TK) : std::nullopt;
  return ops::parallel_linear(l.x, l.weight, leaves.routing, l.in_order, l.out_order, gates);
}

plain::LinearGradients backward(const Case& leaves, const at::Tensor& out) {
  std::vector<at::Tensor> inputs = {leaves.linear.x, leaves.linear.weight};
  if (leaves.linear.gates_TK.defined()) inputs.push_back(leaves.linear.gates_TK);
  const auto grads = torch::autograd::grad({out}, inputs, {leaves.dout});
  return {grads[0], grads[1], grads.size() > 2 ? grads[2] : at::Tensor()};
}

/// Projections of a model, each with a weight, an input and gates of its own: their outputs are no inputs of each other.
std::function<void()> layers_of_model(const Case& c) {
  return [c, linears = layers_of(c.linear, {&plain::Linear::weight})] {
    std::vector<at::Tensor> outs;
    for (auto linear : linears) {
      linear.x = leaf(linear.x);
      if (linear.gates_TK.defined()) linear.gates_TK = leaf(linear.gates_TK);
      outs.push_back(forward({linear, c.routing, c.dout}));
    }
    torch::autograd::backward(outs, std::vector(outs.size(), c.dout));
  };
}

struct LinearResult {
  at::Tensor out;
  plain::LinearGradients grads;
};

Case converted(Case c, at::ScalarType dtype) {
  for (auto* tensor : {&c.linear.x, &c.linear.weight, &c.dout}) *tensor = tensor->to(dtype);
  if (dtype == at::kDouble && c.linear.gates_TK.defined()) c.linear.gates_TK = c.linear.gates_TK.to(dtype);
  return c;
}

LinearResult plain_result(const Case& c) {
  return {plain::forward(c.linear, c.routing), plain::backward(c.linear, c.routing, c.dout)};
}

double check(const Form& form, const Case& c) {
  const auto leaves = as_leaves(c);
  const auto out = forward(leaves);
  const LinearResult actual{out.detach(), backward(leaves, out)};
  const auto plain = plain_result(c), truth = plain_result(converted(c, higher_precision(c.dout.scalar_type())));
  std::vector<Comparison> results = {{"out", actual.out, plain.out, truth.out},
                                     {"dx", actual.grads.dx, plain.grads.dx, truth.grads.dx},
                                     {"dweight", actual.grads.dweight, plain.grads.dweight, truth.grads.dweight}};
  if (form.gated) results.push_back({"dgates", actual.grads.dgates_TK, plain.grads.dgates_TK, truth.grads.dgates_TK});
  return require_accurate(form.name, results);
}

OpWork work_of(const Form& form, const MoaShape& shape, const Machine& machine) {
  const LinearShape linear{.tokens = shape.tokens(),
                           .rows = shape.rows(),
                           .experts = shape.experts,
                           .in = shape.model,
                           .out = shape.width(),
                           .shared = form.in == RowOrder::kToken,
                           .gated = form.gated};
  return op_work(forward_work(linear, machine.element_bytes()), backward_work(linear, machine.element_bytes()),
                 machine.ceilings);
}

/// Of ours, of ATen and of a dense product of equal FLOPs.
std::vector<Pass> passes_of(const Form& form, const Case& c, const MoaInputs& in, const Machine& machine) {
  const auto leaves = as_leaves(c);
  const auto work = work_of(form, in.shape, machine);
  return all_of({both_passes(
                     "", [=] { forward(leaves); }, [=] { backward(leaves, forward(leaves)); }, work),
                 both_passes(
                     "aten", [=] { plain::forward(c.linear, c.routing); }, [=] { plain_result(c); }, work),
                 dense_passes("dense", in.x_TD, {in.shape.top_k * in.shape.width()}, DenseKind::kProducts, machine.ceilings)});
}

}  // namespace

Measured measure_parallel_linear(const MoaInputs& in, const Conditions& conditions) {
  Measured measured;
  for (const auto& form : kForms) {
    const auto c = make_case(form, in);
    auto row = row_of(in.shape.sizes(), conditions);
    row["rows"] = form.name;
    row["max_err_ratio"] = check(form, c);
    const auto leaves = as_leaves(c);
    const auto resources = measure_resources([&] { return [&leaves, out = forward(leaves)] { backward(leaves, out); }; },
                                             {layers_of_model(c)}, conditions.machine.device, row);
    measured.text +=
        fmt::format("{}\n{}{}", form.name, time_passes(passes_of(form, c, in, conditions.machine), conditions, row), resources);
    measured.rows.push_back(row);
  }
  return measured;
}

}  // namespace scatterlm::bench
