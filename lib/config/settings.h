// What the user wrote: key paths with their YAML values and where each one stands. No types and no meaning yet.
#pragma once
#include <yaml-cpp/yaml.h>

#include <map>
#include <string>
#include <vector>

#include "lib/config/keys.h"

namespace scatterlm {

/// The file (places are "name:line") or one --set option (the place is the option itself).
struct Source {
  std::string name;
  int set_number = 0;  ///< 1, 2, ... for --set options, 0 for the file

  std::string place(const YAML::Mark& mark) const;
};

/// One key or list element that was given.
struct Setting {
  std::string path;
  Source source;
  YAML::Mark mark;  ///< of the key or element
  YAML::Node value;

  std::string place() const { return source.place(mark); }
  bool is_option() const { return source.set_number > 0; }
  /// By `--set KEY=null`: the key has its default again.
  bool is_taken_back() const { return is_option() && value.IsNull(); }
  bool is_after(const Setting& other) const {
    return std::pair(source.set_number, mark.pos) > std::pair(other.source.set_number, other.mark.pos);
  }
};

using Settings = std::map<std::string, Setting>;  // by path

/// The setting that gives `path` its value; null if none does.
const Setting* find_setting(const Settings& settings, const std::string& path);

/// Keys of `text`, then of each "a.b=c" of `sets`; later wins and `a.b=null` takes a key or group back. Throws Error for YAML
/// that cannot be read, unknown keys and keys given twice.
Settings read_settings(const std::string& text, const std::string& origin, const std::vector<std::string>& sets);

/// The entries of one map as settings below `prefix`, which ends in a dot unless it is empty. `keys` are the allowed ones.
void flatten(const YAML::Node& map, const std::string& prefix, const Source& source, const std::vector<KeyInfo>& keys,
             Settings& settings);

/// "'x'", "the text 'x'" (it was quoted), "a list", "a map" or "no value".
std::string describe_node(const YAML::Node& node);

}  // namespace scatterlm
