#include <CLI/CLI.hpp>
#include <iostream>

#include "app/command_line.h"
#include "app/commands.h"
#include "lib/hf/export.h"
#include "lib/hf/import.h"
#include "lib/io/json.h"
#include "lib/train/checkpointing.h"
#include "lib/train/model_tensors.h"
#include "lib/train/open_checkpoint.h"
#include "lib/util/error.h"
#include "lib/util/escape.h"
#include "lib/util/file.h"
#include "lib/util/log/log.h"
#include "lib/util/new_folder.h"
#include "lib/util/progress.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

struct ExportOptions {
  std::string path, out, family, format = "hf", dtype = "keep";
  double shard_gb = 5;
};

std::optional<at::ScalarType> export_dtype(const std::string& name) {
  if (name == "keep") return std::nullopt;
  return name == "bfloat16" ? at::kBFloat16 : at::kFloat;
}

/// Router biases choose experts in a way that no family has; plain files hold them.
std::vector<hf::ModelTensor> with_router_biases(std::vector<hf::ModelTensor> tensors, const CheckpointReader& reader) {
  for (const auto& [name, logical] : reader.tensors()) {
    if (name.ends_with(".router.bias")) tensors.push_back({name, logical.shape, {}});
  }
  return tensors;
}

/// The config.json that a model was once imported with; nothing for others.
std::optional<nlohmann::json> imported_config(const CheckpointReader& reader) {
  const auto& files = reader.contents().files;
  const auto found = files.find(hf::kImportedConfig);
  if (found == files.end()) return std::nullopt;
  return parse_json(found->second, reader.path() + "/" + hf::kImportedConfig);
}

void report(const ExportOptions& options, const std::string& what, size_t tensors, int64_t bytes) {
  std::cout << fmt::format("{}: {}, {} tensors, {}\n", escape_control(options.out), what, tensors,
                           format_bytes(static_cast<double>(bytes)));
}

void export_plain(const ExportOptions& options, const CheckpointReader& reader, const Config& config) {
  if (path_exists(options.out)) fail_user("{}: already there; remove it, or name another file", options.out);
  const auto tensors =
      hf::plain_tensors(reader, with_router_biases(model_tensors(config.model), reader), export_dtype(options.dtype));
  stream_safetensors(options.out, tensors, {{"config.yaml", reader.contents().config_yaml}});
  report(options, "safetensors", tensors.size(), total_bytes(tensors));
}

void export_hugging_face(const ExportOptions& options, const CheckpointReader& reader, const Config& config) {
  require_no_folder(options.out);
  const auto imported = imported_config(reader);
  const auto origin = imported ? JsonFields{*imported, reader.path() + "/" + hf::kImportedConfig}.text("model_type") : "";
  const auto& family = hf::choose_family(config, options.family, origin, reader.path());
  // The model as the family has it, and the factors on gates that are multiplied into our experts.
  const auto source = hf::write_config_json(config, family, "float32").dump();
  auto model = model_tensors(hf::read_config_json(source, "config.json").config.model);
  std::map<std::string, double> scales;
  for (const auto& tensor : model_tensors(config.model)) scales[tensor.name] = tensor.scale;
  for (auto& tensor : model) tensor.scale = scales.count(tensor.name) ? scales[tensor.name] : 1;
  if (std::ranges::any_of(scales, [](const auto& scale) { return scale.second != 1; }))
    log_info("model.router.routed_scaling_factor is multiplied into the experts' last projection");
  auto tensors = hf::export_tensors(reader, model, family, export_dtype(options.dtype));
  const size_t count = tensors.size();
  const int64_t bytes = total_bytes(tensors);
  const auto dtype = tensors.front().dtype;

  NewFolder folder(options.out);
  Progress progress("exporting", bytes, "bytes");
  hf::write_weight_files(folder.temporary(), with_progress(std::move(tensors), [&](int64_t done) { progress.update(done); }),
                         static_cast<uint64_t>(options.shard_gb * 1e9));
  progress.finish();
  auto config_json = hf::write_config_json(config, family, hf::dtype_name(dtype));
  if (imported) hf::keep_imported(*imported, config, config_json);
  auto files = reader.contents().files;
  files.erase(hf::kImportedConfig);
  files["config.json"] = config_json.dump(2) + "\n";
  const nlohmann::ordered_json generation{{"eos_token_id", config_json.value("eos_token_id", nlohmann::ordered_json())}};
  files.emplace("generation_config.json", generation.dump(2) + "\n");  // unless the model came with one
  for (const auto& [name, text] : files) write_file_atomic(folder.temporary() + "/" + name, text);
  folder.commit();
  report(options, std::string(family.model_type), count, bytes);
}

void export_model(const ExportOptions& options) {
  const auto reader = open_checkpoint(options.path);
  const Config config = checkpoint_config(reader);
  (options.format == "safetensors" ? export_plain : export_hugging_face)(options, reader, config);
}

}  // namespace

void add_export(CLI::App& app, int&) {
  auto* command = app.add_subcommand("export", "Turn a checkpoint into a Hugging Face model, or into one file of weights");
  auto options = std::make_shared<ExportOptions>();
  command->add_option("path", options->path, "Run folder (its newest complete checkpoint) or checkpoint folder")->required();
  command->add_option("--out", options->out, "New folder, or new file with --format safetensors")->required();
  command
      ->add_option("--format", options->format,
                   "hf: a folder that transformers loads; safetensors: one file of weights under the names of this program")
      ->capture_default_str()
      ->check(CLI::IsMember({"hf", "safetensors"}));
  command->add_option(
      "--family", options->family,
      "Model type of config.json, such as mixtral; default: the one it was imported from, or the first that holds "
      "the model");
  command->add_option("--dtype", options->dtype, "Of the weights: keep (that of the checkpoint), float32 or bfloat16")
      ->capture_default_str()
      ->check(CLI::IsMember({"keep", "float32", "bfloat16"}));
  command->add_option("--shard-gb", options->shard_gb, "Largest file of weights, in GB")
      ->capture_default_str()
      ->check(in_range(1e-6, 1e6));
  command->footer("Example:\n  scatterlm export runs/quickstart --out quickstart-hf --dtype bfloat16");
  command->callback([options] { export_model(*options); });
}

}  // namespace scatterlm
