#include "lib/train/evaluate.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <limits>
#include <numbers>

namespace scatterlm {

at::Tensor bytes_of_tokens(const Tokenizer& tokenizer, int64_t vocab_size) {
  auto bytes_V = at::full({vocab_size}, std::numeric_limits<double>::quiet_NaN(), at::kDouble);
  auto* const bytes = bytes_V.mutable_data_ptr<double>();
  for (int64_t i = 0; i < std::min(vocab_size, tokenizer.vocab_size()); ++i) {
    const auto token = static_cast<uint32_t>(i);
    if (tokenizer.is_special(token))
      bytes[i] = 0;
    else if (const auto text = tokenizer.bytes_of(token); !text.empty())
      bytes[i] = static_cast<double>(text.size());
  }
  return bytes_V;
}

Evaluation evaluate(nn::Model& model, EvalReader& reader, int64_t num_sequences, Comm& comm, const at::Tensor& bytes_V,
                    const std::function<void(int64_t)>& progress) {
  at::NoGradGuard no_grad;
  auto ce_sum = at::zeros({1}, at::TensorOptions().dtype(at::kDouble).device(model.device()));
  const auto sum = [&](const Batch& batch) {
    nn::Context context;
    return model.cross_entropy_sum(batch.to(model.device()), context);
  };
  Evaluation result;
  double bytes = 0;
  Batch batch;
  const auto next = [&] {
    const StorageScope storage(comm);
    return reader.next(num_sequences, batch);
  };
  int64_t turn = 0;
  for (; next(); ++turn) {
    if (turn % comm.world() == comm.rank()) ce_sum += sum(batch);
    result.tokens += batch.target_BS.numel();
    if (bytes_V.defined()) bytes += bytes_V.index_select(0, batch.target_BS.flatten()).sum().item<double>();
    if (progress) progress(result.tokens);
  }
  // Forward passes may hold collectives: ranks for which no batch is left repeat the last one, and count nothing.
  const int64_t last_round = turn % comm.world();
  if (last_round > 0 && comm.rank() >= last_round) sum(batch);
  comm.all_reduce(ce_sum);
  const double nats = ce_sum.item<double>();
  result.loss = nats / static_cast<double>(result.tokens);
  if (bytes > 0) result.bits_per_byte = nats / std::numbers::ln2 / bytes;  // not for NaN
  return result;
}

}  // namespace scatterlm
