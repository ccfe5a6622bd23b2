#include "lib/data/fingerprint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lib/config/value_text.h"

namespace scatterlm {
namespace {

/// Whether two files give the same samples: names do not count.
bool same_samples(const FileFingerprint& a, const FileFingerprint& b) {
  return a.source == b.source && a.tokens == b.tokens && a.xxh3 == b.xxh3;
}

/// Files of `a` that `b` lacks, as text. Each file of `b` stands for one of `a`.
std::string missing_in(std::vector<FileFingerprint> b, const std::vector<FileFingerprint>& a) {
  constexpr size_t kShown = 3;
  std::vector<std::string> shown;
  size_t count = 0;
  for (const FileFingerprint& file : a) {
    const auto found = std::ranges::find_if(b, [&](const auto& other) { return same_samples(file, other); });
    if (found != b.end()) {
      b.erase(found);
    } else if (++count <= kShown) {
      shown.push_back(fmt::format("{} of entry {}", describe(file), file.source));
    }
  }
  const std::string rest = count > kShown ? fmt::format(" and {} more", count - kShown) : "";
  return fmt::format("{}{}", fmt::join(shown, ", "), rest);
}

}  // namespace

std::string describe(const FileFingerprint& file) {
  return fmt::format("{} ({} tokens, hash {})", one_line(file.name), file.tokens, one_line(file.xxh3));
}

std::string explain_change(const std::vector<FileFingerprint>& before, const std::vector<FileFingerprint>& now) {
  if (std::ranges::equal(before, now, same_samples)) return "";
  const std::string gone = missing_in(now, before), added = missing_in(before, now);
  if (gone.empty() && added.empty()) return "the files come in another order";
  return fmt::format("{}{}{}{}{}", gone.empty() ? "" : "without ", gone, gone.empty() || added.empty() ? "" : "; ",
                     added.empty() ? "" : "with ", added);
}

}  // namespace scatterlm
