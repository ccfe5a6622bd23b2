#include "lib/data/loader.h"

#include <ATen/ATen.h>

#include <set>

#include "lib/util/error.h"
#include "tests/data/files.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

constexpr int64_t kVocabulary = 60000;
constexpr int64_t kLength = 8;

DataConfig train_on(const std::vector<BlendEntry>& entries) {
  DataConfig data;
  data.train = entries;
  return data;
}

Loader open(const DataConfig& data, int64_t seed = 1, int64_t rank = 0, int64_t world = 1) {
  return Loader(data, kVocabulary, kLength, seed, rank, world);
}

/// First token of each row: names its window where the tokens of the files count upwards.
std::vector<int64_t> first_tokens(const Batch& batch) {
  std::vector<int64_t> tokens;
  for (int64_t row = 0; row < batch.input_BS.size(0); ++row) tokens.push_back(batch.input_BS[row][0].item<int64_t>());
  return tokens;
}

std::vector<int64_t> draw(Loader& loader, int64_t batches, int64_t num_sequences) {
  std::vector<int64_t> drawn;
  for (int64_t i = 0; i < batches; ++i)
    for (int64_t token : first_tokens(loader.next(num_sequences))) drawn.push_back(token);
  return drawn;
}

std::vector<int32_t> numbers(const at::Tensor& row) { return {row.data_ptr<int32_t>(), row.data_ptr<int32_t>() + row.numel()}; }

}  // namespace

TEST_CASE("loader: rows are consecutive tokens, targets come one later") {
  const TempDir dir;
  Loader loader = open(train_on({{dir.write("a.bin", llmc_u16(iota(1000))), 1}}));
  const Batch batch = loader.next(16);
  REQUIRE(batch.input_BS.sizes() == at::IntArrayRef({16, kLength}));
  REQUIRE(batch.input_BS.dtype() == at::kLong);
  REQUIRE(batch.target_BS.equal(batch.input_BS + 1));
  REQUIRE(batch.input_BS.select(1, 7).equal(batch.input_BS.select(1, 0) + 7));
  REQUIRE(!batch.document_BS);
}

TEST_CASE("loader: one epoch is every window once, the next one in another order") {
  const TempDir dir;
  // 401 tokens are 50 windows and no tail; 407 tokens 50 and a tail; a file below nine tokens has none.
  dir.write("t_1.bin", llmc_u16(iota(401)));
  dir.write("t_2.bin", llmc_u16(iota(407, 10000)));
  dir.write("t_3.bin", llmc_u16(iota(8, 20000)));
  Loader loader = open(train_on({{dir / "t_*.bin", 1}}));
  const std::vector<int64_t> first = draw(loader, 10, 10);
  const std::vector<int64_t> second = draw(loader, 10, 10);

  std::set<int64_t> expected;
  for (int64_t window = 0; window < 50; ++window) expected.insert({window * kLength, 10000 + window * kLength});
  REQUIRE(std::set(first.begin(), first.end()) == expected);
  REQUIRE(std::set(second.begin(), second.end()) == expected);
  REQUIRE(first != second);

  Loader other = open(train_on({{dir / "t_*.bin", 1}}), 2);
  REQUIRE(draw(other, 10, 10) != first);
}

TEST_CASE("loader: the global order does not depend on the number of ranks") {
  const TempDir dir;
  const DataConfig data =
      train_on({{dir.write("a.bin", llmc_u16(iota(5000))), 3}, {dir.write("b.bin", llmc_u16(iota(700, 9000))), 1}});
  Loader alone = open(data);
  const std::vector<int64_t> expected = draw(alone, 25, 8);
  for (int64_t world : {2, 4, 8}) {
    std::vector<std::unique_ptr<Loader>> ranks;
    for (int64_t rank = 0; rank < world; ++rank)
      ranks.push_back(std::make_unique<Loader>(data, kVocabulary, kLength, 1, rank, world));
    std::vector<int64_t> drawn;
    for (int64_t batch = 0; batch < 25; ++batch)
      for (auto& rank : ranks)
        for (int64_t token : first_tokens(rank->next(8))) drawn.push_back(token);
    REQUIRE(drawn == expected);
    REQUIRE(ranks[0]->position() == 200);
  }
  // Nor on how it is cut into batches.
  Loader small = open(data);
  REQUIRE(draw(small, 100, 2) == expected);
}

TEST_CASE("loader: seeking to a position replays it, over an epoch's end too") {
  const TempDir dir;
  const DataConfig data =
      train_on({{dir.write("a.bin", llmc_u16(iota(500))), 2}, {dir.write("b.bin", llmc_u16(iota(300, 9000))), 1}});
  Loader straight = open(data);
  const std::vector<int64_t> all = draw(straight, 100, 4);
  REQUIRE(straight.position() == 400);
  for (int64_t position : {0, 4, 36, 124, 396}) {
    Loader resumed = open(data);
    draw(resumed, 1, 4);  // whatever was prepared ahead must not come out
    resumed.seek(position);
    REQUIRE(resumed.position() == position);
    const std::vector<int64_t> rest = draw(resumed, (400 - position) / 4, 4);
    REQUIRE(rest == std::vector<int64_t>(all.begin() + position, all.end()));
  }
  Loader far = open(data);
  far.seek(int64_t{1} << 50);
  REQUIRE(first_tokens(far.next(4)).size() == 4);
  REQUIRE_THROWS_WITH(far.seek(-1), "data position must not be negative, got -1");
}

