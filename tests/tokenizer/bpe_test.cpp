// Byte-level BPE; that it gives the tokens of other implementations is tested in tests/cli/test_tokenizer.py.
#include <filesystem>
#include <random>

#include "lib/data/token_file.h"
#include "lib/tokenizer/bpe_trainer.h"
#include "lib/tokenizer/inspect.h"
#include "lib/tokenizer/prepare.h"
#include "lib/tokenizer/tokenizer_files.h"
#include "lib/util/error.h"
#include "tests/data/files.h"
#include "tests/tokenizer/bpe_files.h"

#include "tests/catch.h"

using namespace scatterlm;
using nlohmann::json;

namespace {

std::unique_ptr<Tokenizer> make(const json& file) {
  return make_tokenizer(TokenizerFiles{"x", {{"tokenizer.json", file.dump()}}});
}

/// The bytes of each token, separated by '|'.
std::string pieces(const Tokenizer& tokenizer, std::string_view text, SpecialTokens special = SpecialTokens::kAsText) {
  std::string result;
  for (const uint32_t token : tokenizer.encode(text, special))
    result += (result.empty() ? "" : "|") + tokenizer.bytes_of(token);
  return result;
}

json split_step(const std::string& pattern) {
  return {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
}

json with_steps(json file, std::vector<json> steps) {
  steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}});
  file["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
  return file;
}

std::string decode_all(const Tokenizer& tokenizer, const std::vector<uint32_t>& tokens) {
  std::string bytes;
  for (const uint32_t token : tokens) bytes += tokenizer.bytes_of(token);
  return bytes;
}

}  // namespace

TEST_CASE("bpe: the pair of lowest rank merges first, the leftmost of equal ones; not across pieces") {
  const auto tokenizer = make(small_tokenizer(kSmallMerges));
  REQUIRE(pieces(*tokenizer, "hello world") == "hello| wor|l|d");
  REQUIRE(pieces(*tokenizer, "llll lll") == "ll|ll| |ll|l");
  REQUIRE(pieces(*tokenizer, "he'll") == "he|'|ll");
  REQUIRE(pieces(*tokenizer, "hel lo") == "he|l| |l|o");
  REQUIRE(pieces(*make(small_tokenizer({{"a", "b"}, {"b", "c"}})), "abc") == "ab|c");
  REQUIRE(pieces(*make(small_tokenizer({{"b", "c"}, {"a", "b"}})), "abc") == "a|bc");
  REQUIRE(tokenizer->vocab_size() == 264);
  REQUIRE(tokenizer->eot() == 263);
}

TEST_CASE("bpe: long pieces merge as short ones do") {
  const auto tokenizer = make(small_tokenizer({{"a", "a"}, {"aa", "aa"}, {"b", "a"}, {"aaaa", "b"}, {"aa", "b"}}));
  std::mt19937 random(1);
  for (const size_t size : {97u, 200u, 5000u}) {
    std::string text;
    for (size_t i = 0; i < size; ++i) text += random() % 4 == 0 ? 'b' : 'a';
    // Merging by the definition: all places of one rank, from left to right, then the next rank, and again from the first.
    std::vector<std::string> parts;
    for (const char c : text) parts.emplace_back(1, c);
    const Merges merges = {{"a", "a"}, {"aa", "aa"}, {"b", "a"}, {"aaaa", "b"}, {"aa", "b"}};
    for (bool merged = true; merged;) {
      merged = false;
      for (size_t rank = 0; rank < merges.size() && !merged; ++rank)
        for (size_t i = 0; i + 1 < parts.size() && !merged; ++i) {
          if (parts[i] != merges[rank].first || parts[i + 1] != merges[rank].second) continue;
          parts[i] += parts[i + 1];
          parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
          merged = true;
        }
    }
    std::string expected;
    for (const auto& part : parts) expected += (expected.empty() ? "" : "|") + part;
    REQUIRE(pieces(*tokenizer, text) == expected);
  }
}

TEST_CASE("bpe: a piece that is a token stays whole where ignore_merges says so") {
  auto file = small_tokenizer({{"a", "b"}, {"b", "c"}});
  file["model"]["vocab"]["abc"] = 300;
  REQUIRE(pieces(*make(file), "abc") == "ab|c");
  file["model"]["ignore_merges"] = true;
  REQUIRE(pieces(*make(file), "abc") == "abc");
}

