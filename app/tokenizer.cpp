// Commands around tokenizers: tokenize, detokenize, tokenizer train.
#include <CLI/CLI.hpp>
#include <charconv>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <sstream>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/tokenizer/bpe_trainer.h"
#include "lib/tokenizer/prepare.h"
#include "lib/tokenizer/split_pattern.h"
#include "lib/tokenizer/tokenizer_files.h"
#include "lib/util/error.h"
#include "lib/util/file.h"

namespace scatterlm {
namespace {

struct TokenizeOptions {
  std::string tokenizer, input = "-";
  bool special = false;
};

std::string read_input(const std::string& path) {
  if (path != "-") return read_file(path);
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

void define_tokenize(CLI::App& command, TokenizeOptions& options, const char* input) {
  command
      .add_option(
          "--tokenizer", options.tokenizer,
          "bytes, a tokenizer.json, vocab.json with merges.txt beside it, a .tiktoken file, or a folder that holds one of these")
      ->required();
  command.add_option("input", options.input, input)->capture_default_str();
}

void tokenize(const TokenizeOptions& options) {
  const auto tokenizer = make_tokenizer(options.tokenizer);
  const auto special = options.special ? SpecialTokens::kRecognised : SpecialTokens::kAsText;
  std::string line;
  for (const uint32_t token : tokenizer->encode(read_input(options.input), special))
    line += fmt::format("{}{}", line.empty() ? "" : " ", token);
  std::cout << line << "\n";
}

void detokenize(const TokenizeOptions& options) {
  const auto tokenizer = make_tokenizer(options.tokenizer);
  std::istringstream numbers(read_input(options.input));
  std::string bytes;
  for (std::string word; numbers >> word;) {
    uint32_t token = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || end != word.data() + word.size() || token >= tokenizer->vocab_size())
      fail_user("'{}' is not one of the {} tokens of {}", word.substr(0, 40), tokenizer->vocab_size(), options.tokenizer);
    bytes += tokenizer->bytes_of(token);
  }
  std::cout << bytes;
}

struct TrainTokenizerOptions {
  CountOptions count;
  std::vector<std::string> inputs, special = {"<|endoftext|>"};
  std::string glob = "*", out, pattern = "llama3";
  int64_t vocab_size = 0, min_count = 2;
};

void train_tokenizer(TrainTokenizerOptions options) {
  const int64_t least = 256 + std::ssize(options.special);
  if (options.vocab_size < least)
    fail_user("--vocab-size {} is below {}: 256 bytes and the special tokens", options.vocab_size, least);
  const std::string_view pattern = known_pattern(options.pattern);
  check_special_tokens(options.special, pattern);
  if (!names_tokenizer_json(options.out))
    fail_user(
        "--out {}: as a tokenizer only files are read whose names end in .json and are not vocab.json, for example tokenizer.json",
        options.out);
  if (path_exists(options.out)) fail_user("{}: exists; remove it or choose another --out", options.out);
  const std::string folder = std::filesystem::path(options.out).parent_path().string();
  if (!folder.empty() && !is_folder(folder)) fail_user("{}: no such folder, for --out {}", folder, options.out);
  options.count.paths = list_text_files(options.inputs, options.glob);
  const auto learned =
      learn_merges(count_pieces(options.count, pattern), options.vocab_size - std::ssize(options.special), options.min_count);
  write_file_atomic(options.out, dump_tokenizer_json(learned, options.special, pattern));
  std::cout << fmt::format("{}: {} tokens, {} of them special\n", options.out,
                           learned.token_bytes.size() + options.special.size(), options.special.size());
}

void define_train_tokenizer(CLI::App& group) {
  auto* command = group.add_subcommand("train", "Learn a byte-level BPE from text and write it as a tokenizer.json");
  auto options = std::make_shared<TrainTokenizerOptions>();
  command
      ->add_option("inputs", options->inputs,
                   "Text files or JSON lines, also compressed (gzip, Zstandard), and folders to search for them")
      ->required();
  command->add_option("--out", options->out, "File to write, for example tokenizer.json")->required();
  command
      ->add_option("--vocab-size", options->vocab_size, "Tokens, special ones included; fewer where the text has not as many")
      ->required()
      ->check(in_range(257, 1 << 22));
  command->add_option("--glob", options->glob, "Names of the files to take from folders")->capture_default_str();
  command->add_option("--field", options->count.field, "Field of JSON lines, as in data prepare");
  command->add_option("--pattern", options->pattern, "How text is split first: gpt2, cl100k, o200k, llama3, qwen")
      ->capture_default_str();
  command->add_option("--special", options->special, "Special tokens")->capture_default_str();
  command->add_option("--min-count", options->min_count, "Least occurrences of a pair that is merged")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_option("--threads", options->count.threads, "CPU threads; 0 = all cores")
      ->capture_default_str()
      ->check(in_range(0, 1024));
  command->footer("Example:\n  scatterlm tokenizer train text.txt --vocab-size 8192 --out tokenizer.json");
  command->callback([options] { train_tokenizer(*options); });
}

}  // namespace

void add_tokenize(CLI::App& app, int&) {
  auto* command = app.add_subcommand("tokenize", "Print the token ids of a text");
  auto options = std::make_shared<TokenizeOptions>();
  define_tokenize(*command, *options, "Text file; - reads standard input");
  command->add_flag("--special", options->special, "Names of special tokens in the text become these tokens");
  command->footer("Example:\n  scatterlm tokenize --tokenizer tokenizer.json < text.txt");
  command->callback([options] { tokenize(*options); });
}

void add_detokenize(CLI::App& app, int&) {
  auto* command = app.add_subcommand("detokenize", "Print the text of token ids");
  auto options = std::make_shared<TokenizeOptions>();
  define_tokenize(*command, *options, "File of token ids, separated by white space; - reads standard input");
  command->footer("Example:\n  scatterlm detokenize --tokenizer tokenizer.json < ids.txt");
  command->callback([options] { detokenize(*options); });
}

void add_tokenizer(CLI::App& app, int&) {
  auto* command = app.add_subcommand("tokenizer", "Learn a tokenizer from text");
  command->require_subcommand(1);
  command->footer("Example:\n  scatterlm tokenizer train text.txt --vocab-size 8192 --out tokenizer.json");
  define_train_tokenizer(*command);
}

}  // namespace scatterlm
