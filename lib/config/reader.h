// Settings -> struct: the visitor that gives every key that was set its typed value.
#pragma once
#include <string>

#include "lib/config/settings.h"

namespace scatterlm {

/// These throw Error if the value of `setting` is not `expected(field, range)`.
void read_value(const Setting& setting, const Range& range, bool& field);
void read_value(const Setting& setting, const Range& range, int64_t& field);
void read_value(const Setting& setting, const Range& range, double& field);
void read_value(const Setting& setting, const Range& range, std::optional<double>& field);
void read_value(const Setting& setting, const Range& range, std::string& field);
void read_value(const Setting& setting, const Range& range, std::vector<double>& field);
void read_value(const Setting& setting, const Range& range, std::vector<std::string>& field);
void read_value(const Setting& setting, const Range& range, std::vector<BlendEntry>& field);
/// Index of the value in `names`.
int read_choice(const Setting& setting, const char* const* names, size_t count);
template <class E, class = std::enable_if_t<std::is_enum_v<E>>>
void read_value(const Setting& setting, const Range&, E& field) {
  field = static_cast<E>(read_choice(setting, EnumNames<E>::values, std::size(EnumNames<E>::values)));
}

class Reader {
 public:
  explicit Reader(const Settings& settings, std::string prefix = "") : settings_(settings), prefix_(std::move(prefix)) {}

  template <class T>
  void key(const char* name, T& field, const char*, const KeyTraits& traits = {}) {
    if (const Setting* setting = find_setting(settings_, prefix_ + name)) read_value(*setting, traits.range, field);
  }

  template <class S>
  void group(const char* name, S& fields, OnResume = OnResume::kAsGroup) {
    Reader inner(settings_, prefix_ + name + ".");
    fields.visit(inner);
  }

 private:
  const Settings& settings_;
  std::string prefix_;
};

}  // namespace scatterlm
