#include "lib/tasks/score_task.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

namespace scatterlm {
namespace {

constexpr int64_t kLengthStep = 16;  ///< few lengths of rows: libraries choose, and memory is cached, per shape

/// A choice, and its number in the order of examples and choices.
struct Row {
  const TaskChoice* choice;
  int64_t number;

  int64_t inputs() const { return std::ssize(choice->tokens) - 1; }
};

int64_t padded_length(const Row& row) { return (row.inputs() + kLengthStep - 1) / kLengthStep * kLengthStep; }

/// The longest rows first, so that a pass that is too large for the memory is the first one.
std::vector<Row> rows_of(const Task& task) {
  std::vector<Row> rows;
  for (const TaskExample& example : task.examples)
    for (const TaskChoice& choice : example.choices) rows.push_back({&choice, std::ssize(rows)});
  std::ranges::stable_sort(rows, std::ranges::greater(), &Row::inputs);
  return rows;
}

std::vector<std::span<const Row>> passes_of(std::span<const Row> rows, int64_t tokens_per_pass) {
  std::vector<std::span<const Row>> passes;
  while (!rows.empty()) {
    const auto most = static_cast<size_t>(std::max<int64_t>(1, tokens_per_pass / padded_length(rows.front())));
    passes.push_back(rows.first(std::min(rows.size(), most)));
    rows = rows.subspan(passes.back().size());
  }
  return passes;
}

/// log p(target) in nats at N positions [N], fp64 on the CPU.
at::Tensor log_probs_of(const nn::Model& model, const at::Tensor& hidden_ND, const at::Tensor& target_N) {
  constexpr int64_t kMostLogits = 1 << 25;  // in memory at once
  const int64_t chunk = std::max<int64_t>(1, kMostLogits / model.config().vocab_size);
  std::vector<at::Tensor> parts;
  for (int64_t first = 0; first < target_N.size(0); first += chunk) {
    const int64_t last = std::min(target_N.size(0), first + chunk);
    const auto log_probs_NV = model.logits(hidden_ND.slice(0, first, last)).log_softmax(-1);
    parts.push_back(log_probs_NV.gather(1, target_N.slice(0, first, last).unsqueeze(1)).squeeze(1));
  }
  return at::cat(parts).to(at::kCPU, at::kDouble);
}

/// Sums over the choice of each row.
std::vector<double> sums_of(nn::Model& model, std::span<const Row> pass) {
  const int64_t length = padded_length(pass.front());
  auto input_BS = at::zeros({std::ssize(pass), length}, at::kLong);
  std::vector<int64_t> positions, targets;
  for (int64_t b = 0; b < std::ssize(pass); ++b) {
    const auto& [tokens, context, unused] = *pass[static_cast<size_t>(b)].choice;
    std::copy(tokens.begin(), tokens.end() - 1, input_BS.mutable_data_ptr<int64_t>() + b * length);
    for (int64_t i = context; i < std::ssize(tokens); ++i) {
      positions.push_back(b * length + i - 1);
      targets.push_back(tokens[static_cast<size_t>(i)]);
    }
  }
  const auto on_device = [&](const std::vector<int64_t>& values) { return at::tensor(values, at::kLong).to(model.device()); };
  nn::Context context;
  const auto hidden_TD = model.forward(input_BS.to(model.device()), context).flatten(0, 1);
  const auto log_probs_N = log_probs_of(model, hidden_TD.index_select(0, on_device(positions)), on_device(targets));
  std::vector<double> sums;
  const double* next = log_probs_N.const_data_ptr<double>();
  for (const Row& row : pass) {
    const int64_t count = std::ssize(row.choice->tokens) - row.choice->context;
    sums.push_back(std::accumulate(next, next + count, 0.0));
    next += count;
  }
  return sums;
}

/// Number of the largest value; -1 if one is not a number.
int64_t largest(const std::vector<double>& values) {
  if (std::ranges::any_of(values, [](double value) { return std::isnan(value); })) return -1;
  return std::ranges::max_element(values) - values.begin();
}

}  // namespace

TaskResult score_task(const Task& task, const std::vector<double>& log_probs) {
  int64_t right = 0, right_norm = 0;
  const double* next = log_probs.data();
  for (const TaskExample& example : task.examples) {
    std::vector<double> sums, per_length;
    for (const TaskChoice& choice : example.choices) {
      sums.push_back(*next);
      per_length.push_back(*next++ / choice.length);
    }
    right += largest(sums) == example.answer;
    right_norm += largest(per_length) == example.answer;
  }
  const auto count = static_cast<double>(task.examples.size());
  const auto error = [&](double p) { return std::sqrt(p * (1 - p) / std::max(1.0, count - 1)); };
  const double acc = static_cast<double>(right) / count, acc_norm = static_cast<double>(right_norm) / count;
  return {task.name, std::ssize(task.examples), acc, error(acc), acc_norm, error(acc_norm), task.length_unit};
}

std::vector<double> choice_log_probs(nn::Model& model, const Task& task, int64_t tokens_per_pass, Comm& comm,
                                     const std::function<void(int64_t)>& progress) {
  at::NoGradGuard no_grad;
  const auto rows = rows_of(task);
  const auto passes = passes_of(rows, tokens_per_pass);
  auto log_probs = at::zeros({std::ssize(rows)}, at::kDouble);
  auto* const values = log_probs.mutable_data_ptr<double>();
  int64_t done = 0;
  for (int64_t round = 0; round < std::ssize(passes); round += comm.world()) {
    // Forward passes may hold collectives: ranks for which no pass is left repeat the last one, and count nothing.
    const int64_t own = round + comm.rank(), last = std::ssize(passes) - 1;
    const auto pass = passes[static_cast<size_t>(std::min(own, last))];
    const auto sums = sums_of(model, pass);
    for (size_t i = 0; own <= last && i < pass.size(); ++i) values[pass[i].number] = sums[i];
    for (int64_t i = round; i <= std::min(last, round + comm.world() - 1); ++i)
      done += std::ssize(passes[static_cast<size_t>(i)]);
    if (progress) progress(done);
  }
  auto on_device = log_probs.to(model.device());
  comm.all_reduce(on_device);
  log_probs = on_device.cpu();
  return {log_probs.const_data_ptr<double>(), log_probs.const_data_ptr<double>() + log_probs.numel()};
}

}  // namespace scatterlm
