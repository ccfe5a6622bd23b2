#include "lib/ops/router_scores_cuda.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "lib/ops/router_autograd.h"
#include "lib/ops/router_scores.h"

namespace scatterlm::ops {
namespace {

struct Kernels {
  static void fwd(const at::Tensor& logits_TE, const std::optional<at::Tensor>& bias_E, const RouterOptions& options,
                  RouterOutput& out) {
    out.logits_TE = logits_TE;
    run_router_scores_kernel(bias_E, options, nullptr, out);
  }

  static at::Tensor bwd(const at::Tensor& logits_TE, const at::Tensor& ids_TK, const RouterOptions& options,
                        const at::Tensor& dgates_TK, const at::Tensor& dprob_sum_E, const at::Tensor& dlse_sq_sum) {
    auto dlogits_TE = at::empty_like(logits_TE);
    kernels::router_scores_bwd(kernel_router_args(logits_TE, options),
                               {.ids_TK = ids_TK.const_data_ptr<int32_t>(),
                                .dgates_TK = dgates_TK.const_data_ptr<float>(),
                                .dprob_sum_E = dprob_sum_E.const_data_ptr<float>(),
                                .dlse_sq_sum = dlse_sq_sum.const_data_ptr<float>(),
                                .dlogits_TE = dlogits_TE.mutable_data_ptr<float>()},
                               current_stream(logits_TE));
    return dlogits_TE;
  }
};

}  // namespace

void run_router_scores_kernel(const std::optional<at::Tensor>& bias_E, const RouterOptions& options,
                              const kernels::RoutingArgs* routing, RouterOutput& out) {
  const auto& logits_TE = out.logits_TE;
  const auto args = kernel_router_args(logits_TE, options);
  const auto bias = bias_E ? bias_E->to(at::kFloat).contiguous() : at::Tensor();
  const auto workspace = at::empty({kernels::router_scores_workspace_bytes(args)}, logits_TE.options().dtype(at::kByte));
  out.counts_E = at::empty({logits_TE.size(1)}, out.ids_TK.options());
  out.prob_sum_E = at::empty({logits_TE.size(1)}, logits_TE.options());
  out.lse_sq_sum = at::empty({}, logits_TE.options());
  kernels::router_scores_fwd(args,
                             {.bias_E = bias_E ? bias.const_data_ptr<float>() : nullptr,
                              .select_by_logits = options.topk_before_softmax,
                              .gates_TK = out.gates_TK.mutable_data_ptr<float>(),
                              .ids_TK = out.ids_TK.mutable_data_ptr<int32_t>(),
                              .counts_E = out.counts_E.mutable_data_ptr<int32_t>(),
                              .prob_sum_E = out.prob_sum_E.mutable_data_ptr<float>(),
                              .lse_sq_sum = out.lse_sq_sum.mutable_data_ptr<float>(),
                              .workspace = workspace.mutable_data_ptr(),
                              .routing = routing},
                             current_stream(logits_TE));
}

std::optional<RouterOutput> cuda::router_scores(const at::Tensor& logits_TE, const std::optional<at::Tensor>& bias_E,
                                                const RouterOptions& options) {
  if (!router_kernels_take(logits_TE, options)) return {};
  const c10::DeviceGuard guard(logits_TE.device());
  return run_router_scores<Kernels>(logits_TE, bias_E, options);
}

}  // namespace scatterlm::ops
