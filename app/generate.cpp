#include <CLI/CLI.hpp>
#include <iostream>
#include <iterator>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/data/tokenizer.h"
#include "lib/train/sampling.h"
#include "lib/train/trained_model.h"
#include "lib/util/error.h"

namespace scatterlm {
namespace {

struct GenerateOptions {
  std::string path, prompt;
  int64_t max_tokens = 400;
  SamplingOptions sampling{.temperature = 0.8, .top_k = 0, .top_p = 0.95, .seed = 0};
};

std::string read_prompt(const std::string& option) {
  if (option != "-") return option;
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

void generate_text(const GenerateOptions& options) {
  auto trained = load_trained_model(options.path);
  const auto tokenizer = make_tokenizer(trained.config.data.tokenizer);
  const auto text = read_prompt(options.prompt);
  const auto encoded = tokenizer->encode(text);
  std::vector<int64_t> prompt(encoded.begin(), encoded.end());
  const int64_t eot = trained.config.data.eot_token;
  if (prompt.empty()) {
    if (eot < 0)
      fail_user("{}: generation without a prompt starts after data.eot_token, which this model has not; give --prompt",
                options.path);
    prompt.push_back(eot);
  }
  std::cout << text << std::flush;
  auto decoder = tokenizer->decoder();
  generate(*trained.model, prompt, options.max_tokens, options.sampling, [&](int64_t token) {
    if (token == eot) return false;
    std::cout << decoder.push(static_cast<uint32_t>(token)) << std::flush;
    return std::cout.good();
  });
  std::cout << decoder.finish() << std::endl;
}

}  // namespace

void add_generate(CLI::App& app, int&) {
  auto* command = app.add_subcommand("generate", "Continue a text with a trained model");
  auto options = std::make_shared<GenerateOptions>();
  auto& sampling = options->sampling;
  command->add_option("path", options->path, "Run folder (its newest good checkpoint) or checkpoint folder")->required();
  command->add_option("--prompt", options->prompt,
                      "Text to continue; - reads it from standard input; empty starts a new document");
  command->add_option("--max-tokens", options->max_tokens, "Tokens to make at most")->capture_default_str()->check(at_least(1));
  command->add_option("--temperature", sampling.temperature, "Flattens (> 1) or sharpens (< 1); 0 = likeliest token")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_option("--top-k", sampling.top_k, "Keep the k likeliest tokens; 0 = all")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_option("--top-p", sampling.top_p, "Keep the likeliest tokens up to this probability")
      ->capture_default_str()
      ->check(in_range(0.0, 1.0));
  command->add_option("--seed", sampling.seed, "Same seed, same text")->capture_default_str()->check(at_least(0));
  command->footer("Example:\n  scatterlm generate runs/quickstart --prompt '#include <' --temperature 0.7 --seed 1");
  command->callback([options] { generate_text(*options); });
}

}  // namespace scatterlm
