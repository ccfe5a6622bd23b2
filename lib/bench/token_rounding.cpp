#include "lib/ops/token_rounding.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "lib/bench/accuracy.h"
#include "lib/bench/passes.h"
#include "lib/ops/moe_mlp.h"

namespace scatterlm::bench {
namespace {

/// What backward starts from: the output and, where it does not depend on them, the router's gates.
struct Outputs {
  at::Tensor out_TD, gates_TK = {};
};

/// A layer as leaves of a graph: router, experts.
struct Layer {
  Layer(const MoeInputs& in)
      : shape(in.shape),
        x_TD(in.x_TD.detach().requires_grad_()),
        w1(in.w1.detach().requires_grad_()),
        w2(in.w2.detach().requires_grad_()),
        router_ED(at::randn({in.shape.experts, in.shape.model}, in.x_TD.options()).mul_(0.02).requires_grad_()),
        dout_TD(in.dout_TD),
        options{.num_experts_per_tok = in.shape.top_k} {}

  ops::RouterOutput route() const { return ops::router(x_TD, router_ED, {}, options); }
  at::Tensor experts(const at::Tensor& gates, const ops::Routing& routing) const {
    return ops::moe_mlp(x_TD, w1, w2, gates, routing, Activation::kSwiglu);
  }
  void backward(const Outputs& outputs) const {
    std::vector<at::Tensor> from = {outputs.out_TD}, grads = {dout_TD};
    if (outputs.gates_TK.defined()) {
      from.push_back(outputs.gates_TK);
      grads.push_back(zeros_TK);
    }
    torch::autograd::grad(from, {x_TD, w1, w2, router_ED}, grads);
  }

  MoeShape shape;
  at::Tensor x_TD, w1, w2, router_ED, dout_TD;
  at::Tensor zeros_TK = at::zeros({shape.tokens, shape.top_k}, x_TD.options().dtype(at::kFloat).requires_grad(false));
  ops::RouterOptions options;
};

Outputs rounded(const Layer& layer) {
  const auto chosen = ops::token_rounding(layer.route(), layer.options);
  return {layer.experts(chosen.gates_R, chosen.routing)};
}

/// The same kernels on the same rows, known beforehand: what is left of `rounded` without rounding.
Outputs on_given_rows(const Layer& layer, const at::Tensor& gates_R, const ops::Routing& routing) {
  return {layer.experts(gates_R, routing), layer.route().gates_TK};
}

/// The rows of each expert are those that `given` says, or what the router chose.
Outputs plain_top_k(const Layer& layer, const at::Tensor& given_ids_TK = {}) {
  const auto chosen = layer.route();
  const auto routing = ops::make_routing(given_ids_TK.defined() ? given_ids_TK : chosen.ids_TK, layer.shape.experts);
  return {layer.experts(chosen.gates_TK, routing)};
}

/// Rows of each expert as the plain twin counts them, and the output for these rows in higher precision.
double check(const Layer& layer) {
  const at::NoGradGuard no_grad;
  const auto chosen = layer.route();
  const auto ours = ops::token_rounding(chosen, layer.options), plain = ops::ref::token_rounding(chosen, layer.options);
  const auto dtype = layer.x_TD.scalar_type(), wide = higher_precision(dtype);
  const auto gates = wide == at::kDouble ? ours.gates_R.to(wide) : ours.gates_R;
  const auto truth =
      ops::moe_mlp(layer.x_TD.to(wide), layer.w1.to(wide), layer.w2.to(wide), gates, ours.routing, Activation::kSwiglu);
  return require_accurate(
      "token_rounding",
      {{"offsets", ours.routing.offsets_E1, {}, plain.routing.offsets_E1},
       {"token_offsets", ours.routing.token_offsets_T1.slice(0, -1), {}, plain.routing.token_offsets_T1.slice(0, -1)},
       {"out", layer.experts(ours.gates_R, ours.routing), truth.to(dtype), truth}});
}

std::vector<Pass> passes_of(const std::string& other, const Layer& layer, const std::function<Outputs()>& forward,
                            const OpWork& work) {
  return both_passes(
      other, [=] { forward(); }, [=] { layer.backward(forward()); }, work);
}

}  // namespace

Measured measure_token_rounding(const MoeInputs& in, const Conditions& conditions) {
  const Layer layer(in);
  auto row = row_of(in.shape.sizes(), conditions);
  row["max_err_ratio"] = check(layer);
  const auto given = ops::token_rounding(layer.route(), layer.options);
  const auto given_gates_R = given.gates_R.detach().requires_grad_();
  const auto counts_E = given.routing.offsets_E1.diff();
  const int64_t rows = counts_E.sum().item<int64_t>();
  const auto balanced = choose_experts(RoutingPattern::kBalanced,
                                       at::zeros({in.shape.tokens, in.shape.experts}, counts_E.device()), in.shape.top_k);
  const int64_t bytes = conditions.machine.element_bytes();
  const auto work = op_work(forward_work(in.shape, bytes), backward_work(in.shape, bytes), conditions.machine.ceilings);
  const auto text =
      time_passes(all_of({passes_of(
                              "", layer, [&] { return rounded(layer); }, work),
                          passes_of(
                              "given", layer, [&] { return on_given_rows(layer, given_gates_R, given.routing); }, work),
                          passes_of(
                              "topk", layer, [&] { return plain_top_k(layer); }, work),
                          passes_of(
                              "balanced", layer, [&] { return plain_top_k(layer, balanced.ids_TK); }, work)}),
                  conditions, row);
  const auto ms_of = [&](const char* other) { return row[other]["fwdbwd"]["ms"].get<double>(); };
  const double ms = row["fwdbwd_ms"], per_row = ms / static_cast<double>(rows);
  row["rows"] = rows;
  row["over_given_percent"] = 100 * (ms / ms_of("given") - 1);
  row["over_balanced_percent"] = nullptr;
  row["over_topk_percent"] = 100 * (ms / ms_of("topk") - 1);
  std::string beside_balanced;
  if (in.shape.rows() % (ops::kRoundingTile * in.shape.experts) == 0) {  // otherwise those have partly empty tiles
    const double over = 100 * (per_row * static_cast<double>(in.shape.rows()) / ms_of("balanced") - 1);
    row["over_balanced_percent"] = over;
    beside_balanced = fmt::format("a row takes {:+.1f} % of one where {} rows per expert are given; ", over,
                                  in.shape.rows() / in.shape.experts);
  }
  return {
      .rows = nlohmann::ordered_json::array({row}),
      .text = text + fmt::format("{} rows for {}; the layer takes {:+.1f} % of one where these are given; {}{:+.1f} % of plain "
                                 "top-k\n",
                                 rows, in.shape.rows(), row["over_given_percent"].get<double>(), beside_balanced,
                                 row["over_topk_percent"].get<double>())};
}

}  // namespace scatterlm::bench
