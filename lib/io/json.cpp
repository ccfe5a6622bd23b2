#include "lib/io/json.h"

#include <limits>
#include <utility>
#include <vector>

#include "lib/util/error.h"

namespace scatterlm {

using nlohmann::json;

namespace {

/// Builds the value of a text, and stops at what nlohmann's own parser would accept.
class StrictBuilder : public nlohmann::json_sax<json> {
 public:
  explicit StrictBuilder(const std::string& where) : where_(where) {}
  json& value() { return value_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(json::binary_t& value) override { return add(std::move(value)); }
  bool start_object(size_t) override { return open(json::object()); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(std::string& key) override {
    const auto [place, is_new] = open_.back()->get_ref<json::object_t&>().try_emplace(std::move(key));  // moves a new one only
    if (!is_new) fail_user("{}: key {} is given twice", where_, quote(place->first));
    member_ = &place->second;
    return true;
  }
  bool parse_error(size_t byte, const std::string&, const json::exception& error) override {
    if (dynamic_cast<const json::parse_error*>(&error)) fail_user("{}: not valid JSON (byte {})", where_, byte);
    fail_user("{}: not valid JSON (a number is out of range)", where_);
  }

 private:
  json* place(json value) {
    if (open_.empty()) {
      value_ = std::move(value);
      return &value_;
    }
    if (!open_.back()->is_array()) {
      *member_ = std::move(value);
      return member_;
    }
    return &open_.back()->get_ref<json::array_t&>().emplace_back(std::move(value));
  }
  bool add(json value) {
    place(std::move(value));
    return true;
  }
  bool open(json value) {
    constexpr size_t kMostDepth = 64;  // a file of brackets only must not fill the memory
    if (open_.size() == kMostDepth) fail_user("{}: JSON is nested deeper than {}", where_, kMostDepth);
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  const std::string& where_;
  json value_;
  std::vector<json*> open_;  ///< objects and arrays whose end has not come, from the outermost
  json* member_ = nullptr;   ///< of the innermost object, for the value that comes next
};

}  // namespace

json parse_json(std::string_view text, const std::string& where) {
  // The parser takes a zero byte for the end of the text.
  if (const size_t zero = text.find('\0'); zero != text.npos) fail_user("{}: not valid JSON (byte {})", where, zero + 1);
  StrictBuilder builder(where);
  json::sax_parse(text, &builder);
  return std::move(builder.value());
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
