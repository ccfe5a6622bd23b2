#include "lib/train/logits.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/ranges.h>

#include "lib/io/safetensors.h"
#include "lib/util/error.h"

namespace scatterlm {

at::Tensor read_ids(const std::string& path, int64_t vocab_size) {
  const SafetensorsFile file(path);
  const auto found = file.entries().find("input_ids");
  if (found == file.entries().end()) fail_user("{}: has no tensor 'input_ids'", path);
  const auto& [dtype, shape, begin, end] = found->second;
  if (shape.size() != 2 || shape[0] < 1 || shape[1] < 1 || (dtype != at::kLong && dtype != at::kInt))
    fail_user("{}: 'input_ids' is [{}] {}, must be I64 or I32 [sequences, length]", path, fmt::join(shape, ", "),
              safetensors_dtype(dtype).value_or("?"));
  const auto ids_BS = file.tensor("input_ids").to(at::kLong);
  for (const auto& id : {ids_BS.min(), ids_BS.max()}) {
    const auto token = id.item<int64_t>();
    if (token < 0 || token >= vocab_size)
      fail_user("{}: holds token {}, the model's vocabulary ends at {}", path, token, vocab_size - 1);
  }
  return ids_BS;
}

void write_logits(const std::string& path, nn::Model& model, const at::Tensor& ids_BS,
                  const std::function<void(int64_t)>& progress) {
  const int64_t sequences = ids_BS.size(0), length = ids_BS.size(1);
  const auto write = [&](const StreamedTensor::Sink& out) {
    const at::NoGradGuard no_grad;
    for (int64_t i = 0; i < sequences; i++) {
      nn::Context context;
      const auto hidden_SD = model.forward(ids_BS.narrow(0, i, 1).to(model.device()), context).flatten(0, 1);
      const auto logits_SV = model.logits(hidden_SD).cpu().contiguous();
      out({static_cast<const char*>(logits_SV.const_data_ptr()), logits_SV.nbytes()});
      progress((i + 1) * length);
    }
  };
  stream_safetensors(path, {{"logits", at::kFloat, {sequences, length, model.config().vocab_size}, write}});
}

}  // namespace scatterlm
