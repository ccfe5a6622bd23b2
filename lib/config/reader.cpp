#include "lib/config/reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "lib/util/error.h"

namespace scatterlm {
namespace {

[[noreturn]] void fail_expected(const Setting& setting, const std::string& what) {
  fail_user("{}: key '{}': got {}, must be {}", setting.place(), setting.path, describe_node(setting.value), what);
}

/// Text of a scalar without quotes and tags; numbers and bools have no others.
std::optional<std::string> plain_text(const YAML::Node& node) {
  if (!node.IsScalar() || node.Tag() != "?") return std::nullopt;
  return node.Scalar();
}

template <class T, class... Format>
std::optional<T> parse_whole(std::string_view text, Format... format) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, format...);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// from_chars knows no plus sign.
std::string_view without_plus(std::string_view text) {
  return text.starts_with('+') && !text.starts_with("+-") ? text.substr(1) : text;
}

/// A float of YAML's core schema, without .inf and .nan, which no key allows.
std::optional<double> parse_double(std::string_view text) {
  const bool only_digits = text.find_first_not_of("+-.0123456789eE") == text.npos;  // from_chars takes "inf" and "nan"
  return only_digits ? parse_whole<double>(without_plus(text)) : std::nullopt;
}

/// An integer of the core schema (decimal, 0x, 0o), or a float with an integral value: 1e6.
std::optional<int64_t> parse_int(std::string_view text) {
  const int base = text.starts_with("0x") ? 16 : text.starts_with("0o") ? 8 : 10;
  if (base != 10) return text.find('-') == text.npos ? parse_whole<int64_t>(text.substr(2), base) : std::nullopt;
  if (const auto value = parse_whole<int64_t>(without_plus(text))) return value;
  const auto value = parse_double(text);
  constexpr double kInt64End = 9223372036854775808.0;
  if (!value || *value != std::trunc(*value) || std::abs(*value) >= kInt64End) return std::nullopt;
  return static_cast<int64_t>(*value);
}

template <class T>
T require_number(const Setting& setting, const Range& range, std::optional<T> (*parse)(std::string_view)) {
  const auto text = plain_text(setting.value);
  const auto value = text ? parse(*text) : std::nullopt;
  if (!value || !(*value >= range.low && *value <= range.high)) fail_expected(setting, expected(T{}, range));
  return *value;
}

/// Element `i` of a list, as a setting of its own.
Setting element(const Setting& list, size_t i) {
  const YAML::Node value = list.value[i];
  return {.path = fmt::format("{}[{}]", list.path, i), .source = list.source, .mark = value.Mark(), .value = value};
}

BlendEntry read_blend_entry(const Setting& setting) {
  BlendEntry blend;
  if (setting.value.IsMap()) {
    const std::string prefix = setting.path + ".";
    Settings settings;
    flatten(setting.value, prefix, setting.source, list_keys(BlendEntry(), prefix), settings);
    Reader reader(settings, prefix);
    blend.visit(reader);
  } else if (setting.value.IsScalar()) {
    read_value(setting, {}, blend.path);
  } else {
    fail_expected(setting, "a path or {path, weight}");
  }
  return blend;
}

}  // namespace

void read_value(const Setting& setting, const Range& range, bool& field) {
  const std::string text = plain_text(setting.value).value_or("");
  field = text == "true" || text == "True" || text == "TRUE";
  if (!field && text != "false" && text != "False" && text != "FALSE") fail_expected(setting, expected(field, range));
}

void read_value(const Setting& setting, const Range& range, int64_t& field) {
  field = require_number<int64_t>(setting, range, parse_int);
}

void read_value(const Setting& setting, const Range& range, double& field) {
  field = require_number<double>(setting, range, parse_double);
}

void read_value(const Setting& setting, const Range& range, std::optional<double>& field) {
  const auto text = plain_text(setting.value);
  field = text == "auto" ? std::nullopt : text ? parse_double(*text) : std::nullopt;
  if (field ? *field < range.low || *field > range.high : text != "auto") fail_expected(setting, expected(field, range));
}

void read_value(const Setting& setting, const Range& range, std::string& field) {
  if (!setting.value.IsScalar()) fail_expected(setting, expected(field, range));
  field = setting.value.Scalar();
  // As a path it would name another file.
  if (field.find('\0') != field.npos) fail_expected(setting, "text without a zero byte");
}

void read_value(const Setting& setting, const Range& range, std::vector<double>& field) {
  if (!setting.value.IsSequence()) fail_expected(setting, expected(field, range));
  field.assign(setting.value.size(), 0);
  for (size_t i = 0; i < field.size(); ++i) read_value(element(setting, i), range, field[i]);
}

void read_value(const Setting& setting, const Range& range, std::vector<std::string>& field) {
  const bool is_list = setting.value.IsSequence();
  if (!is_list && !setting.value.IsScalar()) fail_expected(setting, expected(field, range));
  field.assign(is_list ? setting.value.size() : 1, "");
  for (size_t i = 0; i < field.size(); ++i) read_value(is_list ? element(setting, i) : setting, range, field[i]);
}

void read_value(const Setting& setting, const Range& range, std::vector<BlendEntry>& field) {
  field.clear();
  if (setting.value.IsScalar()) {
    field.push_back(read_blend_entry(setting));
  } else if (setting.value.IsSequence()) {
    for (size_t i = 0; i < setting.value.size(); ++i) field.push_back(read_blend_entry(element(setting, i)));
  } else {
    fail_expected(setting, expected(field, range));
  }
}

int read_choice(const Setting& setting, const char* const* names, size_t count) {
  const std::string text = setting.value.IsScalar() ? setting.value.Scalar() : "";
  const char* const* found = std::find(names, names + count, text);
  if (found == names + count) fail_expected(setting, expected_choice(names, count));
  return static_cast<int>(found - names);
}

}  // namespace scatterlm
