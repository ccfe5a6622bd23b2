// Numbers and lines as people read them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace scatterlm {

/// "4.2s", "45s", "3m12s", "1h02m", "2d03h"; "?" where it is not a finite time.
std::string format_duration(double seconds);

/// Three significant digits and a decimal prefix: "950", "22.5k", "2.5M", "1.24B" (10^9), "3T".
std::string format_count(double count);

/// Three significant digits and a binary prefix: "950 B", "16.2 KiB", "37 MiB", "1.5 GiB".
std::string format_bytes(double bytes);

/// The text up to its first line break.
std::string first_line(std::string_view text);

/// Insertions, deletions and substitutions that turn a into b.
int64_t edit_distance(std::string_view a, std::string_view b);

/// One field of a line; the fields of the highest rank go first when room is short, rank 0 stays.
struct LineField {
  std::string text;
  int rank = 0;
};

/// The fields joined by " | ", in their order. Without the least important ones where they need more than `width`
/// columns, and cut off where even rank 0 does not fit.
std::string fit_line(std::vector<LineField> fields, int64_t width);

}  // namespace scatterlm
