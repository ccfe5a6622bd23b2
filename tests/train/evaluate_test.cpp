#include "lib/train/evaluate.h"

#include <ATen/record_function.h>

#include "lib/distributed/silent_comm.h"

#include "lib/tokenizer/tokenizer_files.h"
#include "tests/data/files.h"
#include "tests/tokenizer/bpe_files.h"
#include "tests/train/tiny_run.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

/// Forward passes since the last call: each looks up one embedding.
int64_t lookups = 0;
std::unique_ptr<at::ObserverContext> count_lookup(const at::RecordFunction& call) {
  lookups += std::string_view(call.name()) == "aten::embedding";
  return nullptr;
}

}  // namespace

TEST_CASE("evaluate: all ranks make the same number of forward passes, and their sums are those of one rank") {
  const TempDir dir;
  std::vector<int64_t> tokens = iota(16 * 7 + 1);  // seven sequences
  for (auto& token : tokens) token = token * 31 % 300;
  TinyRun run;
  DataConfig data;
  data.validation = {{dir.write("v.bin", llmc_u16(tokens)), 1}};
  EvalReader reader(data, 300, 16, 0);
  const auto handle = at::addGlobalCallback(at::RecordFunctionCallback(count_lookup));
  const auto evaluate_on = [&](int64_t rank, int64_t world) {
    SilentComm comm(rank, world);  // a sum is what this rank adds to it
    lookups = 0;
    return evaluate(run.state->model, reader, /*num_sequences=*/2, comm);
  };
  const auto whole = evaluate_on(0, 1);
  REQUIRE(lookups == 4);
  for (const int64_t world : {2, 3, 4, 6}) {
    double sum = 0;
    for (int64_t rank = 0; rank < world; ++rank) {
      const auto part = evaluate_on(rank, world);
      CAPTURE(world, rank);
      REQUIRE(lookups == (4 + world - 1) / world);
      REQUIRE(part.tokens == whole.tokens);
      sum += part.loss;
    }
    REQUIRE(std::abs(sum - whole.loss) < 1e-12);
  }
  at::removeCallback(handle);
}

TEST_CASE("bytes of tokens: special tokens have none, numbers beyond the tokenizer are not known") {
  const auto bytes = bytes_of_tokens(ByteTokenizer(), 300);
  REQUIRE(bytes.size(0) == 300);
  REQUIRE(bytes.narrow(0, 0, 256).eq(1).all().item<bool>());
  REQUIRE(bytes[256].item<double>() == 0);
  REQUIRE(bytes.narrow(0, 257, 43).isnan().all().item<bool>());
  const auto tokenizer =
      make_tokenizer({.folder = "small", .content = {{"tokenizer.json", small_tokenizer(kSmallMerges).dump()}}});
  const auto small = bytes_of_tokens(*tokenizer, 300);
  REQUIRE(small[*tokenizer->find_token("hello")].item<double>() == 5);
  REQUIRE(small[*tokenizer->find_token(" wor")].item<double>() == 4);
  REQUIRE(small[*tokenizer->eot()].item<double>() == 0);  // not the 13 bytes of its name
  REQUIRE(bytes_of_tokens(*tokenizer, 100).size(0) == 100);
}

TEST_CASE("evaluate: bits per byte of text, the same on every rank, and only where all tokens are known") {
  const TempDir dir;
  std::vector<int64_t> tokens = iota(100, 100);
  tokens.push_back(256);
  tokens.push_back(7);
  TinyRun run;
  const auto bytes_V = bytes_of_tokens(ByteTokenizer(), 300);
  const auto evaluate_on = [&](const std::vector<int64_t>& stream, int64_t world) {
    DataConfig data;
    data.validation = {{dir.write("v.bin", llmc_u16(stream)), 1}};
    EvalReader reader(data, 300, 16, 0);
    SilentComm comm(0, world);
    return evaluate(run.state->model, reader, /*num_sequences=*/2, comm, bytes_V);
  };
  const auto result = evaluate_on(tokens, 1);
  REQUIRE(result.tokens == 101);
  REQUIRE(std::abs(*result.bits_per_byte - result.loss * 101 / std::log(2) / 100) < 1e-12);
  const auto share = evaluate_on(tokens, 2);  // of the loss; the bytes are those of all ranks
  REQUIRE(std::abs(*share.bits_per_byte - share.loss * 101 / std::log(2) / 100) < 1e-12);
  tokens.push_back(257);
  REQUIRE_FALSE(evaluate_on(tokens, 1).bits_per_byte);
}
