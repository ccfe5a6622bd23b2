#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lib/distributed/comm.h"
#include "lib/nn/model.h"
#include "lib/tasks/task.h"

namespace scatterlm {

/// The share of examples answered right, 0 to 1, in two ways; names and standard errors as in lm-evaluation-harness.
struct TaskResult {
  std::string name;
  int64_t examples = 0;
  double acc = 0, acc_stderr = 0;            ///< chosen by the sum of the choice's log-probabilities
  double acc_norm = 0, acc_norm_stderr = 0;  ///< by that sum divided by the choice's length
  std::string length_unit;                   ///< of that length: "bytes" or "tokens"
};

/// What log-probabilities of all choices, in nats and in the order of examples and choices, say. A tie goes to the first
/// choice; an example with one that is not a number counts as wrong. Standard errors are sqrt(p (1 - p) / (n - 1)).
TaskResult score_task(const Task& task, const std::vector<double>& log_probs);

/// log p(choice | context) of every choice, in nats, in the order of examples and choices, the same on all ranks. Rows of
/// similar length share a forward pass of up to `tokens_per_pass` tokens, padded at the end, which causal attention does not
/// see. Ranks take turns, and all make the same number of forward passes. `progress` is told the rows done so far by all ranks.
std::vector<double> choice_log_probs(nn::Model& model, const Task& task, int64_t tokens_per_pass, Comm& comm,
                                     const std::function<void(int64_t)>& progress = {});

}  // namespace scatterlm
