#include "lib/tokenizer/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/ranges.h>
#include <pcre2.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "lib/tokenizer/newer_characters.h"
#include "lib/util/error.h"
#include "lib/util/escape.h"

namespace scatterlm {
namespace {

// Insides of character classes. PCRE2's own \s also takes U+180E, and its \w is not Oniguruma's.
constexpr std::string_view kWhiteSpace =
    R"(\x09-\x0d\x20\x85\xa0\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNoWhiteSpace =
    R"(\x00-\x08\x0e-\x1f\x21-\x84\x86-\x9f\xa1-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kWordOutsideOfClasses = R"(\xb2\xb3\xb9\xbc-\xbe)";  // superscripts and fractions of Latin-1

/// Properties that are the same in both, once newer characters are added. Oniguruma reads names more loosely than PCRE2, and
/// knows more of them.
constexpr std::string_view kProperties[] = {
    "L",        "Lu",     "Ll",    "Lt",       "Lm",    "Lo",     "M",    "Mn",         "Mc",     "Me",    "N",
    "Nd",       "Nl",     "No",    "P",        "Pc",    "Pd",     "Ps",   "Pe",         "Pi",     "Pf",    "Po",
    "S",        "Sm",     "Sc",    "Sk",       "So",    "Z",      "Zs",   "Zl",         "Zp",     "Han",   "Hiragana",
    "Katakana", "Hangul", "Latin", "Cyrillic", "Greek", "Arabic", "Thai", "Devanagari", "Hebrew", "Tamil", "Bopomofo"};

/// What one character is under (?i in Oniguruma, which folds one to several, and in PCRE2, which does not.
constexpr std::string_view kFoldedToSeveral[] = {"ss", "ff", "fi", "fl", "st", "\u00df", "\u1e9e", "\u0149", "\u01f0"};

struct NamedPattern {
  std::string_view name, pattern;
};
constexpr NamedPattern kKnownPatterns[] = {
    {"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {"cl100k",
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+\z|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"o200k", R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
              R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
              R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"llama3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

template <auto free>
struct Pcre2Free {
  template <class T>
  void operator()(T* pointer) const {
    free(pointer);
  }
};

using Pcre2Code = std::unique_ptr<pcre2_code, Pcre2Free<pcre2_code_free>>;

/// A pattern of Oniguruma in PCRE2's words. What the two read in different ways, and what would need more of a parser, is
/// refused.
class Translation {
 public:
  Translation(std::string_view pattern, const std::string& where) : pattern_(pattern), where_(where) {
    if (pattern.find("(?i") != pattern.npos) refuse_long_folds();
    while (at_ < pattern_.size()) {
      if (pattern_[at_] == '\\') {
        escape();
      } else if (in_class_) {
        class_character();
      } else {
        character();
      }
    }
  }
  const std::string& text() const { return text_; }

 private:
  [[noreturn]] void refuse(std::string_view what) const {
    fail_user("{}: cannot use the pattern '{}': {}", where_, escape_control(pattern_), what);
  }

  void refuse_long_folds() const {
    std::string lower(pattern_);
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    for (const auto several : kFoldedToSeveral)
      if (lower.find(several) != lower.npos) refuse(fmt::format("'{}' is not supported together with (?i", several));
  }

  void escape() {
    if (at_ + 1 == pattern_.size()) refuse("it ends with a backslash");
    const char letter = pattern_[at_ + 1];
    // Oniguruma has another meaning for it or none (then it is the letter itself), or counts bytes where PCRE2 counts
    // characters.
    constexpr std::string_view kDifferent = "AbBcCEgGhHkKMNOQRvVWXyYZ0123456789";
    if (kDifferent.find(letter) != kDifferent.npos) refuse(fmt::format("'\\{}' is not supported", letter));
    if (letter == 'p' || letter == 'P') return property();
    if (letter == 's') {
      add_class(kWhiteSpace, false);
    } else if (letter == 'S') {
      in_class_ ? add_class(kNoWhiteSpace, false) : add_class(kWhiteSpace, true);
    } else if (letter == 'w') {
      std::string inside(kWord);
      if (!in_class_) inside += kWordOutsideOfClasses;
      for (const char* newer : {"L", "M", "Nd"}) inside += newer_characters(newer);
      add_class(inside, false);
    } else if (letter == 'd' || letter == 'D') {
      if (in_class_ && letter == 'D') refuse("'\\D' in a character class is not supported");
      add_class(fmt::format("\\d{}", newer_characters("Nd")), letter == 'D');
    } else {
      copy_escape();
      return;
    }
    at_ += 2;
  }

  /// \p{name}, \P{name} or \p{^name}.
  void property() {
    const std::string_view rest = pattern_.substr(at_);
    const size_t end = rest.find('}');
    if (!rest.substr(2).starts_with('{') || end == rest.npos)
      refuse(fmt::format("'\\{}' without a name in braces is not supported", rest[1]));
    std::string_view name = rest.substr(3, end - 3);
    const bool caret = name.starts_with('^');
    if (caret) name.remove_prefix(1);
    const bool negated = caret != (rest[1] == 'P');
    if (std::ranges::find(kProperties, name) == std::end(kProperties))
      refuse(fmt::format("'{}' is not supported", rest.substr(0, end + 1)));
    if (negated && in_class_) refuse(fmt::format("'{}' in a character class is not supported", rest.substr(0, end + 1)));
    // Without "sc:" PCRE2 adds the characters that a script shares with others.
    const std::string property = fmt::format("p{{{}{}}}", is_script(name) ? "sc:" : "", name);
    const std::string newer = newer_characters(name);
    if (newer.empty()) {
      text_ += (negated ? "\\P" : "\\p") + property.substr(1);
    } else {
      add_class("\\" + property + newer, negated);
    }
    at_ += end + 1;
  }

  static bool is_script(std::string_view name) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    const std::string text = fmt::format("\\p{{sc:{}}}", name);
    const Pcre2Code code(
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), PCRE2_UTF, &error, &offset, nullptr));
    return code != nullptr;
  }

