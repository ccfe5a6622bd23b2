#include "lib/tokenizer/tokenizer_files.h"

#include "lib/util/error.h"
#include "tests/catch.h"

using namespace scatterlm;

namespace {

/// What comes out after each byte, separated by '|'.
std::string stream(const std::string& bytes) {
  const ByteTokenizer tokenizer;
  auto decoder = tokenizer.decoder();
  std::string text;
  for (uint32_t token : tokenizer.encode(bytes)) text += decoder.push(token) + "|";
  return text + decoder.finish();
}

}  // namespace

TEST_CASE("tokenizer: bytes are their own tokens") {
  const auto tokenizer = make_tokenizer("bytes");
  const std::string text("a\0\xff\n", 4);
  REQUIRE(tokenizer->encode(text) == std::vector<uint32_t>{97, 0, 255, 10});
  REQUIRE(tokenizer->vocab_size() == 257);
  REQUIRE(tokenizer->eot() == 256);
  REQUIRE(tokenizer->bytes_of(255) == "\xff");
  REQUIRE(tokenizer->bytes_of(256).empty());
  REQUIRE(tokenizer->bytes_of(70000).empty());
  REQUIRE_THROWS_WITH(make_tokenizer("gpt2"), "unknown tokenizer 'gpt2': neither bytes nor a file or folder");
}

TEST_CASE("tokenizer: characters come out whole") {
  REQUIRE(stream("ab") == "a|b|");
  REQUIRE(stream("\xc3\xa9x") == "|\xc3\xa9|x|");
  REQUIRE(stream("\xe2\x82\xac") == "||\xe2\x82\xac|");
  REQUIRE(stream("\xf0\x9f\x98\x80") == "|||\xf0\x9f\x98\x80|");
}

TEST_CASE("tokenizer: what is no UTF-8 becomes the replacement character, once per broken piece") {
  const std::string bad = "\xef\xbf\xbd";
  REQUIRE(stream("\xff") == bad + "|");
  REQUIRE(stream("\x80z") == bad + "|z|");
  REQUIRE(stream("\xe2\x82z") == "||" + bad + "z|");
  REQUIRE(stream("\xe2\x82") == "||" + bad);
  REQUIRE(stream("\xc3\xc3\xa9") == "|" + bad + "|\xc3\xa9|");
  REQUIRE(stream("\xc0\xaf") == bad + "|" + bad + "|");                                  // overlong
  REQUIRE(stream("\xe0\x80\x80") == "|" + bad + bad + "|" + bad + "|");                  // overlong
  REQUIRE(stream("\xed\xa0\x80") == "|" + bad + bad + "|" + bad + "|");                  // surrogate
  REQUIRE(stream("\xf4\x90\x80\x80") == "|" + bad + bad + "|" + bad + "|" + bad + "|");  // above U+10FFFF
  REQUIRE(stream("\xf0\x8f\xbf\xbf") == "|" + bad + bad + "|" + bad + "|" + bad + "|");  // overlong
}
