#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>

#include "app/commands.h"
#include "lib/io/checkpoint.h"
#include "lib/io/json.h"
#include "lib/io/manifest.h"
#include "lib/io/safetensors.h"
#include "lib/util/file.h"
#include "lib/util/text.h"

namespace scatterlm {
namespace {

double total_bytes(const Manifest& manifest) {
  double bytes = 0;
  for (const auto& file : manifest.files) bytes += static_cast<double>(file.bytes);
  return bytes;
}

/// Reads no tensors, so that a checkpoint of any size shows at once.
void inspect_checkpoint(const std::string& path) {
  const Manifest manifest = read_manifest(path);
  for (const auto& file : manifest.files) {
    if (!file.name.ends_with(".safetensors")) check_file(path, file);
  }
  const auto state = parse_json(read_file(path + "/state.json"), path + "/state.json");
  std::cout << fmt::format("{}\n", path);
  std::cout << fmt::format("step    {}\n", manifest.step);
  std::cout << fmt::format("tokens  {}\n", JsonFields{state, path + "/state.json"}.count("tokens"));
  std::cout << fmt::format("ranks   {}\n", manifest.world);
  std::cout << fmt::format("config  {}/config.yaml\n\n", path);
  size_t widest = 6;
  for (const auto& [name, tensor] : manifest.tensors) widest = std::max(widest, name.size());
  std::cout << fmt::format("{:{}}  {:5}  {:>10}  shape\n", "tensor", widest, "dtype", "size");
  double elements = 0;
  for (const auto& [name, tensor] : manifest.tensors) {
    const auto numel = static_cast<double>(tensor.numel());
    elements += numel;
    std::cout << fmt::format("{:{}}  {:5}  {:>10}  [{}]\n", name, widest, safetensors_dtype(tensor.dtype).value(),
                             format_bytes(numel * static_cast<double>(at::elementSize(tensor.dtype))),
                             fmt::join(tensor.shape, ", "));
  }
  std::cout << fmt::format("\n{} tensors, {} elements, {} in {} files\n", manifest.tensors.size(), format_count(elements),
                           format_bytes(total_bytes(manifest)), manifest.files.size());
}

/// One line per checkpoint; the first one that is damaged ends it.
void verify_checkpoints(const std::string& path) {
  for (const auto& checkpoint : find_checkpoints(path)) {
    const auto start = std::chrono::steady_clock::now();
    const CheckpointReader verified(checkpoint);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    const double bytes = total_bytes(read_manifest(checkpoint));
    std::cout << fmt::format("{}: ok, {}, {:.1f} GB/s", checkpoint, format_bytes(bytes), bytes / seconds / 1e9) << std::endl;
  }
}

void add_checkpoint_inspect(CLI::App& checkpoint) {
  auto* command = checkpoint.add_subcommand("inspect", "Show step, tokens and tensors");
  auto path = std::make_shared<std::string>();
  command->add_option("path", *path, "Checkpoint folder, or a run folder for its newest checkpoint")->required();
  command->footer("Example:\n  scatterlm checkpoint inspect runs/quickstart");
  command->callback([path] { inspect_checkpoint(find_checkpoints(*path).back()); });
}

void add_verify(CLI::App& checkpoint) {
  auto* command = checkpoint.add_subcommand("verify", "Check every byte against the hashes in the manifest");
  auto path = std::make_shared<std::string>();
  command->add_option("path", *path, "Checkpoint folder, or a run folder for all its checkpoints")->required();
  command->footer("Example:\n  scatterlm checkpoint verify runs/quickstart/step_00000600");
  command->callback([path] { verify_checkpoints(*path); });
}

}  // namespace

void add_checkpoint(CLI::App& app, int&) {
  auto* command = app.add_subcommand("checkpoint", "Inspect checkpoints and verify that they are intact");
  command->require_subcommand(1);
  command->footer("Example:\n  scatterlm checkpoint verify runs/quickstart");
  add_checkpoint_inspect(*command);
  add_verify(*command);
}

}  // namespace scatterlm