  /// With its braces, whose end is no quantifier.
  void copy_escape() {
    const std::string_view rest = pattern_.substr(at_);
    size_t size = 2;
    if (rest.size() > 2 && rest[2] == '{') size = std::min(rest.find('}'), rest.size() - 1) + 1;
    const bool is_byte = rest[1] == 'x' && rest.size() > 3 && std::isxdigit(static_cast<unsigned char>(rest[3])) &&
                         std::isxdigit(static_cast<unsigned char>(rest[2])) && !(rest[2] >= '0' && rest[2] <= '7');
    if (is_byte) refuse(fmt::format("'{}' is a byte: give the character as \\x{{...}}", rest.substr(0, 4)));
    text_ += rest.substr(0, size);
    at_ += size;
  }

  void add_class(std::string_view inside, bool negated) {
    if (in_class_) {
      text_ += inside;
    } else {
      text_ += fmt::format("[{}{}]", negated ? "^" : "", inside);
    }
  }

  /// Whether a group of this beginning, behind "(?", is the same in both. Options that are not for a group of their own count
  /// up to its end in Oniguruma, with all alternatives, unless the whole pattern begins with them.
  bool is_common_group(std::string_view begin) const {
    for (const std::string_view common : {":", "=", "!", ">", "<", "'", "i:", "-i:"})
      if (begin.starts_with(common)) return true;
    return at_ == 0 && begin.starts_with("i)");
  }

  void class_character() {
    const std::string_view rest = pattern_.substr(at_);
    if (rest[0] == '[') refuse("a character class inside of another one is not supported");
    if (rest.starts_with("&&")) refuse("'&&' in a character class is not supported");
    in_class_ = rest[0] != ']';
    text_ += rest[0];
    ++at_;
  }

  void character() {
    const std::string_view rest = pattern_.substr(at_);
    size_t size = 1;
    if (rest[0] == '[') {
      in_class_ = true;
      if (rest.substr(size).starts_with("^")) ++size;
      if (rest.substr(size).starts_with("]")) ++size;
    } else if (rest[0] == '{') {
      size = std::min(rest.find('}'), rest.size() - 1) + 1;
      if (rest.starts_with("{,")) refuse("'{,n}' is not supported: write {0,n}");
      if (rest.substr(size).starts_with("+")) refuse("'+' after a quantifier in braces is not supported");
      const bool exact = rest.find_first_not_of("0123456789", 1) == size - 1;
      if (exact && rest.substr(size).starts_with("?")) refuse("'?' after '{n}' is not supported");  // makes it optional there
    } else if (rest.starts_with("(*") || (rest.starts_with("(?") && !is_common_group(rest.substr(2)))) {
      refuse(fmt::format("'{}' is not supported", rest.substr(0, rest[1] == '?' ? 3 : 2)));
    }
    text_ += rest.substr(0, size);
    at_ += size;
  }

