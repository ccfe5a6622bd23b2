#include "lib/bench/norms.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "lib/bench/accuracy.h"
#include "lib/bench/layers.h"
#include "lib/bench/passes.h"
#include "lib/ops/qk_norm_rope.h"
#include "lib/ops/rms_norm.h"
#include "lib/ops/rope.h"
#include "lib/util/error.h"

namespace scatterlm::bench {
namespace {

using torch::autograd::variable_list;

constexpr double kNormEps = 1e-5;

at::TensorOptions elements_on(const Machine& machine) {
  return at::TensorOptions(machine.device).dtype(machine.device.is_cuda() ? at::kBFloat16 : at::kFloat);
}

/// From leaves to outputs.
using Call = std::function<variable_list(const variable_list& leaves)>;

/// What is measured: inputs, gradients of the outputs, and several ways to compute the same.
struct NormCase {
  variable_list inputs, grads;
  Call op, plain;

  /// Outputs, then gradients of the inputs.
  variable_list run(const Call& call, at::ScalarType dtype) const {
    variable_list leaves, from;
    for (const auto& input : inputs) leaves.push_back(leaf(input.to(dtype)));
    for (const auto& grad : grads) from.push_back(grad.to(dtype));
    auto results = call(leaves);
    for (const auto& gradient : torch::autograd::grad(results, leaves, from)) results.push_back(gradient);
    for (auto& result : results) result = result.detach();
    return results;
  }

  double check(const std::string& name, const std::vector<std::string>& names) const {
    const auto dtype = inputs[0].scalar_type();
    const auto actual = run(op, dtype), same = run(plain, dtype), truth = run(plain, higher_precision(dtype));
    std::vector<Comparison> results;
    for (size_t i = 0; i < actual.size(); ++i) results.push_back({names[i], actual[i], same[i], truth[i]});
    return require_accurate(name, results);
  }

