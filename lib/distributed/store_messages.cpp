#include "lib/distributed/store_messages.h"

#include <fmt/format.h>

#include <sstream>

#include "lib/util/escape.h"

namespace scatterlm {

std::string write_heartbeat(uint64_t number, const MachineProgress& progress) {
  return fmt::format("{} {} {} {:d}", number, progress.rank, progress.called, progress.in_storage);
}

std::optional<MachineProgress> read_heartbeat(const std::string& text) {
  std::istringstream in(text);
  uint64_t number = 0;
  MachineProgress progress;
  return in >> number >> progress.rank >> progress.called >> progress.in_storage ? std::optional(progress) : std::nullopt;
}

std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  std::istringstream one(a), other(b);
  std::string x, y;
  do {
    if (!std::getline(one, x)) x.clear();
    if (!std::getline(other, y)) y.clear();
  } while (x == y && (one || other));
  return {escape_control(x), escape_control(y)};
}

}  // namespace scatterlm
