#include "lib/train/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace scatterlm {

Evaluation evaluate(nn::Model& model, EvalReader& reader, int64_t num_sequences, Comm& comm,
                    const std::function<void(int64_t)>& progress) {
  at::NoGradGuard no_grad;
  auto ce_sum = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(model.device()));
  Evaluation result;
  Batch batch;
  for (int64_t turn = 0; reader.next(num_sequences, batch); ++turn) {
    nn::Context context;
    if (turn % comm.world() == comm.rank()) ce_sum += model.cross_entropy_sum(batch.to(model.device()), context);
    result.tokens += batch.target_BS.numel();
    if (progress) progress(result.tokens);
  }
  comm.all_reduce(ce_sum);
  result.loss = ce_sum.item<double>() / static_cast<double>(result.tokens);
  return result;
}

}  // namespace scatterlm