TEST_CASE("bpe: special tokens come from text only where that is asked for, others always") {
  auto file = small_tokenizer(kSmallMerges);
  const auto add = [&](int id, const char* content, bool special, bool normalized) {
    file["added_tokens"].push_back({{"id", id}, {"content", content}, {"special", special}, {"normalized", normalized}});
  };
  add(300, "  ", false, true);
  add(301, "<|endo", false, false);
  add(302, "text", false, false);
  const auto tokenizer = make(file);
  REQUIRE(pieces(*tokenizer, "hello<|endoftext|>  hell", SpecialTokens::kRecognised) == "hello|<|endoftext|>|  |hell");
  REQUIRE(tokenizer->encode("a<|endoftext|>", SpecialTokens::kRecognised) ==
          std::vector<uint32_t>{tokenizer->encode("a")[0], 263});
  // A special one that is text hides what lies inside of it.
  REQUIRE(pieces(*tokenizer, "  <|endoftext|><|endotext") == "  |<|||e|n|d|o|f|t|e|x|t|||>|<|endo|text");
}

TEST_CASE("bpe: added tokens take white space with them where they say so") {
  auto file = small_tokenizer(kSmallMerges);
  file["added_tokens"][0]["lstrip"] = true;
  file["added_tokens"][0]["rstrip"] = true;
  const auto tokenizer = make(file);
  REQUIRE(tokenizer->encode("h \xe3\x80\x80<|endoftext|>\n\nh", SpecialTokens::kRecognised) ==
          std::vector<uint32_t>{tokenizer->encode("h")[0], 263, tokenizer->encode("h")[0]});
}

TEST_CASE("bpe: text is normalized where the file asks for it") {
  auto file = small_tokenizer(kSmallMerges);
  const std::string decomposed = "e\xcc\x81", composed = "\xc3\xa9";
  REQUIRE(decode_all(*make(file), make(file)->encode(decomposed)) == decomposed);
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  const auto tokenizer = make(file);
  REQUIRE(decode_all(*tokenizer, tokenizer->encode("xe\xcc\x81\xcc\xa3y" + decomposed)) == "x\xe1\xba\xb9\xcc\x81y" + composed);
  REQUIRE(decode_all(*tokenizer, tokenizer->encode("\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8")) == "\xea\xb0\x81");  // Hangul
  REQUIRE(decode_all(*tokenizer, tokenizer->encode("\xe2\x84\xab")) == "\xc3\x85");  // Angstrom sign
}

TEST_CASE("bpe: any bytes come back") {
  const auto tokenizer = make(small_tokenizer(kSmallMerges));
  std::mt19937 random(2);
  std::string bytes;
  for (int i = 0; i < 20000; ++i) bytes += random() % 3 == 0 ? static_cast<char>(random()) : "hello \xe2\x82\xac"[random() % 9];
  REQUIRE(decode_all(*tokenizer, tokenizer->encode(bytes)) == bytes);
}

TEST_CASE("bpe: parts of a text give the tokens of the whole") {
  const Merges merges = {{"h", "e"}, {"\n", "\n"}, {" ", " "}, {"1", "2"}, {"\r", "\n"}, {"he", "l"}};
  const std::vector<json> files = {small_tokenizer(merges),
                                   with_steps(small_tokenizer(merges), {split_step(std::string(R"(\p{N}{1,3})"))}),
                                   with_steps(small_tokenizer(merges), {split_step(R"(\s+(?!\S)|\s+|\S+)")})};
  std::mt19937 random(3);
  std::string text;
  const std::vector<std::string> words = {"he",   "hel",          " ", "  ",   "\n", "\n\n", "12", "1234",
                                          "\r\n", "\xe2\x82\xac", "x", "\xff", "'s"};
  for (int i = 0; i < 3000; ++i) text += words[random() % words.size()];
  for (const json& file : files) {
    const auto tokenizer = make(file);
    const auto expected = tokenizer->encode(text);
    const auto encoder = tokenizer->encoder();
    size_t cut = 0, refused = 0;
    for (size_t end = 1; end < text.size(); ++end) {  // every place: the encoder says whether it is one
      std::vector<uint32_t> tokens;
      if (!encoder->encode({.text = std::string_view(text).substr(cut, end - cut + end % 4),
                            .end = end - cut,
                            .starts = cut == 0,
                            .ends = false},
                           tokens)) {
        refused++;
        REQUIRE(tokens.empty());
        continue;
      }
      const std::vector<uint32_t> rest = tokenizer->encode(std::string_view(text).substr(end));
      tokens.insert(tokens.end(), rest.begin(), rest.end());
      const size_t from = expected.size() - std::min(expected.size(), tokens.size());
      REQUIRE(std::equal(tokens.begin(), tokens.end(), expected.begin() + static_cast<std::ptrdiff_t>(from), expected.end()));
      if (end % 7 == 0) cut = end;
    }
    REQUIRE(refused > 100);
    REQUIRE(cut > text.size() / 2);
  }
}

