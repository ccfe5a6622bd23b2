// Patterns that Oniguruma and PCRE2 read in the same way are compared with Hugging Face's tokenizers in
// tests/cli/test_tokenizer.py.
#include "lib/tokenizer/split_pattern.h"

#include "lib/util/error.h"
#include "tests/catch.h"

using namespace scatterlm;

TEST_CASE("split pattern: what Oniguruma and PCRE2 read in different ways is refused by name") {
  struct Row {
    const char *pattern, *message;
  };
  const Row rows[] = {
      {R"(a{,2})", "'{,n}' is not supported: write {0,n}"},
      {R"(a{2}?)", "'?' after '{n}' is not supported"},
      {R"(a{1,2}+)", "'+' after a quantifier in braces is not supported"},
      {R"([a[b]])", "a character class inside of another one is not supported"},
      {R"([a&&b])", "'&&' in a character class is not supported"},
      {R"(\xa0)", R"('\xa0' is a byte: give the character as \x{...})"},
      {R"([\xc3])", R"('\xc3' is a byte: give the character as \x{...})"},
      {R"(\pL)", R"('\p' without a name in braces is not supported)"},
      {R"(\PL)", R"('\P' without a name in braces is not supported)"},
      {R"((*FAIL))", "'(*' is not supported"},
      {R"((?#a))", "'(?#' is not supported"},
      {R"((?C1))", "'(?C' is not supported"},
      {R"((?m:a))", "'(?m' is not supported"},
      {R"((?s:a))", "'(?s' is not supported"},
      {R"((?x:a))", "'(?x' is not supported"},
      {R"((?im:a))", "'(?i' is not supported"},
      {R"(a(?i)b|c)", "'(?i' is not supported"},
      {R"((a)(?1))", "'(?1' is not supported"},
      {R"((?(?=a)a|b))", "'(?(' is not supported"},
      {R"((?~ab))", "'(?~' is not supported"},
      {R"((?|a|b))", "'(?|' is not supported"},
      {R"((a)\1)", R"('\1' is not supported)"},
      {R"(\101)", R"('\1' is not supported)"},
      {R"(\Qa.\E)", R"('\Q' is not supported)"},
      {R"(\p{lu})", R"('\p{lu}' is not supported)"},
      {R"(\p{ L })", R"('\p{ L }' is not supported)"},
      {R"(\p{C})", R"('\p{C}' is not supported)"},
      {R"(\p{Cn})", R"('\p{Cn}' is not supported)"},
      {R"(\p{LC})", R"('\p{LC}' is not supported)"},
      {R"(\p{Alphabetic})", R"('\p{Alphabetic}' is not supported)"},
      {R"(\p{Lower})", R"('\p{Lower}' is not supported)"},
      {R"(\p{Common})", R"('\p{Common}' is not supported)"},
      {R"(\p{Lao})", R"('\p{Lao}' is not supported)"},
      {R"(\p{Emoji})", R"('\p{Emoji}' is not supported)"},
      {R"(\P{han})", R"('\P{han}' is not supported)"},
      {R"([\P{L}])", R"('\P{L}' in a character class is not supported)"},
      {R"([\p{^Nd}])", R"('\p{^Nd}' in a character class is not supported)"},
      {R"([\D])", R"('\D' in a character class is not supported)"},
      {"(?i:fa|SS)", "'ss' is not supported together with (?i"},
      {"(?i:first)", "'fi' is not supported together with (?i"},
      {"a\\", "it ends with a backslash"},
  };
  for (const auto& [pattern, message] : rows) {
    CAPTURE(pattern);
    REQUIRE_THROWS_WITH(SplitPattern(pattern, "x.json"),
                        fmt::format("x.json: cannot use the pattern '{}': {}", pattern, message));
  }
  for (const char letter : std::string_view("AbBcCEgGhHkKMNORvVWXyYZ")) {
    const std::string pattern = fmt::format("a\\{}", letter);
    CAPTURE(pattern);
    REQUIRE_THROWS_WITH(SplitPattern(pattern, "x.json"),
                        fmt::format("x.json: cannot use the pattern '{}': '\\{}' is not supported", pattern, letter));
  }
}

TEST_CASE("split pattern: the published ones are read") {
  for (const char* name : {"gpt2", "cl100k", "o200k", "llama3", "qwen"})
    REQUIRE_NOTHROW(SplitPattern(known_pattern(name), name));
}
