// What a file descriptor can show.
#pragma once
#include <cstdint>
#include <optional>

namespace scatterlm {

/// Columns of the terminal behind fd, queried on every call because windows are resized; none where fd is no terminal.
std::optional<int64_t> terminal_width(int fd);

/// Colours are for terminals whose user did not refuse them (no-color.org: NO_COLOR is set and not empty; TERM=dumb).
bool wants_colour(int fd);

}  // namespace scatterlm