TEST_CASE("bpe: prepare in blocks, on threads, gives the tokens of whole documents; the tokenizer lies beside them") {
  const TempDir dir;
  std::mt19937 random(4);
  std::string large;
  while (large.size() < 5'000'000) large += random() % 9 == 0 ? "hello world\n" : random() % 2 == 0 ? "hel lo 12 " : "orhell  ";
  const std::string tokenizer_path = dir.write("t/tokenizer.json", small_tokenizer(kSmallMerges).dump());
  std::string lines;
  for (int i = 0; i < 5; ++i) lines += json{{"id", i}, {"body", "hello " + std::to_string(i)}}.dump() + "\n\n";
  const std::string text_path = dir.write("large.txt", large), lines_path = dir.write("lines.jsonl", lines);
  prepare({.inputs = {text_path}, .out = dir / "out", .tokenizer = tokenizer_path, .threads = 3});
  const auto tokenizer = make_tokenizer(tokenizer_path);
  auto expected = tokenizer->encode(large);
  expected.push_back(263);
  const TokenFile file(dir / "out/train.bin", TokenWidth::kAuto);
  std::vector<int64_t> tokens(static_cast<size_t>(file.num_tokens()));
  file.read(0, file.num_tokens(), 264, tokens.data());
  const bool same = std::equal(tokens.begin(), tokens.end(), expected.begin(), expected.end());
  REQUIRE(same);
  REQUIRE(file.tokenizer() == read_tokenizer_files(tokenizer_path).hash());
  REQUIRE(read_tokenizer_files(dir / "out").hash() == file.tokenizer());

  const auto prepared =
      prepare({.inputs = {lines_path}, .out = dir / "lines", .val_every = 2, .tokenizer = dir / "t", .field = "body"});
  REQUIRE(prepared.train.documents == 3);
  REQUIRE(prepared.validation.tokens == 2 * 4);  // hello, space, digit, end-of-text
  REQUIRE_THAT(inspect({.path = dir / "lines/val.bin", .samples = 1}), ContainsSubstring("hello 3<|endoftext|>\"\n"));
  std::filesystem::remove(dir / "lines/tokenizer.json");
  REQUIRE_THAT(inspect({.path = dir / "lines/val.bin", .samples = 0}), ContainsSubstring("most common: 220 25 %, 259 25 %"));
  REQUIRE_THROWS_WITH(prepare({.inputs = {lines_path}, .out = dir / "no", .tokenizer = dir / "t"}),
                      lines_path + ":1: 'text' is missing");
}

TEST_CASE("bpe: learned merges are the most frequent pairs") {
  const PieceCounts counts = {{"low", 5}, {"lower", 2}, {"newest", 6}, {"widest", 3}, {"aaaa", 1}};
  const auto learned = learn_merges(counts, 256 + 6, 2);
  std::vector<std::string> tokens(learned.token_bytes.begin() + 256, learned.token_bytes.end());
  // es, st occur 9 times; e < s in the order of numbers. Then est; l+o and o+w occur 7 times; then low; then the 6 of newest.
  REQUIRE(tokens == std::vector<std::string>{"es", "est", "lo", "low", "ew", "new"});
  REQUIRE(learn_merges({{"ab", 1}}, 300, 2).pairs.empty());
  const auto file = json::parse(dump_tokenizer_json(learned, {"<|endoftext|>"}, "\\S+|\\s+"));
  const auto tokenizer = make(file);
  REQUIRE(pieces(*tokenizer, "lowest newer") == "low|est| |new|e|r");
  REQUIRE(tokenizer->eot() == 262);
}
