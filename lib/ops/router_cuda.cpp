#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "kernels/router_logits.h"
#include "lib/ops/grouped_gemm_cuda.h"
#include "lib/ops/router_scores_cuda.h"
#include "lib/ops/routing_cuda.h"

std::optional<scatterlm::ops::RouterOutput> scatterlm::ops::cuda::router(const at::Tensor& x_TD, const at::Tensor& weight_ED,
                                                                         const std::optional<at::Tensor>& bias_E,
                                                                         const RouterOptions& options) {
  const int64_t tokens = x_TD.size(0), experts = weight_ED.size(0);
  if (tokens == 0 || tokens > kernels::kRouterLogitsTokens || !kernels_take(x_TD) || !kernels_take(weight_ED)) return {};
  const c10::DeviceGuard guard(x_TD.device());
  RouterOutput out{.logits_TE = at::empty({tokens, experts}, x_TD.options().dtype(at::kFloat))};
  if (!router_kernels_take(out.logits_TE, options)) return {};
  const auto stream = current_stream(x_TD);
  kernels::router_logits({.x_TD = x_TD.const_data_ptr(),
                          .weight_ED = weight_ED.const_data_ptr(),
                          .logits_TE = out.logits_TE.mutable_data_ptr<float>(),
                          .num_tokens = tokens,
                          .num_experts = experts,
                          .width = x_TD.size(1)},
                         stream);
  out.gates_TK = at::empty({tokens, options.num_experts_per_tok}, out.logits_TE.options());
  out.ids_TK = at::empty(out.gates_TK.sizes(), x_TD.options().dtype(at::kInt));
  const NewRouting made(out.ids_TK, experts);
  const bool routes = kernels::router_scores_routes(kernel_router_args(out.logits_TE, options));
  run_router_scores_kernel(bias_E, options, routes ? &made.args : nullptr, out);
  if (routes) out.routing = made.routing;
  return out;
}
