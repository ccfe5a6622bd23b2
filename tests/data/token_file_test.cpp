#include "lib/data/token_file.h"

#include "lib/util/error.h"
#include "tests/data/files.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

constexpr int64_t kAnyVocabulary = int64_t{1} << 40;

std::vector<int64_t> all_tokens(const TokenFile& file) {
  std::vector<int64_t> tokens(static_cast<size_t>(file.num_tokens()));
  file.read(0, file.num_tokens(), kAnyVocabulary, tokens.data());
  return tokens;
}

const std::vector<int64_t> kTokens = {5, 0, 50256, 1, 2, 3, 65535};

}  // namespace

TEST_CASE("token file: llm.c, both widths") {
  const TempDir dir;
  const TokenFile narrow(dir.write("a.bin", llmc_u16(kTokens)), TokenWidth::kAuto);
  REQUIRE(narrow.format() == TokenFormat::kLlmc);
  REQUIRE(narrow.type() == TokenType::kU16);
  REQUIRE(all_tokens(narrow) == kTokens);
  REQUIRE(!narrow.documents());

  const std::vector<int64_t> large = {128000, 7, 4294967295};
  const TokenFile wide(dir.write("b.bin", llmc_u32(large)), TokenWidth::kAuto);
  REQUIRE(wide.type() == TokenType::kU32);
  REQUIRE(all_tokens(wide) == large);
}

TEST_CASE("token file: bare tokens need their width") {
  const TempDir dir;
  const std::string path = dir.write("raw.bin", tokens_as<uint16_t>(kTokens));
  REQUIRE(all_tokens(TokenFile(path, TokenWidth::kUint16)) == kTokens);
  REQUIRE(TokenFile(path, TokenWidth::kUint16).format() == TokenFormat::kRaw);
  REQUIRE_THROWS_WITH(TokenFile(path, TokenWidth::kAuto), path +
                                                              ": unknown format; if it is bare tokens without a header, set "
                                                              "data.raw_dtype (data inspect: --raw-dtype) to uint16 or uint32");
  REQUIRE_THROWS_WITH(TokenFile(path, TokenWidth::kUint32),
                      path + ": 14 bytes are not a whole number of uint32 tokens (data.raw_dtype)");
  // OLMo names bare tokens .npy.
  const TokenFile olmo(dir.write("part.npy", tokens_as<uint32_t>({1, 2})), TokenWidth::kUint32);
  REQUIRE(all_tokens(olmo) == std::vector<int64_t>{1, 2});
}

TEST_CASE("token file: Megatron by prefix, .bin or .idx") {
  const TempDir dir;
  dir.write("c.idx", megatron_index(8, 2, {3, 0, 4}, {0, 1, 3}));
  dir.write("c.bin", tokens_as<uint16_t>(kTokens) + "slack");
  for (const char* name : {"c", "c.bin", "c.idx"}) {
    const TokenFile file(dir / name, TokenWidth::kUint32);
    REQUIRE(file.format() == TokenFormat::kMegatron);
    REQUIRE(file.path() == dir / "c.bin");
    REQUIRE(all_tokens(file) == kTokens);
    REQUIRE(file.documents()->num_documents() == 2);
    REQUIRE(file.documents()->document_begin(1) == 3);
    REQUIRE(file.documents()->document_begin(2) == 7);
  }
}

TEST_CASE("token file: every integer type of Megatron, with and without sequence modes") {
  const TempDir dir;
  const std::vector<int64_t> tokens = {1, 2, 127};
  const std::vector<std::pair<uint8_t, std::string>> kinds = {
      {1, tokens_as<uint8_t>(tokens)}, {2, tokens_as<int8_t>(tokens)},  {3, tokens_as<int16_t>(tokens)},
      {4, tokens_as<int32_t>(tokens)}, {5, tokens_as<int64_t>(tokens)}, {8, tokens_as<uint16_t>(tokens)}};
  for (const auto& [dtype, bytes] : kinds) {
    const std::string modes = dtype % 2 ? std::string("\0\0", 2) : "";
    dir.write("m.idx", megatron_index(dtype, static_cast<int64_t>(bytes.size()) / 3, {1, 2}, {0, 2}) + modes);
    dir.write("m.bin", bytes);
    REQUIRE(all_tokens(TokenFile(dir / "m", TokenWidth::kAuto)) == tokens);
  }
}

