// Control groups of Linux, versions 1 and 2: what a container, a batch system or systemd lets a process have.
#pragma once
#include <optional>
#include <string>

namespace scatterlm {

/// The least limit of "memory" (bytes) or "pids" among this process's control group and those above it; nothing without one.
/// `root` comes before /proc and /sys.
std::optional<double> group_limit(const std::string& controller, const std::string& root = "");

/// The least that they leave of it: the limit less what is used, where page cache, which gives way, does not count.
std::optional<double> group_room(const std::string& controller, const std::string& root = "");

}  // namespace scatterlm
