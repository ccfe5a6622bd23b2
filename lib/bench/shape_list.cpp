#include "lib/bench/shape_list.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <limits>

#include "lib/util/error.h"

namespace scatterlm::bench {
namespace {

int64_t parse_size(const std::string& text, const std::string& shape) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > std::numeric_limits<int32_t>::max())
    fail_user("--shapes: '{}' in '{}' must be a whole number from 1 to 2^31 - 1", text, shape);
  return value;
}

}  // namespace

std::string text_of(const Sizes& sizes) {
  std::vector<int64_t> values;
  for (const auto& size : sizes) values.push_back(size.second);
  return fmt::format("{}", fmt::join(values, ","));
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    const size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == text.npos) return parts;
    begin = end + 1;
  }
}

std::vector<int64_t> parse_sizes(const std::string& text, const std::string& letters, const std::vector<std::string>& names) {
  const auto parts = split(text, ',');
  if (parts.size() != split(letters, ',').size())
    fail_user("--shapes: '{}' is neither {} nor one of {}", text, letters, fmt::join(names, ", "));
  std::vector<int64_t> values;
  for (const auto& part : parts) values.push_back(parse_size(part, text));
  return values;
}

}  // namespace scatterlm::bench