TEST_CASE("loader: a change of batch size continues the order") {
  const TempDir dir;
  const DataConfig data = train_on({{dir.write("a.bin", llmc_u16(iota(500))), 1}});
  Loader even = open(data);
  const std::vector<int64_t> expected = draw(even, 6, 4);
  Loader uneven = open(data);
  std::vector<int64_t> drawn;
  for (int64_t size : {1, 2, 7, 7, 3, 4})
    for (int64_t token : first_tokens(uneven.next(size))) drawn.push_back(token);
  REQUIRE(drawn == expected);
}

TEST_CASE("loader: shares of a blend, and sources without weight are not opened") {
  const TempDir dir;
  const std::string a = dir.write("a.bin", llmc_u16(iota(5000)));
  const std::string b = dir.write("b.bin", llmc_u16(iota(300, 9000)));
  Loader loader = open(train_on({{a, 1}, {"missing.bin", 0}, {b, 3}}));
  const std::vector<int64_t> drawn = draw(loader, 50, 8);
  REQUIRE(std::count_if(drawn.begin(), drawn.end(), [](int64_t token) { return token < 9000; }) == 100);
  REQUIRE(loader.total_tokens() == 5300);
  REQUIRE(loader.describe() == "5.3k tokens in 2 files: " + a + " 25 %, " + b + " 75 %");
  REQUIRE_THROWS_WITH(open(train_on({{a, 0}})), "data.train: names no file with a weight above 0");
}

TEST_CASE("loader: errors at the start") {
  const TempDir dir;
  const std::string path = dir.write("a.bin", llmc_u16(iota(8)));
  REQUIRE_THROWS_WITH(open(train_on({{path, 1}})),
                      path + ": no file has more than train.sequence_length (8) tokens: shorten it or give longer files");
  const std::string large = dir.write("b.bin", llmc_u16({1, 2, 60000, 3}));
  REQUIRE_THROWS_WITH(
      open(train_on({{large, 1}})),
      large + ": token 60000 at position 2 is not in [0, 60000): set model.vocab_size to that of the file's tokenizer");
  REQUIRE_THROWS_WITH(open(train_on({{dir / "gone.bin", 1}})), (dir / "gone.bin") + ": cannot open: No such file or directory");
  Loader two = open(train_on({{dir.write("c.bin", llmc_u16(iota(100))), 1}}), 1, 0, 2);
  REQUIRE_THROWS_WITH(two.next(3), "[loader] num_sequences must be a multiple of the 2 ranks, got 3");
}

TEST_CASE("loader: what the prefetch thread meets reaches next(), which keeps its position") {
  const TempDir dir;
  const std::string path = dir.write("a.bin", llmc_u16(iota(801)));
  Loader loader = open(train_on({{path, 1}}));
  loader.next(4);
  loader.seek(0);
  {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);  // the mapping shows it
    file.seekp(1024);
    for (int i = 0; i < 801; ++i) file.write("\xff\xff", 2);
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    REQUIRE_THROWS_WITH(loader.next(4), ContainsSubstring("a.bin: token 65535 at position "));
    REQUIRE(loader.position() == 0);
  }
}

TEST_CASE("loader: ends while a batch is being prepared") {
  const TempDir dir;
  const DataConfig data = train_on({{dir.write("a.bin", llmc_u16(iota(20000))), 1}});
  for (int i = 0; i < 50; ++i) {
    Loader loader = open(data);
    loader.next(1000);
  }
}

TEST_CASE("loader: documents by end-of-text token") {
  const TempDir dir;
  DataConfig data = train_on({{dir.write("a.bin", llmc_u16({1, 9, 2, 3, 9, 9, 4, 5, 9})), 1}});
  data.intra_document_masking = true;
  data.eot_token = 9;
  Loader loader = open(data);
  const Batch batch = loader.next(2);
  REQUIRE(batch.document_BS->dtype() == at::kInt);
  for (int64_t row : {0, 1}) REQUIRE(numbers((*batch.document_BS)[row]) == std::vector<int32_t>{0, 0, 1, 1, 1, 2, 3, 3});

  data.eot_token = -1;
  REQUIRE_THROWS_WITH(
      open(data),
      ContainsSubstring("a.bin: has no document index, which data.intra_document_masking needs: set data.eot_token"));
}

TEST_CASE("loader: documents by Megatron's index, which the end-of-text token does not override") {
  const TempDir dir;
  // Documents of 2, 0, 3 (two sequences), 3, 8 and 1 tokens.
  dir.write("m.idx", megatron_index(8, 2, {2, 0, 1, 2, 3, 8, 1}, {0, 1, 2, 4, 5, 6, 7}));
  dir.write("m.bin", tokens_as<uint16_t>(iota(17)));
  DataConfig data = train_on({{dir / "m", 1}});
  data.intra_document_masking = true;
  data.eot_token = GENERATE(-1, 3);
  Loader loader = open(data);
  const Batch batch = loader.next(2);
  for (int64_t row : {0, 1}) {
    const bool is_first = batch.input_BS[row][0].item<int64_t>() == 0;
    const std::vector<int32_t> expected = is_first ? std::vector<int32_t>{0, 0, 1, 1, 1, 2, 2, 2} : std::vector<int32_t>(8, 0);
    REQUIRE(numbers((*batch.document_BS)[row]) == expected);
  }
}
