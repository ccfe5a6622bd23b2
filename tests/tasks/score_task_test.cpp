#include "lib/tasks/score_task.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <cmath>

#include "lib/distributed/silent_comm.h"

#include "tests/catch.h"

using namespace scatterlm;

namespace {

constexpr int64_t kVocabulary = 40;

/// A small model of every kind of layer, with weights large enough for distinct answers.
struct ScoredModel {
  ScoredModel() : model(config(), at::kFloat) {
    allocate(model.units(), *make_single_comm());
    for (const auto& unit : model.units()) unit->flat_params().detach().copy_(unit->initial_values(5, 0, unit->size()));
  }
  static ModelConfig config() {
    ModelConfig c;
    c.vocab_size = kVocabulary;
    c.hidden_size = 16;
    c.num_hidden_layers = 2;
    c.layers = "moa+moe, gqa+dense";
    c.initializer_range = 0.4;
    c.attention = {.num_attention_heads = 2, .num_key_value_heads = 2, .head_dim = 8};
    c.moa = {.num_experts = 4, .num_experts_per_tok = 2, .num_key_value_heads = 1, .head_dim = 8};
    c.moe = {.num_experts = 4, .num_experts_per_tok = 2, .moe_intermediate_size = 8};
    c.dense = {.intermediate_size = 16};
    return c;
  }

  nn::Model model;
};

/// Rows of 2 to 50 tokens.
Task random_task(int64_t examples) {
  uint32_t state = 1;
  const auto random = [&](uint32_t below) { return (state = state * 1664525 + 1013904223) / 65536 % below; };
  Task task{.name = "t", .length_unit = "tokens"};
  for (int64_t i = 0; i < examples; ++i) {
    TaskExample example{.answer = i % 3};
    for (int choice = 0; choice < 3; ++choice) {
      const int64_t context = 1 + random(40), length = 1 + random(9);
      TaskChoice row{.context = context, .length = static_cast<double>(length)};
      for (int64_t t = 0; t < context + length; ++t) row.tokens.push_back(random(kVocabulary));
      example.choices.push_back(std::move(row));
    }
    task.examples.push_back(std::move(example));
  }
  return task;
}

/// Row by row, without padding, from the logits of all positions.
std::vector<double> one_by_one(nn::Model& model, const Task& task) {
  const at::NoGradGuard no_grad;
  std::vector<double> sums;
  for (const auto& example : task.examples) {
    for (const auto& row : example.choices) {
      const std::vector<int64_t> tokens(row.tokens.begin(), row.tokens.end());
      nn::Context context;
      const auto hidden = model.forward(at::tensor(tokens).unsqueeze(0), context).squeeze(0);
      const auto log_probs_SV = model.logits(hidden).to(at::kDouble).log_softmax(-1);
      double sum = 0;
      for (size_t t = static_cast<size_t>(row.context); t < tokens.size(); ++t)
        sum += log_probs_SV[static_cast<int64_t>(t) - 1][tokens[t]].item<double>();
      sums.push_back(sum);
    }
  }
  return sums;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

/// Forward passes since it was set to 0: each looks up one embedding.
int64_t passes_made = 0;
std::unique_ptr<at::ObserverContext> count_pass(const at::RecordFunction& call) {
  passes_made += std::string_view(call.name()) == "aten::embedding";
  return nullptr;
}

Task two_choices(std::vector<int64_t> answers) {
  Task task{.name = "two", .length_unit = "bytes"};
  for (const int64_t answer : answers) {
    task.examples.push_back(
        {.choices = {{.tokens = {}, .context = 1, .length = 2}, {.tokens = {}, .context = 1, .length = 4}}, .answer = answer});
  }
  return task;
}

}  // namespace

TEST_CASE("accuracy: the largest sum, and the largest sum per length") {
  // Sums choose 0, 1, 0; divided by 2 and 4 they are -1 and -0.75, -2 and -0.5, -0.5 and -2.
  const auto result = score_task(two_choices({0, 1, 1}), {-2, -3, -4, -2, -1, -8});
  REQUIRE(result.name == "two");
  REQUIRE(result.examples == 3);
  REQUIRE(result.length_unit == "bytes");
  REQUIRE(result.acc == 2.0 / 3);
  REQUIRE(result.acc_norm == 1.0 / 3);
  REQUIRE(std::abs(result.acc_stderr - std::sqrt(2.0 / 9 / 2)) < 1e-15);
  REQUIRE(std::abs(result.acc_norm_stderr - std::sqrt(2.0 / 9 / 2)) < 1e-15);
}

TEST_CASE("accuracy: a tie goes to the first choice, and what is not a number is wrong") {
  REQUIRE(score_task(two_choices({0}), {-1, -1}).acc == 1);
  REQUIRE(score_task(two_choices({1}), {-1, -1}).acc == 0);
  REQUIRE(score_task(two_choices({1}), {-1, -2}).acc_norm == 0);
  REQUIRE(score_task(two_choices({0}), {std::nan(""), std::nan("")}).acc == 0);
  REQUIRE(score_task(two_choices({0}), {-1, std::nan("")}).acc == 0);
  REQUIRE(score_task(two_choices({0}), {-1, -1}).acc_stderr == 0);
}

TEST_CASE("log-probabilities of choices: padding and the company in a batch do not matter") {
  ScoredModel scored;
  const Task task = random_task(9);
  const auto expected = one_by_one(scored.model, task);
  for (const int64_t tokens_per_pass : {1, 100, 100000}) {  // one row at a time, some, all
    CAPTURE(tokens_per_pass);
    const auto log_probs = choice_log_probs(scored.model, task, tokens_per_pass, *make_single_comm());
    REQUIRE(largest_difference(log_probs, expected) < 1e-4);
  }
  const auto [least, most] = std::ranges::minmax(expected);
  REQUIRE(most - least > 1);  // else a difference of 1e-4 would say nothing
}

TEST_CASE("log-probabilities of choices: ranks share the passes, make equally many and count each once") {
  ScoredModel scored;
  const Task task = random_task(5);
  const auto handle = at::addGlobalCallback(at::RecordFunctionCallback(count_pass));
  const auto score_on = [&](int64_t rank, int64_t world) {
    SilentComm comm(rank, world);  // a sum is what this rank adds to it
    passes_made = 0;
    int64_t done = 0;
    auto log_probs = choice_log_probs(scored.model, task, 128, comm, [&](int64_t rows) { done = rows; });
    REQUIRE(done == 15);
    return log_probs;
  };
  const auto whole = score_on(0, 1);
  const int64_t passes = passes_made;
  REQUIRE(passes > 3);
  for (const int64_t world : {2, 3, 8}) {
    std::vector<double> sum(whole.size(), 0);
    for (int64_t rank = 0; rank < world; ++rank) {
      const auto part = score_on(rank, world);
      CAPTURE(world, rank);
      REQUIRE(passes_made == (passes + world - 1) / world);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
    }
    REQUIRE(sum == whole);
  }
  at::removeCallback(handle);
}
