// The keys as data: what exists, and what a wrong name was probably meant to be.
#pragma once
#include <string>
#include <vector>

#include "lib/config/value_text.h"

namespace scatterlm {

struct KeyInfo {
  std::string path;      ///< "model.moe.num_experts"
  std::string value;     ///< as YAML
  std::string expected;  ///< "an integer from 1 to 4096"
  std::string help;
  OnResume on_resume = OnResume::kWarn;
  bool is_group = false;  ///< a nested struct; only `path` is set
};

/// Visitor that lists the keys and groups of a struct in visit order.
class KeyLister {
 public:
  explicit KeyLister(std::string prefix = "") : prefix_(std::move(prefix)) {}

  template <class T>
  void key(const char* name, const T& value, const char* help, const KeyTraits& traits = {}) {
    keys_.push_back({.path = prefix_ + name,
                     .value = value_text(value),
                     .expected = expected(value, traits.range),
                     .help = help,
                     .on_resume = resolved(traits.on_resume)});
  }

  template <class S>
  void group(const char* name, S& fields, OnResume on_resume = OnResume::kAsGroup) {
    keys_.push_back({.path = prefix_ + name, .is_group = true});
    const std::string outer = prefix_;
    const OnResume outer_on_resume = on_resume_;
    prefix_ += std::string(name) + ".";
    on_resume_ = resolved(on_resume);
    fields.visit(*this);
    prefix_ = outer;
    on_resume_ = outer_on_resume;
  }

  const std::vector<KeyInfo>& keys() const { return keys_; }

 private:
  OnResume resolved(OnResume own) const { return own == OnResume::kAsGroup ? on_resume_ : own; }

  std::string prefix_;
  OnResume on_resume_ = OnResume::kWarn;  ///< of the group that is being visited
  std::vector<KeyInfo> keys_;
};

/// Keys of a struct as if it stood at `prefix` ("" or "a.b.").
template <class S>
std::vector<KeyInfo> list_keys(S fields, const std::string& prefix = "") {
  KeyLister lister(prefix);
  fields.visit(lister);
  return lister.keys();
}

/// nullptr if there is no key or group `path`.
const KeyInfo* find_key(const std::vector<KeyInfo>& keys, const std::string& path);

/// What to say after "unknown key 'path'": the nearest name, the reason why there is no such key, or nothing.
std::string explain_unknown(const std::vector<KeyInfo>& keys, const std::string& path);

}  // namespace scatterlm
