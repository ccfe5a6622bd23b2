#include "lib/config/keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "lib/config/key_aliases.h"
#include "lib/config/load.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }
std::string_view first_parts(std::string_view path) { return path.substr(0, path.size() - last_part(path).size()); }

std::string normalised(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// Edits from `name` to the last part of a key, or to what others call it.
int64_t distance_to_key(const std::string& name, std::string_view key) {
  int64_t best = edit_distance(name, key);
  for (const KeyAlias& spelling : kKeyAliases) {
    if (spelling.ours == key) best = std::min(best, edit_distance(name, spelling.other));
  }
  return best;
}

}  // namespace

const KeyInfo* find_key(const std::vector<KeyInfo>& keys, const std::string& path) {
  const auto found = std::find_if(keys.begin(), keys.end(), [&](const KeyInfo& key) { return key.path == path; });
  return found == keys.end() ? nullptr : &*found;
}

std::string explain_unknown(const std::vector<KeyInfo>& keys, const std::string& path) {
  constexpr size_t kLongestName = 64;  // keeps the distance cheap when the "name" is a page of text
  const std::string name = normalised(last_part(path));
  if (name.size() > kLongestName) return "";
  for (const Absent& absent : kAbsent) {
    if (absent.name == name) return fmt::format("; {}", absent.reason);
  }
  const KeyInfo* nearest = nullptr;
  int64_t best = 2 + std::ssize(name) / 4;  // farther is no likely meaning
  for (const KeyInfo& key : keys) {
    int64_t distance = distance_to_key(name, last_part(key.path));
    if (first_parts(key.path) != first_parts(path)) distance += distance == 0 ? 1 : 2;
    if (distance < best) {
      best = distance;
      nearest = &key;
    }
  }
  return nearest ? fmt::format(", did you mean '{}'?", nearest->path) : "";
}

std::string describe_keys() {
  std::string text;
  for (const KeyInfo& key : list_keys(Config())) {
    if (key.is_group) continue;
    text += fmt::format("{} = {}\n    {}\n    {}\n", key.path, key.value, key.expected, key.help);
    if (key.on_resume == OnResume::kRefuse)
      text += "    the same in all of a run: a checkpoint with another value is refused\n";
  }
  return text;
}

}  // namespace scatterlm
