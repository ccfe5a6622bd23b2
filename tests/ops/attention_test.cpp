#include "lib/ops/attention.h"

#include "tests/ops/reference.h"

#include "tests/ops/check_op.h"

namespace scatterlm {
namespace {

using test::Tensors;

constexpr double kUlps = 4;  // flash attention makes the probabilities a second time, from a rounded logsumexp

struct Case {
  int64_t batch, queries, keys, heads, kv_heads, width;
};

Tensors attention_inputs(const Case& c) {
  return {test::randn({c.batch, c.queries, c.heads, c.width}, 1), test::randn({c.batch, c.keys, c.kv_heads, c.width}, 2),
          test::randn({c.batch, c.keys, c.kv_heads, c.width}, 3)};
}

/// Documents that start at different places in each sequence.
at::Tensor make_documents(int64_t batch, int64_t keys) {
  auto document = at::zeros({batch, keys}, at::kInt);
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t s = 1; s < keys; ++s) document[b][s] = document[b][s - 1] + ((s + b) % 4 == 0 ? 1 : 0);
  return document;
}

std::optional<ops::Documents> documents_of(const std::optional<at::Tensor>& document_BS, const at::Tensor& q) {
  return document_BS ? std::optional<ops::Documents>(std::in_place, *document_BS, q.device()) : std::nullopt;
}

}  // namespace

TEST_CASE("attention: values and gradients", "[attention]") {
  const auto c = GENERATE(Case{1, 1, 1, 1, 1, 2}, Case{2, 5, 5, 4, 4, 4}, Case{2, 7, 7, 4, 2, 6}, Case{1, 6, 6, 6, 1, 2},
                          Case{2, 1, 9, 4, 2, 4});
  const bool documents = GENERATE(false, true);
  const auto document = documents ? std::optional(make_documents(c.batch, c.keys)) : std::nullopt;
  const bool in_turns = GENERATE(false, true);
  const auto op = [&](const Tensors& x) {
    const auto seen = documents_of(document, x[0]);
    if (!in_turns) return ops::attention(x[0], x[1], x[2], seen);
    return ops::attention_in_turns(x[0], x[1], x[2], seen ? std::optional(seen->mask().slice(2, -c.queries)) : std::nullopt);
  };
  test::require_correct(
      op, [&](const Tensors& x) { return reference::attention(x[0], x[1], x[2], document); }, attention_inputs(c), {}, kUlps);
}

TEST_CASE("attention: a sliding window, values and gradients", "[attention]") {
  const auto c = GENERATE(Case{1, 1, 1, 1, 1, 2}, Case{2, 7, 7, 4, 2, 6}, Case{1, 6, 6, 3, 3, 2}, Case{2, 1, 9, 4, 2, 4});
  const auto window = GENERATE(2, 3, 6, 9, 100);
  const bool documents = GENERATE(false, true);
  const auto document = documents ? std::optional(make_documents(c.batch, c.keys)) : std::nullopt;
  test::require_correct(
      [&](const Tensors& x) { return ops::attention(x[0], x[1], x[2], documents_of(document, x[0]), window); },
      [&](const Tensors& x) { return reference::attention(x[0], x[1], x[2], document, window); }, attention_inputs(c), {},
      kUlps);
}

TEST_CASE("attention: a window of one position sees itself alone", "[attention]") {
  const auto x = attention_inputs({2, 6, 6, 2, 2, 4});
  REQUIRE(test::max_abs(ops::attention(x[0], x[1], x[2], {}, 1) - x[2]) < 1e-12);
}

TEST_CASE("attention: long sequences in fp32", "[attention]") {
  const auto c = GENERATE(Case{1, 257, 257, 2, 1, 32}, Case{1, 65, 65, 2, 2, 33});
  const bool documents = GENERATE(false, true);
  const auto document = documents ? std::optional(make_documents(c.batch, c.keys)) : std::nullopt;
  test::require_low_precision([&](const Tensors& x) { return ops::attention(x[0], x[1], x[2], documents_of(document, x[0])); },
                              [&](const Tensors& x) { return reference::attention(x[0], x[1], x[2], document); },
                              attention_inputs(c), {.dtype = at::kFloat, .ulps = kUlps});
}

TEST_CASE("attention: a decode step equals the last row of the whole sequence", "[attention]") {
  const auto x = attention_inputs({2, 9, 9, 4, 2, 8});
  const auto whole = ops::attention(x[0], x[1], x[2]), step = ops::attention(x[0].slice(1, 8), x[1], x[2]);
  REQUIRE(test::max_abs(whole.slice(1, 8) - step) < 1e-12);
}

