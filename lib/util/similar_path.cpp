#include "lib/util/similar_path.h"

#include <fmt/format.h>

#include <filesystem>

#include "lib/util/text.h"

namespace scatterlm {
namespace {

namespace fs = std::filesystem;

/// The entry of `folder` whose name is nearest to `name`, in bytewise order where several are; empty if none is near.
std::string nearest_entry(const fs::path& folder, const std::string& name) {
  std::string nearest;
  int64_t best = 1 + std::ssize(name) / 5;  // farther is no likely meaning
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder.empty() ? "." : folder, error)) {
    const std::string other = entry.path().filename();
    const int64_t distance = other.starts_with(name + ".") ? 1 : edit_distance(name, other);
    if (distance > best || (distance == best && !nearest.empty() && other > nearest)) continue;
    best = distance;
    nearest = other;
  }
  return nearest;
}

}  // namespace

std::string explain_missing_path(const std::string& path) {
  std::error_code error;
  fs::path found;
  for (const auto& part : fs::path(path)) {
    if (part.empty() || fs::exists(found / part, error)) {
      found /= part;
      continue;
    }
    const auto nearest = nearest_entry(found, part);
    if (nearest.empty()) return "";
    found /= nearest;
  }
  return found == path ? "" : fmt::format(", did you mean '{}'?", found.string());
}

}  // namespace scatterlm