TEST_CASE("token file: npy, all header versions") {
  const TempDir dir;
  const std::string dict = "{'descr': '<u2', 'fortran_order': False, 'shape': (7,), }";
  const TokenFile file(dir.write("a.npy", npy(dict, tokens_as<uint16_t>(kTokens))), TokenWidth::kAuto);
  REQUIRE(file.format() == TokenFormat::kNpy);
  REQUIRE(all_tokens(file) == kTokens);

  // Version 2 counts its header in 32 bits. An odd header length leaves the tokens unaligned.
  const std::string wide_dict = "{'shape': (2,), 'fortran_order': False, 'descr': '<u4'}";
  const std::string wide = std::string("\x93NUMPY\x02\x00", 8) + packed<uint32_t>({static_cast<uint32_t>(wide_dict.size())}) +
                           wide_dict + tokens_as<uint32_t>({70000, 1});
  REQUIRE(wide_dict.size() % 2 == 1);
  REQUIRE(all_tokens(TokenFile(dir.write("b.npy", wide), TokenWidth::kAuto)) == std::vector<int64_t>{70000, 1});
}

TEST_CASE("token file: what is broken is named") {
  const TempDir dir;
  const std::string index = megatron_index(8, 2, {3, 4}, {0, 1, 2});
  const auto with = [](std::string bytes, size_t at, const std::string& patch) {
    return bytes.replace(at, patch.size(), patch);
  };
  struct Row {
    std::string name, bytes, message;
  };
  const std::vector<Row> rows = {
      {"empty.bin", "", "empty file"},
      {"short.bin", llmc_u16(kTokens).substr(0, 1000), "truncated: 1000 bytes, the header of an llm.c file has 1024"},
      {"cut.bin", llmc_u16(kTokens).substr(0, 1030),
       "truncated or damaged: its header says 7 tokens of 2 bytes, 6 bytes follow"},
      {"odd.bin", llmc_u16(kTokens) + "x", "truncated or damaged: its header says 7 tokens of 2 bytes, 15 bytes follow"},
      {"none.bin", llmc_u16({}), "its header says 0 tokens"},
      {"negative.bin", llmc_header(20240801, 7, -3), "its header says -3 tokens"},
      {"version.bin", llmc_header(20240520, 7, 0), "llm.c version 7, files with magic number 20240520 have 1"},
      {"eval.bin", llmc_header(20240522, 1, 1), "holds evaluation examples of llm.c (magic number 20240522), not tokens"},
      {"model.bin", llmc_header(20240326, 3, 1), "holds a model of llm.c (magic number 20240326), not tokens"},
      {"state.bin", llmc_header(20240527, 1, 1), "holds a training state of llm.c (magic number 20240527), not tokens"},
      {"tokenizer.bin", llmc_header(20240328, 2, 1), "holds a tokenizer of llm.c (magic number 20240328), not tokens"},
      {"magic.idx", "MMIDIDY" + index.substr(7), "not a Megatron index (it does not begin with MMIDIDX)"},
      {"head.idx", index.substr(0, 30), "truncated Megatron index: 30 bytes, the header has 34"},
      {"version.idx", with(index, 9, packed<uint64_t>({2})), "Megatron index version 2, only 1 is known"},
      {"float.idx", with(index, 17, "\x07"), "Megatron index of floating-point data, not of tokens"},
      {"dtype.idx", with(index, 17, "\x09"), "Megatron index with unknown dtype 9"},
      {"cut.idx", index.substr(0, index.size() - 4),
       "Megatron index of 78 bytes does not fit its 2 sequences and 3 document boundaries: truncated or damaged"},
      // 12 bytes for each of 2^62 sequences wrap to 0 in 64 bits.
      {"huge.idx", with(index, 18, packed<uint64_t>({(uint64_t{1} << 62) + 2})),
       "Megatron index of 82 bytes does not fit its 4611686018427387906 sequences and 3 document boundaries: truncated or "
       "damaged"},
      {"nothing.idx", megatron_index(8, 2, {}, {0}), "Megatron index without sequences"},
      {"unbounded.idx", megatron_index(8, 2, {3}, {}), "Megatron index without document boundaries"},
      {"hollow.idx", megatron_index(8, 2, {0, 0}, {0, 2}), "Megatron index without tokens"},
      {"length.idx", megatron_index(8, 2, {3, -4}, {0, 2}), "sequence 1 of the Megatron index has length -4"},
      {"pointer.idx", with(index, 42 + 8, packed<int64_t>({5})),
       "sequence 1 of the Megatron index begins at byte 5, the lengths before it add up to 6"},
      {"first.idx", megatron_index(8, 2, {3, 4}, {1, 2}),
       "document boundary 0 of the Megatron index is 1, it must be exactly 0"},
      {"order.idx", megatron_index(8, 2, {3, 4}, {0, 2, 1, 2}),
       "document boundary 2 of the Megatron index is 1, it must be at least 2"},
      {"last.idx", megatron_index(8, 2, {3, 4}, {0, 1}), "the last document boundary of the Megatron index is 1, it must be 2"},
      {"head.npy", "\x93NUMPY\x01", "truncated npy header"},
      {"long.npy", npy("{}", "").substr(0, 20), "truncated npy header"},
      {"nine.npy", with(npy("{}", ""), 6, "\x09"), "npy version 9, known are 1 to 3"},
      {"key.npy", npy("{'shape': (1,)}", "ab"), "npy header without 'descr'"},
      {"float.npy", npy("{'descr': '<f4', 'shape': (1,)}", "abcd"),
       "npy array of dtype \"'<f4'\", tokens must be '<u2' or '<u4' (uint16 or uint32)"},
      {"big.npy", npy("{'descr': '>u2', 'shape': (1,)}", "ab"),
       "npy array of dtype \"'>u2'\", tokens must be '<u2' or '<u4' (uint16 or uint32)"},
      {"matrix.npy", npy("{'descr': '<u2', 'shape': (1, 2)}", "abcd"),
       "npy array of shape \"(1, 2)\", tokens must have one dimension"},
      {"scalar.npy", npy("{'descr': '<u2', 'shape': ()}", "ab"), "npy array of shape \"()\", tokens must have one dimension"},
      {"cut.npy", npy("{'descr': '<u2', 'shape': (3,)}", "abcd"),
       "truncated or damaged: its header says 3 tokens of 2 bytes, 4 bytes follow"},
      {"negative.npy", npy("{'descr': '<u2', 'shape': (-1,)}", "abcd"), "its header says -1 tokens"},
      {"overflow.npy", npy("{'descr': '<u2', 'shape': (9223372036854775807,)}", "abcd"),
       "truncated or damaged: its header says 9223372036854775807 tokens of 2 bytes, 4 bytes follow"},
  };
  for (const Row& row : rows) {
    const std::string path = dir.write(row.name, row.bytes);
    REQUIRE_THROWS_WITH(TokenFile(path, TokenWidth::kAuto), path + ": " + row.message);
  }
}

