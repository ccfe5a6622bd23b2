// Values as YAML (flow style, one line) and what a key allows, in words. One spelling for dump, help and errors.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "lib/config/config.h"

namespace scatterlm {

std::string value_text(bool value);
std::string value_text(int64_t value);
std::string value_text(double value);  ///< "0.1", "1.0e-05": shortest text that YAML 1.1 and 1.2 read back to the same number
std::string value_text(std::optional<double> value);  ///< none is "auto"
std::string value_text(const std::string& value);
std::string value_text(const std::vector<double>& value);
std::string value_text(const std::vector<std::string>& value);
std::string value_text(const BlendEntry& value);  ///< a bare path where the weight is 1
std::string value_text(const std::vector<BlendEntry>& value);
template <class E, class = std::enable_if_t<std::is_enum_v<E>>>
std::string value_text(E value) {
  return enum_name(value);
}

/// Completes "must be ..."; the first argument only selects the type.
std::string expected(bool, const Range&);
std::string expected(int64_t, const Range& range);
std::string expected(double, const Range& range);
std::string expected(std::optional<double>, const Range& range);
std::string expected(const std::string&, const Range&);
std::string expected(const std::vector<double>&, const Range& range);
std::string expected(const std::vector<std::string>&, const Range&);
std::string expected(const std::vector<BlendEntry>&, const Range&);
std::string expected_choice(const char* const* names, size_t count);
template <class E, class = std::enable_if_t<std::is_enum_v<E>>>
std::string expected(E, const Range&) {
  return expected_choice(EnumNames<E>::values, std::size(EnumNames<E>::values));
}

/// Text from outside, fit for one line of a message: control characters escaped, long text cut.
std::string one_line(std::string_view text);

}  // namespace scatterlm
