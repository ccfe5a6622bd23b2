#include <CLI/CLI.hpp>
#include <iostream>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/tokenizer/inspect.h"
#include "lib/tokenizer/prepare.h"
#include "lib/util/escape.h"

namespace scatterlm {
namespace {

void print_split(const char* name, const PreparedSplit& split) {
  if (split.documents == 0) return;
  std::cout << fmt::format("{}: {} documents, {} tokens in {}", name, split.documents, split.tokens,
                           escape_control(split.files.front()));
  if (split.files.size() > 1) std::cout << fmt::format(" .. {}", escape_control(split.files.back()));
  std::cout << std::endl;
}

void add_prepare(CLI::App& data) {
  auto* command = data.add_subcommand("prepare", "Turn text files into token files for training and validation");
  auto options = std::make_shared<PrepareOptions>();
  command
      ->add_option("inputs", options->inputs,
                   "Text files or JSON lines, also compressed (gzip, Zstandard), and folders to search for them")
      ->required();
  command->add_option("--out", options->out, "Folder to write train.bin and val.bin to")->required();
  command->add_option("--glob", options->glob, "Names of the files to take from folders")->capture_default_str();
  auto* val_every = command
                        ->add_option("--val-every", options->val_every,
                                     "Hold out every n-th file, in bytewise order of their paths; 0 = none")
                        ->capture_default_str()
                        ->check(at_least(0));
  command->add_option("--val", options->val_inputs, "Files and folders to hold out, in place of --val-every")
      ->excludes(val_every);
  command
      ->add_option(
          "--shard-tokens", options->shard_tokens,
          "Split the training tokens into train_000000.bin, ... of this many; 0 = one file, or several if it would exceed "
          "2147483647 tokens")
      ->capture_default_str()
      ->check(in_range(int64_t{0}, int64_t{INT32_MAX}));
  command
      ->add_option(
          "--tokenizer", options->tokenizer,
          "How text becomes tokens: bytes, a tokenizer.json, vocab.json with merges.txt beside it, a .tiktoken file, or a "
          "folder that holds one of these")
      ->capture_default_str();
  command->add_option(
      "--field", options->field,
      "The inputs are JSON lines with the text in this field; without it, files named .jsonl, .ndjson, .json.gz or .json.zst "
      "are, with the field text");
  command->add_flag("--special", options->special, "Names of special tokens in the text become these tokens");
  command->add_option("--end-of-text", options->end_of_text,
                      "Token that ends each document, where the tokenizer has none that is known by its name");
  command->add_option("--threads", options->threads, "CPU threads; 0 = all cores")
      ->capture_default_str()
      ->check(in_range(0, 1024));
  command->footer("Example:\n  scatterlm data prepare src --glob '*.cpp' --val-every 50 --out data/src");
  command->callback([options] {
    const Prepared prepared = prepare(*options);
    print_split("train", prepared.train);
    print_split("validation", prepared.validation);
  });
}

void add_data_inspect(CLI::App& data) {
  auto* command = data.add_subcommand("inspect", "Show what is in token files: format, counts, common tokens, samples");
  auto options = std::make_shared<InspectOptions>();
  command->add_option("path", options->path, "Token file, shard pattern or Megatron prefix")->required();
  command
      ->add_option_function<std::string>(
          "--raw-dtype",
          [options](const std::string& width) {
            options->raw_dtype = width == "uint16" ? TokenWidth::kUint16 : TokenWidth::kUint32;
          },
          "Width of tokens in files without a header: uint16 or uint32")
      ->check(CLI::IsMember({"uint16", "uint32"}));
  command->add_option("--samples", options->samples, "Random places to show")->capture_default_str()->check(at_least(0));
  command->add_option("--seed", options->seed, "Chooses the places")->capture_default_str()->check(at_least(0));
  command->add_option(
      "--tokenizer", options->tokenizer,
      "How to show tokens as text: bytes, or a tokenizer's file or folder; by default the one that made them, if it lies beside them");
  command->footer("Example:\n  scatterlm data inspect 'data/headers/*.bin' --samples 2");
  command->callback([options] { std::cout << inspect(*options); });
}

}  // namespace

void add_data(CLI::App& app, int&) {
  auto* command = app.add_subcommand("data", "Make and inspect token files");
  command->require_subcommand(1);
  command->footer("Example:\n  scatterlm data prepare src --glob '*.cpp' --val-every 50 --out data/src");
  add_prepare(*command);
  add_data_inspect(*command);
}

}  // namespace scatterlm