TEST_CASE("token file: a file that is missing, a folder, or half a Megatron pair") {
  const TempDir dir;
  REQUIRE_THROWS_WITH(TokenFile(dir / "gone", TokenWidth::kAuto), (dir / "gone") + ": cannot open: No such file or directory");
  REQUIRE_THROWS_WITH(TokenFile(dir / "gone.idx", TokenWidth::kAuto),
                      (dir / "gone.idx") + ": cannot open: No such file or directory");
  dir.write("folder/a.bin", "");
  REQUIRE_THROWS_WITH(TokenFile(dir / "folder", TokenWidth::kAuto),
                      (dir / "folder") + ": is a folder; name its token files, for example " + (dir / "folder") + "/*.bin");
  dir.write("half.idx", megatron_index(8, 2, {3}, {0, 1}));
  REQUIRE_THROWS_WITH(TokenFile(dir / "half", TokenWidth::kAuto),
                      (dir / "half.bin") + ": cannot open: No such file or directory");
  dir.write("half.bin", "four");
  REQUIRE_THROWS_WITH(TokenFile(dir / "half", TokenWidth::kAuto),
                      (dir / "half.bin") + ": truncated: 4 bytes, " + (dir / "half") + ".idx needs 6");
}

TEST_CASE("token file: the first token outside the vocabulary is named") {
  const TempDir dir;
  std::vector<int64_t> tokens = iota(100000);
  for (int64_t& token : tokens) token %= 300;
  const std::string clean = dir.write("clean.bin", llmc_u16(tokens));
  const TokenFile file(clean, TokenWidth::kAuto);
  file.check(file.num_tokens(), 300);
  REQUIRE_THROWS_WITH(
      file.check(file.num_tokens(), 299),
      clean + ": token 299 at position 299 is not in [0, 299): set model.vocab_size to that of the file's tokenizer");
  file.check(299, 299);

  int64_t two[2];
  REQUIRE_THROWS_WITH(file.read(298, 2, 299, two), ContainsSubstring("token 299 at position 299"));
  file.read(297, 2, 299, two);
  REQUIRE(two[1] == 298);

  tokens[77777] = 65535;
  tokens[99999] = 65534;
  const TokenFile last(dir.write("last.bin", llmc_u16(tokens)), TokenWidth::kAuto);
  REQUIRE_THROWS_WITH(last.check(last.num_tokens(), 300), ContainsSubstring("token 65535 at position 77777 "));
  REQUIRE(last.fits(65536));
  REQUIRE(!last.fits(65535));
}

