// What is printed, where it cannot be printed: the reader of a pipe is gone, or the disk is full.
#pragma once
#include <cstdio>
#include <string_view>

namespace scatterlm {

/// For work whose results are elsewhere. Prints and flushes; the first time that fails, a warning says so, and the work goes
/// on.
void print_or_warn(std::FILE* to, std::string_view text);

/// For commands whose result is what they print. Throws Error (exit code 1) unless all that was printed to stdout is written.
void require_printed();

}  // namespace scatterlm
