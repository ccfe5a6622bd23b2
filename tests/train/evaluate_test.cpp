#include "lib/train/evaluate.h"

#include <ATen/record_function.h>

#include "lib/distributed/silent_comm.h"

#include "tests/data/files.h"
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
