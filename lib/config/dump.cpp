#include <fmt/format.h>

#include <algorithm>

#include "lib/config/check.h"
#include "lib/config/load.h"
#include "lib/config/value_text.h"

namespace scatterlm {
namespace {

/// Visitor that writes one line per key, with the help as a comment.
class Dumper {
 public:
  explicit Dumper(std::vector<Ignored> ignored) : ignored_(std::move(ignored)) {}

  template <class T>
  void key(const char* name, const T& value, const char* help, const KeyTraits& = {}) {
    if (is_ignored(prefix_ + name)) return;
    text_ += fmt::format("{:<45} # {}\n", fmt::format("{:{}}{}: {}", "", indent_, name, value_text(value)), help);
  }

  template <class S>
  void group(const char* name, S& fields, OnResume = OnResume::kAsGroup) {
    if (is_ignored(prefix_ + name)) return;
    text_ += fmt::format("{:{}}{}:\n", "", indent_, name);
    const std::string outer = prefix_;
    prefix_ += std::string(name) + ".";
    indent_ += 2;
    fields.visit(*this);
    indent_ -= 2;
    prefix_ = outer;
  }

  const std::string& text() const { return text_; }

 private:
  bool is_ignored(const std::string& path) const {
    return std::any_of(ignored_.begin(), ignored_.end(), [&](const Ignored& ignored) { return ignored.covers(path); });
  }

  std::vector<Ignored> ignored_;
  std::string prefix_;
  int indent_ = 0;
  std::string text_;
};

}  // namespace

std::string dump_config(const Config& config) {
  Config copy = config;  // visit() is not const: readers use it too
  Dumper dumper(ignored_keys(config));
  copy.visit(dumper);
  return dumper.text();
}

}  // namespace scatterlm
