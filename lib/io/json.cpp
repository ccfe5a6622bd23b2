#include "lib/io/json.h"

#include <limits>
#include <set>

#include "lib/util/error.h"

namespace scatterlm {

using nlohmann::json;

json parse_json(std::string_view text, const std::string& where) {
  constexpr int kMaxDepth = 64;             // a file of brackets only must not fill the memory
  std::vector<std::set<std::string>> keys;  // of the open objects
  const auto check = [&](int depth, json::parse_event_t event, json& value) {
    if (depth > kMaxDepth) fail_user("{}: JSON is nested deeper than {}", where, kMaxDepth);
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second) {
      fail_user("{}: key {} is given twice", where, quote(value.get<std::string>()));
    }
    return true;
  };
  // The parser takes a zero byte for the end of the text.
  if (const size_t zero = text.find('\0'); zero != text.npos) fail_user("{}: not valid JSON (byte {})", where, zero + 1);
  try {
    return json::parse(text, check);
  } catch (const json::parse_error& error) {
    fail_user("{}: not valid JSON (byte {})", where, error.byte);
  } catch (const json::exception&) {  // a number beyond double
    fail_user("{}: not valid JSON (a number is out of range)", where);
  }
}

const json& JsonFields::field(const char* key) const {
  const auto found = object.find(key);  // end() when it is no object
  if (found == object.end()) fail_user("{}: '{}' is missing", where, key);
  return *found;
}
const json& JsonFields::list(const char* key) const {
  if (!field(key).is_array()) fail_user("{}: '{}' is not a list", where, key);
  return field(key);
}
int64_t JsonFields::count(const char* key) const { return as_count(field(key), key); }
double JsonFields::number(const char* key) const { return as_number(field(key), key); }
std::string JsonFields::text(const char* key) const {
  if (!field(key).is_string()) fail_user("{}: '{}' is not a string", where, key);
  return field(key).get<std::string>();
}

int64_t JsonFields::as_count(const json& value, const char* key) const {
  constexpr uint64_t kMost = std::numeric_limits<int64_t>::max();
  const bool fits =
      value.is_number_unsigned() ? value.get<uint64_t>() <= kMost : value.is_number_integer() && value.get<int64_t>() >= 0;
  if (!fits) fail_user("{}: '{}' is not a count", where, key);
  return value.get<int64_t>();
}
double JsonFields::as_number(const json& value, const char* key) const {
  if (!value.is_number()) fail_user("{}: '{}' is not a number", where, key);
  return value.get<double>();
}

std::string quote(const std::string& name) { return json(name).dump(-1, ' ', true, json::error_handler_t::replace); }

}  // namespace scatterlm
