#include "lib/hf/import.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "lib/io/json.h"
#include "lib/util/error.h"
#include "lib/util/file.h"
#include "lib/util/log/log.h"

namespace scatterlm::hf {
namespace {

constexpr uint64_t kMostConfigBytes = 1 << 20;
constexpr uint64_t kMostTokenizerBytes = 1 << 30;
constexpr const char* kTravelling[] = {"tokenizer.json",    "tokenizer_config.json",   "vocab.json",
                                       "merges.txt",        "special_tokens_map.json", "generation_config.json",
                                       "added_tokens.json", "chat_template.jinja"};
constexpr const char *kEmbedding = "model.embed_tokens.weight", *kHead = "lm_head.weight";

ConfigJson read_config(const std::string& folder) {
  if (!is_folder(folder))
    fail_user("{}: no such folder; give the folder of a Hugging Face model, with its config.json", folder);
  const std::string path = folder + "/config.json";
  if (!path_exists(path)) fail_user("{}: is missing; give the folder of a Hugging Face model", path);
  return read_config_json(read_small_file(path, kMostConfigBytes), path);
}

/// What old files hold though it follows from config.json.
bool is_derived(const std::string& name) { return name.ends_with(".rotary_emb.inv_freq"); }

bool same_bytes(const WeightFiles& weights, const std::string& a, const std::string& b) {
  const auto &first = weights.entry(a), &second = weights.entry(b);
  if (first.dtype != second.dtype || first.shape != second.shape) return false;
  const auto hash = [&](const std::string& name) {
    Hash sum;
    weights.tensors().at(name)->stream(name, [&](std::string_view bytes) { sum.add(bytes.data(), bytes.size()); });
    return sum.hex();
  };
  return hash(a) == hash(b);
}

}  // namespace

Source::Source(const std::string& folder) : folder_(folder), config_(read_config(folder)), weights_(folder) {}

void Source::check_part(const ModelTensor& tensor, const HfTensor& part, at::ScalarType dtype) const {
  const auto& entry = weights_.entry(part.name);
  if (entry.shape != part.shape) {
    fail_user("{}: tensor {} is [{}], config.json asks for [{}]", folder_, quote(part.name), fmt::join(entry.shape, ", "),
              fmt::join(part.shape, ", "));
  }
  if (entry.dtype != at::kFloat && entry.dtype != at::kBFloat16 && entry.dtype != at::kHalf)
    fail_user("{}: tensor {} is {}, must be F32, BF16 or F16", folder_, quote(part.name),
              safetensors_dtype(entry.dtype).value_or("?"));
  if (entry.dtype != dtype)
    fail_user("{}: tensor {} is {}, others of which '{}' is made are {}; convert them to one dtype", folder_, quote(part.name),
              *safetensors_dtype(entry.dtype), tensor.name, *safetensors_dtype(dtype));
}

void Source::check_left_over(const std::vector<std::string>& used) const {
  const std::set<std::string_view> names(used.begin(), used.end());
  std::vector<std::string> left;
  for (const auto& tensor : weights_.tensors()) {
    const std::string& name = tensor.first;
    if (names.count(name) || is_derived(name)) continue;
    // Tied, yet saved twice.
    if (name == kHead && names.count(kEmbedding) && same_bytes(weights_, kHead, kEmbedding)) continue;
    left.push_back(name);
  }
  if (left.empty()) return;
  const std::string more = left.size() > 1 ? fmt::format(" and {} more", left.size() - 1) : "";
  fail_user("{}: a {} model with this config.json has no place for tensor {}{}", folder_, config_.family->model_type,
            quote(left.front()), more);
}

std::vector<std::vector<HfTensor>> Source::match(const std::vector<ModelTensor>& model) const {
  std::vector<std::vector<HfTensor>> parts;
  std::vector<std::string> used;
  for (const auto& tensor : model) {
    parts.push_back(parts_of(tensor, *config_.family));
    if (parts.back().empty()) fail("{}: '{}' has no tensor in {}", folder_, tensor.name, config_.family->model_type);
    for (const auto& part : parts.back()) {
      if (!weights_.has(part.name)) {
        fail_user("{}: tensor {} is missing, of which '{}' is made", folder_, quote(part.name), tensor.name);
      }
      check_part(tensor, part, weights_.entry(parts.back().front().name).dtype);
      used.push_back(part.name);
    }
  }
  check_left_over(used);
  return parts;
}

std::vector<StreamedTensor> import_tensors(const Source& source, const std::vector<ModelTensor>& model) {
  const auto parts = source.match(model);
  std::vector<StreamedTensor> tensors;
  for (size_t i = 0; i < model.size(); i++) {
    const auto write = [&weights = source.weights(), parts = parts[i]](const StreamedTensor::Sink& out) {
      for (const auto& part : parts) weights.tensors().at(part.name)->stream(part.name, out);
    };
    tensors.push_back({model[i].name, source.weights().entry(parts[i].front().name).dtype, model[i].shape, write});
  }
  return tensors;
}

std::map<std::string, std::string> travelling_files(const std::string& folder) {
  std::map<std::string, std::string> files{{kImportedConfig, read_small_file(folder + "/config.json", kMostConfigBytes)}};
  for (const char* name : kTravelling) {
    const std::string path = folder + "/" + name;
    if (path_exists(path)) files.emplace(name, read_small_file(path, kMostTokenizerBytes));
  }
  return files;
}

}  // namespace scatterlm::hf
