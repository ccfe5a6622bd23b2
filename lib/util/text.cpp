#include "lib/util/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace scatterlm {
namespace {

constexpr std::string_view kSeparator = " | ";

struct Scaled {
  double value;
  size_t prefix;
};

/// Divides until three digits before the point are enough. 999.5 rounds to 1000: it belongs to the next prefix.
Scaled scale(double value, double base, size_t num_prefixes) {
  size_t prefix = 0;
  while (std::abs(value) >= (prefix == 0 ? base - 0.5 : 999.5) && prefix + 1 < num_prefixes) {
    value /= base;
    ++prefix;
  }
  return {value, prefix};
}

/// `{:.3g}` without its exponent form.
std::string three_digits(double value) {
  return std::abs(value) >= 999.5 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

std::string join(const std::vector<LineField>& fields) {
  std::string line;
  for (const LineField& field : fields) {
    if (!line.empty()) line += kSeparator;
    line += field.text;
  }
  return line;
}

}  // namespace

std::string format_duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e15)) return "?";
  if (seconds < 9.95) return fmt::format("{:.1f}s", seconds);
  const int64_t s = std::llround(seconds);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  if (s < 24 * 3600) return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
  return fmt::format("{}d{:02}h", s / (24 * 3600), s / 3600 % 24);
}

std::string format_count(double count) {
  static constexpr std::array kPrefixes = {"", "k", "M", "B", "T"};
  const Scaled scaled = scale(count, 1000, kPrefixes.size());
  return three_digits(scaled.value) + kPrefixes[scaled.prefix];
}

std::string format_bytes(double bytes) {
  static constexpr std::array kPrefixes = {" B", " KiB", " MiB", " GiB", " TiB"};
  const Scaled scaled = scale(bytes, 1024, kPrefixes.size());
  return three_digits(scaled.value) + kPrefixes[scaled.prefix];
}

std::string first_line(std::string_view text) { return std::string(text.substr(0, text.find('\n'))); }

int64_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int64_t diagonal = row[0];
    row[0] = static_cast<int64_t>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int64_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string fit_line(std::vector<LineField> fields, int64_t width) {
  std::string line = join(fields);
  while (std::ssize(line) > width) {
    const auto least = std::ranges::max_element(fields, {}, &LineField::rank);
    if (least == fields.end() || least->rank == 0) return line.substr(0, std::max<int64_t>(width, 0));
    std::erase_if(fields, [rank = least->rank](const LineField& field) { return field.rank == rank; });
    line = join(fields);
  }
  return line;
}

}  // namespace scatterlm
