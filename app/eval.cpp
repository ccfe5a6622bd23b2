#include <CLI/CLI.hpp>
#include <cmath>
#include <iostream>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/train/batch_plan.h"
#include "lib/train/checkpointing.h"
#include "lib/train/evaluate.h"
#include "lib/train/execution_setup.h"
#include "lib/train/logits.h"
#include "lib/train/run_tokenizer.h"
#include "lib/train/trained_model.h"
#include "lib/util/error.h"
#include "lib/util/escape.h"
#include "lib/util/progress.h"

namespace scatterlm {
namespace {

struct EvalOptions {
  std::string path, logits, ids;
  std::vector<std::string> data;
  int64_t tokens = 0;
  std::optional<int64_t> threads;
};

void evaluate_checkpoint(const EvalOptions& options) {
  auto trained = load_trained_model(options.path, options.threads);
  auto& config = trained.config;
  if (!options.data.empty()) {
    config.data.validation.clear();
    for (const auto& path : options.data) config.data.validation.push_back({path, 1});
  }
  if (config.data.validation.empty())
    fail_user("{}: its configuration names no data.validation; give --data PATH", options.path);
  EvalReader reader(config.data, config.model.vocab_size, config.train.sequence_length, options.tokens);
  check_tokenizer(trained.tokenizer, config.data.tokenizer, reader.fingerprint());
  Progress progress("evaluating", reader.num_tokens(), "tokens");
  const auto result = evaluate(*trained.model, reader, BatchPlan(config.train).per_pass, *make_single_comm(),
                               [&](int64_t done) { progress.update(done); });
  progress.finish();
  std::cout << fmt::format("{}: validation loss {:.4f} nats/token, perplexity {:.3f}, {} tokens\n",
                           escape_control(trained.checkpoint), result.loss, std::exp(result.loss), result.tokens);
}

/// The logits of given tokens, to compare them with another program's.
void evaluate_logits(const EvalOptions& options) {
  if (options.ids.empty() || options.logits.empty()) fail_user("--logits and --ids need each other");
  if (!options.data.empty() || options.tokens > 0) fail_user("--logits takes its tokens from --ids, not from --data");
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
  auto* command = app.add_subcommand("eval", "Validation loss and perplexity of a checkpoint");
  auto options = std::make_shared<EvalOptions>();
  command->add_option("path", options->path, "Run folder (its newest complete checkpoint) or checkpoint folder")->required();
  command->add_option("--data", options->data, "Token files in place of the configuration's data.validation");
  command->add_option("--tokens", options->tokens, "Number of tokens to evaluate, spread evenly over the files; 0 = all")
      ->check(at_least(0));
  command->add_option("--logits", options->logits,
                      "Write the logits of the tokens of --ids to this safetensors file, and nothing else");
  command->add_option("--ids", options->ids, "safetensors file with token numbers: input_ids [sequences, length]");
  add_threads(*command, options->threads);
  command->footer("Example:\n  scatterlm eval runs/quickstart");
  command->callback([options] {
    const bool logits = !options->logits.empty() || !options->ids.empty();
    (logits ? evaluate_logits : evaluate_checkpoint)(*options);
  });
}

}  // namespace scatterlm
