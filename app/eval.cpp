#include <CLI/CLI.hpp>

#include <cmath>
#include <iostream>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/tasks/read_task.h"
#include "lib/tasks/score_task.h"
#include "lib/train/batch_plan.h"
#include "lib/train/checkpointing.h"
#include "lib/train/data_files.h"
#include "lib/train/evaluate.h"
#include "lib/train/execution_setup.h"
#include "lib/train/logits.h"
#include "lib/train/run_tokenizer.h"
#include "lib/train/trained_model.h"
#include "lib/util/error.h"
#include "lib/util/escape.h"
#include "lib/util/file.h"
#include "lib/util/hash.h"
#include "lib/util/log/log.h"
#include "lib/util/progress.h"

namespace scatterlm {
namespace {

struct EvalOptions {
  std::string path, logits, ids;
  std::vector<std::string> data, tasks;
  int64_t tokens = 0;
  std::optional<int64_t> threads;
};

/// Progress of rank 0, and what the other ranks tell nobody.
template <class Evaluate>
auto with_progress(int64_t total, const char* unit, const Comm& comm, Evaluate evaluate) {
  if (comm.rank() > 0) return evaluate([](int64_t) {});
  Progress progress("evaluating", total, unit);
  const auto result = evaluate([&](int64_t done) { progress.update(done); });
  progress.finish();
  return result;
}

std::string validation_text(const TrainedModel& trained, EvalReader& reader, Comm& comm) {
  const auto& config = trained.config;
  const auto bytes_V = bytes_of_tokens(*make_tokenizer(trained.tokenizer), config.model.vocab_size);
  const auto result = with_progress(reader.num_tokens(), "tokens", comm, [&](const auto& progress) {
    return evaluate(*trained.model, reader, BatchPlan(config.train).per_pass, comm, bytes_V, progress);
  });
  const auto bpb = result.bits_per_byte ? fmt::format(", {:.4f} bits per byte", *result.bits_per_byte) : "";
  return fmt::format("validation loss {:.4f} nats/token, perplexity {:.3f}{}, {} tokens", result.loss, std::exp(result.loss),
                     bpb, result.tokens);
}

std::string task_text(const TrainedModel& trained, const Task& task, Comm& comm) {
  int64_t rows = 0;
  for (const TaskExample& example : task.examples) rows += std::ssize(example.choices);
  const int64_t tokens = BatchPlan(trained.config.train).per_pass * trained.config.train.sequence_length;
  const auto log_probs = with_progress(rows, "choices", comm, [&](const auto& progress) {
    return choice_log_probs(*trained.model, task, tokens, comm, progress);
  });
  const auto result = score_task(task, log_probs);
  return fmt::format("{}: acc {:.4f}, acc_norm {:.4f} (length in {}), standard errors {:.4f} and {:.4f}, {} examples",
                     result.name, result.acc, result.acc_norm, result.length_unit, result.acc_stderr, result.acc_norm_stderr,
                     result.examples);
}

void evaluate_checkpoint(const EvalOptions& options) {
  const auto world = find_launch_env(current_environment());
  if (world.size > 1) log_as_rank(world.rank);
  auto trained = load_trained_model(options.path, options.threads, world);
  auto& config = trained.config;
  const auto tasks = read_tasks(options.tasks, config, trained.tokenizer);
  if (!options.data.empty()) {
    config.data.validation.clear();
    for (const auto& path : options.data) config.data.validation.push_back({path, 1});
  }
  std::optional<EvalReader> reader;
  if (tasks.empty() || !options.data.empty() || options.tokens > 0) {
    if (config.data.validation.empty())
      fail_user("{}: its configuration names no data.validation; give --data PATH", options.path);
    reader.emplace(config.data, config.model.vocab_size, config.train.sequence_length, options.tokens);
    check_tokenizer(trained.tokenizer, config.data.tokenizer, reader->fingerprint());
  }
  const std::string identity = world.size == 1
                                   ? ""
                                   : fmt::format("program = {}\ncheckpoint = {}\n--tokens = {}\n",
                                                 hash_hex(read_file("/proc/self/exe")), trained.checkpoint, options.tokens) +
                                         (reader ? data_identity(*reader) : "") + task_identity(tasks);
  const auto comm =
      make_comm({.launch_env = world,
                 .device = trained.numerics.device,
                 .start_timeout_s = config.checkpoint.timeout_s,  // ranks connect when they have read the checkpoint
                 .timeout_s = config.parallel.timeout_s,
                 .storage_timeout_s = config.checkpoint.timeout_s,
                 .identity = identity});
  const auto print = [&](const std::string& text) {
    if (comm->rank() == 0) std::cout << fmt::format("{}: {}\n", escape_control(trained.checkpoint), text) << std::flush;
  };
  if (reader) print(validation_text(trained, *reader, *comm));
  for (const Task& task : tasks) print(task_text(trained, task, *comm));
}

/// The logits of given tokens, to compare them with another program's.
void evaluate_logits(const EvalOptions& options) {
  if (options.ids.empty() || options.logits.empty()) fail_user("--logits and --ids need each other");
  if (!options.data.empty() || !options.tasks.empty() || options.tokens > 0)
    fail_user("--logits takes its tokens from --ids, not from --data or --task");
  if (find_launch_env(current_environment()).size > 1) fail_user("--logits does not share its work among ranks: run it alone");
  auto trained = load_trained_model(options.path, options.threads);
  const auto ids_BS = read_ids(options.ids, trained.config.model.vocab_size);
  Progress progress("evaluating", ids_BS.numel(), "tokens");
  write_logits(options.logits, *trained.model, ids_BS, [&](int64_t done) { progress.update(done); });
  progress.finish();
  std::cout << fmt::format("{}: logits of {} tokens in {}\n", escape_control(trained.checkpoint), ids_BS.numel(),
                           escape_control(options.logits));
}

}  // namespace

void add_eval(CLI::App& app, int&) {
  auto* command = app.add_subcommand("eval", "Validation loss of a checkpoint, and its accuracy on multiple-choice tasks");
  auto options = std::make_shared<EvalOptions>();
  command->add_option("path", options->path, "Run folder (its newest complete checkpoint) or checkpoint folder")->required();
  command->add_option("--data", options->data, "Token files in place of the configuration's data.validation");
  command->add_option("--tokens", options->tokens, "Number of tokens to evaluate, spread evenly over the files; 0 = all")
      ->check(at_least(0));
  command
      ->add_option(
          "--task", options->tasks,
          "Multiple-choice task, in llm.c's format or as JSON lines; may be repeated. The validation loss is then computed only "
          "if --data or --tokens asks for it")
      ->allow_extra_args(false);
  command->add_option("--logits", options->logits,
                      "Write the logits of the tokens of --ids to this safetensors file, and nothing else");
  command->add_option("--ids", options->ids, "safetensors file with token numbers: input_ids [sequences, length]");
  add_threads(*command, options->threads);
  command->footer(
      "Example:\n  scatterlm eval runs/quickstart\n  scatterlm eval runs/quickstart --task hellaswag.jsonl\n"
      "  scatterlm launch -n 8 eval runs/quickstart");
  keep_options(*command, options);
  command->callback([options] {
    const bool logits = !options->logits.empty() || !options->ids.empty();
    (logits ? evaluate_logits : evaluate_checkpoint)(*options);
  });
}

}  // namespace scatterlm
