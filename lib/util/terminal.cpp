#include "lib/util/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

namespace scatterlm {

std::optional<int64_t> terminal_width(int fd) {
  if (!isatty(fd)) return std::nullopt;
  winsize size{};
  const bool known = ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

bool wants_colour(int fd) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  const bool refused = (no_color && *no_color) || (term && std::string_view(term) == "dumb");
  return isatty(fd) && !refused;
}

}  // namespace scatterlm