  std::string_view pattern_;
  const std::string& where_;
  std::string text_;
  size_t at_ = 0;
  bool in_class_ = false;
};

std::string pcre2_message(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

std::string_view known_pattern(std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto& [known, pattern] : kKnownPatterns) {
    if (known == name) return pattern;
    names.push_back(known);
  }
  fail_user("unknown split pattern '{}', there are: {}", escape_control(name), fmt::join(names, ", "));
}

struct SplitPattern::Compiled {
  std::string pattern, where;
  Pcre2Code code;
  bool looks_behind = false;
};

SplitPattern::SplitPattern(std::string_view pattern, const std::string& where) : compiled_(std::make_unique<Compiled>()) {
  compiled_->pattern = pattern;
  compiled_->where = where;
  const Translation translation(pattern, where);
  const std::string& text = translation.text();
  int error = 0;
  PCRE2_SIZE offset = 0;
  // In Ruby's syntax ^ and $ are those of lines.
  compiled_->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                                      nullptr));
  if (!compiled_->code) {
    fail_user("{}: cannot use the pattern '{}': {}", where, escape_control(pattern), pcre2_message(error));
  }
  uint32_t lookbehind = 0;
  pcre2_pattern_info(compiled_->code.get(), PCRE2_INFO_MAXLOOKBEHIND, &lookbehind);
  compiled_->looks_behind = lookbehind > 0;
  // Where this fails, for example on a processor that PCRE2 has no compiler for, pcre2_match interprets.
  pcre2_jit_compile(compiled_->code.get(), PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
}
SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;

bool SplitPattern::looks_behind() const { return compiled_->looks_behind; }

struct SplitPattern::Matcher::State {
  const Compiled* compiled;
  std::unique_ptr<pcre2_match_data, Pcre2Free<pcre2_match_data_free>> data;
  std::unique_ptr<pcre2_match_context, Pcre2Free<pcre2_match_context_free>> context;
  std::unique_ptr<pcre2_jit_stack, Pcre2Free<pcre2_jit_stack_free>> stack;
};

SplitPattern::Matcher::Matcher(const SplitPattern& pattern) : state_(std::make_unique<State>()) {
  constexpr size_t kFirstStack = 32 << 10, kMostStack = 16 << 20;
  state_->compiled = pattern.compiled_.get();
  state_->data.reset(pcre2_match_data_create(1, nullptr));
  state_->context.reset(pcre2_match_context_create(nullptr));
  state_->stack.reset(pcre2_jit_stack_create(kFirstStack, kMostStack, nullptr));
  if (!state_->data || !state_->context || !state_->stack) throw std::bad_alloc();
  pcre2_jit_stack_assign(state_->context.get(), nullptr, state_->stack.get());
}
SplitPattern::Matcher::~Matcher() = default;
SplitPattern::Matcher::Matcher(Matcher&&) noexcept = default;

std::optional<SplitPattern::Match> SplitPattern::Matcher::find(std::string_view text, size_t from, End end) {
  const uint32_t options = PCRE2_NO_UTF_CHECK | (end == End::kCut ? PCRE2_PARTIAL_HARD : 0);
  const int found = pcre2_match(state_->compiled->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                                options, state_->data.get(), state_->context.get());
  cut_off_ = found == PCRE2_ERROR_PARTIAL;
  if (found == PCRE2_ERROR_NOMATCH || cut_off_) return std::nullopt;
  if (found < 0) {
    fail_user("{}: the pattern '{}' cannot split a text: {}", state_->compiled->where,
              escape_control(state_->compiled->pattern), pcre2_message(found));
  }
  const PCRE2_SIZE* place = pcre2_get_ovector_pointer(state_->data.get());
  return Match{place[0], place[1]};
}

}  // namespace scatterlm
