#include "lib/bench/moe_shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <limits>

#include "lib/util/error.h"

namespace scatterlm::bench {
namespace {

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == text.npos) return parts;
    begin = end + 1;
  }
}

std::string published_names() {
  std::vector<std::string> names;
  for (const auto& shape : published_shapes()) names.push_back(shape.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

int64_t parse_size(const std::string& text, const std::string& shape) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > std::numeric_limits<int32_t>::max())
    fail_user("--shapes: '{}' in '{}' must be a whole number from 1 to 2^31 - 1", text, shape);
  return value;
}

MoeShape parse_shape(const std::string& text) {
  for (const auto& shape : published_shapes()) {
    if (shape.name == text || shape.text() == text) return shape;
  }
  const auto parts = split(text, ',');
  if (parts.size() != 5) fail_user("--shapes: '{}' is neither T,D,F,E,K nor published nor one of {}", text, published_names());
  const auto size = [&](int i) { return parse_size(parts[i], text); };
  const MoeShape shape{.tokens = size(0), .model = size(1), .width = size(2), .experts = size(3), .top_k = size(4)};
  if (shape.top_k > shape.experts) fail_user("--shapes: K = {} in '{}' is more than E = {}", shape.top_k, text, shape.experts);
  if (shape.rows() > std::numeric_limits<int32_t>::max()) fail_user("--shapes: T*K of '{}' must be below 2^31", text);
  return shape;
}

}  // namespace

std::string MoeShape::text() const { return fmt::format("{},{},{},{},{}", tokens, model, width, experts, top_k); }

const std::vector<MoeShape>& published_shapes() {
  static const std::vector<MoeShape> shapes = {
      {40960, 768, 256, 128, 8, "1.4B-fine"},      {24576, 1536, 256, 128, 8, "7B-fine"},
      {24576, 1536, 512, 64, 4, "7B-mid"},         {24576, 1536, 1024, 32, 2, "7B-coarse"},
      {32768, 2048, 768, 128, 8, "qwen3-30B-A3B"}, {32768, 2048, 1024, 64, 8, "olmoe-7B"},
      {32768, 4096, 256, 256, 16, "30B-fine"},     {32768, 4096, 1024, 128, 8, "sonic-default"},
  };
  return shapes;
}

std::vector<MoeShape> parse_shapes(std::string_view text) {
  std::vector<MoeShape> shapes;
  for (const auto& part : split(text, ';')) {
    if (part == "published")
      shapes.insert(shapes.end(), published_shapes().begin(), published_shapes().end());
    else
      shapes.push_back(parse_shape(part));
  }
  return shapes;
}

void require_kernel_shape(const MoeShape& shape) {
  if (shape.model % 8 != 0 || shape.width % 8 != 0)
    fail_user("--shapes: D and F of '{}' must be multiples of 8 on a GPU", shape.text());
}

}  // namespace scatterlm::bench
