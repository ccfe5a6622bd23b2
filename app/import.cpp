#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <iostream>

#include "app/commands.h"
#include "lib/config/load.h"
#include "lib/hf/import.h"
#include "lib/tokenizer/tokenizer_files.h"
#include "lib/train/model_tensors.h"
#include "lib/train/run_tokenizer.h"
#include "lib/train/upcycle.h"
#include "lib/util/error.h"
#include "lib/util/escape.h"
#include "lib/util/file.h"
#include "lib/util/log/log.h"
#include "lib/util/new_folder.h"
#include "lib/util/progress.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

struct ImportOptions {
  std::string path, out, upcycle;
};

/// The tokenizer among the files of the model, if it is of a kind that this program reads; else none, with a warning.
TokenizerFiles usable_tokenizer(const std::string& folder, const std::map<std::string, std::string>& files) {
  const auto tokenizer = find_tokenizer(folder, files);
  try {
    make_tokenizer(tokenizer);
    return tokenizer;
  } catch (const Error& error) {
    log_warning(fmt::format("{}; data.tokenizer stays bytes", error.what()));
    return {};
  }
}

void import_model(const ImportOptions& options) {
  require_no_folder(options.out);
  std::optional<Upcycling> upcycling;
  if (!options.upcycle.empty()) upcycling = parse_upcycling(options.upcycle);
  const hf::Source source(options.path);
  const auto& [family, dense, unknown] = source.config_json();
  Config config = dense;
  if (upcycling) config = upcycled_config(dense, *upcycling, options.path + "/config.json");
  if (!unknown.empty())
    log_warning(
        escape_control(fmt::format("{}/config.json: nothing is known of {}; if it changes what the model computes, the "
                                   "import computes something else",
                                   options.path, fmt::join(unknown, ", "))));
  const auto files = hf::travelling_files(options.path);
  const auto tokenizer = usable_tokenizer(options.path, files);
  if (!tokenizer.content.empty()) config.data.tokenizer = options.out;
  auto tensors = hf::import_tensors(source, model_tensors(dense.model));
  if (upcycling) tensors = upcycled_tensors(tensors, config, upcycling->split);
  const int64_t total = total_bytes(tensors);

  NewFolder folder(options.out);
  const std::string yaml = dump_config(config);
  Progress progress("importing", total, "bytes");
  save_streamed_checkpoint(folder.temporary(), {0, yaml, {{"step", 0}, {"tokens", 0}}, files},
                           with_progress(tensors, [&](int64_t done) { progress.update(done); }));
  progress.finish();
  write_file_atomic(folder.temporary() + "/config.yaml", yaml);
  write_tokenizer(tokenizer, folder.temporary());
  folder.commit();
  std::cout << yaml;
  std::cout << fmt::format("# {} tensors, {}: {} -> {}\n", tensors.size(), format_bytes(static_cast<double>(total)),
                           escape_control(options.path), escape_control(options.out));
  std::cout << fmt::format("# train on: scatterlm train {0}/config.yaml --init-from {0} --run-dir RUN --set data.train=FILE\n",
                           escape_control(options.out));
}

}  // namespace

void add_import(CLI::App& app, int&) {
  auto* command = app.add_subcommand("import", "Turn a Hugging Face model into a checkpoint");
  auto options = std::make_shared<ImportOptions>();
  command->add_option("path", options->path, "Folder with config.json and safetensors files")->required();
  command->add_option("--out", options->out, "New run folder, with a checkpoint of step 0 and config.yaml")->required();
  command->add_option(
      "--upcycle", options->upcycle,
      "experts=E,top_k=K: start a model with experts from a dense one; each expert is a copy of its MLP, or with "
      "split=G as well one of the G parts into which it is cut");
  command->footer("Example:\n  scatterlm import OLMoE-1B-7B-0125 --out runs/olmoe");
  command->callback([options] { import_model(*options); });
}

}  // namespace scatterlm
