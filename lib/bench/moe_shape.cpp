#include "lib/bench/moe_shape.h"

#include <limits>

#include "lib/util/error.h"

namespace scatterlm::bench {
namespace {

MoeShape parse_moe_shape(const std::string& text, const std::vector<std::string>& names) {
  const auto sizes = parse_sizes(text, "T,D,F,E,K", names);
  const MoeShape shape{.tokens = sizes[0], .model = sizes[1], .width = sizes[2], .experts = sizes[3], .top_k = sizes[4]};
  if (shape.top_k > shape.experts) fail_user("--shapes: K = {} in '{}' is more than E = {}", shape.top_k, text, shape.experts);
  if (shape.rows() > std::numeric_limits<int32_t>::max()) fail_user("--shapes: T*K of '{}' must be below 2^31", text);
  if (shape.model % 8 != 0 || shape.width % 8 != 0)
    fail_user("--shapes: D and F of '{}' must be multiples of 8: the kernels take no others", text);
  return shape;
}

/// Ever more, ever narrower experts: what a token uses stays 8192 wide.
std::vector<MoeShape> granularity() {
  std::vector<MoeShape> shapes;
  for (const int64_t k : {1, 2, 4, 8, 16})
    shapes.push_back(
        {.tokens = 16384, .model = 4096, .width = 8192 / k, .experts = 8 * k, .top_k = k, .beside_all_dense = true});
  return shapes;
}

/// Ever more of 64 experts.
std::vector<MoeShape> sparsity() {
  std::vector<MoeShape> shapes;
  for (const int64_t k : {1, 2, 4, 8, 16, 32})
    shapes.push_back({.tokens = 16384, .model = 4096, .width = 1024, .experts = 64, .top_k = k, .beside_all_dense = true});
  return shapes;
}

/// Few rows per expert: where rounding to tiles saves most (Guo et al., arXiv 2512.14080, section 6.3).
std::vector<MoeShape> rounding() {
  return {{.tokens = 16384, .model = 1536, .width = 1024, .experts = 128, .top_k = 2},
          {.tokens = 16384, .model = 4096, .width = 1024, .experts = 256, .top_k = 4}};
}

std::vector<MoeShape> inference() {
  std::vector<MoeShape> shapes;
  for (const int64_t tokens : {1, 16, 128, 512})
    shapes.push_back({.tokens = tokens, .model = 2048, .width = 1024, .experts = 64, .top_k = 8});  // OLMoE-1B-7B
  for (const int64_t tokens : {1, 16, 128, 512})
    shapes.push_back({.tokens = tokens, .model = 4096, .width = 14336, .experts = 8, .top_k = 2});  // Mixtral 8x7B
  return shapes;
}

}  // namespace

const std::vector<MoeShape>& published_shapes() {
  static const std::vector<MoeShape> shapes = {
      {40960, 768, 256, 128, 8, "1.4B-fine"},      {24576, 1536, 256, 128, 8, "7B-fine"},
      {24576, 1536, 512, 64, 4, "7B-mid"},         {24576, 1536, 1024, 32, 2, "7B-coarse"},
      {32768, 2048, 768, 128, 8, "qwen3-30B-A3B"}, {32768, 2048, 1024, 64, 8, "olmoe-7B"},
      {32768, 4096, 256, 256, 16, "30B-fine"},     {32768, 4096, 1024, 128, 8, "sonic-default"},
  };
  return shapes;
}

std::vector<MoeShape> parse_moe_shapes(std::string_view text) {
  return parse_list<MoeShape>(text,
                              {{"published", published_shapes()},
                               {"granularity", granularity()},
                               {"sparsity", sparsity()},
                               {"rounding", rounding()},
                               {"inference", inference()}},
                              parse_moe_shape);
}

}  // namespace scatterlm::bench
