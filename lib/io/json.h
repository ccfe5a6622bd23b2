#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace scatterlm {

/// Strict JSON: a key given twice, nesting deeper than 64 and text after the value are errors too.
/// Throws Error "WHERE: not valid JSON (byte N)" or "WHERE: key "x" is given twice".
nlohmann::json parse_json(std::string_view text, const std::string& where);

/// A name of unknown origin, quoted and escaped, for one line of a message.
std::string quote(const std::string& name);

}  // namespace scatterlm
