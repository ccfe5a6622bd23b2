#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace scatterlm {

/// Strict JSON: a key given twice, nesting deeper than 64 and text after the value are errors too.
/// Throws Error "WHERE: not valid JSON (byte N)" or "WHERE: key "x" is given twice".
nlohmann::json parse_json(std::string_view text, const std::string& where);

/// The fields of an object of unknown origin. A field that is missing or of another type throws Error "WHERE: 'key' is ...".
struct JsonFields {
  const nlohmann::json& object;
  std::string where;

  const nlohmann::json& field(const char* key) const;
  const nlohmann::json& list(const char* key) const;
  int64_t count(const char* key) const;  ///< an integer from 0 to 2^63 - 1
  double number(const char* key) const;
  std::string text(const char* key) const;

  int64_t as_count(const nlohmann::json& value, const char* key) const;
  double as_number(const nlohmann::json& value, const char* key) const;
};

/// A name of unknown origin, quoted and escaped, for one line of a message.
std::string quote(const std::string& name);

}  // namespace scatterlm
