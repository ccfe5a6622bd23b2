#include "lib/bench/cross_entropy.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lib/bench/accuracy.h"
#include "lib/bench/passes.h"
#include "lib/ops/cross_entropy.h"

namespace scatterlm::bench {
namespace {

LogitsShape parse_logits_shape(const std::string& text, const std::vector<std::string>& names) {
  const auto sizes = parse_sizes(text, "T,V", names);
  return {.tokens = sizes[0], .vocab = sizes[1]};
}

/// Losses, then the gradient if one is wanted.
using Rows = std::function<std::vector<at::Tensor>(const at::Tensor& logits_TV, std::optional<at::ScalarType> grad_dtype)>;

Rows rows_of_op(const at::Tensor& target_T) {
  return [=](const at::Tensor& logits_TV, std::optional<at::ScalarType> grad_dtype) -> std::vector<at::Tensor> {
    const auto losses_T = at::empty({logits_TV.size(0)}, logits_TV.options());
    const auto dlogits_TV = ops::softmax_rows(logits_TV, target_T, losses_T, grad_dtype);
    if (!grad_dtype) return {losses_T};
    return {losses_T, dlogits_TV};
  };
}

Rows rows_of_aten(const at::Tensor& target_T) {
  return [=](const at::Tensor& logits_TV, std::optional<at::ScalarType> grad_dtype) -> std::vector<at::Tensor> {
    if (!grad_dtype) return {at::nll_loss(at::log_softmax(logits_TV, 1), target_T, {}, at::Reduction::None)};
    const auto losses_T = at::empty({logits_TV.size(0)}, logits_TV.options());
    const auto dlogits_TV = ops::ref::softmax_rows(logits_TV, target_T, losses_T);
    return {losses_T, dlogits_TV.to(*grad_dtype)};
  };
}

}  // namespace

std::vector<LogitsShape> parse_logits_shapes(std::string_view text) {
  constexpr int64_t kVocab = 50304;
  const std::vector<LogitsShape> published = {{ops::cross_entropy_chunk(kVocab, /*on_cpu=*/false), kVocab, "dense_124m"}};
  return parse_list<LogitsShape>(text, {{"published", published}}, parse_logits_shape);
}

Work cross_entropy_forward_work(const LogitsShape& s) { return {.bytes = 4.0 * s.tokens * s.vocab}; }

Work cross_entropy_backward_work(const LogitsShape& s, int64_t gradient_bytes) {
  return {.bytes = static_cast<double>(gradient_bytes) * s.tokens * s.vocab};
}

Measured measure_cross_entropy(const LogitsShape& shape, const Conditions& conditions) {
  const at::NoGradGuard no_grad;
  const auto device = conditions.machine.device;
  const auto dtype = device.is_cuda() ? at::kBFloat16 : at::kFloat;
  at::manual_seed(0);
  const auto logits = at::randn({shape.tokens, shape.vocab}, at::TensorOptions(device).dtype(at::kFloat));
  const auto target = at::randint(shape.vocab, {shape.tokens}, at::TensorOptions(device).dtype(at::kLong));
  const Rows op = rows_of_op(target), aten = rows_of_aten(target);

  nlohmann::ordered_json row;
  for (const auto& [letter, size] : shape.sizes()) row[letter] = size;
  row["dtype"] = conditions.machine.dtype();
  const auto actual = op(logits.clone(), dtype), plain = aten(logits, dtype), truth = aten(logits.to(at::kDouble), at::kDouble);
  const auto alone = op(logits.clone(), {});
  row["max_err_ratio"] = require_accurate("cross_entropy", {{"loss", actual[0], plain[0], truth[0]},
                                                            {"loss without gradient", alone[0], plain[0], truth[0]},
                                                            {"gradient", actual[1], plain[1], truth[1]}});

  const auto work =
      op_work({cross_entropy_forward_work(shape)}, {cross_entropy_backward_work(shape, conditions.machine.element_bytes())},
              conditions.machine.ceilings);
  const auto passes_of = [&](const std::string& other, const Rows& rows, const at::Tensor& in) {
    return both_passes(
        other, [=] { rows(in, {}); }, [=] { rows(in, dtype); }, work);
  };
  // On a CPU the op writes the gradient over the logits.
  const auto text = time_passes(all_of({passes_of("", op, logits.clone()), passes_of("aten", aten, logits)}), conditions, row);
  return {.rows = nlohmann::ordered_json::array({row}), .text = text};
}

}  // namespace scatterlm::bench
