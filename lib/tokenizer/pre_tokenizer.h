// From text to pieces: what byte-level BPE never merges across.
#pragma once
#include <string_view>
#include <utility>
#include <vector>

#include "lib/tokenizer/split_pattern.h"

namespace scatterlm {

/// Patterns that apply one after the other: each splits the pieces of the one before. Immutable.
struct PreTokenizer {
  struct Step {
    SplitPattern pattern;
    bool drop_between = false;  ///< what lies between matches is dropped; otherwise it is a piece of its own
  };
  std::vector<Step> steps;
  bool add_prefix_space = false;  ///< in front of a text that begins with none

  /// Whether pieces can depend on text before their start.
  bool looks_behind() const {
    for (const Step& step : steps)
      if (step.pattern.looks_behind()) return true;
    return false;
  }
};

/// Finds the pieces; one per thread. The PreTokenizer must outlive it.
class PieceFinder {
 public:
  explicit PieceFinder(const PreTokenizer& tokenizer) : tokenizer_(tokenizer) {
    for (const auto& step : tokenizer.steps) matchers_.emplace_back(step.pattern);
  }

  using End = SplitPattern::Matcher::End;

  /// Calls visit(piece) for the pieces of text[0, stop), valid UTF-8 that is followed by the rest of `text` (and by more if
  /// `end` is kCut); 0 < stop <= size. False if it is not sure that a piece of the whole ends at `stop`: then some have been
  /// visited.
  template <class Visit>
  bool find(std::string_view text, size_t stop, End end, Visit&& visit) {
    return find_from_step(0, text, stop, end, visit);
  }

 private:
  template <class Visit>
  bool find_from_step(size_t step, std::string_view text, size_t stop, End end, Visit&& visit) {
    if (step == matchers_.size()) {
      if (stop < text.size() || end == End::kCut) return false;
      visit(text);
      return true;
    }
    const auto descend = [&](size_t from, size_t to) {
      if (from < to) find_from_step(step + 1, text.substr(from, to - from), to - from, End::kReal, visit);
    };
    const bool drop_between = tokenizer_.steps[step].drop_between;
    size_t begin = 0, search = 0;
    while (begin < stop) {
      auto match = matchers_[step].find(text, search, end);
      if (match && match->begin == match->end) {  // finds nothing, and looks behind the next character
        search = match->end + 1;
        while (search < text.size() && (static_cast<unsigned char>(text[search]) & 0xc0) == 0x80) ++search;
        if (search <= text.size()) continue;
        match.reset();
      }
      if (!match && (stop < text.size() || end == End::kCut)) return false;
      const size_t between = match ? match->begin : text.size();
      if (between > stop) return false;
      if (!drop_between) descend(begin, between);
      begin = search = between;
      if (!match || begin == stop) break;
      if (match->end > stop) return false;
      descend(match->begin, match->end);
      begin = search = match->end;
    }
    return begin == stop;
  }

  const PreTokenizer& tokenizer_;
  std::vector<SplitPattern::Matcher> matchers_;
};

}  // namespace scatterlm
