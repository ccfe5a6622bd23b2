#include "lib/train/decode_speed.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lib/train/decoder.h"
#include "tests/train/tiny_run.h"

#include "tests/catch.h"

using namespace scatterlm;

TEST_CASE("a decoder's logits are those of one pass over all tokens", "[decoding]") {
  TinyRun run;
  const auto tokens_BS = at::arange(24).view({2, 12}) * 7 % 50;
  Decoder decoder(run.state->model);
  auto logits_BV = decoder.next(tokens_BS.narrow(1, 0, 5));
  for (int64_t length = 5;; length++) {
    const at::NoGradGuard no_grad;
    nn::Context context;
    const auto hidden_BSD = run.state->model.forward(tokens_BS.narrow(1, 0, length), context);
    const auto expected = run.state->model.logits(hidden_BSD.select(1, -1));
    REQUIRE(at::allclose(logits_BV, expected, 1e-4, 1e-5));
    if (length == 12) break;
    logits_BV = decoder.next(tokens_BS.narrow(1, length, 1));
  }
}

TEST_CASE("decoding: a time for each round, and the weights that a token multiplies", "[decoding]") {
  TinyRun run;
  const auto times = measure_decoding(run.config, {at::kCPU, at::kFloat, true}, {.batch = 3, .prompt = 4, .tokens = 2}, 2);
  for (const auto& all : {times.prefill_ms, times.token_ms}) {
    REQUIRE(all.size() == 2);
    REQUIRE((all[0] > 0 && all[1] > 0));
  }
  // Width 16; a layer moa+moe with 2 of 4 experts each, of one head of 8 and of width 8; a layer gqa+dense with 2 heads of 8
  // and width 16. Head, routers, experts, keys and values, then the dense layer.
  const double expert = 2 * 8 * 16 + 3 * 8 * 16, rest = 300 * 16 + 2 * 4 * 16 + 2 * 8 * 16 + 4 * 16 * 16 + 3 * 16 * 16;
  REQUIRE(decoded_weight_bytes(run.config.model, 1, 4) == 4 * (rest + 2 * expert));
  REQUIRE(decoded_weight_bytes(run.config.model, 1, 2) == 2 * (rest + 2 * expert));
  REQUIRE(decoded_weight_bytes(run.config.model, 9, 4) == 4 * (rest + 4 * expert));
}
