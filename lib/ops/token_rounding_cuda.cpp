#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "kernels/grouped_gemm.h"
#include "kernels/token_rounding.h"
#include "lib/ops/allocate_together.h"
#include "lib/ops/router_autograd.h"
#include "lib/ops/router_scores_cuda.h"
#include "lib/ops/token_rounding.h"

namespace scatterlm::ops {
namespace {

static_assert(kRoundingTile == kernels::kTileRows);

class TokenRoundingFunction : public torch::autograd::Function<TokenRoundingFunction> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& logits_TE, const at::Tensor& gates_TK,
                            const at::Tensor& ids_TK, const at::Tensor& counts_E, const RouterOptions& options,
                            Routing& routing) {
    const int64_t tokens = logits_TE.size(0), experts = logits_TE.size(1), top_k = options.num_experts_per_tok;
    const int64_t bound = max_slots(tokens, experts, top_k);
    const auto data = [](const at::Tensor& x) { return x.mutable_data_ptr<int32_t>(); };
    routing = {.num_tokens = tokens, .top_k = top_k, .num_experts = experts, .stream = current_stream(logits_TE)};
    at::Tensor experts_R;
    allocate_together(ids_TK.options(), {{routing.sorted_R, bound},
                                         {routing.inverse_R, bound},
                                         {routing.tokens_R, bound},
                                         {experts_R, bound},
                                         {routing.offsets_E1, experts + 1},
                                         {routing.tiles_E3, experts + 3},
                                         {routing.token_offsets_T1, tokens + 1}});
    auto gates_R = at::empty({bound}, gates_TK.options());
    kernels::TokenRoundingArgs args{.router = kernel_router_args(logits_TE, options),
                                    .gates_TK = gates_TK.const_data_ptr<float>(),
                                    .ids_TK = ids_TK.const_data_ptr<int32_t>(),
                                    .counts_E = counts_E.const_data_ptr<int32_t>(),
                                    .num_slots = bound,
                                    .gates_R = gates_R.mutable_data_ptr<float>(),
                                    .experts_R = data(experts_R),
                                    .inverse_R = data(routing.inverse_R),
                                    .sorted_R = data(routing.sorted_R),
                                    .tokens_R = data(routing.tokens_R),
                                    .token_offsets_T1 = data(routing.token_offsets_T1),
                                    .offsets_E1 = data(routing.offsets_E1),
                                    .tiles_E3 = data(routing.tiles_E3)};
    const auto workspace = at::empty({kernels::token_rounding_workspace_bytes(args)}, ids_TK.options().dtype(at::kByte));
    args.workspace = workspace.mutable_data_ptr();
    kernels::token_rounding_fwd(args, routing.stream);
    save_options(ctx, options);
    ctx->save_for_backward({logits_TE, ids_TK, experts_R, routing.token_offsets_T1});
    return gates_R;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto saved = ctx->get_saved_variables();
    const at::Tensor &logits_TE = saved[0], &ids_TK = saved[1], dgates_R = grads[0].contiguous();
    auto dgates_TK = at::empty(ids_TK.sizes(), logits_TE.options()), dlogits_TE = at::empty_like(logits_TE);
    kernels::token_rounding_bwd({.router = kernel_router_args(logits_TE, saved_options(ctx)),
                                 .ids_TK = ids_TK.const_data_ptr<int32_t>(),
                                 .experts_R = saved[2].const_data_ptr<int32_t>(),
                                 .token_offsets_T1 = saved[3].const_data_ptr<int32_t>(),
                                 .dgates_R = dgates_R.const_data_ptr<float>(),
                                 .dgates_TK = dgates_TK.mutable_data_ptr<float>(),
                                 .dlogits_TE = dlogits_TE.mutable_data_ptr<float>()},
                                current_stream(logits_TE));
    return {dlogits_TE, dgates_TK, {}, {}, {}, {}};
  }
};

}  // namespace

std::optional<RoundedRouting> cuda::token_rounding(const RouterOutput& chosen, const RouterOptions& options) {
  if (!router_kernels_take(chosen.logits_TE, options)) return {};
  const c10::DeviceGuard guard(chosen.logits_TE.device());
  RoundedRouting out;
  out.gates_R =
      TokenRoundingFunction::apply(chosen.logits_TE, chosen.gates_TK, chosen.ids_TK, chosen.counts_E, options, out.routing);
  return out;
}

}  // namespace scatterlm::ops
