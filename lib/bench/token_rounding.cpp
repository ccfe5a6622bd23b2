#include "lib/ops/token_rounding.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "lib/bench/accuracy.h"
#include "lib/bench/layers.h"
#include "lib/bench/passes.h"
#include "lib/bench/plain.h"
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
        x_TD(leaf(in.x_TD)),
        w1(leaf(in.w1)),
        w2(leaf(in.w2)),
        router_ED(at::randn({in.shape.experts, in.shape.model}, in.x_TD.options()).mul_(0.02).requires_grad_()),
        dout_TD(in.dout_TD),
        options{.num_experts_per_tok = in.shape.top_k} {}

  ops::RouterOutput route() const { return ops::router(x_TD, router_ED, {}, options); }
  at::Tensor experts(const at::Tensor& gates, const ops::Routing& routing) const {
    return ops::moe_mlp(x_TD, w1, w2, gates, routing, Activation::kSwiglu);
  }
  /// Gradients of x, w1, w2 and the router.
  std::vector<at::Tensor> backward(const Outputs& outputs) const {
    std::vector<at::Tensor> from = {outputs.out_TD}, grads = {dout_TD};
    if (outputs.gates_TK.defined()) {
      from.push_back(outputs.gates_TK);
      grads.push_back(zeros_TK);
    }
    return torch::autograd::grad(from, {x_TD, w1, w2, router_ED}, grads);
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

/// Layers of a model, each with weights of its own.
std::function<void()> layers_of_model(const Layer& layer) {
  return [layer, layers = layers_of(layer, {&Layer::w1, &Layer::w2, &Layer::router_ED})] {
    auto x_TD = leaf(layer.x_TD);
    for (auto each : layers) {
      each.x_TD = x_TD;
      x_TD = rounded(each).out_TD;
    }
    torch::autograd::backward({x_TD}, {layer.dout_TD});
  };
}

/// The slots that a routing has, in expert order.
struct Rows {
  Rows(const ops::Routing& routing)
      : counts_E(routing.offsets_E1.diff().to(at::kLong)),
        experts(at::repeat_interleave(counts_E)),
        tokens(routing.tokens_R.slice(0, 0, experts.size(0)).to(at::kLong)),
        slots(routing.sorted_R.slice(0, 0, experts.size(0)).to(at::kLong)) {}

  at::Tensor counts_E, experts, tokens, slots;
};

/// [rows, 1]: chosen pairs weigh their share of the token's chosen probabilities, the others their probability.
at::Tensor plain_gates(const at::Tensor& logits_TE, const at::Tensor& ids_TK, const Rows& rows) {
  const auto prob_TE = at::softmax(logits_TE, 1);
  const auto chosen_TE = at::zeros_like(logits_TE, at::kBool).scatter_(1, ids_TK.to(at::kLong), true);
  const auto gates_TE = at::where(chosen_TE, prob_TE / (prob_TE * chosen_TE).sum(1, /*keepdim=*/true), prob_TE);
  return gates_TE.index({rows.tokens, rows.experts}).unsqueeze(1);
}

Layer converted(Layer layer, at::ScalarType dtype) {
  for (auto* tensor : {&layer.x_TD, &layer.w1, &layer.w2, &layer.router_ED}) *tensor = leaf(tensor->to(dtype));
  layer.dout_TD = layer.dout_TD.to(dtype);
  return layer;
}

/// The layer in plain tensor operations, expert by expert, sums of tokens in fp32; which rows it has is given.
Outputs plain_layer(const Layer& layer, const at::Tensor& ids_TK, const Rows& rows) {
  const auto dtype = layer.x_TD.scalar_type(), sums = dtype == at::kBFloat16 ? at::kFloat : dtype;
  const auto gates_R1 = plain_gates(at::mm(layer.x_TD, layer.router_ED.t()).to(sums), ids_TK, rows);
  const auto x_RD = layer.x_TD.to(sums).index_select(0, rows.tokens).to(dtype);
  const auto counts = rows.counts_E.cpu();
  const auto parts = x_RD.split_with_sizes({counts.const_data_ptr<int64_t>(), static_cast<size_t>(counts.numel())});
  const auto w1 = layer.w1.unbind(), w2 = layer.w2.unbind();
  std::vector<at::Tensor> y;
  for (size_t e = 0; e < parts.size(); ++e) y.push_back(at::mm(plain::swiglu(at::mm(parts[e], w1[e].t())), w2[e].t()));
  const auto gated_RD = at::cat(y).to(sums) * gates_R1;
  return {at::zeros_like(layer.x_TD, sums).index_add(0, rows.tokens, gated_RD).to(dtype)};
}

/// The choice equals that of the plain twin, entry by entry; gates, output and gradients of the layer are right for it.
double check(const Layer& layer) {
  const auto dtype = layer.x_TD.scalar_type();
  const auto chosen = layer.route();
  const auto ours = ops::token_rounding(chosen, layer.options), twin = ops::ref::token_rounding(chosen, layer.options);
  const auto same = [&](const char* name, at::Tensor ops::Routing::*list) {
    return Comparison{name, ours.routing.*list, {}, twin.routing.*list};
  };
  using ops::Routing;
  require_accurate("token_rounding", {same("offsets", &Routing::offsets_E1), same("token_offsets", &Routing::token_offsets_T1),
                                      same("sorted", &Routing::sorted_R), same("tokens", &Routing::tokens_R),
                                      same("inverse", &Routing::inverse_R)});

  const Rows rows(ours.routing);
  const auto of_rows = [&](const at::Tensor& gates_R) { return gates_R.detach().index_select(0, rows.slots).unsqueeze(1); };
  std::vector<Comparison> results = {{"gates", of_rows(ours.gates_R), of_rows(twin.gates_R),
                                      plain_gates(chosen.logits_TE.detach().to(at::kDouble), chosen.ids_TK, rows)}};
  const auto results_of = [&](const Layer& leaves, const Outputs& outputs) {
    auto tensors = leaves.backward(outputs);
    tensors.push_back(outputs.out_TD.detach());
    return tensors;
  };
  const auto plain = converted(layer, dtype), truth = converted(layer, higher_precision(dtype));
  const auto actual = results_of(layer, {layer.experts(ours.gates_R, ours.routing)}),
             of_plain = results_of(plain, plain_layer(plain, chosen.ids_TK, rows)),
             of_truth = results_of(truth, plain_layer(truth, chosen.ids_TK, rows));
  const char* names[] = {"dx", "dw1", "dw2", "drouter", "out"};
  for (size_t i = 0; i < actual.size(); ++i) results.push_back({names[i], actual[i], of_plain[i], of_truth[i]});
  return require_accurate("token_rounding", results);
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
  const auto resources = measure_resources([&] { return [&layer, outputs = rounded(layer)] { layer.backward(outputs); }; },
                                           {layers_of_model(layer)}, conditions.machine.device, row);
  const auto given = ops::token_rounding(layer.route(), layer.options);
  const auto given_gates_R = leaf(given.gates_R);
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
  return {.rows = nlohmann::ordered_json::array({row}),
          .text = text +
                  fmt::format("{} rows for {}; the layer takes {:+.1f} % of one where these are given; {}{:+.1f} % of plain "
                              "top-k\n",
                              rows, in.shape.rows(), row["over_given_percent"].get<double>(), beside_balanced,
                              row["over_topk_percent"].get<double>()) +
                  resources};
}

}  // namespace scatterlm::bench
