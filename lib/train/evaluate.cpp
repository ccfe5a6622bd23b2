#include "lib/train/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace scatterlm {

Evaluation evaluate(nn::Model& model, EvalReader& reader, int64_t num_sequences, Comm& comm,
                    const std::function<void(int64_t)>& progress) {
  at::NoGradGuard no_grad;
  auto ce_sum = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(model.device()));
  const auto sum = [&](const Batch& batch) {
    nn::Context context;
    return model.cross_entropy_sum(batch.to(model.device()), context);
  };
  Evaluation result;
  Batch batch;
  const auto next = [&] {
    const StorageScope storage(comm);
    return reader.next(num_sequences, batch);
  };
  int64_t turn = 0;
  for (; next(); ++turn) {
    if (turn % comm.world() == comm.rank()) ce_sum += sum(batch);
    result.tokens += batch.target_BS.numel();
    if (progress) progress(result.tokens);
  }
  // Forward passes may hold collectives: ranks for which no batch is left repeat the last one, and count nothing.
  const int64_t last_round = turn % comm.world();
  if (last_round > 0 && comm.rank() >= last_round) sum(batch);
  comm.all_reduce(ce_sum);
  result.loss = ce_sum.item<double>() / static_cast<double>(result.tokens);
  return result;
}

}  // namespace scatterlm
