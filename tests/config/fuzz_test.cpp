// Any text ends in a Config or in one Error of one line; nothing else is thrown and nothing crashes.
#include "tests/config/bad_input.h"
#include "tests/mutate.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

const std::string kSeedText = R"(run: {name: a, dir: "runs"}
model:
  layers: "gqa+dense, moa+moe*2"  # comment
  attention: &half {head_dim: 16}
  moa: *half
  router: {score: sigmoid, balance: bias}
data:
  train: [a.bin, {path: 'b.bin', weight: 0.5}]
train:
  tokens: 1e6
optim: {betas: [0.9, 0.95], lr: 3.0e-3}
)";

bool is_one_line(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; });
}

}  // namespace

TEST_CASE("mutated files", "[config][fuzz]") {
  REQUIRE(error_of({kSeedText, {}, ""}) == "no error");
  std::mt19937_64 rng(1);
  int64_t read = 0, accepted = 0;
  for (int64_t i = 0; i < fuzz_count(); ++i) {
    const std::string message = error_of({mutate(kSeedText, rng), {}, ""});
    if (!is_one_line(message)) REQUIRE(message == "one line");
    read += message.find("not YAML") == message.npos;
    accepted += message == "no error";
  }
  // Else the mutations would only test the YAML parser.
  REQUIRE(read > fuzz_count() / 4);
  REQUIRE(accepted > fuzz_count() / 100);
}

TEST_CASE("mutated --set options", "[config][fuzz]") {
  std::mt19937_64 rng(2);
  for (int64_t i = 0; i < fuzz_count() / 10; ++i) {
    const std::string message = error_of({kMinimal, {mutate("optim.betas=[0.9, 0.95]", rng)}, ""});
    if (!is_one_line(message)) REQUIRE(message == "one line");
  }
}