  std::vector<Pass> passes(const std::string& other, const Call& call, const OpWork& work) const {
    variable_list leaves;
    for (const auto& input : inputs) leaves.push_back(leaf(input));
    return both_passes(
        other, [=] { call(leaves); }, [=, grads = grads] { torch::autograd::grad(call(leaves), leaves, grads); }, work);
  }
};

/// The norm as LibTorch has it on a GPU, with the rounding of lib/ops/rms_norm.h on a CPU.
at::Tensor plain_norm(const at::Tensor& x, const at::Tensor& weight) {
  return at::rms_norm(x, weight.sizes(), weight, kNormEps);
}

NormShape parse_norm_shape(const std::string& text, const std::vector<std::string>& names) {
  const auto sizes = parse_sizes(text, "T,D", names);
  return {.tokens = sizes[0], .model = sizes[1]};
}

QkNormShape parse_qk_norm_shape(const std::string& text, const std::vector<std::string>& names) {
  const auto sizes = parse_sizes(text, "B,S,H,Hkv,P", names);
  if (sizes[2] % sizes[3] != 0) fail_user("--shapes: H of '{}' must be a multiple of Hkv", text);
  if (sizes[4] % 2 != 0) fail_user("--shapes: P of '{}' must be even", text);
  return {.batch = sizes[0], .sequence = sizes[1], .query_heads = sizes[2], .key_heads = sizes[3], .head_dim = sizes[4]};
}

/// Weights of queries and keys of one kind of norm, by its name in `model.attention.qk_norm`.
variable_list norm_weights(const std::string& norm, const QkNormShape& shape, const at::TensorOptions& options) {
  if (norm == "none") return {};
  const auto weight = [&](int64_t heads) {
    return at::randn({norm == "head" ? shape.head_dim : heads * shape.head_dim}, options).mul_(0.1).add_(1);
  };
  return {weight(shape.query_heads), weight(shape.key_heads)};
}

ops::QkNormRopeOptions options_of(const QkNormShape& shape, const variable_list& leaves) {
  ops::QkNormRopeOptions options{.query_heads = shape.query_heads, .key_heads = shape.key_heads, .eps = kNormEps};
  if (leaves.size() == 1) return options;
  options.query_weight = leaves[1];
  options.key_weight = leaves[2];
  return options;
}

variable_list plain_qk_norm_rope(const QkNormShape& shape, const variable_list& leaves, const at::Tensor& cos,
                                 const at::Tensor& sin) {
  const int64_t width = shape.head_dim, query = shape.query_heads * width, key = shape.key_heads * width;
  const auto parts = leaves[0].split_with_sizes({query, key, key}, -1);
  const auto tables = leaves[0].scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const auto rotated = [&](at::Tensor x, size_t weight) {
    const bool norm = leaves.size() > 1, full = norm && leaves[weight].size(0) == x.size(-1);
    if (full) x = plain_norm(x, leaves[weight]);
    x = x.unflatten(-1, {-1, width});
    if (norm && !full) x = plain_norm(x, leaves[weight]);
    return ops::ref::rope(x, cos.to(tables), sin.to(tables)).to(x.scalar_type());
  };
  return {rotated(parts[0], 1), rotated(parts[1], 2), parts[2].unflatten(-1, {-1, width})};
}

nlohmann::ordered_json norm_row(const Sizes& sizes, const Machine& machine) {
  nlohmann::ordered_json row;
  for (const auto& [letter, size] : sizes) row[letter] = size;
  row["dtype"] = machine.dtype();
  return row;
}

}  // namespace

std::vector<NormShape> parse_norm_shapes(std::string_view text) {
  const std::vector<NormShape> published = {{16384, 2048, "olmoe_1b_7b"}, {32768, 768, "dense_124m"}};
  return parse_list<NormShape>(text, {{"published", published}}, parse_norm_shape);
}

std::vector<QkNormShape> parse_qk_norm_shapes(std::string_view text) {
  const std::vector<QkNormShape> published = {{4, 4096, 16, 16, 128, "olmoe_1b_7b"}, {32, 1024, 12, 12, 64, "dense_124m"}};
  return parse_list<QkNormShape>(text, {{"published", published}}, parse_qk_norm_shape);
}

Work add_rms_norm_work(const NormShape& s, int64_t element_bytes) {
  return {.bytes = 4.0 * element_bytes * s.tokens * s.model};
}

Work qk_norm_rope_forward_work(const QkNormShape& s, int64_t element_bytes) {
  return {.bytes = 2.0 * element_bytes * s.tokens() * (s.query_heads + s.key_heads) * s.head_dim};
}

Work qk_norm_rope_backward_work(const QkNormShape& s, bool norm, int64_t element_bytes) {
  const double normed = norm ? (s.query_heads + s.key_heads) * s.head_dim : 0;
  return {.bytes = element_bytes * s.tokens() * (2.0 * s.row_width() + normed)};
}

Measured measure_rms_norm(const NormShape& shape, const Conditions& conditions) {
  const auto options = elements_on(conditions.machine);
  at::manual_seed(0);
  const auto rows = [&] { return at::randn({shape.tokens, shape.model}, options); };
  const NormCase bench{.inputs = {rows(), rows(), at::randn({shape.model}, options).mul_(0.1).add_(1)},
                       .grads = {rows(), rows()},
                       .op = [](const variable_list& x) -> variable_list {
                         const auto [sum, y] = ops::add_rms_norm(x[0], x[1], x[2], kNormEps);
                         return {sum, y};
                       },
                       .plain = [](const variable_list& x) -> variable_list {
                         const auto sum = x[0] + x[1];
                         return {sum, plain_norm(sum, x[2])};
                       }};
  auto row = norm_row(shape.sizes(), conditions.machine);
  row["max_err_ratio"] = bench.check("rms_norm", {"sum", "y", "dx", "dbranch", "dweight"});
  const auto kernel = add_rms_norm_work(shape, conditions.machine.element_bytes());
  const auto work = op_work({kernel}, {kernel}, conditions.machine.ceilings);
  const auto text =
      time_passes(all_of({bench.passes("", bench.op, work), bench.passes("aten", bench.plain, work)}), conditions, row);
  return {.rows = nlohmann::ordered_json::array({row}), .text = text};
}

Measured measure_qk_norm_rope(const QkNormShape& shape, const Conditions& conditions) {
  const auto options = elements_on(conditions.machine);
  const auto [cos, sin] = ops::rope_tables(shape.sequence, shape.head_dim, /*theta=*/10000, conditions.machine.device);
  Measured measured;
  for (const std::string norm : {"none", "head", "full"}) {
    at::manual_seed(0);
    const auto heads = [&](int64_t count) { return at::randn({shape.batch, shape.sequence, count, shape.head_dim}, options); };
    NormCase bench{.inputs = norm_weights(norm, shape, options),
                   .grads = {heads(shape.query_heads), heads(shape.key_heads), heads(shape.key_heads)}};
    bench.inputs.insert(bench.inputs.begin(), at::randn({shape.batch, shape.sequence, shape.row_width()}, options));
    const auto call_of = [&, cos = cos, sin = sin](auto op) {
      return [=](const variable_list& x) -> variable_list {
        const auto [q, k, v] = op(x[0], options_of(shape, x), cos, sin);
        return {q, k, v};
      };
    };
    bench.op = call_of(ops::qk_norm_rope);
    bench.plain = [=, cos = cos, sin = sin](const variable_list& x) { return plain_qk_norm_rope(shape, x, cos, sin); };
    auto row = norm_row(shape.sizes(), conditions.machine);
    row["norm"] = norm;
    row["max_err_ratio"] = bench.check("qk_norm_rope", {"q", "k", "v", "dqkv", "dq_weight", "dk_weight"});
    const int64_t bytes = conditions.machine.element_bytes();
    const auto work = op_work({qk_norm_rope_forward_work(shape, bytes)},
                              {qk_norm_rope_backward_work(shape, norm != "none", bytes)}, conditions.machine.ceilings);
    const auto text =
        time_passes(all_of({bench.passes("", bench.op, work), bench.passes("single", call_of(ops::ref::qk_norm_rope), work),
                            bench.passes("aten", bench.plain, work)}),
                    conditions, row);
    measured.rows.push_back(row);
    measured.text += fmt::format("norm: {}\n{}", norm, text);
  }
  return measured;
}

}  // namespace scatterlm::bench
