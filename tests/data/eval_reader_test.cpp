#include <ATen/ATen.h>

#include "lib/data/loader.h"
#include "lib/util/error.h"
#include "tests/data/files.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

DataConfig validate_on(const std::string& path) {
  DataConfig data;
  data.validation = {{path, 1}};
  return data;
}

/// All inputs in order; checks shapes on the way.
std::vector<int64_t> read_all(EvalReader& reader, int64_t rows, int64_t length) {
  std::vector<int64_t> inputs;
  Batch batch;
  while (reader.next(rows, batch)) {
    REQUIRE(batch.input_BS.size(0) <= rows);
    REQUIRE(batch.input_BS.size(1) <= length);
    REQUIRE(batch.target_BS.equal(batch.input_BS + 1));
    const at::Tensor flat = batch.input_BS.flatten();
    inputs.insert(inputs.end(), flat.data_ptr<int64_t>(), flat.data_ptr<int64_t>() + flat.numel());
  }
  return inputs;
}

}  // namespace

TEST_CASE("eval reader: every token once, in file order, at any batch size") {
  const TempDir dir;
  dir.write("v_1.bin", llmc_u16(iota(101)));       // 12 sequences of 8 and one of 4
  dir.write("v_2.bin", llmc_u16(iota(2, 1000)));   // one target
  dir.write("v_3.bin", llmc_u16(iota(17, 2000)));  // two sequences
  std::vector<int64_t> expected = iota(100);
  expected.push_back(1000);
  for (int64_t token : iota(16, 2000)) expected.push_back(token);
  for (int64_t rows : {1, 3, 5, 100}) {
    EvalReader reader(validate_on(dir / "v_*.bin"), 3000, 8, 0);
    REQUIRE(reader.num_tokens() == 117);
    REQUIRE(read_all(reader, rows, 8) == expected);
    REQUIRE(read_all(reader, rows, 8) == expected);  // another pass
  }
}

TEST_CASE("eval reader: a limit takes whole sequences at equal distances") {
  const TempDir dir;
  dir.write("v_1.bin", llmc_u16(iota(81)));        // 10 sequences of 8
  dir.write("v_2.bin", llmc_u16(iota(20, 1000)));  // two of 8 and one of 3
  const auto first_tokens = [&](int64_t limit) {
    EvalReader reader(validate_on(dir / "v_*.bin"), 3000, 8, limit);
    std::vector<int64_t> first;
    Batch batch;
    int64_t tokens = 0;
    while (reader.next(1, batch)) {
      first.push_back(batch.input_BS[0][0].item<int64_t>());
      tokens += batch.input_BS.numel();
    }
    REQUIRE(tokens == reader.num_tokens());
    REQUIRE(static_cast<int64_t>(read_all(reader, 4, 8).size()) == tokens);
    return first;
  };
  REQUIRE(first_tokens(1) == std::vector<int64_t>{0});
  REQUIRE(first_tokens(8) == std::vector<int64_t>{0});
  REQUIRE(first_tokens(9) == std::vector<int64_t>{0, 48});
  REQUIRE(first_tokens(40) == std::vector<int64_t>{0, 16, 40, 56, 1000});
  REQUIRE(first_tokens(1000).size() == 13);
}

TEST_CASE("eval reader: errors name the file") {
  const TempDir dir;
  const std::string path = dir.write("v.bin", llmc_u16({5}));
  REQUIRE_THROWS_WITH(EvalReader(validate_on(path), 10, 8, 0),
                      path + ": one token has no successor to predict: validation needs at least two");
  DataConfig none;
  REQUIRE_THROWS_WITH(EvalReader(none, 10, 8, 0), "data.validation: names no file with a weight above 0");
}
