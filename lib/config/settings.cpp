#include "lib/config/settings.h"

#include <yaml-cpp/eventhandler.h>

#include <sstream>

#include "lib/util/error.h"

namespace scatterlm {
namespace {

/// Walks one source; knows which keys that source has already given.
class Flattener {
 public:
  Flattener(const Source& source, const std::vector<KeyInfo>& keys, Settings& settings)
      : source_(source), keys_(keys), settings_(settings) {}

  void add_map(const YAML::Node& map, const std::string& prefix) {
    for (const auto& entry : map) {
      if (!entry.first.IsScalar())
        fail_user("{}: a key must be text, got {}", source_.place(entry.first.Mark()), describe_node(entry.first));
      add(prefix + entry.first.Scalar(), entry.first.Mark(), entry.second);
    }
  }

  void add(const std::string& path, const YAML::Mark& mark, const YAML::Node& value) {
    const std::string place = source_.place(mark);
    const KeyInfo* key = find_key(keys_, path);
    if (!key) fail_user("{}: unknown key '{}'{}", place, one_line(path), explain_unknown(keys_, path));
    const auto [first, is_first] = seen_.emplace(path, mark);
    if (!is_first) fail_user("{}: key '{}' is already given at {}", place, path, source_.place(first->second));
    if (!key->is_group) {
      settings_[path] = {.path = path, .source = source_, .mark = mark, .value = value};
    } else if (value.IsMap()) {
      add_map(value, path + ".");
    } else {
      fail_user("{}: key '{}': got {}, must be a map of keys", place, path, describe_node(value));
    }
  }

 private:
  const Source& source_;
  const std::vector<KeyInfo>& keys_;
  Settings& settings_;
  std::map<std::string, YAML::Mark> seen_;
};

/// Remembers where the last document begins.
struct DocumentStart : YAML::EventHandler {
  YAML::Mark mark;

  void OnDocumentStart(const YAML::Mark& start) override { mark = start; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

/// YAML::Load says nothing about text after the first document, and YAML::LoadAll never ends where that text is a stray comma.
void require_one_document(const std::string& text, const Source& source) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStart document;
  parser.HandleNextDocument(document);
  if (parser.HandleNextDocument(document))
    fail_user("{}: not YAML: a second document begins here", source.place(document.mark));
}

YAML::Node parse_yaml(const std::string& text, const Source& source) {
  try {
    require_one_document(text, source);
    return YAML::Load(text);
  } catch (const YAML::Exception& error) {
    fail_user("{}: not YAML: {}", source.place(error.mark), one_line(error.msg));
  }
}

void apply_set(const std::string& option, int number, const std::vector<KeyInfo>& keys, Settings& settings) {
  const Source source{.name = fmt::format("--set {}", one_line(option)), .set_number = number};
  const size_t equals = option.find('=');
  if (equals == option.npos || equals == 0 || equals + 1 == option.size()) {
    fail_user("{}: must be KEY=VALUE, for example --set train.seed=7", source.name);
  }
  const std::string path = option.substr(0, equals);
  const YAML::Node value = parse_yaml(option.substr(equals + 1), source);
  const KeyInfo* key = find_key(keys, path);
  if (value.IsNull() && key && key->is_group) {
    std::erase_if(settings, [&](const auto& setting) { return setting.first.starts_with(path + "."); });
  } else {
    Flattener(source, keys, settings).add(path, YAML::Mark(), value);
  }
}

}  // namespace

std::string Source::place(const YAML::Mark& mark) const {
  return set_number == 0 && !mark.is_null() ? fmt::format("{}:{}", name, mark.line + 1) : name;
}

const Setting* find_setting(const Settings& settings, const std::string& path) {
  const auto found = settings.find(path);
  return found == settings.end() || found->second.is_taken_back() ? nullptr : &found->second;
}

std::string describe_node(const YAML::Node& node) {
  const bool is_quoted = node.Tag() == "!";
  if (node.IsScalar()) return fmt::format("{}'{}'", is_quoted ? "the text " : "", one_line(node.Scalar()));
  if (node.IsSequence()) return "a list";
  return node.IsMap() ? "a map" : "no value";
}

void flatten(const YAML::Node& map, const std::string& prefix, const Source& source, const std::vector<KeyInfo>& keys,
             Settings& settings) {
  Flattener(source, keys, settings).add_map(map, prefix);
}

Settings read_settings(const std::string& text, const std::string& origin, const std::vector<std::string>& sets) {
  const std::vector<KeyInfo> keys = list_keys(Config());
  const Source file{.name = origin};
  const YAML::Node root = parse_yaml(text, file);
  if (root.IsNull()) fail_user("{}: the file is empty, see `scatterlm config keys`", origin);
  if (!root.IsMap())
    fail_user("{}: got {}, must be a map of keys, see `scatterlm config keys`", file.place(root.Mark()), describe_node(root));
  Settings settings;
  flatten(root, "", file, keys, settings);
  for (size_t i = 0; i < sets.size(); ++i) apply_set(sets[i], static_cast<int>(i) + 1, keys, settings);
  return settings;
}

}  // namespace scatterlm
