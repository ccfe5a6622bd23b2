#include "lib/util/control_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>

namespace scatterlm {
namespace {

struct ControlGroup {
  std::string folder;
  bool memory;  ///< or "pids"
  bool version_2;
};

/// Nothing for "max", which version 1 of control groups writes as a huge number, and without the file.
std::optional<double> number_in(const std::string& path) {
  double number = 0;
  return std::ifstream(path) >> number && number < 1e15 ? std::optional(number) : std::nullopt;
}

/// Bytes of the page cache, which count as used but give way.
double cache_of(const ControlGroup& group) {
  std::ifstream file(group.folder + "/memory.stat");
  const std::string prefix = group.version_2 ? "" : "total_";
  std::string key;
  double sum = 0, bytes = 0;
  while (file >> key >> bytes)
    if (key == prefix + "inactive_file" || key == prefix + "active_file") sum += bytes;
  return sum;
}

std::optional<double> limit_in(const ControlGroup& group) {
  const char* name = !group.memory ? "/pids.max" : group.version_2 ? "/memory.max" : "/memory.limit_in_bytes";
  return number_in(group.folder + name);
}

std::optional<double> room_in(const ControlGroup& group) {
  const auto limit = limit_in(group);
  if (!limit) return std::nullopt;
  const char* name = !group.memory ? "/pids.current" : group.version_2 ? "/memory.current" : "/memory.usage_in_bytes";
  const double used = number_in(group.folder + name).value_or(0) - (group.memory ? cache_of(group) : 0);
  return *limit - std::max(0.0, used);
}

/// The least number of this process's control group and those above it.
std::optional<double> least(const std::string& controller, const std::string& root,
                            const std::function<std::optional<double>(const ControlGroup&)>& number_of) {
  std::optional<double> least;
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/a/b" in version 2, "8:memory:/a/b" in version 1
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) continue;
    const auto controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    const bool version_2 = controllers == ",,";
    if (!version_2 && controllers.find(fmt::format(",{},", controller)) == controllers.npos) continue;
    const std::string mount = root + "/sys/fs/cgroup" + (version_2 ? "" : "/" + controller);
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      if (const auto number = number_of({mount + path, controller == "memory", version_2}))
        least = std::min(least.value_or(*number), *number);
      if (path.find('/') == path.npos) break;
    }
  }
  return least;
}

}  // namespace

std::optional<double> group_limit(const std::string& controller, const std::string& root) {
  return least(controller, root, limit_in);
}
std::optional<double> group_room(const std::string& controller, const std::string& root) {
  return least(controller, root, room_in);
}

}  // namespace scatterlm
