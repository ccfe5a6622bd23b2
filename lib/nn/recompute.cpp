#include "lib/nn/recompute.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <utility>
#include <vector>

#include "lib/util/error.h"

namespace scatterlm::nn {
namespace {

using torch::autograd::variable_list;

/// All results of a layer that have a gradient.
std::vector<at::Tensor*> differentiable(ResidualStream& stream, std::vector<RouterChoice>& choices) {
  std::vector<at::Tensor*> results{&stream.x, &*stream.branch};
  for (auto& choice : choices) results.insert(results.end(), {&choice.prob_sum_E, &choice.lse_sq_sum});
  return results;
}

/// Takes the place of all operations of a layer in the graph of the model.
struct RecomputedLayer final : torch::autograd::Node {
  variable_list apply(variable_list&& grads) override;
  void release_variables() override;
  std::string name() const override { return "RecomputedLayer"; }

  const DecoderLayer* layer = nullptr;
  at::Tensor sum;     ///< input of the first norm, detached
  bool adds = false;  ///< a branch was added to it
  Context context;
};

void RecomputedLayer::release_variables() {
  const std::lock_guard lock(mutex_);
  sum.reset();
  context = {};
}

variable_list RecomputedLayer::apply(variable_list&& grads) {
  const std::lock_guard lock(mutex_);
  if (!sum.defined()) fail("[recompute] the backward pass of a layer runs once");
  const at::AutoGradMode with_graph(true);
  const auto x = std::exchange(sum, {}).requires_grad_();
  std::vector<RouterChoice> choices;
  context.router_choices = &choices;
  // The residual stream as the sum, without a branch: the norm then computes the gradient of both in one operation as before.
  auto out = layer->forward(layer->input_norm({x, std::nullopt}), context);
  const auto results = differentiable(out, choices);
  variable_list roots, root_grads;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!grads[i].defined()) continue;
    roots.push_back(*results[i]);
    root_grads.push_back(std::move(grads[i]));
  }
  torch::autograd::backward(roots, root_grads);
  return {x.grad(), adds ? x.grad() : at::Tensor()};
}

}  // namespace

void free_until_backward(const ops::AddedAndNormed& normed, const at::Tensor& norm_weight, double eps,
                         const at::Tensor& branch) {
  if (!branch.requires_grad()) return;
  struct Freed {
    at::Tensor sum;
    c10::Storage y;
  };
  const auto freed = std::make_shared<Freed>(Freed{normed.sum.detach(), normed.y.storage()});
  freed->y.set_data_ptr_noswap(c10::DataPtr(nullptr, normed.y.device()));
  branch.register_hook([freed, norm_weight, eps](const at::Tensor&) {
    const at::NoGradGuard no_graph;
    const auto [sum, y] = std::exchange(*freed, {});  // from now on the ops that saved y own its memory
    if (sum.defined()) y.set_data_ptr_noswap(std::move(ops::rms_norm(sum, norm_weight, eps).storage().mutable_data_ptr()));
  });
}

ResidualStream forward_keeping_input(const DecoderLayer& layer, ResidualStream stream, Context& context) {
  const std::shared_ptr<RecomputedLayer> node(new RecomputedLayer, torch::autograd::deleteNode);
  node->set_next_edges(torch::autograd::collect_next_edges(stream.x, stream.branch));
  node->layer = &layer;
  node->adds = stream.branch.has_value();
  for (auto* part : {&stream.x, node->adds ? &*stream.branch : nullptr})
    if (part) *part = part->detach();
  // With a graph of its own, which is dropped: attention without one may choose another kernel, with other bits.
  const auto normed = layer.input_norm(std::exchange(stream, {}));
  node->sum = normed.sum.detach();
  std::vector<RouterChoice> choices;
  auto* const all_choices = std::exchange(context.router_choices, &choices);
  auto out = layer.forward(normed, context);
  context.router_choices = all_choices;
  node->context = context;  // with the masks that attention made of its documents
  for (auto* result : differentiable(out, choices)) {
    *result = result->detach();
    torch::autograd::set_history(*result, node);
  }
  all_choices->insert(all_choices->end(), choices.begin(), choices.end());
  return out;
}

}  // namespace scatterlm::nn
