#include "lib/config/load.h"

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "lib/config/check.h"
#include "lib/config/layers.h"
#include "lib/config/reader.h"
#include "lib/util/file_error.h"

namespace scatterlm {
namespace {

std::string read_text(const std::string& path) {
  constexpr std::streamsize kLargest = 1 << 20;
  std::error_code unreadable;
  const auto status = std::filesystem::status(path, unreadable);
  // A named pipe without a writer would hang the start.
  if (std::filesystem::is_other(status)) fail_user("{}: cannot read: not a regular file", path);
  std::ifstream file(path, std::ios::binary);
  std::string text(kLargest + 1, '\0');
  // A folder opens, but cannot be read.
  if (!file || (!file.read(text.data(), std::ssize(text)) && file.bad())) fail_file(path, "read", errno);
  if (file.gcount() > kLargest) fail_user("{}: larger than 1 MiB, this is no configuration file", path);
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

/// The pattern and the number of layers, whichever was given, determine each other.
void resolve_layers(const Settings& settings, ModelConfig& model) {
  const Setting* pattern = find_setting(settings, "model.layers");
  if (!pattern) {
    model.layers = fmt::format("gqa+moe*{}", model.num_hidden_layers);
    return;
  }
  try {
    const std::vector<LayerKind> layers = parse_layers(model.layers);
    if (!find_setting(settings, "model.num_hidden_layers")) model.num_hidden_layers = std::ssize(layers);
  } catch (const Error& error) {
    fail_user("{}: key 'model.layers': {}", pattern->place(), error.what());
  }
}

Config read_config(const Settings& settings) {
  Config config;
  Reader reader(settings);
  config.visit(reader);
  resolve_layers(settings, config.model);
  return config;
}

/// What an option switches off in the file needs no option of its own: --set data.validation=null ends train.eval_interval too.
/// True if there was something.
bool drop_switched_off(const Config& config, Settings& settings) {
  size_t dropped = 0;
  for (const Ignored& ignored : ignored_keys(config)) {
    const auto cause = settings.find(ignored.cause);
    if (cause == settings.end() || !cause->second.is_option()) continue;
    dropped +=
        std::erase_if(settings, [&](const auto& entry) { return ignored.covers(entry.first) && !entry.second.is_option(); });
  }
  return dropped > 0;
}

}  // namespace

Config parse_config(const std::string& text, const std::string& origin, const std::vector<std::string>& sets) {
  Settings settings = read_settings(text, origin, sets);
  Config config = read_config(settings);
  if (drop_switched_off(config, settings)) config = read_config(settings);
  if (config.run.name.empty()) config.run.name = std::filesystem::path(origin).stem();
  check_config(config, settings, origin);
  return config;
}

Config load_config(const std::string& path, const std::vector<std::string>& sets) {
  return parse_config(read_text(path), path, sets);
}

int64_t total_steps(const TrainConfig& config) {
  return config.steps > 0 ? config.steps : config.tokens / config.global_batch_tokens;
}

}  // namespace scatterlm
