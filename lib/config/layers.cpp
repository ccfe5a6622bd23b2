// The pattern `model.layers`, for example "gqa+dense, moa+moe*11".
#include "lib/config/layers.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>
#include <string_view>

#include "lib/config/value_text.h"
#include "lib/util/error.h"

namespace scatterlm {
namespace {

template <class Kind>
std::optional<Kind> kind_from_name(std::span<const LayerKindKeys> kinds, std::string_view name) {
  const auto found = std::ranges::find(kinds, name, &LayerKindKeys::name);
  if (found == kinds.end()) return std::nullopt;
  return static_cast<Kind>(found - kinds.begin());
}

std::string names(std::span<const LayerKindKeys> kinds) {
  std::vector<std::string_view> names;
  for (const LayerKindKeys& kind : kinds) names.push_back(kind.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

/// Number of repetitions after the `*`; 0 if it is none.
int64_t parse_count(std::string_view text) {
  int64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  return error == std::errc() && end == text.data() + text.size() && count <= kMaxLayers ? count : 0;
}

void append_term(std::string_view term, std::vector<LayerKind>& layers) {
  const size_t star = term.find('*');
  const std::string_view kinds = term.substr(0, star);
  const int64_t count = star == term.npos ? 1 : parse_count(term.substr(star + 1));
  const size_t plus = std::min(kinds.find('+'), kinds.size());
  const auto attention = kind_from_name<AttentionKind>(kAttentionKinds, kinds.substr(0, plus));
  const auto mlp = kind_from_name<MlpKind>(kMlpKinds, kinds.substr(std::min(plus + 1, kinds.size())));
  if (!attention || !mlp || count < 1) {
    fail_user("'{}' is not ATTENTION+MLP or ATTENTION+MLP*N with ATTENTION one of {}, MLP one of {} and N from 1 to {}",
              one_line(term), names(kAttentionKinds), names(kMlpKinds), kMaxLayers);
  }
  layers.insert(layers.end(), static_cast<size_t>(count), LayerKind{.attention = *attention, .mlp = *mlp});
  if (std::ssize(layers) > kMaxLayers) fail_user("more than {} layers", kMaxLayers);
}

}  // namespace

std::vector<LayerKind> parse_layers(const std::string& pattern) {
  std::string text = pattern;
  std::erase_if(text, [](char c) { return c == ' ' || c == '\t' || c == '\n'; });
  std::vector<LayerKind> layers;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    append_term(std::string_view(text).substr(begin, end - begin), layers);
    begin = end + 1;
  }
  return layers;
}

std::vector<LayerKind> ModelConfig::layer_kinds() const {
  std::vector<LayerKind> kinds = parse_layers(layers);
  if (std::ssize(kinds) != num_hidden_layers) {
    fail_user("model.layers '{}' has {} layers, model.num_hidden_layers is {}", one_line(layers), kinds.size(),
              num_hidden_layers);
  }
  return kinds;
}

}  // namespace scatterlm
