#include "lib/train/decode_speed.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "lib/train/decoder.h"
#include "tests/train/tiny_run.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

/// Logits [B, V] of what follows `tokens_BS`, in one pass over all of them.
at::Tensor logits_of_pass(nn::Model& model, const at::Tensor& tokens_BS) {
  const at::NoGradGuard no_grad;
  nn::Context context;
  return model.logits(model.forward(tokens_BS, context).select(1, -1));
}

}  // namespace

TEST_CASE("a decoder's logits are those of one pass over all tokens", "[decoding]") {
  TinyRun run;
  const auto tokens_BS = at::arange(24).view({2, 12}) * 7 % 50;
  Decoder decoder(run.state->model);
  for (int text = 0; text < 2; text++) {
    auto logits_BV = decoder.next(tokens_BS.narrow(1, 0, 5));
    for (int64_t length = 5;; length++) {
      REQUIRE(at::allclose(logits_BV, logits_of_pass(run.state->model, tokens_BS.narrow(1, 0, length)), 1e-4, 1e-5));
      if (length == 12) break;
      logits_BV = decoder.next(tokens_BS.narrow(1, length, 1));
    }
    decoder.restart();
  }
}

TEST_CASE("a decoder's cache grows: while decoding, and for a longer prompt than before", "[decoding]") {
  TinyRun run;
  const auto tokens_BS = (at::arange(600).view({2, 300}) * 7 + at::arange(300) / 5).to(at::kLong) % 50;
  Decoder decoder(run.state->model, 10);
  for (const int64_t prompt : {254, 290}) {
    decoder.restart();
    auto logits_BV = decoder.next(tokens_BS.narrow(1, 0, prompt));
    for (int64_t length = prompt;; length++) {
      REQUIRE(at::allclose(logits_BV, logits_of_pass(run.state->model, tokens_BS.narrow(1, 0, length)), 1e-4, 1e-5));
      if (length == prompt + 6) break;
      logits_BV = decoder.next(tokens_BS.narrow(1, length, 1));
    }
  }
}

TEST_CASE("a recorded step gives the bits of a step that is not", "[decoding][.gpu]") {
  auto config = TinyRun().config.model;
  config.layers = GENERATE("moa+moe, gqa+dense", "swa+moe, gqa+moe");
  config.attention.window = 9;
  config.attention.qk_norm = config.moa.qk_norm = GENERATE(QkNorm::kNone, QkNorm::kFull, QkNorm::kHead);
  config.attention.head_dim = config.moa.head_dim = 16;
  const auto dtype = GENERATE(at::kBFloat16, at::kFloat);  // float32 experts wait for the GPU, so nothing is recorded
  const int64_t batch = GENERATE(1, 2, 40);                // the last with the kernels for many rows
  nn::Model model(config, at::TensorOptions().dtype(dtype).device(at::kCUDA));
  allocate(model.units(), *make_single_comm());
  for (const auto& unit : model.units()) unit->flat_params().copy_(unit->initial_values(7, 0, unit->size()));
  const auto prompt_BS = (at::arange(batch * 250).view({batch, 250}) * 7 % 50).to(at::kCUDA);

  const at::NoGradGuard no_grad;
  Decoder decoder(model);
  nn::KvCache cache(config.num_hidden_layers, at::kCUDA);
  for (int text = 0; text < 2; text++) {  // the second starts what the first has recorded
    decoder.restart();
    cache.clear();
    auto tokens_BS = prompt_BS + text;
    for (int n = 0; n < 20; n++) {  // over the end of the first capacity
      cache.reserve(cache.length() + tokens_BS.size(1));
      nn::Context context{.cache = &cache};
      const auto expected_BV = model.logits(model.forward(tokens_BS, context).select(1, -1));
      cache.advance(tokens_BS.size(1));
      const auto logits_BV = decoder.next(tokens_BS);
      INFO("text " << text << ", token " << n << ", difference " << (logits_BV - expected_BV).abs().max().item<double>());
      REQUIRE(at::equal(logits_BV, expected_BV));
      tokens_BS = expected_BV.argmax(1, /*keepdim=*/true);
    }
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
