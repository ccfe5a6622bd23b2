#include "lib/config/value_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lib/util/escape.h"

namespace scatterlm {
namespace {

template <class T>
std::string list_text(const std::vector<T>& values) {
  std::vector<std::string> texts;
  for (const T& value : values) texts.push_back(value_text(value));
  return fmt::format("[{}]", fmt::join(texts, ", "));
}

}  // namespace

std::string value_text(bool value) { return value ? "true" : "false"; }
std::string value_text(int64_t value) { return std::to_string(value); }

std::string value_text(double value) {
  std::string text = fmt::format("{}", value);
  const size_t exponent = text.find('e');
  // YAML 1.1 readers, PyYAML among them, take 1e-05 for text: their numbers with an exponent have a point.
  if (exponent != text.npos && text.find('.') == text.npos) text.insert(exponent, ".0");
  return text;
}
std::string value_text(std::optional<double> value) { return value ? value_text(*value) : "auto"; }

std::string value_text(const std::string& value) {
  std::string text = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') text += '\\';
    text += escape_control({&c, 1});
  }
  return text + '"';
}

std::string value_text(const BlendEntry& entry) {
  if (entry.weight == 1) return value_text(entry.path);
  return fmt::format("{{path: {}, weight: {}}}", value_text(entry.path), value_text(entry.weight));
}

std::string value_text(const std::vector<double>& value) { return list_text(value); }
std::string value_text(const std::vector<std::string>& value) { return list_text(value); }

std::string value_text(const std::vector<BlendEntry>& value) {
  const bool one_path = value.size() == 1 && value.front().weight == 1;
  return one_path ? value_text(value.front()) : list_text(value);
}

std::string expected(bool, const Range&) { return "true or false"; }
std::string expected(int64_t, const Range& range) { return fmt::format("an integer from {} to {}", range.low, range.high); }
std::string expected(double, const Range& range) { return fmt::format("a number from {} to {}", range.low, range.high); }
std::string expected(std::optional<double>, const Range& range) { return "auto or " + expected(double{}, range); }
std::string expected(const std::string&, const Range&) { return "text"; }
std::string expected(const std::vector<double>&, const Range& range) {
  return fmt::format("a list of numbers from {} to {}", range.low, range.high);
}
std::string expected(const std::vector<std::string>&, const Range&) { return "a path or a list of paths"; }
std::string expected(const std::vector<BlendEntry>&, const Range&) {
  return "a path, a list of paths, or a list of {path, weight}";
}
std::string expected_choice(const char* const* names, size_t count) {
  return fmt::format("one of {}", fmt::join(names, names + count, ", "));
}

std::string one_line(std::string_view text) {
  constexpr size_t kLongest = 80;
  std::string line;
  for (const char c : text) {
    const bool continues_utf8 = (c & 0xc0) == 0x80;
    if (line.size() >= kLongest && !continues_utf8) return line + "...";
    line += escape_control({&c, 1});
  }
  return line;
}

}  // namespace scatterlm
