#include <CLI/CLI.hpp>
#include <iostream>
#include <iterator>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/tokenizer/tokenizer_files.h"
#include "lib/train/sampling.h"
#include "lib/train/trained_model.h"
#include "lib/util/error.h"
#include "lib/util/log/log.h"

namespace scatterlm {
namespace {

struct GenerateOptions {
  std::string path, prompt;
  int64_t max_tokens = 400;
  std::optional<int64_t> threads;
  SamplingOptions sampling{.temperature = 0.8, .top_k = 0, .top_p = 0.95, .seed = 0};
};

std::string read_prompt(const std::string& option) {
  if (option != "-") return option;
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

void generate_text(const GenerateOptions& options) {
  auto trained = load_trained_model(options.path, options.threads);
  const auto tokenizer = make_tokenizer(trained.tokenizer);
  const auto text = read_prompt(options.prompt);
  const auto encoded = tokenizer->encode(text, SpecialTokens::kRecognised);
  std::vector<int64_t> prompt(encoded.begin(), encoded.end());
  int64_t eot = trained.config.data.eot_token;
  if (eot < 0 && !trained.tokenizer.content.empty()) eot = tokenizer->eot().value_or(-1);
  if (eot >= tokenizer->vocab_size()) {
    fail_user(
        "{}: its documents end with data.eot_token {}, which is none of the {} tokens of data.tokenizer: {}: it was trained on the "
        "tokens of another tokenizer, and can be evaluated, not sampled",
        trained.checkpoint, eot, tokenizer->vocab_size(), trained.config.data.tokenizer);
  }
  if (prompt.empty()) {
    if (eot < 0)
      fail_user("{}: generation without a prompt starts after data.eot_token, which this model does not have; give --prompt",
                options.path);
    prompt.push_back(eot);
  }
  const auto most = static_cast<size_t>(trained.config.train.sequence_length);
  if (prompt.size() > most) {  // the time of attention grows with the square of the length
    log_warning(
        fmt::format("the model was trained on sequences of {} tokens (train.sequence_length): it sees the last {} of the "
                    "prompt's {}",
                    most, most, prompt.size()));
    prompt.erase(prompt.begin(), prompt.end() - static_cast<std::ptrdiff_t>(most));
  }
  std::cout << text << std::flush;
  auto decoder = tokenizer->decoder();
  const auto fail_without_text = [&](int64_t token) {
    std::cout << decoder.finish() << std::endl;
    fail_user(
        "{}: the model chose token {} of its vocabulary of {}, but data.tokenizer: {} has text for {} tokens only. A model of another "
        "tokenizer's tokens can be evaluated, not sampled; one of bytes needs more training, or --top-k or --temperature lower",
        trained.checkpoint, token, trained.config.model.vocab_size, trained.config.data.tokenizer, tokenizer->vocab_size());
  };
  generate(*trained.model, prompt, options.max_tokens, options.sampling, [&](int64_t token) {
    if (token == eot) return false;
    if (token >= tokenizer->vocab_size()) fail_without_text(token);
    std::cout << decoder.push(static_cast<uint32_t>(token)) << std::flush;
    return std::cout.good();
  });
  std::cout << decoder.finish() << std::endl;
}

}  // namespace

void add_generate(CLI::App& app, int&) {
  auto* command = app.add_subcommand("generate", "Generate text by sampling from a trained model");
  auto options = std::make_shared<GenerateOptions>();
  auto& sampling = options->sampling;
  command->add_option("path", options->path, "Run folder (its newest complete checkpoint) or checkpoint folder")->required();
  command->add_option(
      "--prompt", options->prompt,
      "Text to continue, of which the last train.sequence_length tokens count; - reads it from standard input; empty: start after an end-of-text token");
  command->add_option("--max-tokens", options->max_tokens, "Maximum number of new tokens")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_option("--temperature", sampling.temperature, "Sampling temperature; 0 = greedy decoding")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_option("--top-k", sampling.top_k, "Sample from the k most likely tokens; 0 = all")
      ->capture_default_str()
      ->check(at_least(0));
  command
      ->add_option("--top-p", sampling.top_p,
                   "Nucleus sampling: from the most likely tokens, up to this cumulative probability")
      ->capture_default_str()
      ->check(in_range(0.0, 1.0));
  command->add_option("--seed", sampling.seed, "Random seed; the same seed gives the same text")
      ->capture_default_str()
      ->check(at_least(0));
  add_threads(*command, options->threads);
  command->footer("Example:\n  scatterlm generate runs/quickstart --prompt '#include <' --temperature 0.7 --seed 1");
  command->callback([options] { generate_text(*options); });
}

}  // namespace scatterlm
