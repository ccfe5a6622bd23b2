#include "lib/ops/router.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "lib/bench/accuracy.h"
#include "lib/bench/layers.h"
#include "lib/bench/passes.h"
#include "lib/ops/moe_mlp.h"
#include "lib/util/error.h"

namespace scatterlm::bench {
namespace {

using torch::autograd::variable_list;

/// A router in front of the experts of `in`: softmax, gates that sum to 1.
struct RouterInputs {
  RouterInputs(const MoeInputs& in)
      : shape(in.shape),
        x_TD(in.x_TD),
        weight_ED(at::randn({in.shape.experts, in.shape.model}, in.x_TD.options()).mul_(0.02)),
        grads({at::randn_like(in.gates_TK), at::randn({in.shape.experts}, in.gates_TK.options()).mul_(0.01),
               at::full({}, 1e-3 / in.shape.tokens, in.gates_TK.options())}) {}

  MoeShape shape;
  at::Tensor x_TD, weight_ED;
  variable_list grads;  ///< of the gates, of prob_sum (auxiliary loss) and of lse_sq_sum (z-loss)
};

/// The same in another precision, as leaves of a graph.
RouterInputs as_leaves(RouterInputs in, at::ScalarType dtype) {
  for (auto* tensor : {&in.x_TD, &in.weight_ED}) *tensor = tensor->detach().to(dtype).requires_grad_();
  if (dtype == at::kDouble)
    for (auto& grad : in.grads) grad = grad.to(dtype);
  return in;
}

struct RouterResult {
  at::Tensor logits_TE;  ///< plain only
  at::Tensor gates_TK, ids_TK, counts_E, prob_sum_E, lse_sq_sum;
  ops::Routing routing;
};

RouterResult forward(const RouterInputs& leaves) {
  const auto out = ops::router(leaves.x_TD, leaves.weight_ED, {}, {.num_experts_per_tok = leaves.shape.top_k});
  return {.gates_TK = out.gates_TK,
          .ids_TK = out.ids_TK,
          .counts_E = out.counts_E,
          .prob_sum_E = out.prob_sum_E,
          .lse_sq_sum = out.lse_sq_sum,
          .routing = ops::make_routing(out.ids_TK, leaves.shape.experts)};
}

/// Logits of the inputs' precision, as models in Python have them, widened to fp32; ids given or chosen.
RouterResult plain_forward(const RouterInputs& leaves, const at::Tensor& given_ids_TK = {}) {
  RouterResult out;
  const auto z_TE = at::mm(leaves.x_TD, leaves.weight_ED.t());
  out.logits_TE = z_TE.scalar_type() == at::kBFloat16 ? z_TE.to(at::kFloat) : z_TE;
  const auto prob_TE = at::softmax(out.logits_TE, 1);
  const auto ids_TK =
      given_ids_TK.defined() ? given_ids_TK.to(at::kLong) : std::get<1>(at::topk(prob_TE, leaves.shape.top_k, 1));
  const auto chosen_TK = prob_TE.gather(1, ids_TK);
  out.gates_TK = chosen_TK / chosen_TK.sum(1, /*keepdim=*/true);
  out.ids_TK = ids_TK.to(at::kInt);
  out.prob_sum_E = prob_TE.sum(0);
  out.lse_sq_sum = at::logsumexp(out.logits_TE, 1).square().sum();
  out.routing = ops::ref::make_routing(out.ids_TK, leaves.shape.experts);
  out.counts_E = out.routing.offsets_E1.diff();
  return out;
}

/// Of x and the weight.
variable_list backward(const RouterInputs& leaves, const RouterResult& out) {
  return torch::autograd::grad({out.gates_TK, out.prob_sum_E, out.lse_sq_sum}, {leaves.x_TD, leaves.weight_ED}, leaves.grads);
}

/// Routers of a model, each with a weight and an input of its own: they do not chain.
std::function<void()> layers_of_model(const RouterInputs& in) {
  return [in, layers = layers_of(in, {&RouterInputs::weight_ED})] {
    variable_list outs, grads;
    for (auto layer : layers) {
      layer.x_TD = leaf(in.x_TD);
      const auto out = forward(layer);
      outs.insert(outs.end(), {out.gates_TK, out.prob_sum_E, out.lse_sq_sum});
      grads.insert(grads.end(), in.grads.begin(), in.grads.end());
    }
    torch::autograd::backward(outs, grads);
  };
}

void require_sums(const RouterResult& actual, const RouterResult& truth) {
  // Sums in fp32 over all tokens, where plain LibTorch's rounding errors cancel: twice those would be no measure.
  constexpr double kTolerance = 1e-5;
  const auto sums = [](const RouterResult& result) {
    return std::vector{result.prob_sum_E.detach(), result.lse_sq_sum.detach().view({1})};
  };
  for (size_t i = 0; i < 2; ++i)
    if (!(worst_row_error(sums(actual)[i], sums(truth)[i]) < kTolerance))
      fail("[router] the sums of {} are wrong; not timed", i == 0 ? "probabilities" : "squared logsumexp");
}

/// Gates and gradients for the experts that ours chose; these by their logits, because near a tie the precision decides.
double check(const RouterInputs& in) {
  const auto dtype = in.x_TD.scalar_type();
  const auto our_leaves = as_leaves(in, dtype), plain_leaves = as_leaves(in, dtype), true_leaves = as_leaves(in, at::kDouble);
  const auto ours = forward(our_leaves), plain = plain_forward(plain_leaves, ours.ids_TK),
             truth = plain_forward(true_leaves, ours.ids_TK);
  const auto our_grads = backward(our_leaves, ours), plain_grads = backward(plain_leaves, plain),
             true_grads = backward(true_leaves, truth);
  const auto logits_TE = truth.logits_TE.detach();
  const auto largest = [&](const at::Tensor& scores_TE) { return at::topk(scores_TE.detach(), in.shape.top_k, 1); };
  require_sums(ours, truth);
  return require_accurate("router",
                          {{"sorted", ours.routing.sorted_R, {}, truth.routing.sorted_R},
                           {"offsets", ours.routing.offsets_E1, {}, truth.routing.offsets_E1},
                           {"counts", ours.counts_E, {}, truth.counts_E},
                           {"choice", logits_TE.gather(1, ours.ids_TK.to(at::kLong)),
                            logits_TE.gather(1, std::get<1>(largest(plain.logits_TE))), std::get<0>(largest(logits_TE))},
                           {"gates", ours.gates_TK.detach(), plain.gates_TK.detach(), truth.gates_TK.detach()},
                           {"dx", our_grads[0], plain_grads[0], true_grads[0]},
                           {"dweight", our_grads[1], plain_grads[1], true_grads[1]}});
}

/// The experts behind the router, their metadata given.
std::vector<Pass> experts_passes(const MoeInputs& in, const Machine& machine) {
  variable_list leaves;
  for (const auto& tensor : {in.x_TD, in.w1, in.w2, in.gates_TK}) leaves.push_back(leaf(tensor));
  const auto routing = ops::make_routing(in.ids_TK, in.shape.experts);
  const auto forward = [=] { return ops::moe_mlp(leaves[0], leaves[1], leaves[2], leaves[3], routing, Activation::kSwiglu); };
  const int64_t bytes = machine.element_bytes();
  return both_passes(
      "experts", [=] { forward(); }, [=] { torch::autograd::grad({forward()}, leaves, {in.dout_TD}); },
      op_work(forward_work(in.shape, bytes), backward_work(in.shape, bytes), machine.ceilings));
}

/// Of ours, of ATen and of the experts.
std::vector<Pass> passes_of(const RouterInputs& in, const MoeInputs& experts, const Machine& machine) {
  const auto leaves = as_leaves(in, in.x_TD.scalar_type());
  const int64_t bytes = machine.element_bytes();
  const auto work = op_work({router_forward_work(in.shape, bytes)}, {router_backward_work(in.shape, bytes)}, machine.ceilings);
  return all_of({both_passes(
                     "", [=] { forward(leaves); }, [=] { backward(leaves, forward(leaves)); }, work),
                 both_passes(
                     "aten", [=] { plain_forward(leaves); }, [=] { backward(leaves, plain_forward(leaves)); }, work),
                 experts_passes(experts, machine)});
}

}  // namespace

Measured measure_router(const MoeInputs& in, const Conditions& conditions) {
  const RouterInputs router(in);
  auto row = row_of(in.shape.sizes(), conditions);
  row["max_err_ratio"] = check(router);
  const auto leaves = as_leaves(router, in.x_TD.scalar_type());
  const auto resources = measure_resources([&] { return [&leaves, out = forward(leaves)] { backward(leaves, out); }; },
                                           {layers_of_model(router)}, conditions.machine.device, row);
  const auto text = time_passes(passes_of(router, in, conditions.machine), conditions, row);
  const double router_ms = row["fwdbwd_ms"], experts_ms = row["experts"]["fwdbwd"]["ms"];
  const double share = 100 * router_ms / (router_ms + experts_ms);
  row["share_percent"] = share;
  return {.rows = nlohmann::ordered_json::array({row}),
          .text = text + fmt::format("{:.1f} % of router and experts, fwdbwd\n", share) + resources};
}

}  // namespace scatterlm::bench