TEST_CASE("token file: a negative token is outside of any vocabulary") {
  const TempDir dir;
  dir.write("n.idx", megatron_index(2, 1, {3}, {0, 1}));
  dir.write("n.bin", tokens_as<int8_t>({1, -2, 3}));
  const TokenFile file(dir / "n", TokenWidth::kAuto);
  REQUIRE(!file.fits(1000));
  REQUIRE_THROWS_WITH(file.check(3, 1000), ContainsSubstring("n.bin: token -2 at position 1 is not in [0, 1000)"));
}

TEST_CASE("shards: patterns expand in bytewise order") {
  const TempDir dir;
  for (const char* name : {"t_000010.bin", "t_000002.bin", "T_1.bin", "other.bin"}) dir.write(name, "x");
  REQUIRE(expand_shards(dir / "t_*.bin") == std::vector<std::string>{dir / "t_000002.bin", dir / "t_000010.bin"});
  REQUIRE(expand_shards(dir / "[tT]_?.bin") == std::vector<std::string>{dir / "T_1.bin"});
  REQUIRE(expand_shards(dir / "plain.bin") == std::vector<std::string>{dir / "plain.bin"});
  REQUIRE_THROWS_WITH(expand_shards(dir / "x_*.bin"), (dir / "x_*.bin") + ": no file matches");

  dir.write("m_1.bin", "x");
  dir.write("m_1.idx", "x");
  REQUIRE(expand_shards(dir / "m_*") == std::vector<std::string>{dir / "m_1.bin"});
  dir.write("odd[1].bin", "x");  // a file of that very name is no pattern
  REQUIRE(expand_shards(dir / "odd[1].bin") == std::vector<std::string>{dir / "odd[1].bin"});
}
