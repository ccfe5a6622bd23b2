#include "lib/bench/moa_shape.h"

#include <limits>

#include "lib/util/error.h"

namespace scatterlm::bench {
namespace {

MoaShape parse_moa_shape(const std::string& text, const std::vector<std::string>& names) {
  const auto sizes = parse_sizes(text, "B,S,D,E,K,heads", names);
  const MoaShape shape{
      .batch = sizes[0], .sequence = sizes[1], .model = sizes[2], .experts = sizes[3], .top_k = sizes[4], .heads = sizes[5]};
  if (shape.top_k > shape.experts) fail_user("--shapes: K = {} in '{}' is more than E = {}", shape.top_k, text, shape.experts);
  if (double(shape.batch) * shape.sequence * shape.top_k > std::numeric_limits<int32_t>::max())
    fail_user("--shapes: B*S*K of '{}' must be below 2^31", text);
  if (shape.model % 8 != 0) fail_user("--shapes: D of '{}' must be a multiple of 8: the kernels take no other", text);
  return shape;
}

/// Pairs of a query and a key that it sees, times the width of all heads, times 2 FLOPs: one of attention's products.
double attention_product(const MoaShape& s) { return double(s.batch) * s.sequence * s.sequence * s.top_k * s.width(); }

LinearShape query_of(const MoaShape& shape) {
  return {.tokens = shape.tokens(),
          .rows = shape.rows(),
          .experts = shape.experts,
          .in = shape.model,
          .out = shape.width(),
          .shared = true};
}

LinearShape output_of(const MoaShape& shape) {
  return {.tokens = shape.tokens(),
          .rows = shape.rows(),
          .experts = shape.experts,
          .in = shape.width(),
          .out = shape.model,
          .gated = true};
}

std::vector<Work> joined(std::vector<Work> works, const std::vector<Work>& more) {
  works.insert(works.end(), more.begin(), more.end());
  return works;
}

}  // namespace

std::vector<MoaShape> parse_moa_shapes(std::string_view text) {
  const std::vector<MoaShape> published = {{8, 4096, 2048, 8, 2, 16, "jetmoe"},
                                           {16, 2048, 4096, 8, 1, 32, "moa-k1"},
                                           {16, 2048, 4096, 16, 2, 16, "moa-k2"},
                                           {16, 2048, 4096, 32, 4, 8, "moa-k4"},
                                           {16, 2048, 4096, 64, 8, 4, "moa-k8"}};
  return parse_list<MoaShape>(text, {{"published", published}}, parse_moa_shape);
}

std::vector<Work> forward_work(const LinearShape& s, int64_t element_bytes) {
  const double e = element_bytes, flops = 2.0 * s.rows * s.in * s.out, weight = double(s.experts) * s.in * s.out,
               in = double(s.shared ? s.tokens : s.rows) * s.in, y = double(s.rows) * s.out;
  std::vector<Work> kernels = {{.flops = flops, .bytes = e * (in + weight + y)}};
  if (s.gated) kernels.push_back({.bytes = e * (y + double(s.tokens) * s.out)});
  return kernels;
}

std::vector<Work> backward_work(const LinearShape& s, int64_t element_bytes) {
  const double e = element_bytes, flops = 2.0 * s.rows * s.in * s.out, weight = double(s.experts) * s.in * s.out,
               in = double(s.shared ? s.tokens : s.rows) * s.in, dout = double(s.gated ? s.tokens : s.rows) * s.out,
               dx = double(s.rows) * s.in;
  // With gates the rows of the input are read in addition to their gradient, and written times their gates for that of the
  // weights.
  std::vector<Work> kernels = {{.flops = flops, .bytes = e * (dout + weight + (s.gated ? 3 : 1) * dx)},
                               {.flops = flops, .bytes = e * (dout + (s.gated ? dx : in) + weight)}};
  if (s.shared && s.rows != s.tokens) kernels.push_back({.bytes = e * (dx + in)});
  return kernels;
}

std::vector<Work> forward_work(const MoaShape& shape, int64_t element_bytes) {
  return joined(forward_work(query_of(shape), element_bytes), forward_work(output_of(shape), element_bytes));
}

std::vector<Work> backward_work(const MoaShape& shape, int64_t element_bytes) {
  return joined(backward_work(output_of(shape), element_bytes), backward_work(query_of(shape), element_bytes));
}

Work attention_forward_work(const MoaShape& s, int64_t element_bytes) {
  const double queries = double(s.rows()) * s.width(), keys = double(s.tokens()) * s.width();
  return {.flops = 2 * attention_product(s), .bytes = element_bytes * (2 * queries + 2 * keys)};
}

Work attention_backward_work(const MoaShape& s, int64_t element_bytes) {
  const double queries = double(s.rows()) * s.width(), keys = double(s.tokens()) * s.width();
  return {.flops = 4 * attention_product(s), .bytes = element_bytes * (4 * queries + 4 * keys)};
}

}  // namespace scatterlm::bench