TEST_CASE("attention: later keys and other documents change nothing", "[attention]") {
  const auto x = attention_inputs({1, 8, 8, 2, 2, 4});
  auto changed = x[1].clone();
  changed.slice(1, 5) += 7;
  REQUIRE(at::equal(ops::attention(x[0], x[1], x[2]).slice(1, 0, 5), ops::attention(x[0], changed, x[2]).slice(1, 0, 5)));
  const auto document = at::tensor({0, 0, 0, 1, 1, 1, 1, 1}, at::kInt).unsqueeze(0);
  changed = x[1].clone();
  changed.slice(1, 0, 3) += 7;
  const auto seen = documents_of(document, x[0]);
  REQUIRE(at::equal(ops::attention(x[0], x[1], x[2], seen).slice(1, 3), ops::attention(x[0], changed, x[2], seen).slice(1, 3)));
}

TEST_CASE("attention: errors", "[attention]") {
  const auto q = at::ones({1, 4, 4, 8}), k = at::ones({1, 4, 2, 8});
  REQUIRE_THROWS_WITH(ops::attention(q, at::ones({1, 4, 3, 8}), at::ones({1, 4, 3, 8})),
                      ContainsSubstring("[attention]") && ContainsSubstring("[1, 4, 3, 8]"));
  REQUIRE_THROWS_WITH(ops::attention(q, k, at::ones({1, 4, 2, 6})),
                      ContainsSubstring("v must be [1, 4, 2, 8] as k, got [1, 4, 2, 6]"));
  REQUIRE_THROWS_WITH(ops::attention(q.slice(1, 0, 2), k, k), ContainsSubstring("Sq must be Sk=4 or 1, got 2"));
  REQUIRE_THROWS_WITH(ops::attention(q, k, k, ops::Documents(at::zeros({1, 5}, at::kInt), at::kCPU)),
                      ContainsSubstring("[attention] documents must be of [B=1, Sk=4], got [1, 5]"));
  REQUIRE_THROWS_WITH(ops::attention_in_turns(q, k, k, at::ones({1, 1, 4, 5}, at::kBool)),
                      ContainsSubstring("mask must be bool [B=1, 1, Sq=4, Sk=4], got Bool [1, 1, 4, 5]"));
  REQUIRE_THROWS_WITH(ops::attention(q, k, k, {}, -1),
                      ContainsSubstring("[attention] window must be") && ContainsSubstring("-1"));
}

TEST_CASE("attention: on a GPU", "[attention][.gpu]") {
  const auto dtype = GENERATE(at::kFloat, at::kBFloat16);
  const auto c = GENERATE(Case{2, 65, 65, 4, 2, 64}, Case{2, 1, 33, 4, 2, 64});
  const bool documents = GENERATE(false, true);
  const auto window = GENERATE(0, 2, 17, 64);
  const auto document = documents ? std::optional(make_documents(c.batch, c.keys)) : std::nullopt;
  test::require_low_precision(
      [&](const Tensors& x) { return ops::attention(x[0], x[1], x[2], documents_of(document, x[0]), window); },
      [&](const Tensors& x) { return reference::attention(x[0], x[1], x[2], document, window); }, attention_inputs(c),
      {.dtype = dtype, .device = at::kCUDA, .ulps = 4 * kUlps});
}

TEST_CASE("attention: documents on a GPU", "[attention][.gpu]") {
  const auto c = GENERATE(Case{3, 130, 130, 4, 4, 64}, Case{3, 130, 130, 4, 1, 128});
  const auto window = GENERATE(0, 2, 40, 129);
  const auto token = at::arange(c.keys, at::kInt), second_sequence = (at::arange(c.batch, at::kInt) == 1).unsqueeze(1);
  const auto starts = GENERATE_COPY(token < 0,                                           // one document a sequence
                                    token % 3 != 1,                                      // one or two tokens a document
                                    second_sequence & (token == 1),                      // one and 129 tokens there
                                    token == at::tensor({1, 50, 129}).unsqueeze(1),      // two in every sequence
                                    (token + at::arange(c.batch).unsqueeze(1)) % 4 == 0  // short ones
  );
  const auto document = starts.expand({c.batch, c.keys}).cumsum(1).to(at::kInt);
  test::require_low_precision(
      [&](const Tensors& x) {
        const auto qk = at::cat({x[0], x[1]}, 2);  // queries and keys are slices of one product, as in a layer
        return ops::attention(qk.slice(2, 0, c.heads), qk.slice(2, c.heads), x[2], documents_of(document, x[0]), window);
      },
      [&](const Tensors& x) { return reference::attention(x[0], x[1], x[2], document, window); }, attention_inputs(c),
      {.dtype = at::kBFloat16, .device = at::kCUDA, .ulps = 4 * kUlps});
}

}  // namespace scatterlm
