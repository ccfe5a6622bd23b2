// The regular expressions by which byte-level BPE splits text, as PCRE2 runs them (compiled to machine code where it can).
#pragma once
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace scatterlm {

/// A published pattern by name: gpt2, cl100k, o200k, llama3, qwen. Throws Error naming them for another.
std::string_view known_pattern(std::string_view name);

/// Immutable; several threads may use it, each with a Matcher of its own.
class SplitPattern {
 public:
  /// The syntax is Oniguruma's (Ruby), as in tokenizer.json; `\s` is Unicode's White_Space. Throws Error "WHERE: ..." naming
  /// the pattern if PCRE2 cannot compile it, or would read a construct in another way.
  SplitPattern(std::string_view pattern, const std::string& where);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;

  /// Whether a match can depend on text before its start (lookbehind, \b, ^).
  bool looks_behind() const;

  struct Match {
    size_t begin, end;
  };

  class Matcher {
   public:
    explicit Matcher(const SplitPattern& pattern);
    ~Matcher();
    Matcher(Matcher&&) noexcept;

    enum class End {
      kReal,  ///< the text ends where `text` does
      kCut    ///< it goes on: a match that would have to look there is none, and cut_off() says so
    };
    /// The first match from `from` on. `text` is valid UTF-8. Throws Error where the pattern exceeds PCRE2's limit of
    /// backtracking.
    std::optional<Match> find(std::string_view text, size_t from, End end);
    bool cut_off() const { return cut_off_; }

   private:
    struct State;
    std::unique_ptr<State> state_;
    bool cut_off_ = false;
  };

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace scatterlm
